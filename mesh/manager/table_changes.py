"""On-demand changes of tables: a message in the log of the table's group, and its outcome.

    client ──▶ manager ──publish──▶ JetStream stream of an input ──▶ instance ──▶ stored state
                  └──────────────── question with the id ◀── outcome ────────────────┘

The message has its place among the events that the group reads, and is replayed with them.  An
answer is given once the state that includes the message is stored.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import orjson
from nats.js.errors import APIError, NoStreamResponseError

from mesh.errors import MeshError, not_supported
from mesh.jetstream.connection import UNREACHABLE
from mesh.jetstream.refusals import unreachable
from mesh.model import names

if TYPE_CHECKING:
    from nats.aio.client import Client

    from mesh.model.app import GroupSpec

#: Header by which JetStream drops a message that it has stored already.
_ID_HEADER: Final = "Nats-Msg-Id"


def log_of(group: GroupSpec) -> str:
    """The JetStream stream that takes the changes of a group's tables.

    Raises:
        MeshError: MESH-P900, the group reads streams of others only.
    """
    for one in group.inputs:
        if not one.channel.foreign and not one.channel.is_keyed:
            return one.channel.js_stream()
    raise not_supported(
        f'on-demand changes of tables of group "{group.name}", which has no stream of the mesh '
        "with all events",
        hint="Send an event to a stream of which a query changes the table.",
    )


async def publish(
    client: Client, group: GroupSpec, query: str, id_: str, limit_s: float
) -> tuple[str, int]:
    """Append a change to the log of a group; the JetStream stream and the message's sequence.

    A change whose id is in the log already is not appended again.

    Raises:
        MeshError: MESH-A503, the stream is not there or does not answer in time.
    """
    js_stream = log_of(group)
    subject = names.change_subject(js_stream, group.name)
    data = orjson.dumps({"id": id_, "query": query})
    try:
        async with asyncio.timeout(limit_s):
            stored = await client.jetstream().publish(
                subject, data, timeout=limit_s, stream=js_stream, headers={_ID_HEADER: id_}
            )
    except (TimeoutError, NoStreamResponseError, APIError) as error:
        raise MeshError(
            "MESH-A503",
            f"JetStream stream {js_stream} does not take the change",
            detail=f"{error!r}.",
            hint=f'Send it again with "id": "{id_}": it is made once.',
        ) from error
    except UNREACHABLE as error:
        raise unreachable(error) from error
    return js_stream, stored.seq
