"""What a query puts out: its selector, and behind it the limit of its output rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.operators.base import State, part, prefixed
from mesh.operators.selector import Selector

if TYPE_CHECKING:
    from mesh.operators.base import Events, Longs, Timeline
    from mesh.operators.expressions import Frame
    from mesh.plan.bound import BoundQuery


class Results:
    """The select clause of ``query`` with all that follows it, up to what becomes of its output.

    ``windowed``: whether events expire; ``batch``: whether they come from a batch window;
    ``timer_path``: the way of the query's own timers.
    """

    def __init__(self, query: BoundQuery, windowed: bool, batch: bool, timer_path: int) -> None:
        self._selector = Selector(query, windowed, batch)

    def process(self, frame: Frame, events: Events, timeline: Timeline) -> Events:
        """The output of ``events``, whose attributes are in ``frame``, and of timers due.

        Kinds are kept: what left a window is ``EXPIRED``.
        """
        return self._selector.process(frame, events)

    def next_time(self) -> int | None:
        """When the next timer is due."""
        return None

    def forget(self, instances: Longs) -> None:
        """Drop what is kept for partition ``instances``."""
        self._selector.forget(instances)

    def snapshot(self) -> State:
        """Aggregates, and what waits to be put out."""
        return prefixed({"select": self._selector.snapshot()})

    def restore(self, state: State) -> None:
        """Take over what ``snapshot`` gave."""
        self._selector.restore(part(state, "select"))
