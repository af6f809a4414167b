"""Tables in databases, compared by a worker before an app is deployed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import orjson
from nats.errors import Error as NatsError

from mesh.errors import MeshError
from mesh.model import names
from mesh.model.cluster import NodeRole

if TYPE_CHECKING:
    from nats.aio.client import Client

    from mesh.control.snapshot import ClusterSnapshot
    from mesh.model.app import AppSpec

_STORE: Final = re.compile(r"@\s*store\b", re.IGNORECASE)
#: Time for the answer of a worker: a process starts there, and connects.
_ANSWER_S: Final = 30.0


async def check_stores(client: Client, spec: AppSpec, snapshot: ClusterSnapshot) -> None:
    """Have a worker compare the tables of an app with their databases.

    Without a worker that answers, or a database that does, the group compares them when it starts.

    Raises:
        MeshError: MESH-S142, a column is missing; MESH-S146, a column has another type.
    """
    if _STORE.search(spec.text) is None:
        return
    nodes = (node.value for node in snapshot.nodes)
    ready = [node.id for node in nodes if node.role is NodeRole.WORKER and node.ready]
    if not ready:
        return
    question = orjson.dumps({"text": spec.text, "only": [], "stores": True})
    try:
        answer = await client.request(names.check_subject(min(ready)), question, timeout=_ANSWER_S)
        reply: Any = orjson.loads(answer.data)
    except (NatsError, TimeoutError, OSError, orjson.JSONDecodeError):
        return
    if isinstance(reply, dict) and reply.get("code"):
        raise MeshError(
            reply["code"], reply["message"], detail=reply.get("detail"), hint=reply.get("hint")
        )
