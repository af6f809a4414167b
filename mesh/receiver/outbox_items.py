"""Records of an outbox: the events of messages, mapped for one destination."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, overload

import pyarrow as pa

from mesh.connect.contract import Record
from mesh.model.values import JsonMapping
from mesh.receiver.decoding import encoded
from pyspark_nats.encode import to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mesh.connect.contract import Context, Sink
    from mesh.jetstream.channel_reader import ChannelMessage
    from mesh.mapping.events import SinkMapper

#: Bytes of messages whose events are in memory together as records.
BYTES_MAX: Final = 512 << 10
#: Options of a record without dynamic ones.
_NONE: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass
class Destination:
    """One destination of a sink: where to, and which events."""

    #: ``sink http 2``.
    name: str
    sink: Sink
    context: Context
    endpoint: str = ""
    #: Rows of a batch that it gets; None for all.
    choose: Callable[[pa.RecordBatch], Any] | None = None
    #: Values of dynamic options for each row, by name.
    dynamic: Mapping[str, Callable[[pa.RecordBatch], list[str]]] = field(default_factory=dict)
    #: The reason against the values that an event has for those options; None for good ones.
    objection: Callable[[Mapping[str, str]], str | None] = lambda _: None


class OutboxItem(NamedTuple):
    """A record with its events."""

    record: Record
    message: ChannelMessage
    #: The events, and the place of each in the message.
    rows: pa.RecordBatch
    places: Sequence[int]

    @property
    def event(self) -> bytes:
        """The events as lines of JSON."""
        return b"\n".join(to_json(self.rows).to_pylist())


@dataclass(frozen=True, slots=True)
class Items(Sequence[OutboxItem]):
    """Records of rows, as columns; an item is made when it is asked for.

    All sequences but ``messages`` have one value for each item.
    """

    prefix: str
    rows: pa.RecordBatch
    messages: Sequence[ChannelMessage]
    #: Index of its message, ascending.
    message_of: Sequence[int]
    #: Place of its first event in the message.
    places: Sequence[int]
    #: Index of that event in ``rows``.
    row_of: Sequence[int]
    payloads: list[bytes]
    #: Values of dynamic options; empty for a plain sink.
    options: Sequence[Mapping[str, str]] = ()
    #: Values by attribute of the first event; empty for a sink that takes payloads.
    events: Sequence[JsonMapping] = ()
    #: Indices in ``rows`` and places of all events; empty if each item has one event.
    groups: Sequence[Sequence[tuple[int, int]]] = ()

    def __len__(self) -> int:
        return len(self.payloads)

    @overload
    def __getitem__(self, at: int) -> OutboxItem: ...
    @overload
    def __getitem__(self, at: slice) -> Items: ...
    def __getitem__(self, at: int | slice) -> OutboxItem | Items:
        if isinstance(at, slice):
            return replace(
                self,
                message_of=self.message_of[at],
                places=self.places[at],
                row_of=self.row_of[at],
                payloads=self.payloads[at],
                options=self.options[at],
                events=self.events[at],
                groups=self.groups[at],
            )
        message = self.messages[self.message_of[at]]
        if not self.groups:
            rows = self.rows.slice(self.row_of[at], 1)
            return OutboxItem(self.record(at), message, rows, [self.places[at]])
        numbers, places = zip(*self.groups[at], strict=True)
        return OutboxItem(self.record(at), message, self.rows.take(pa.array(numbers)), places)

    def count_events(self, at: int | None = None) -> int:
        """The number of events of an item, or of all."""
        if not self.groups:
            return len(self) if at is None else 1
        return sum(map(len, self.groups)) if at is None else len(self.groups[at])

    def record(self, at: int) -> Record:
        """The record of one item."""
        sequence = self.messages[self.message_of[at]].sequence
        return Record(
            f"{self.prefix}/{sequence}.{self.places[at]}",
            self.payloads[at],
            self.options[at] if self.options else _NONE,
            sequence,
            self.events[at] if self.events else None,
        )

    def after(self, sequence: int) -> Items:
        """The items of later messages than the one with a sequence."""
        sequences = [self.messages[at].sequence for at in self.message_of]
        return self[bisect_right(sequences, sequence) :]

    def divided(self) -> tuple[Items, Items]:
        """Two parts, which have whole messages if there are several."""
        half = self.end_of_message(len(self) // 2)
        if half == len(self):
            half = bisect_left(self.message_of, self.message_of[-1]) or len(self) // 2
        return self[:half], self[half:]

    def without(self, some: Collection[int]) -> Items:
        """The other items than those at some indices."""
        return self.pick([at for at in range(len(self)) if at not in some]) if some else self

    def pick(self, some: Sequence[int]) -> Items:
        """The items at ascending indices."""
        return replace(
            self,
            message_of=[self.message_of[at] for at in some],
            places=[self.places[at] for at in some],
            row_of=[self.row_of[at] for at in some],
            payloads=[self.payloads[at] for at in some],
            options=[self.options[at] for at in some] if self.options else (),
            events=[self.events[at] for at in some] if self.events else (),
            groups=[self.groups[at] for at in some] if self.groups else (),
        )

    def grouped(self, join: Callable[[Sequence[bytes]], bytes]) -> Items:
        """One item for the events of a message that have equal options.

        A message never changes, so that a repeat has the same groups, and thereby the same keys.
        """
        groups: dict[tuple[object, ...], list[int]] = {}
        for at, message in enumerate(self.message_of):
            option_key = tuple(self.options[at].items()) if self.options else ()
            groups.setdefault((message, option_key), []).append(at)
        some = list(groups.values())
        return replace(
            self.pick([ats[0] for ats in some]),
            payloads=[join([self.payloads[at] for at in ats]) for ats in some],
            groups=[[(self.row_of[at], self.places[at]) for at in ats] for ats in some],
        )

    def end_of_message(self, at: int) -> int:
        """The least end of whole messages that is not less than ``at``; at least 1."""
        return bisect_right(self.message_of, self.message_of[at - 1], lo=at)

    @property
    def last(self) -> ChannelMessage:
        """The message of the last item."""
        return self.messages[self.message_of[-1]]


@dataclass(frozen=True, slots=True)
class OutboxRecords(Sequence[Record]):
    """The records of items, as a sink gets them."""

    items: Items
    #: The position that they may have at most: a later message has records that are not written.
    most: int | None = None

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, at: int) -> Record: ...
    @overload
    def __getitem__(self, at: slice) -> OutboxRecords: ...
    def __getitem__(self, at: int | slice) -> Record | OutboxRecords:
        if isinstance(at, slice):
            return OutboxRecords(self.items[at], self.most)
        record = self.items.record(at)
        if self.most is not None and record.sequence > self.most:
            return record._replace(sequence=self.most)
        return record

    @property
    def payloads(self) -> list[bytes]:
        """All payloads; see ``mesh.connect.contract.payloads_of``."""
        return self.items.payloads


def items_of(
    to: Destination,
    mapper: SinkMapper,
    prefix: str,
    rows: pa.RecordBatch,
    messages: Sequence[ChannelMessage],
    message_of: Any,
    index: Any,
) -> Items:
    """The records of rows.

    Args:
        to: their destination.
        mapper: gives the payloads.
        prefix: begins the key of each.
        rows: length n.
        messages: those of the rows, and perhaps others.
        message_of: length n, ascending integers; the index of each row's message.
        index: length n, integers; the place of each row in its message.
    """
    names = list(to.dynamic)
    columns = [values(rows) for values in to.dynamic.values()]
    options = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    return Items(
        prefix,
        rows,
        messages,
        message_of.tolist(),
        index.tolist(),
        range(rows.num_rows),
        encoded(mapper, rows),
        options,
        rows.to_pylist() if getattr(to.sink, "takes_events", False) else (),
    )


def finished(items: Items, mapper: SinkMapper, to: Destination) -> Items:
    """The records of rows as a destination gets them; none of their payloads is a refusal."""
    join, header = getattr(mapper, "join", None), getattr(mapper, "header", b"")
    if join is not None:
        items = items.grouped(join)
    if not header or getattr(to.sink, "writes_header", False):
        return items
    return replace(items, payloads=[header + one for one in items.payloads])


def portions(messages: Sequence[ChannelMessage]) -> Iterator[Sequence[ChannelMessage]]:
    """Successive messages of some bytes together; a larger one stands alone."""
    first = size = 0
    for at, message in enumerate(messages):
        if at > first and size + len(message.data) > BYTES_MAX:
            yield messages[first:at]
            first, size = at, 0
        size += len(message.data)
    if messages:
        yield messages[first:]
