"""Order of a window's timer and an output rate's tick that are due at one instant.

The one that was set first fires first.  The tick was set one period before, the timer of a batch
window one length before.  Other windows wake a length after each event: their one timer is set for
the next such time when it fires, or when an event arrives while none is pending.  A snapshot is
taken at the latest when an event of its time arrives, and an event that leaves a sliding window is
one; so only batch windows and sessions can emit before it.

Source: observed on Siddhi 5.1.7.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mesh.language.syntax import RateKind
from mesh.operators.base import BEFORE_ALL, CURRENT, EXPIRED, RESET, State
from mesh.operators.windows import kind_of
from mesh.plan.bound import BoundStream, Constant

if TYPE_CHECKING:
    from mesh.operators.base import EventBatch, Longs
    from mesh.operators.windows import WindowKind
    from mesh.operators.windows.kind import TickOrder
    from mesh.plan.bound import BoundQuery, Window


@dataclass(slots=True)
class _Timer:
    """The timer of one instance's window.

    ``fired_ms``, ``was_early``: time of the last firing, and whether before the tick of that
    instant.
    ``due``: due times for events that have arrived, growing.
    """

    fired_ms: int = BEFORE_ALL
    was_early: bool = False
    due: deque[int] = field(default_factory=deque)

    def fire(self, due_ms: int, came_ms: int, every_ms: int, *, in_turn: bool = False) -> None:
        """Fire for events that arrived at ``came_ms``; ticks are ``every_ms`` apart.

        ``in_turn``: whether the arrival was its firing, rather than an event.
        """
        if due_ms == self.fired_ms:
            return
        tick_ms = due_ms - every_ms
        set_ms = max(self.fired_ms, came_ms)
        by_itself = self.fired_ms > came_ms - in_turn
        early = set_ms < tick_ms or (by_itself and set_ms == tick_ms and self.was_early)
        self.fired_ms, self.was_early = due_ms, early


class TimerTieBreaker:
    """Moves output of a window's timer before the tick of its instant, if that was set later.

    ``length_ms``: of the window, or the gap of sessions; ``latency_ms``: after which finished
    sessions leave; ``batch``: whether it is a batch window; ``pushes``: whether events may leave
    before they are due; ``snapshots``: whether the rate is one.
    """

    def __init__(
        self,
        kind: WindowKind,
        order: TickOrder,
        length_ms: int,
        latency_ms: int,
        every_ms: int,
        timer_path: int,
        snapshots: bool,
    ) -> None:
        self._batch = kind.is_periodic
        #: In other windows each event leaves when it is due, which decides the order.
        self._remembers = order.may_leave_early
        self._length_ms = length_ms
        self._latency_ms = latency_ms
        self._every_ms = every_ms
        self._timer_path = timer_path
        self._snapshots = snapshots
        #: By instance.
        self._timers: dict[int, _Timer] = {}
        #: Events so far, for the name of the state.
        self._rows = 0

    def order_around_ticks(self, events: EventBatch, output: EventBatch) -> EventBatch:
        """Order ``output`` of ``events``: output before its tick gets a clock one ms less."""
        is_timer = output.path == self._timer_path
        if self._snapshots:
            is_timer &= (output.time_ms < output.clock_ms) | (output.kind == RESET)
        if self._batch:
            early = is_timer & (self._length_ms > self._every_ms)
        else:
            instants = self._early(events)
            if not instants:
                return output
            pairs = zip(output.clock_ms.tolist(), output.instance.tolist(), strict=True)
            early = is_timer & np.fromiter(
                (pair in instants for pair in pairs), np.bool_, len(output)
            )
        return replace(output, clock_ms=output.clock_ms - early)

    def _early(self, events: EventBatch) -> set[tuple[int, int]]:
        """The instants at which the timers of instances precede their ticks."""
        leaves = (events.kind == EXPIRED) & (events.path == self._timer_path)
        tells = leaves | (events.kind == CURRENT) if self._remembers else leaves
        self._rows += len(events)
        which = np.flatnonzero(tells)
        instants = set()
        for clock_ms, instance, leaving in zip(
            events.clock_ms[which].tolist(),
            events.instance[which].tolist(),
            leaves[which].tolist(),
            strict=True,
        ):
            timer = self._timers.setdefault(instance, _Timer())
            self._catch_up(timer, clock_ms)
            if not leaving:
                due_ms = clock_ms + self._length_ms
                if not timer.due or timer.due[-1] < due_ms:
                    timer.due.append(due_ms)
                continue
            after_ms = self._latency_ms or self._length_ms
            in_turn = self._latency_ms > 0
            timer.fire(clock_ms, clock_ms - after_ms, self._every_ms, in_turn=in_turn)
            if timer.was_early:
                instants.add((clock_ms, instance))
        return instants

    def _catch_up(self, timer: _Timer, clock_ms: int) -> None:
        """Let it fire for all that is due."""
        while timer.due and timer.due[0] <= clock_ms:
            due_ms = timer.due.popleft()
            timer.fire(due_ms, due_ms - self._length_ms, self._every_ms)

    def forget(self, instances: Longs) -> None:
        """Drop ``instances``."""
        for instance in instances.tolist():
            self._timers.pop(instance, None)
        self._rows += 1

    def snapshot(self) -> State:
        """Last and next times of the timers."""
        fired = [[i, timer.fired_ms, timer.was_early] for i, timer in self._timers.items()]
        due = [(i, due_ms) for i, timer in self._timers.items() for due_ms in timer.due]
        pieces = {}
        if due:
            columns = zip(*due, strict=True)
            names = ("instance", "due_ms")
            pieces[f"due-{self._rows}"] = pa.RecordBatch.from_pydict(
                {
                    name: pa.array(column, pa.int64())
                    for name, column in zip(names, columns, strict=True)
                }
            )
        return State(pieces, {"fired": fired, "rows": self._rows})

    def restore(self, state: State) -> None:
        """Restore the timers."""
        scalars = state.scalars
        self._rows = scalars.get("rows", 0)
        self._timers = {one: _Timer(fired, early) for one, fired, early in scalars["fired"]}
        for piece in state.pieces.values():
            columns = (column.to_pylist() for column in piece.columns)
            for instance, due_ms in zip(*columns, strict=True):
                self._timers[instance].due.append(due_ms)


def make_tie_breaker(query: BoundQuery, timer_path: int) -> TimerTieBreaker | None:
    """The order of the timers of ``query``; None if there is nothing to order."""
    rate, source = query.rate, query.input
    if rate is None or not rate.is_by_time or not isinstance(source, BoundStream):
        return None
    window = source.window
    if window is None or not window.arguments:
        return None
    kind = kind_of(window)
    order = kind.tick_order
    snapshots = rate.kind is RateKind.SNAPSHOT
    if order is None or (snapshots and not order.with_snapshots):
        return None
    length_ms = _constant(window, 0)
    latency_ms = 0 if order.latency_argument is None else _constant(window, order.latency_argument)
    if length_ms is None or latency_ms is None:
        return None
    return TimerTieBreaker(kind, order, length_ms, latency_ms, rate.every, timer_path, snapshots)


def _constant(window: Window, place: int) -> int | None:
    """The number at that place among the arguments; 0 without one, None if it is no number."""
    if len(window.arguments) <= place:
        return 0
    argument = window.arguments[place]
    if isinstance(argument, Constant) and isinstance(argument.value, int):
        return argument.value
    return None
