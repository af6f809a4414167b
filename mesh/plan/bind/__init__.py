"""A syntax tree to a bound app: every name looked up, every type known, as the engine judges it.

``bind(app)`` and ``bind_on_demand(query, app)`` raise ``MeshError`` with a code MESH-L2xx, or
``MeshErrors`` with several.  What this version doesn't run yet is bound all the same:
``mesh.plan.supported`` refuses it.
"""

from mesh.plan.bind.apps import bind as bind
from mesh.plan.bind.on_demand import bind_on_demand as bind_on_demand
