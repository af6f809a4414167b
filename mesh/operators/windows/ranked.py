"""``#extrema:topKLengthBatch(a, n, k)`` and its like: the most frequent values of a batch.

The last event of a batch is emitted with the k most frequent values, or the rarest ones, and their
counts; of equal counts the value that came first precedes.  Null stands for ranks without a value.
A batch that gives what the one before it gave emits nothing.

Source: API documentation of siddhi-execution-extrema 5.0.

``#priority:time(key, priority, t)``: events of a key until its priority has sunk to 0.

An event is emitted with the priority of its key: that before, and its own. After each time t
without an event of the key the priority sinks by 1, and the latest event of the key is emitted once
more, until it is 0. An event with a null key or priority is dropped.

Source: API documentation of siddhi-execution-priority 5.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mesh.functions.objects import identity
from mesh.operators.base import CURRENT
from mesh.operators.windows.contents import BoundedContents, Periods

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mesh.model.values import Json, Row
    from mesh.operators.windows.contents import Emitter


@dataclass(slots=True)
class _Held:
    """The latest event of a key, and the time from which the next step counts."""

    key: Any
    row: int
    since_ms: int
    priority: int


class Priorities(BoundedContents):
    """The keys of one instance with a priority above 0, in the order of their next steps."""

    def __init__(self, span_ms: int) -> None:
        self._span_ms = span_ms
        self._held: dict[object, _Held] = {}
        #: The timer that is set, not after the next step.
        self._due_ms: int | None = None

    def take(self, row: int, time_ms: int, now_ms: int, values: Row, to: Emitter) -> None:
        """Emit one event with the priority of its key."""
        key, priority = plain(values[0]), plain(values[1])
        if key is None or priority is None:
            return
        held = self._held.get(identity(key))
        if held is None:
            held = _Held(key, row, time_ms, priority)
        else:
            held.row, held.since_ms = row, time_ms
            held.priority += priority
        if held.priority > 0:
            self._held[identity(key)] = held
        else:
            self._held.pop(identity(key), None)
        to.emit(row, CURRENT, time_ms, (key, held.priority))
        self._set_timer(to)

    def fire(self, due_ms: int, now_ms: int, to: Emitter) -> None:
        """Lower the priorities whose time is over."""
        self._due_ms = None
        for name, held in list(self._held.items()):
            if held.since_ms + self._span_ms > now_ms:
                continue
            del self._held[name]
            held.priority -= 1
            held.since_ms = now_ms
            if held.priority > 0:
                self._held[name] = held
            to.emit(held.row, CURRENT, now_ms, (held.key, held.priority))
        self._set_timer(to)

    def _set_timer(self, to: Emitter) -> None:
        if self._held and self._due_ms is None:
            # Events of a key move its step to later, so the timer may come early, and is set again.
            self._due_ms = min(held.since_ms for held in self._held.values()) + self._span_ms
            to.alarms.append(self._due_ms)

    def rows(self) -> Iterable[int]:
        """The latest event of each key."""
        return [held.row for held in self._held.values()]

    def join_rows(self) -> Sequence[tuple[int, int]]:
        """No join reads it."""
        return ()

    def dump(self) -> object:
        """Its state as JSON."""
        held = [[one.key, one.row, one.since_ms, one.priority] for one in self._held.values()]
        return [self._due_ms, held]

    def load_dump(self, state: Json) -> None:
        """Restore what ``dump`` returned."""
        self._due_ms, held = state
        self._held = {identity(one[0]): _Held(*one) for one in held}


class _Ranked(BoundedContents):
    """Counts of the values of the batch that is gathered."""

    def __init__(self, count: int, *, rarest: bool) -> None:
        self._ranks = count
        self._rarest = rarest
        #: By identity: the value and its count, in order of arrival.
        self._counts: dict[Any, list[Any]] = {}
        #: Row and time of the last event.
        self._at: tuple[int, int] | None = None
        self._before: list[object] | None = None

    def _gather(self, row: int, time_ms: int, value: Any) -> None:
        self._at = row, time_ms
        self._counts.setdefault(identity(value), [value, 0])[1] += 1

    def _emit(self, to: Emitter) -> None:
        sign = 1 if self._rarest else -1
        ranked = sorted(self._counts.values(), key=lambda one: sign * one[1])[: self._ranks]
        ranking = [part for one in ranked for part in one]
        ranking += [None] * (2 * self._ranks - len(ranking))
        if self._at is not None and ranking != self._before:
            row, time_ms = self._at
            to.emit(row, CURRENT, time_ms, tuple(ranking))
            self._before = [plain(one) for one in ranking]
        self._counts, self._at = {}, None

    def rows(self) -> Iterable[int]:
        """The row of the last event."""
        return () if self._at is None else (self._at[0],)

    def join_rows(self) -> Sequence[tuple[int, int]]:
        """No join reads it."""
        return ()

    def dump(self) -> object:
        """Its state as JSON."""
        counts = [[plain(value), count] for value, count in self._counts.values()]
        return [counts, self._at, self._before]

    def load_dump(self, state: Json) -> None:
        """Restore what ``dump`` returned."""
        counts, at, self._before = state
        self._counts = {identity(value): [value, count] for value, count in counts}
        self._at = None if at is None else (at[0], at[1])


def plain(value: object) -> Any:
    """A value as JSON has it: an int and a float without their sizes."""
    return value.item() if hasattr(value, "item") else value


class RankedLengthBatch(_Ranked):
    """The ranks of each n events."""

    def __init__(self, size: int, count: int, *, rarest: bool) -> None:
        super().__init__(count, rarest=rarest)
        self._size = size
        self._came = 0

    def take(self, row: int, time_ms: int, now_ms: int, values: Row, to: Emitter) -> None:
        """Count one event; it may complete the batch."""
        self._gather(row, time_ms, plain(values[0]))
        self._came += 1
        if self._came == self._size:
            self._came = 0
            self._emit(to)
            to.end_chunk()

    def dump(self) -> object:
        """Its state as JSON."""
        return [self._came, super().dump()]

    def load_dump(self, state: Json) -> None:
        """Restore what ``dump`` returned."""
        self._came, batch = state
        super().load_dump(batch)


class RankedTimeBatch(_Ranked):
    """The ranks of each period."""

    def __init__(self, span_ms: int, start_ms: int | None, count: int, *, rarest: bool) -> None:
        super().__init__(count, rarest=rarest)
        self._periods = Periods(span_ms, start_ms)

    def take(self, row: int, time_ms: int, now_ms: int, values: Row, to: Emitter) -> None:
        """Count one event; it waits for the end of the period."""
        self._periods.enter(now_ms, to)
        self._gather(row, time_ms, plain(values[0]))

    def fire(self, due_ms: int, now_ms: int, to: Emitter) -> None:
        """End the period, unless events have ended it."""
        self._periods.fire(now_ms, to)

    def finish(self, to: Emitter) -> None:
        """Emit the ranks, if the period is over."""
        if self._periods.end() is not None:
            self._emit(to)

    def dump(self) -> object:
        """Its state as JSON."""
        return [self._periods.dump(), super().dump()]

    def load_dump(self, state: Json) -> None:
        """Restore what ``dump`` returned."""
        periods, batch = state
        self._periods.load_dump(periods)
        super().load_dump(batch)
