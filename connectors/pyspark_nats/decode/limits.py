"""Limits of one message: a few octets may stand for millions of events.

Sizes are computed from what a message claims, before any of it is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark_nats.arrow import DataType

#: Greatest ``events_max``: users number the events of a message below 2^20.
EVENTS_CEILING: Final = (1 << 20) - 1
#: Unreadable events of one message that are reported.
ERRORS_MAX: Final = 100
#: Characters of the reason of one.
REASON_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """Limits of one message; a message beyond them is unreadable as a whole."""

    #: Most events, up to ``EVENTS_CEILING``.
    events_max: int = 1_000_000
    #: Most bytes of the payload, and of its rows in Arrow's layout.
    bytes_max: int = 64 << 20
    #: Most time by which an event's own time is after that at which the server stored the message;
    #: no time is refused if this is None.
    event_time_ahead_ms: int | None = None

    @property
    def batch_bytes_max(self) -> int:
        """Bytes of rows of many messages that are decoded together."""
        return 4 * self.bytes_max

    def reason(self, events: int, size: int) -> str | None:
        """The reason why so many events, or so many bytes, are unreadable; None if they are not."""
        if events > self.events_max:
            return f"the message holds {events} events, more than {self.events_max}"
        if size > self.bytes_max:
            return f"the message needs {size} bytes when decoded, more than {self.bytes_max}"
        return None


#: The limits of users that set none.
USUAL: Final = MessageLimits()


def row_bytes(schema: pa.Schema) -> int:
    """Bytes of a row of nulls; text, octets and items of lists are extra."""
    return sum(width(field.type) for field in schema)


def width(kind: DataType) -> int:
    """Bytes of a null of a type in Arrow's layout, rounded up."""
    types = pa.types
    if types.is_struct(kind):
        return 1 + sum(width(kind.field(n).type) for n in range(kind.num_fields))
    if types.is_nested(kind) or types.is_string(kind) or types.is_binary(kind):
        return 5
    return 1 + int((kind.bit_width + 7) // 8)
