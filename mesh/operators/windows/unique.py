"""``unique:..`` windows: the events of each key of a key's own, of one partition instance.

``ever``, ``length`` and ``time`` keep the latest event of a key: it expires when another one of its
key arrives, and as in the window without keys.  ``first`` passes the first event of each key for
good.  The batches gather the latest or the first event of each key, and emit them together.

A batch is emitted in the order of the map that holds it in the original.  In one thing these follow
the original's pages and not its program: a key that has left a ``length`` window is forgotten.

Source: API documentation of siddhi-execution-unique 5.0; with keys that never repeat, ``length``,
``time``, ``lengthBatch`` and ``timeBatch`` are the engine's windows of these names.

``#unique:deduplicate(key, t)``: the first event of a key, and none of it for a time.

Source: API documentation of siddhi-execution-unique 5.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mesh.functions.objects import object_text
from mesh.operators.base import CURRENT, EXPIRED, RESET
from mesh.operators.windows.contents import Periods, encoded
from mesh.operators.windows.java_hash_order import table_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mesh.model.values import Json, Row
    from mesh.operators.windows.contents import Emitter


#: The part of a state that belongs to no key; keys are numbered from 1.
_COMMON: Final = 0


class Deduplicate:
    """The keys of one instance that have come within the time, in order of arrival.

    A key counts from its first event: those that are dropped don't prolong its time.  Keys are
    forgotten when an event arrives, as nothing is emitted then.
    """

    def __init__(self, span_ms: int) -> None:
        self._span_ms = span_ms
        #: By key its number, time and part of the state.
        self._keys: dict[str, tuple[int, int, str]] = {}
        self._came = 0

    def take(self, row: int, time_ms: int, now_ms: int, values: Row, to: Emitter) -> None:
        """Emit or drop one event."""
        while self._keys:
            oldest = next(iter(self._keys))
            if time_ms - self._keys[oldest][1] <= self._span_ms:
                break
            del self._keys[oldest]
        key = object_text(values[0])
        if key not in self._keys:
            self._came += 1
            self._keys[key] = (self._came, time_ms, encoded([key, time_ms]))
            to.emit(row, CURRENT, time_ms)

    def fire(self, due_ms: int, now_ms: int, to: Emitter) -> None:
        """Do nothing: there are no timers."""

    def finish(self, to: Emitter) -> None:
        """Nothing follows the events of a chunk."""

    def rows(self) -> Iterable[int]:
        """No row is kept."""
        return ()

    def join_rows(self) -> Sequence[tuple[int, int]]:
        """No join reads it."""
        return ()

    def lists(self) -> Iterable[tuple[int, Sequence[tuple[int, int]]]]:
        """No lists."""
        return ()

    def parts(self) -> Iterable[tuple[int, str]]:
        """The number of keys that came, and a part for each that is known."""
        yield 0, encoded(self._came)
        for number, _, text in self._keys.values():
            yield number, text

    def load(
        self, parts: Mapping[int, Json], lists: Mapping[int, Sequence[tuple[int, int]]]
    ) -> None:
        """Restore the values of ``parts``."""
        self._came = parts[0]
        for number in sorted(parts.keys() - {0}):
            key, time_ms = parts[number]
            self._keys[key] = (number, time_ms, encoded([key, time_ms]))


@dataclass(slots=True)
class _Held:
    """A key's event; ``place``: the hash code that decides its order in the original's map."""

    number: int
    row: int
    time_ms: int
    place: int
    #: Its part of the state; None if that has changed.
    text: str | None = None


class _Keyed:
    """Events by key, in order of arrival."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._came = 0
        self._table = 16

    def _put(self, key: str, row: int, time_ms: int, place: int) -> None:
        """Hold the event of a key, in its place if it has one."""
        held = self._held.get(key)
        if held is None:
            self._came += 1
            self._held[key] = _Held(self._came, row, time_ms, place)
            self._table = self._table_for(len(self._held))
        else:
            held.row, held.time_ms, held.text = row, time_ms, None

    def _table_for(self, count: int) -> int:
        return table_of(count, self._table)

    def _in_order(self) -> list[_Held]:
        """Events in the order of the original's map."""
        return sorted(self._held.values(), key=lambda one: one.place & (self._table - 1))

    def _oldest(self) -> _Held:
        return self._held.pop(next(iter(self._held)))

    def fire(self, due_ms: int, now_ms: int, to: Emitter) -> None:
        """Do nothing: there are no timers."""

    def finish(self, to: Emitter) -> None:
        """Nothing follows the events of a chunk."""

    def rows(self) -> Iterable[int]:
        """The rows in it."""
        return [held.row for held in self._held.values()]

    def join_rows(self) -> Sequence[tuple[int, int]]:
        """The rows that a join finds: the event of each key."""
        return [(held.row, held.time_ms) for held in self._in_order()]

    def parts(self) -> Iterable[tuple[int, str]]:
        """A part for each key, and one for the rest."""
        yield _COMMON, encoded([self._came, self._table, self._dump()])
        for key, held in self._held.items():
            if held.text is None:
                held.text = encoded([key, held.row, held.time_ms, held.place])
            yield held.number, held.text

    def lists(self) -> Iterable[tuple[int, Sequence[tuple[int, int]]]]:
        """No lists."""
        return ()

    def load(
        self, parts: Mapping[int, Json], lists: Mapping[int, Sequence[tuple[int, int]]]
    ) -> None:
        """Restore the values of ``parts``."""
        self._came, self._table, state = parts[_COMMON]
        self._load_dump(state)
        for number in sorted(parts.keys() - {_COMMON}):
            key, row, time_ms, place = parts[number]
            self._held[key] = _Held(number, row, time_ms, place)

    def _dump(self) -> object:
        """The state of a kind beside its events, as JSON."""
        return None

    def _load_dump(self, state: object) -> None:
        """Restore what ``_dump`` returned."""


class UniqueEver(_Keyed):
    """``ever(key, ..)``: the latest event of each key."""

    def take(self, row: int, time_ms: int, now_ms: int, values: Row, to: Emitter) -> None:
        """Process one event."""
        key, place = values
        old = self._held.get(key)
        if old is not None:
            to.emit(old.row, EXPIRED, now_ms)
        self._put(key, row, time_ms, place)
        to.emit(row, CURRENT, time_ms)


class UniqueFirst(_Keyed):
    """``first(key, ..)``: the first event of each key; the others are dropped."""

    def take(self, row: int, time_ms: int, now_ms: int, values: Row, to: Emitter) -> None:
        """Process one event."""
        key, place = values
        if key not in self._held:
            self._put(key, row, time_ms, place)
            to.emit(row, CURRENT, time_ms)


class UniqueLength(_Keyed):
    """``length(key, n)``: the latest event of each of the n keys that arrived last."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def take(self, row: int, time_ms: int, now_ms: int, values: Row, to: Emitter) -> None:
        """Process one event."""
        key, place = values
        old = self._held.pop(key, None)
        if self._size <= 0:
            to.emit(row, EXPIRED, time_ms)
        else:
            if old is None and len(self._held) >= self._size:
                old = self._oldest()
            if old is not None:
                to.emit(old.row, EXPIRED, now_ms)
            self._put(key, row, time_ms, place)
        to.emit(row, CURRENT, time_ms)

    def _in_order(self) -> list[_Held]:
        return list(self._held.values())


class UniqueTime(_Keyed):
    """``time(key, t)``: the latest event of each key, for a time."""

    def __init__(self, span_ms: int) -> None:
        super().__init__()
        self._span_ms = span_ms
        #: The latest time of an event; earlier ones set no timer.
        self._latest_ms: int | None = None

    def take(self, row: int, time_ms: int, now_ms: int, values: Row, to: Emitter) -> None:
        """Process one event."""
        key, place = values
        old = self._held.pop(key, None)
        if old is not None:
            to.emit(old.row, EXPIRED, now_ms)
        self._put(key, row, time_ms, place)
        if self._latest_ms is None or time_ms > self._latest_ms:
            self._latest_ms = time_ms
            to.alarms.append(time_ms + self._span_ms)
        self._expire(now_ms, to)
        to.emit(row, CURRENT, time_ms)

    def fire(self, due_ms: int, now_ms: int, to: Emitter) -> None:
        """Expire the events whose time is over."""
        self._expire(now_ms, to)

    def _expire(self, now_ms: int, to: Emitter) -> None:
        while self._held and next(iter(self._held.values())).time_ms + self._span_ms <= now_ms:
            to.emit(self._oldest().row, EXPIRED, now_ms)

    def _in_order(self) -> list[_Held]:
        return list(self._held.values())

    def _dump(self) -> object:
        return self._latest_ms

    def _load_dump(self, state: Json) -> None:
        self._latest_ms = state


class _UniqueBatch(_Keyed):
    """The batch that is gathered, and the one that was emitted last, until it expires."""

    def __init__(self, keeps_first: bool) -> None:
        super().__init__()
        self._keeps_first = keeps_first
        #: Rows of the last batch, and its time; None before the first batch.
        self._expires: list[int] = []
        self._emitted_ms: int | None = None

    def _gather(self, row: int, time_ms: int, values: Row) -> None:
        key, place = values
        if not (self._keeps_first and key in self._held):
            self._put(key, row, time_ms, place)

    def _table_for(self, count: int) -> int:
        # A map for one thread grows when it has more keys than three quarters of its table.
        return table_of(count - 1, self._table)

    def _emit(self, now_ms: int, to: Emitter) -> None:
        for row in self._expires:
            to.emit(row, EXPIRED, now_ms)
        self._expires = [held.row for held in self._in_order()]
        self._held.clear()
        if self._expires:
            if self._emitted_ms is not None:
                to.emit(self._expires[0], RESET, self._emitted_ms)
            self._emitted_ms = now_ms
        for row in self._expires:
            to.emit(row, CURRENT, now_ms)

    def rows(self) -> Iterable[int]:
        """The rows in it."""
        return [*self._expires, *super().rows()]

    def _dump(self) -> object:
        return [self._expires, self._emitted_ms]

    def _load_dump(self, state: Json) -> None:
        self._expires, self._emitted_ms = state


class UniqueLengthBatch(_UniqueBatch):
    """``lengthBatch(key, n)`` and ``firstLengthBatch``: a batch of n keys."""

    def __init__(self, size: int, *, keeps_first: bool) -> None:
        super().__init__(keeps_first)
        self._size = size

    def take(self, row: int, time_ms: int, now_ms: int, values: Row, to: Emitter) -> None:
        """Add one event; it may complete the batch."""
        self._gather(row, time_ms, values)
        if len(self._held) == self._size:
            self._emit(now_ms, to)
            to.end_chunk()


class UniqueTimeBatch(_UniqueBatch):
    """``timeBatch(key, t, start)`` and ``firstTimeBatch``: the keys of a period."""

    def __init__(self, span_ms: int, start_ms: int | None, *, keeps_first: bool) -> None:
        super().__init__(keeps_first)
        self._periods = Periods(span_ms, start_ms)

    def take(self, row: int, time_ms: int, now_ms: int, values: Row, to: Emitter) -> None:
        """Add one event; it waits for the end of the period."""
        self._periods.enter(now_ms, to)
        self._gather(row, time_ms, values)

    def fire(self, due_ms: int, now_ms: int, to: Emitter) -> None:
        """End the period, unless events have ended it."""
        self._periods.fire(now_ms, to)

    def finish(self, to: Emitter) -> None:
        """Emit the batch, if its period is over."""
        ends_ms = self._periods.end()
        if ends_ms is not None:
            self._emit(ends_ms, to)

    def _dump(self) -> object:
        return [self._periods.dump(), super()._dump()]

    def _load_dump(self, state: Json) -> None:
        periods, batch = state
        self._periods.load_dump(periods)
        super()._load_dump(batch)


class UniqueTimeLengthBatch(UniqueTimeBatch):
    """``timeLengthBatch(key, t, start, n)``: the keys of a period; n of them end a batch early."""

    def __init__(self, span_ms: int, start_ms: int | None, size: int) -> None:
        super().__init__(span_ms, start_ms, keeps_first=False)
        self._size = size

    def take(self, row: int, time_ms: int, now_ms: int, values: Row, to: Emitter) -> None:
        """Add one event; it may complete the batch, and the period continues."""
        super().take(row, time_ms, now_ms, values, to)
        if len(self._held) >= self._size:
            self._emit(now_ms, to)
            to.end_chunk()


class UniqueExternalTimeBatch(_UniqueBatch):
    """``externalTimeBatch(key, ts, t, start, timeout)``: the keys of a period by an attribute.

    A period ends with an event after it, and the batch before expires at the event's own attribute.
    With a timeout a batch is emitted when no event has come for so long; events of its period that
    come later are another batch.
    """

    def __init__(self, span_ms: int, start_ms: int | None, timeout_ms: int | None) -> None:
        super().__init__(keeps_first=False)
        self._span_ms = span_ms
        self._start_ms = start_ms
        self._timeout_ms = timeout_ms
        self._end_ms: int | None = None
        self._latest_ms = 0
        #: When a batch is emitted without an event; the timer may be due before.
        self._late_ms: int | None = None
        self._due_ms: int | None = None

    def take(self, row: int, time_ms: int, now_ms: int, values: Row, to: Emitter) -> None:
        """Add one event; it may end the period before it."""
        key, place, at_ms = values
        if self._end_ms is None:
            start_ms = at_ms if self._start_ms is None else self._start_ms
            self._end_ms = at_ms + self._span_ms - (at_ms - start_ms) % self._span_ms
        elif at_ms >= self._end_ms:
            self._emit(at_ms, to)
            to.end_chunk()
            self._end_ms += self._span_ms * ((at_ms - self._end_ms) // self._span_ms + 1)
        self._gather(row, time_ms, (key, place))
        self._latest_ms = at_ms
        if self._timeout_ms is not None:
            self._late_ms = now_ms + self._timeout_ms
            if self._due_ms is None:
                self._due_ms = self._late_ms
                to.alarms.append(self._due_ms)

    def fire(self, due_ms: int, now_ms: int, to: Emitter) -> None:
        """Emit the batch if no event has come since the timer was set."""
        self._due_ms = None
        if self._late_ms is None or not self._held:
            return
        if now_ms < self._late_ms:
            self._due_ms = self._late_ms
            to.alarms.append(self._due_ms)
            return
        self._late_ms = None
        self._emit(self._latest_ms, to)

    def _emit(self, now_ms: int, to: Emitter) -> None:
        for row in self._expires:
            to.emit(row, EXPIRED, now_ms)
        held = self._in_order()
        self._expires = [one.row for one in held]
        self._held.clear()
        if held and self._emitted_ms is not None:
            to.emit(self._expires[0], RESET, self._emitted_ms)
        if held:
            self._emitted_ms = held[0].time_ms
        for one in held:
            to.emit(one.row, CURRENT, one.time_ms)

    def _dump(self) -> object:
        return [self._end_ms, self._latest_ms, self._late_ms, self._due_ms, super()._dump()]

    def _load_dump(self, state: Json) -> None:
        self._end_ms, self._latest_ms, self._late_ms, self._due_ms, batch = state
        super()._load_dump(batch)
