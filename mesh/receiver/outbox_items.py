"""Records of an outbox: the events of messages, mapped for one destination."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mesh.connect.contract import Record
from pyspark_nats.encode import to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from mesh.connect.contract import Context, Sink
    from mesh.mapping.contract import SinkMapper
    from mesh.receiver.channel_reader import Message

#: Bytes of messages whose events are in memory together as records.
_BYTES_MAX: Final = 512 << 10
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


class Item(NamedTuple):
    """A record with the place of its event."""

    record: Record
    message: Message
    place: int
    rows: pa.RecordBatch
    row: int

    @property
    def event(self) -> bytes:
        """The event as JSON."""
        line: bytes = to_json(self.rows.slice(self.row, 1)).to_pylist()[0]
        return line


def items_of(
    to: Destination,
    mapper: SinkMapper,
    prefix: str,
    rows: pa.RecordBatch,
    messages: Sequence[Message],
    index: Any,
) -> list[Item]:
    """The records of rows.

    Args:
        to: their destination.
        mapper: gives the payloads.
        prefix: begins the key of each.
        rows: length n.
        messages: length n, the message of each row.
        index: length n, integers; the place of each row in its message.
    """
    payloads = mapper.encode(rows)
    names = list(to.dynamic)
    columns = [values(rows) for values in to.dynamic.values()]
    # Events of a plain sink share one mapping.
    options = (
        [dict(zip(names, own, strict=True)) for own in zip(*columns, strict=True)]
        if names
        else [_NONE] * len(payloads)
    )
    takes_events = getattr(to.sink, "takes_events", False)
    events = rows.to_pylist() if takes_events else [None] * rows.num_rows
    return [
        Item(
            Record(
                f"{prefix}/{message.sequence}.{place}",
                payload,
                options[at],
                message.sequence,
                events[at],
            ),
            message,
            place,
            rows,
            at,
        )
        for at, (payload, message, place) in enumerate(
            zip(payloads, messages, index.tolist(), strict=True)
        )
    ]


def portions(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """Successive messages of some bytes together; a larger one stands alone."""
    first = size = 0
    for at, message in enumerate(messages):
        if at > first and size + len(message.data) > _BYTES_MAX:
            yield messages[first:at]
            first, size = at, 0
        size += len(message.data)
    if messages:
        yield messages[first:]
