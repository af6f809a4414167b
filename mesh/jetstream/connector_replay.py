"""Replay of a failed payload to the source or sink that had it, and to no one else.

The connector host that runs it answers once the payload is written, or says why not.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

import orjson
from nats.errors import NoRespondersError

from mesh.errors import MeshError
from mesh.model import names

if TYPE_CHECKING:
    from nats.aio.client import Client

    from mesh.model.values import JsonMapping

#: Time for a write under way and then this one, seconds.
_ANSWER_S: Final = 15.0


def payload_of(entry: JsonMapping) -> bytes | None:
    """The payload of an entry; None if only its beginning is stored."""
    if "data_bytes" in entry:
        return None
    if isinstance(entry.get("data"), str):
        return str(entry["data"]).encode()
    if isinstance(entry.get("data_base64"), str):
        return base64.b64decode(entry["data_base64"])
    return None


async def send(client: Client, app: str, entry: JsonMapping, data: bytes | None) -> None:
    """Have the entry's source or sink take its payload, or ``data`` in its place.

    Raises:
        MeshError: MESH-A422 for a payload that is not stored whole, or is refused again;
            MESH-A503 if no host runs the source or sink, or its destination is away.
    """
    payload = payload_of(entry) if data is None else data
    id_, connector = entry["id"], entry["connector"]
    if payload is None:
        raise MeshError(
            "MESH-A422",
            f"failed event {id_} can't be replayed as it is",
            detail="Only the beginning of its payload is stored.",
            hint="Send the payload along with its id.",
        )
    question = {
        "id": id_,
        "connector": connector,
        "sequence": entry.get("sequence", 0),
        "index": entry.get("index", 0),
        "options": entry.get("options") or {},
        "payload": base64.b64encode(payload).decode(),
    }
    try:
        answer = await client.request(
            names.connector_subject(app, str(entry.get("group", ""))),
            orjson.dumps(question),
            timeout=_ANSWER_S,
        )
        said = orjson.loads(answer.data)
    except (NoRespondersError, TimeoutError) as error:
        said = {
            "away": "no worker runs it" if isinstance(error, NoRespondersError) else "no answer"
        }
    if "refused" in said:
        raise MeshError(
            "MESH-A422",
            f"failed event {id_} was refused again by {connector}",
            detail=f"{said['refused']}.",
            hint="Send a corrected payload along with its id, or replay to the stream.",
        )
    if "away" in said:
        raise MeshError(
            "MESH-A503",
            f"failed event {id_} can't be replayed to {connector} now",
            detail=f"{said['away']}.",
            hint="'mesh status' shows sources and sinks; try again later.",
        )
