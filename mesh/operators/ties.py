"""Which comes first of a window's timer and an output rate's, where both are due at one instant.

The one that was set first.  The rate's was set one period before.  That of a batch window was set a
length before.  A sliding window's was set when it fired last, or when the event that leaves came to
an empty window, whatever was later.  A snapshot is taken at the latest when an event of that time
comes, which what leaves a window is; so only what a batch window lets in can be in it.

Source: observed on Siddhi 5.1.7.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mesh.language.syntax import RateKind
from mesh.operators.base import EXPIRED, State
from mesh.plan.bound import BoundStream, Constant

if TYPE_CHECKING:
    from mesh.operators.base import Events, Longs
    from mesh.plan.bound import BoundQuery

_NEVER = int(np.iinfo(np.int64).min)


class Ties:
    """Puts what a window's timer let go before the tick of its instant, where that was set later.

    ``length_ms``: of the window; ``sliding``: whether its events leave one by one.
    """

    def __init__(
        self, length_ms: int, sliding: bool, every_ms: int, timer_path: int, snapshots: bool
    ) -> None:
        self._length_ms = length_ms
        self._sliding = sliding
        self._every_ms = every_ms
        self._timer_path = timer_path
        self._snapshots = snapshots
        #: By instance: when the window's timer fired last, and whether before the tick.
        self._fired: dict[int, tuple[int, bool]] = {}

    def placed(self, events: Events, made: Events) -> Events:
        """``made`` of ``events``; the clock of what precedes its tick is one millisecond less."""
        if not self._sliding:
            early = (made.path == self._timer_path) & (self._length_ms > self._every_ms)
            if self._snapshots:
                early &= made.time_ms < made.clock_ms
        else:
            found = self._early(events)
            if not found:
                return made
            pairs = zip(made.clock_ms.tolist(), made.instance.tolist(), strict=True)
            early = np.fromiter((pair in found for pair in pairs), np.bool_, len(made))
            early &= made.path == self._timer_path
        return replace(made, clock_ms=made.clock_ms - early)

    def _early(self, events: Events) -> set[tuple[int, int]]:
        leaving = np.flatnonzero((events.kind == EXPIRED) & (events.path == self._timer_path))
        found = set()
        for clock_ms, instance in zip(
            events.clock_ms[leaving].tolist(), events.instance[leaving].tolist(), strict=True
        ):
            last_ms, was_early = self._fired.get(instance, (_NEVER, False))
            if clock_ms == last_ms:
                continue
            came_ms, tick_ms = clock_ms - self._length_ms, clock_ms - self._every_ms
            set_ms = max(last_ms, came_ms)
            early = set_ms < tick_ms or (set_ms == last_ms == tick_ms and was_early)
            self._fired[instance] = (clock_ms, early)
            if early:
                found.add((clock_ms, instance))
        return found

    def forget(self, instances: Longs) -> None:
        """Drop ``instances``."""
        for instance in instances.tolist():
            self._fired.pop(instance, None)

    def snapshot(self) -> State:
        """When timers fired last."""
        return State({}, {"fired": [[one, *fired] for one, fired in self._fired.items()]})

    def restore(self, state: State) -> None:
        """Take it over."""
        scalars: Any = state.scalars
        self._fired = {one: (last_ms, early) for one, last_ms, early in scalars["fired"]}


def make_ties(query: BoundQuery, timer_path: int) -> Ties | None:
    """What orders the timers of ``query``; None where there is nothing to order."""
    rate, source = query.rate, query.input
    if rate is None or not rate.is_by_time or not isinstance(source, BoundStream):
        return None
    window = source.window
    if window is None or window.name not in ("time", "timeBatch") or not window.arguments:
        return None
    length = window.arguments[0]
    if not isinstance(length, Constant) or not isinstance(length.value, int):
        return None
    sliding, snapshots = window.name == "time", rate.kind is RateKind.SNAPSHOT
    if sliding and snapshots:
        return None
    return Ties(length.value, sliding, rate.every, timer_path, snapshots)
