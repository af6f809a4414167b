"""Failed events of sources and sinks as events of a fault stream (``!S``).

Such an event has the attributes of its stream, its own time, and the reason in ``_error``.  Its
message id makes the broker drop repeats.

Records of a sink's refused events: in the fault stream, or else in the app's error stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from nats.errors import MaxPayloadError

from mesh.functions.objects import Opaque, to_binary
from mesh.model import error_entry, names
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


@dataclass(slots=True)
class Recorder:
    """Writes what one destination has refused; a repeat has the message id of the first."""

    client: Client
    channel: Channel
    faults: Channel | None
    group: str
    #: Name of the destination.
    connector: str
    key_prefix: str
    #: Number of events so far.
    count: int = 0

    async def record(
        self, item: OutboxItem, reason: str, data: bytes, kind: str = REFUSED, tries: int = 1
    ) -> None:
        """Record a payload, or write each of its events to the fault stream."""
        self.count += len(item.places)
        if self.faults is not None:
            head = f"{self.key_prefix}/{item.message.sequence}."
            keys = [f"{head}{place}/{self.connector}" for place in item.places]
            try:
                await write_faults(self.client, self.faults, item, reason, kind=kind, keys=keys)
                return
            except MaxPayloadError:
                # With the reason an event may be larger than a message; an entry has a part of it.
                pass
        await self._write(item.message, item.places[0], reason, data, tries, item)

    async def record_unreadable(self, message: ChannelMessage, index: int, reason: str) -> None:
        """Record an event that can't be read: one of the stream, and not of the sink."""
        self.count += 1
        await self._write(message, index, reason, message.data, 1)

    async def _write(
        self, message: ChannelMessage, index: int, reason: str, data: bytes, tries: int,
        item: OutboxItem | None = None,
    ) -> None:  # fmt: skip
        app = self.channel.app
        entry = error_entry.of_unreadable(
            self.channel.stream.name, message.sequence, index, message.time_ms, None,
            self.group, reason, data, is_event=item is not None,
            connector=self.connector if item is not None else "", attempts=tries,
            options=item.record.options if item is not None else None,
            event=item.event if item is not None else b"",
        )  # fmt: skip
        key = f"{self.key_prefix}/{message.sequence}.{index}/{self.connector}"
        headers = {"Nats-Msg-Id": key}
        await self.client.jetstream().publish(names.error_subject(app), entry, headers=headers)


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
