"""``extrema:maxByLength(a, n)`` and its like: the event with the extreme value of an attribute.

Of equal values the latest event's counts; events without a value are dropped.  The windows by
length emit the extreme event at each arrival, and the former one as expired when it is another.
Those by time emit it when an arrival makes it another one; it expires when its time is over.  The
batches emit the extreme event of each batch.

Source: API documentation of siddhi-execution-extrema 5.0.

``sort(n, attribute, order ..)``: the first n events in the order of their attributes.

When there are more, the last in order expires, and among equals the one that arrived last.

Source: observed on Siddhi 5.1.7.
"""

from __future__ import annotations

import struct
from bisect import insort
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mesh.operators.base import CURRENT, EXPIRED, RESET
from mesh.operators.windows.contents import BoundedContents, Periods

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mesh.model.values import Json, Row
    from mesh.operators.windows.contents import Emitter
    from pyspark_nats.arrow import ArrowArray

    #: Key, row, time and number of arrival.
    _Event = tuple[Any, int, int, int]


_first = itemgetter(0)


class SortWindow(BoundedContents):
    """The n first events of one instance."""

    def __init__(self, size: int) -> None:
        self._size = size
        #: (key, row, time); sorted once the window has been full.
        self._held: list[tuple[Any, int, int]] = []
        self._sorted = False

    def take(self, row: int, time_ms: int, now_ms: int, values: Row, to: Emitter) -> None:
        """Add one event; it may be the one that expires."""
        to.emit(row, CURRENT, time_ms)
        entry = (values, row, time_ms)
        if len(self._held) < self._size:
            # The engine sorts only when one has to leave.
            self._held.append(entry)
            return
        if not self._sorted:
            self._held.sort(key=_first)
            self._sorted = True
        insort(self._held, entry, key=_first)
        _, leaving, _ = self._held.pop()
        to.emit(leaving, EXPIRED, now_ms)

    def rows(self) -> Iterable[int]:
        """The rows in it."""
        return [row for _, row, _ in self._held]

    def join_rows(self) -> Sequence[tuple[int, int]]:
        """The rows that a join finds, in the engine's order."""
        return [(row, time) for _, row, time in self._held]

    def dump(self) -> object:
        """Its state as JSON."""
        return [self._sorted, [[plain_key(key), row, time] for key, row, time in self._held]]

    def load_dump(self, state: Json) -> None:
        """Restore what ``dump`` returned."""
        self._sorted, held = state
        self._held = [(key_of(key), row, time) for key, row, time in held]


class _Descending:
    """A text that is sorted the other way round."""

    __slots__ = ("text",)

    def __init__(self, text: bytes) -> None:
        self.text = text

    def __lt__(self, other: _Descending) -> bool:
        return other.text < self.text

    def __le__(self, other: _Descending) -> bool:
        return other.text <= self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descending) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)


def plain_key(key: Row) -> list[object]:
    """A key as JSON: numbers, and texts as hexadecimal digits after their direction."""
    return [
        f"-{part.text.hex()}"
        if isinstance(part, _Descending)
        else f"+{part.hex()}"
        if isinstance(part, bytes)
        else part
        for part in key
    ]


def key_of(key: list[object]) -> Row:
    """The key that ``plain_key`` wrote."""
    return tuple(
        part
        if not isinstance(part, str)
        else _Descending(bytes.fromhex(part[1:]))
        if part[0] == "-"
        else bytes.fromhex(part[1:])
        for part in key
    )


def sort_keys(
    by: Sequence[tuple[str, bool]],
) -> Callable[[pa.RecordBatch], Sequence[Sequence[object]]]:
    """For each attribute, with whether it is sorted from high to low, values that sort so."""

    def keys(rows: pa.RecordBatch) -> Sequence[Sequence[object]]:
        return [_sortable(rows.column(name), falls) for name, falls in by]

    return keys


def _sortable(column: ArrowArray, falls: bool) -> list[object]:
    values = column.to_pylist()
    if pa.types.is_string(column.type):
        # Java compares texts by their 16 bit units.
        texts = [(value or "").encode("utf-16-be") for value in values]
        return [_Descending(text) for text in texts] if falls else texts
    if pa.types.is_floating(column.type):
        values = [None if value is None else _ordinal(value) for value in values]
    least = -(1 << 65)
    numbers = [least if value is None else value for value in values]
    return [-number for number in numbers] if falls else numbers


def _ordinal(value: float) -> int:
    """A whole number in the order of Java's doubles: -0.0 below 0.0, NaN above all."""
    if value != value:
        return 1 << 64
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return int(bits) if bits >= 0 else -(bits & 0x7FFFFFFFFFFFFFFF) - 1


def extreme_keys(
    name: str, *, largest: bool
) -> Callable[[pa.RecordBatch], Sequence[Sequence[object]]]:
    """For each event a key, the greatest for the extreme value; None for an event without one."""
    keys = sort_keys([(name, not largest)])

    def of_rows(rows: pa.RecordBatch) -> Sequence[Sequence[object]]:
        (row_keys,) = keys(rows)
        missing = rows.column(name).is_null().to_pylist()
        return [[None if m else key for key, m in zip(row_keys, missing, strict=True)]]

    return of_rows


def _stored(event: _Event) -> list[object]:
    return [plain_key((event[0],)), *event[1:]]


def _event(stored: list[Any]) -> _Event:
    (key,) = key_of(stored[0])
    return key, stored[1], stored[2], stored[3]


class _Sliding(BoundedContents):
    """Events that may become the extreme one, in order of arrival."""

    def __init__(self) -> None:
        self._held: list[_Event] = []
        self._came = 0

    def _enter(self, key: object, row: int, time_ms: int) -> None:
        """Add an event; those before it that have a lesser value and leave earlier are dropped."""
        self._held = [one for one in self._held if not (one[0] <= key and one[2] <= time_ms)]
        self._came += 1
        self._held.append((key, row, time_ms, self._came))

    def _extreme(self) -> _Event:
        best = self._held[0]
        for one in self._held:
            if best[0] <= one[0]:
                best = one
        return best


class ExtremeByLength(_Sliding):
    """The extreme event of the last n."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        #: The event that was emitted last.
        self._shown: _Event | None = None

    def take(self, row: int, time_ms: int, now_ms: int, values: Row, to: Emitter) -> None:
        """Process one event."""
        (key,) = values
        if key is None:
            return
        # All leave in order of arrival, whatever their times.
        self._held = [one for one in self._held if not one[0] <= key]
        self._came += 1
        self._held.append((key, row, time_ms, self._came))
        self._held = [one for one in self._held if one[3] > self._came - self._size]
        best = self._extreme()
        if self._shown is not None and self._shown[3] != best[3]:
            to.emit(self._shown[1], EXPIRED, now_ms)
        self._shown = best
        to.emit(best[1], CURRENT, best[2])

    def rows(self) -> Iterable[int]:
        """The rows in it."""
        shown = () if self._shown is None else (self._shown,)
        return {one[1] for one in (*self._held, *shown)}

    def join_rows(self) -> Sequence[tuple[int, int]]:
        """The row that a join finds: the extreme event."""
        return [] if self._shown is None else [self._shown[1:3]]

    def dump(self) -> object:
        """Its state as JSON."""
        shown = None if self._shown is None else _stored(self._shown)
        return [self._came, [_stored(one) for one in self._held], shown]

    def load_dump(self, state: Json) -> None:
        """Restore what ``dump`` returned."""
        self._came, held, shown = state
        self._held = [_event(one) for one in held]
        self._shown = None if shown is None else _event(shown)


class ExtremeByTime(_Sliding):
    """The extreme event of a time."""

    def __init__(self, span_ms: int) -> None:
        super().__init__()
        self._span_ms = span_ms
        self._latest_ms: int | None = None
        #: Number of the event that was emitted last, and emitted ones that have not expired.
        self._last = 0
        self._shown: list[_Event] = []
        self._has_news = False

    def take(self, row: int, time_ms: int, now_ms: int, values: Row, to: Emitter) -> None:
        """Add one event; what it changes is emitted with its chunk."""
        (key,) = values
        self._expire(now_ms, to)
        if key is None:
            return
        self._enter(key, row, time_ms)
        self._has_news = True
        if self._latest_ms is None or time_ms > self._latest_ms:
            self._latest_ms = time_ms
            to.alarms.append(time_ms + self._span_ms)

    def fire(self, due_ms: int, now_ms: int, to: Emitter) -> None:
        """Expire the events whose time is over."""
        self._expire(now_ms, to)

    def _expire(self, now_ms: int, to: Emitter) -> None:
        until_ms = now_ms - self._span_ms
        self._held = [one for one in self._held if one[2] > until_ms]
        for one in self._shown:
            if one[2] <= until_ms:
                to.emit(one[1], EXPIRED, now_ms)
        self._shown = [one for one in self._shown if one[2] > until_ms]

    def finish(self, to: Emitter) -> None:
        """Emit the extreme event, if the chunk has made it another one."""
        if self._has_news and self._held:
            best = self._extreme()
            if best[3] != self._last:
                self._last = best[3]
                self._shown.append(best)
                to.emit(best[1], CURRENT, best[2])
        self._has_news = False

    def rows(self) -> Iterable[int]:
        """The rows in it."""
        return {one[1] for one in (*self._held, *self._shown)}

    def join_rows(self) -> Sequence[tuple[int, int]]:
        """The rows that a join finds: those that were emitted and have not expired."""
        return [one[1:3] for one in self._shown]

    def dump(self) -> object:
        """Its state as JSON."""
        events = [[_stored(one) for one in part] for part in (self._held, self._shown)]
        return [self._came, self._last, self._latest_ms, *events]

    def load_dump(self, state: Json) -> None:
        """Restore what ``dump`` returned."""
        self._came, self._last, self._latest_ms, held, shown = state
        self._held = [_event(one) for one in held]
        self._shown = [_event(one) for one in shown]


class _ExtremeBatch(BoundedContents):
    """The extreme event of the batch that is gathered, and that of the last one."""

    def __init__(self) -> None:
        self._best: _Event | None = None
        self._expires: _Event | None = None
        self._emitted_ms = 0

    def _gather(self, key: object, row: int, time_ms: int) -> None:
        if self._best is None or self._best[0] <= key:
            self._best = key, row, time_ms, 0

    def _emit(self, now_ms: int, to: Emitter) -> None:
        if self._expires is not None:
            to.emit(self._expires[1], EXPIRED, now_ms)
            to.emit(self._expires[1], RESET, self._emitted_ms)
        if self._best is not None:
            to.emit(self._best[1], CURRENT, self._best[2])
            self._emitted_ms = now_ms
        self._expires, self._best = self._best, None

    def rows(self) -> Iterable[int]:
        """The rows in it."""
        return {one[1] for one in (self._best, self._expires) if one is not None}

    def join_rows(self) -> Sequence[tuple[int, int]]:
        """The row that a join finds: the event that was emitted last."""
        return [] if self._expires is None else [self._expires[1:3]]

    def dump(self) -> object:
        """Its state as JSON."""
        events = (self._best, self._expires)
        return [self._emitted_ms, *(None if one is None else _stored(one) for one in events)]

    def load_dump(self, state: Json) -> None:
        """Restore what ``dump`` returned."""
        self._emitted_ms, *events = state
        self._best, self._expires = (None if one is None else _event(one) for one in events)


class ExtremeByLengthBatch(_ExtremeBatch):
    """The extreme event of each n."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self._count = 0

    def take(self, row: int, time_ms: int, now_ms: int, values: Row, to: Emitter) -> None:
        """Add one event; it may complete the batch."""
        (key,) = values
        if key is None:
            return
        self._gather(key, row, time_ms)
        self._count += 1
        if self._count == self._size:
            self._count = 0
            self._emit(now_ms, to)
            to.end_chunk()

    def dump(self) -> object:
        """Its state as JSON."""
        return [self._count, super().dump()]

    def load_dump(self, state: Json) -> None:
        """Restore what ``dump`` returned."""
        self._count, batch = state
        super().load_dump(batch)


class ExtremeByTimeBatch(_ExtremeBatch):
    """The extreme event of each period."""

    def __init__(self, span_ms: int, start_ms: int | None) -> None:
        super().__init__()
        self._periods = Periods(span_ms, start_ms)

    def take(self, row: int, time_ms: int, now_ms: int, values: Row, to: Emitter) -> None:
        """Add one event; it waits for the end of the period."""
        (key,) = values
        self._periods.enter(now_ms, to)
        if key is not None:
            self._gather(key, row, time_ms)

    def fire(self, due_ms: int, now_ms: int, to: Emitter) -> None:
        """End the period, unless events have ended it."""
        self._periods.fire(now_ms, to)

    def finish(self, to: Emitter) -> None:
        """Emit the event, if its period is over."""
        ends_ms = self._periods.end()
        if ends_ms is not None:
            self._emit(ends_ms, to)

    def dump(self) -> object:
        """Its state as JSON."""
        return [self._periods.dump(), super().dump()]

    def load_dump(self, state: Json) -> None:
        """Restore what ``dump`` returned."""
        periods, batch = state
        self._periods.load_dump(periods)
        super().load_dump(batch)
