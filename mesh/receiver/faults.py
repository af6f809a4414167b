"""Failed events of sources and sinks as events of a fault stream (``!S``).

Such an event has the attributes of its stream, its own time, and the reason in ``_error``.  Its
message id makes the broker drop repeats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from mesh.functions.objects import Opaque, to_binary
from mesh.model import names
from pyspark_nats.decode import decode_messages
from pyspark_nats.encode import to_arrow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nats.aio.client import Client

    from mesh.jetstream.channel_reader import ChannelMessage
    from mesh.model.app import Channel
    from mesh.receiver.outbox_items import OutboxItem

_ARROW: Final = "application/vnd.apache.arrow.stream"
#: Classes of ``_error`` in the reference engine.
AWAY: Final = "io.siddhi.core.exception.ConnectionUnavailableException"
REFUSED: Final = "java.lang.RuntimeException"


async def write_fault(
    client: Client, channel: Channel, rows: pa.RecordBatch | None, reason: str, *,
    kind: str = REFUSED, key: str, time_ms: int | None = None,
) -> None:  # fmt: skip
    """Publish one failed event.

    Args:
        client: the host's.
        channel: of the fault stream; its last attribute is ``_error``.
        rows: one row with the other attributes; None for nulls.
        reason: the text of ``_error``.
        kind: its class in the reference engine.
        key: the message id, the same in every repeat.
        time_ms: the event's own time; None for the broker's.

    Raises:
        NatsError, TimeoutError, OSError: the broker has not stored it.
    """
    schema = channel.stream.arrow
    columns = (
        [rows.column(name) for name in schema.names[:-1]]
        if rows is not None
        else [pa.nulls(1, field.type) for field in list(schema)[:-1]]
    )
    event = pa.RecordBatch.from_arrays([*columns, to_binary([Opaque(kind, reason)])], schema=schema)
    (data,) = to_arrow(event, None, 1)[0].to_pylist()
    headers = {"Content-Type": _ARROW, "Nats-Msg-Id": key}
    if time_ms is not None:
        headers[names.EVENT_TIME_HEADER] = str(time_ms)
    await client.jetstream().publish(channel.subject(), data, headers=headers)


async def write_faults(
    client: Client,
    channel: Channel,
    item: OutboxItem,
    reason: str,
    *,
    kind: str,
    keys: Sequence[str],
) -> None:
    """Publish the events of an item, each with its key; see ``write_fault``."""
    for row, (place, key) in enumerate(zip(item.places, keys, strict=True)):
        await write_fault(
            client, channel, item.rows.slice(row, 1), reason, kind=kind, key=key,
            time_ms=event_time_ms(item.message, place, item.rows.schema),
        )  # fmt: skip


def event_time_ms(message: ChannelMessage, place: int, schema: pa.Schema) -> int | None:
    """The own time of the event at ``place`` in a message; None if it has that of the broker."""
    header = (message.headers or {}).get(names.EVENT_TIME_HEADER)
    if header is not None:
        return int(header) if header.isdecimal() else None
    result = decode_messages(
        pa.array([message.data], pa.binary()), pa.array([message.content_type], pa.string()), schema
    )
    for row, index in enumerate(result.index.tolist()):
        if index == place:
            time_ms: int | None = result.event_time_ms[row].as_py()
            return time_ms
    return None
