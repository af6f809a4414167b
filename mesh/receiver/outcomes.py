"""Outcomes of writes: outages, records that fail, and the next step after a failure.

Failed events of sources and sinks as events of a fault stream (``!S``).

Such an event has the attributes of its stream, its own time, and the reason in ``_error``.  Its
message id makes the broker drop repeats.

Records of a sink's refused events: in the fault stream, or else in the app's error stream.
"""

from __future__ import annotations

import asyncio
import errno
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from nats.errors import BadSubjectError, MaxPayloadError
from nats.errors import Error as NatsError

from mesh.connect.contract import FailedRecordsError, UnavailableError
from mesh.errors import MeshError
from mesh.functions.objects import Opaque, to_binary
from mesh.model import error_entry, names
from mesh.model.secrets import masked
from pyspark_nats.decode import decode_messages
from pyspark_nats.encode import to_arrow

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from nats.aio.client import Client

    from mesh.connect.contract import Record, Sink
    from mesh.jetstream.channel_reader import ChannelMessage
    from mesh.model.app import Channel
    from mesh.receiver.outbox_items import OutboxItem


#: Attempts with the same records, and with one of them alone.
TRIES: Final = 2
TRIES_ALONE: Final = 3
#: Errors of the system that a name causes, and that no time ends.
OF_NAMES: Final = (
    errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EINVAL, errno.EILSEQ,
)  # fmt: skip


class Step(Enum):
    """Next step with records that could not be written."""

    AGAIN = auto()
    DIVIDE = auto()
    REFUSE = auto()


@dataclass
class Search:
    """Search for the record that fails, among those of one write."""

    #: With the same records.
    tries: int = 0
    #: The records are a part of those that have failed.
    is_part: bool = False
    #: Others were written since the first failure.
    others_work: bool = False

    def step(self, count: int, written: bool) -> Step:
        """Next step after a failure that is no outage, with ``count`` records left.

        ``written``: some of the records were written before one has failed.
        """
        self.tries += 1
        self.others_work = self.others_work or written
        if count > 1:
            if not self.is_part and self.tries < TRIES:
                return Step.AGAIN
            self.is_part, self.tries = True, 0
            return Step.DIVIDE
        is_isolated = self.is_part and self.others_work
        return Step.REFUSE if is_isolated or self.tries >= TRIES_ALONE else Step.AGAIN

    def written(self) -> None:
        """Record that a part was written."""
        self.tries, self.others_work = 0, True


async def written(sink: Sink, records: Sequence[Record]) -> Sequence[str | None]:
    """The outcomes of a write, one for each record."""
    outcomes = await sink.write(records)
    if len(outcomes) != len(records):
        raise TypeError(f"the sink gave {len(outcomes)} outcomes for {len(records)} records")
    return outcomes


def is_outage(error: BaseException) -> bool:
    """Whether an error of a write may end by itself; others are of a record, or of the code."""
    if isinstance(error, MaxPayloadError | BadSubjectError):
        return False
    if isinstance(error, OSError):
        return error.errno not in OF_NAMES
    return isinstance(error, UnavailableError | NatsError | EOFError)


def reason_of(error: BaseException) -> str:
    """The text of an error with its detail and its hint, or else its class."""
    text = error.one_line() if isinstance(error, MeshError) else str(error)
    return text or type(error).__name__


def outcomes_of(
    results: Sequence[str | BaseException | None], *, is_lost: bool = False
) -> list[str | None]:
    """The outcomes of records that were written side by side; an error is that of one record.

    Raises:
        UnavailableError, FailedRecordsError: some have failed; with the outcomes of the others.
    """
    failures = [one for one in results if isinstance(one, BaseException)]
    done = {at: one for at, one in enumerate(results) if not isinstance(one, BaseException)}
    if not failures:
        return list(done.values())
    for failure in failures:
        if not isinstance(failure, Exception):
            raise failure
    away = next(filter(is_outage, failures), None)
    if away is None:
        raise FailedRecordsError(described(failures[0]), done) from failures[0]
    after_s = getattr(away, "retry_after_s", None)
    raise UnavailableError(
        reason_of(away), retry_after_s=after_s, outcomes=done, is_lost=is_lost
    ) from away


async def sent(
    send: Callable[[Record], Awaitable[str | None]], records: Sequence[Record], at_once: int
) -> list[str | None]:
    """The outcomes of records that are sent ``at_once`` at a time, as ``outcomes_of`` has them."""
    outcomes: list[str | None] = []
    for first in range(0, len(records), at_once):
        some = records[first : first + at_once]
        results = await asyncio.gather(*map(send, some), return_exceptions=True)
        outcomes = outcomes_of([*outcomes, *results])
    return outcomes


def described(error: BaseException) -> str:
    """An unexpected error, for the entry of its record."""
    if isinstance(error, FailedRecordsError):
        return str(error)
    return masked(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)


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
