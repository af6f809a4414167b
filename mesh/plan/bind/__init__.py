"""Binding of a syntax tree: resolve every name and type, with the rules of the engine.

``bind(app)`` and ``bind_on_demand(query, app)`` raise ``MeshError`` with a code MESH-L2xx, or
``MeshErrors`` with several.  Parts that this version doesn't run yet are bound as well:
``mesh.plan.supported`` refuses them.
"""

from mesh.plan.bind.apps import Readable as Readable
from mesh.plan.bind.apps import bind as bind
from mesh.plan.bind.apps import bind_readable as bind_readable
from mesh.plan.bind.apps import parse_bindable as parse_bindable
from mesh.plan.bind.on_demand import bind_on_demand as bind_on_demand
