"""``#extrema:topKLengthBatch(a, n, k)`` and its like: the most frequent values of a batch.

The last event of a batch is emitted with the k most frequent values, or the rarest ones, and their
counts; of equal counts the value that came first precedes.  Null stands for ranks without a value.
A batch that gives what the one before it gave emits nothing.

Source: API documentation of siddhi-execution-extrema 5.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mesh.functions.objects import identity
from mesh.operators.base import CURRENT
from mesh.operators.windows.contents import BoundedContents
from mesh.operators.windows.periods import Periods

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mesh.model.values import Json, Row
    from mesh.operators.windows.contents import Emitter


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
