"""Client of a cluster: validates, plans, deploys, queries and tests apps, and taps their streams.

    from mesh import client

    with client.Client() as mesh:
        mesh.deploy(text)
        rows = mesh.query("Shop", "from Prices select *")["records"]

``Client`` blocks, and ``AsyncClient`` has the same calls as coroutines.  Without arguments they go
to the cluster that the command line would use.  Each error is a ``MeshError`` with ``code``,
``message``, ``detail``, ``hint`` and ``position``.  docs/client.md has examples.
"""

from mesh.client.context import ClientContext
from mesh.client.local import plan, play, test, validate
from mesh.client.rest import AsyncClient, Client
from mesh.client.taps import StreamEvent
from mesh.errors import MeshError, all_errors

__all__ = [
    "AsyncClient",
    "Client",
    "ClientContext",
    "MeshError",
    "StreamEvent",
    "all_errors",
    "plan",
    "play",
    "test",
    "validate",
]  # fmt: skip
