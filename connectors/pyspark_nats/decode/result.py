"""Result of decoding: rows, the message and event of each row, and the unreadable events.

Limits of one message: a few octets may stand for millions of events.

Sizes are computed from what a message claims, before any of it is made.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from pyspark_nats.arrow import concat_batches, rows_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from pyspark_nats.arrow import Array, DataType

    Ints = npt.NDArray[np.int64]

#: (message, index, reason); index 0 if the message as a whole can't be read.
Unreadable = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class DecodeResult:
    """Rows with their origins, in the order of messages and of events in a message."""

    rows: pa.RecordBatch
    #: The message of each row, counted from 0.
    message: Ints
    #: The index of each row's event in its message, counted from 0.
    index: Ints
    #: int64, ms since 1970; null unless an Arrow message carries the events' own times.
    event_time_ms: Array
    #: In order of message and index; of a message with many, the last stands for the rest.
    errors: list[Unreadable]
    #: Number of messages that were decoded; the caller decodes the others next.
    taken: int


@dataclass(frozen=True, slots=True)
class DecodedPart:
    """Rows of some of the messages, in order."""

    rows: pa.RecordBatch
    message: Ints
    index: Ints
    event_time_ms: Array


def part(rows: pa.RecordBatch, message: Ints, index: Ints) -> DecodedPart:
    """Rows without times of their own."""
    return DecodedPart(rows, message, index, pa.nulls(rows.num_rows, pa.int64()))


def bounded(errors: list[Unreadable]) -> list[Unreadable]:
    """Errors in order, at most ``ERRORS_MAX`` of a message, with reasons of bounded length."""
    errors.sort(key=lambda error: error[:2])
    result: list[Unreadable] = []
    for _, group in groupby(errors, key=itemgetter(0)):
        of_message = list(group)
        some = [(number, index, _cut(reason)) for number, index, reason in of_message[:ERRORS_MAX]]
        more = len(of_message) - len(some)
        if more:
            number, index, reason = some[-1]
            some[-1] = number, index, f"{reason} (and {more} more events of the message)"
        result += some
    return result


def without(result: DecodeResult, reasons: Mapping[int, str]) -> DecodeResult:
    """A result without some rows, by their numbers; each of them is an error with its reason."""
    if not reasons:
        return result
    keep = np.ones(len(result.message), bool)
    keep[list(reasons)] = False
    mask = pa.array(keep)
    errors = [
        (int(result.message[row]), int(result.index[row]), why) for row, why in reasons.items()
    ]
    return replace(
        result,
        rows=result.rows.filter(mask),
        message=result.message[keep],
        index=result.index[keep],
        event_time_ms=result.event_time_ms.filter(mask),
        errors=bounded([*result.errors, *errors]),
    )


def _cut(reason: str) -> str:
    """The reason as UTF-8 text of bounded length."""
    text = reason if len(reason) <= REASON_MAX else reason[: REASON_MAX - 3] + "..."
    return text.encode(errors="replace").decode()


def assembled(
    parts: list[DecodedPart], schema: pa.Schema, errors: list[Unreadable], taken: int
) -> DecodeResult:
    """The parts as one, in order."""
    errors = bounded(errors)
    if not parts:
        none = np.zeros(0, np.int64)
        empty = pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)
        return DecodeResult(empty, none, none, pa.nulls(0, pa.int64()), errors, taken)
    if len(parts) == 1:
        only = parts[0]
        return DecodeResult(only.rows, only.message, only.index, only.event_time_ms, errors, taken)
    rows = concat_batches([part.rows for part in parts])
    message = np.concatenate([part.message for part in parts])
    index = np.concatenate([part.index for part in parts])
    times = pa.concat_arrays([part.event_time_ms for part in parts])
    steps = np.diff(message)
    if ((steps < 0) | ((steps == 0) & (np.diff(index) < 0))).any():
        order = np.lexsort((index, message))
        rows, times = rows.take(rows_at(order)), times.take(rows_at(order))
        message, index = message[order], index[order]
    return DecodeResult(rows, message, index, times, errors, taken)


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
