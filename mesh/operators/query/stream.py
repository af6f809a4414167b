"""Query over one stream: ``from S[..]#window.x(..)[..] select ..``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.language.syntax import EventKind, RateKind
from mesh.operators.base import merge
from mesh.operators.expressions import Frame
from mesh.operators.query.handlers import Handlers
from mesh.operators.query.late_selection import LateSelection, can_select_late
from mesh.operators.query.processors import FunctionsAndWindow, has_state
from mesh.operators.query.results import Results, RunningQuery
from mesh.operators.select.aggregates import Expiry
from mesh.operators.windows import RowRefWindow, kind_of
from mesh.plan.bound import Column, SourceKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.operators.base import EventBatch, State, Timeline
    from mesh.plan.bound import BoundQuery, BoundStream


def _selected(query: BoundQuery) -> Sequence[str | None]:
    """For each output the attribute of the input that it copies; None where it is computed."""
    parts = (output.expression for output in query.outputs)
    return [one.name if isinstance(one, Column) and one.step == 0 else None for one in parts]


def _asks_for_expired(query: BoundQuery, source: BoundStream) -> bool:
    """Whether it emits expired events, or has to know the rows in its window.

    A stream function with a state that follows the window has to.
    """
    snapshots = query.rate is not None and query.rate.kind is RateKind.SNAPSHOT
    if snapshots or query.events is not EventKind.CURRENT or source.window is None:
        return snapshots or query.events is not EventKind.CURRENT
    return any(map(has_state, source.handlers[source.handlers.index(source.window) :]))


class StreamQuery(RunningQuery):
    """``from S[..]#window.x(..)[..] select ..``."""

    def __init__(
        self, query: BoundQuery, source: BoundStream, timer_path: int, is_partitioned: bool = False
    ) -> None:
        self._timer_path = timer_path
        self._input = source.schema.arrow
        self._stream = source.schema.name
        follows = can_select_late(query, source)
        self._handlers = Handlers(
            source.handlers,
            self._input,
            timer_path,
            used=_selected(query),
            expired=_asks_for_expired(query, source),
            needed=query if follows else None,
        )
        self._window = self._handlers.window
        is_batch = self._is_batch(source)
        leaving = self._leaving(source, query)
        if follows and is_batch:
            # Aggregates over a batch are reset, not reduced, where expired events are not read.
            leaving = Expiry.NEVER
        # In a partition the engine's ``batch`` does not report the end of a batch, unless
        # its expired events are read.
        is_silent = (
            is_partitioned
            and not _asks_for_expired(query, source)
            and source.window is not None
            and kind_of(source.window).holds_only_for_expired
        )
        if is_silent:
            leaving = Expiry.NEVER
        results = Results(
            query,
            leaving,
            is_batch,
            timer_path,
            is_partitioned=is_partitioned,
            begins_anew=not is_silent,
        )
        functions = self._handlers.stateful
        held = FunctionsAndWindow(functions, self._window) if functions else self._window
        super().__init__("window", held, results)
        self.takes_few = self._handlers.are_filters and results.is_select_alone
        self._following: LateSelection | None = None
        if follows:
            assert isinstance(self._window, RowRefWindow), "those windows alone are followed"
            self.takes_few = self._handlers.are_filters
            self._following = LateSelection(self._window, self._results.selector)

    @staticmethod
    def _leaving(source: BoundStream, query: BoundQuery) -> Expiry:
        """Named windows and sessions are batches to the engine; their events expire one by one."""
        is_named = source.kind is SourceKind.WINDOW
        if source.window is None and not is_named:
            return Expiry.NEVER
        untracked = source.window is None or kind_of(source.window).expires_untracked
        if (is_named or untracked) and not _asks_for_expired(query, source):
            return Expiry.UNTRACKED
        return Expiry.TRACKED

    def _is_batch(self, source: BoundStream) -> bool:
        """Whether input is batches; the engine treats all output of a named window as one."""
        if source.kind is SourceKind.WINDOW:
            return True
        return self._window is not None and self._window.is_batch

    def process(self, inputs: Mapping[str, Sequence[EventBatch]], timeline: Timeline) -> EventBatch:
        """The output for the events of its stream and for the timers."""
        events = merge(inputs.get(self._stream, ()), self._input)
        if self._following is not None:
            events = self._handlers.before_window(events, self.failures)
            return self._following.process(events, timeline)
        events = self._handlers.process(events, timeline, self.failures)
        frame = Frame.of_events(events)
        if self._window is not None and self._window.is_batch:
            # Where one of the batches that an array fills fails, the rest of them is lost.
            frame.joint_path = self._timer_path
        output = self._results.process(frame, events, timeline)
        self.failures.take(frame, events)
        return output

    def restore(self, state: State) -> None:
        """Restore window and aggregates."""
        super().restore(state)
        if self._following is not None:
            self._following.restored()
