"""Destination of a sink, and the records that an outbox writes to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_nats.encode import to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from mesh.connect.contract import Context, Record, Sink
    from mesh.receiver.channel_reader import Message


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
