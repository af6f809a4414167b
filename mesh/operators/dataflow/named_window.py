"""Named windows: one window that several queries write and several read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.language.syntax import EventKind
from mesh.operators.base import CURRENT, EXPIRED, RESET, WHOLE, Longs, State, merge, with_timer_path
from mesh.operators.environment import current
from mesh.operators.failures import failed_output
from mesh.operators.query.handlers import Failures, TimeFilter
from mesh.operators.windows import kind_of, make_window

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from mesh.operators.base import EventBatch, Timeline
    from mesh.operators.dataflow.graph import Outputs
    from mesh.plan.bound import BoundNamedWindow


def window_input(name: str) -> str:
    """The channel of inserts into the named window ``name``."""
    return f">{name}"


class NamedWindowNode:
    """``define window W (..) length(5) output all events``.

    Output is current events, expired ones or both, but never resets of aggregates: readers
    remove each event of a finished batch, as in the engine.
    """

    def __init__(self, definition: BoundNamedWindow, timer: int) -> None:
        self._name = definition.schema.name
        self._schema = definition.schema.arrow
        self._events = definition.events
        # Joins find no rows in a window of this kind if it emits only current events.
        self._is_hidden = (
            kind_of(definition.window).holds_only_for_expired
            and definition.events is EventKind.CURRENT
        )
        self._timer = timer
        self._times = TimeFilter(definition.window)
        self._failures = Failures()
        self._window = make_window(definition.window, self._schema, timer)
        self._count = current().count_of("window", self._name)

    def process(self, inputs: Mapping[str, Sequence[EventBatch]], timeline: Timeline) -> Outputs:
        """The events that enter and leave the window."""
        events = merge(inputs.get(window_input(self._name), ()), self._schema)
        if events.rows.schema != self._schema:
            events = events.with_rows(events.rows.rename_columns(self._schema.names))
        entering = self._times.process(events.outside(), self._failures)
        batch = with_timer_path(self._window.process(entering, timeline), self._timer)
        match self._events:
            case EventKind.ALL:
                batch = batch.where(batch.kind != RESET)
            case EventKind.CURRENT:
                batch = batch.where(batch.kind == CURRENT)
            case EventKind.EXPIRED:
                batch = batch.where(batch.kind == EXPIRED)
        self._count[0] += len(events)
        self._count[1] += len(batch)
        outputs = [(self._name, batch)]
        for failed, reasons, _ in self._failures.entries:
            outputs += failed_output(self._name, self._name, None, failed, reasons)
        self._failures.entries.clear()
        return outputs

    def content(self, instance: int = WHOLE) -> tuple[pa.RecordBatch, Longs]:
        """The present contents: rows in the engine's order, and their times."""
        del instance
        rows, times = self._window.content(WHOLE)
        return (rows.slice(0, 0), times[:0]) if self._is_hidden else (rows, times)

    def next_time(self) -> int | None:
        """Due time of the window's next timer."""
        return self._window.next_time()

    def snapshot(self) -> State:
        """The window's state."""
        return self._window.snapshot()

    def restore(self, state: State) -> None:
        """Restore the window's state."""
        self._window.restore(state)
