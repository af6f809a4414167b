"""A plan as a picture: ``to_dot`` for Graphviz, ``to_svg`` drawn by ourselves.

``drawing_of`` gives its places, for a page that adds what happens now.

AppPlan --graph--> nodes and edges --layout--> places --svg--> text
--dot--> text
"""

from mesh.plan.picture.graph import to_dot as to_dot
from mesh.plan.picture.svg import Drawing as Drawing
from mesh.plan.picture.svg import drawing_of as drawing_of
from mesh.plan.picture.svg import to_svg as to_svg
