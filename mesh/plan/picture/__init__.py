"""A plan as a picture: ``to_dot`` for Graphviz, ``to_svg`` drawn by ourselves.

AppPlan --graph--> nodes and edges --layout--> places --svg--> text
--dot--> text
"""

from mesh.plan.picture.dot import to_dot as to_dot
from mesh.plan.picture.svg import to_svg as to_svg
