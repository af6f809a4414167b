"""One bound query as it runs: from the events of its input streams to those of its target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.errors import MeshError
from mesh.operators.base import State, merge, part, prefixed
from mesh.operators.expressions import Frame, compile_filter
from mesh.operators.patterns import Pattern
from mesh.operators.selector import Selector
from mesh.operators.windows import TimeWindow
from mesh.plan.bound import BoundPattern, BoundStream, Constant

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mesh.functions.vectors import Mask
    from mesh.operators.base import Events, Timeline
    from mesh.plan.bound import BoundQuery, Window


class StreamQuery:
    """``from S[..]#window.x(..)[..] select ..``."""

    def __init__(self, query: BoundQuery, source: BoundStream, timer_path: int) -> None:
        self._schema = source.schema.arrow
        self._stream = source.schema.name
        self._filters = [compile_filter(f) for f in source.filters]
        self._after = [compile_filter(f) for f in source.filters_after]
        self._window: TimeWindow | None = None
        if source.window is not None:
            length_ms = _window_ms(source.window)
            self._window = TimeWindow(self._schema, length_ms, timer_path)
        self._selector = Selector(query, windowed=self._window is not None)

    def process(self, inputs: Mapping[str, Sequence[Events]], timeline: Timeline) -> Events:
        """What the events of its stream, and the timers, make of it."""
        events = _filtered(merge(inputs.get(self._stream, ()), self._schema), self._filters)
        if self._window is not None:
            events = _filtered(self._window.process(events, timeline), self._after)
        return self._selector.process(Frame.of_rows(events.rows), events)

    def next_time(self) -> int | None:
        """When the window's next timer is due."""
        return None if self._window is None else self._window.next_time()

    def snapshot(self) -> State:
        """Window and aggregates."""
        window = State() if self._window is None else self._window.snapshot()
        return prefixed({"window": window, "select": self._selector.snapshot()})

    def restore(self, state: State) -> None:
        """Take over window and aggregates."""
        if self._window is not None:
            self._window.restore(part(state, "window"))
        self._selector.restore(part(state, "select"))


class PatternQuery:
    """``from every A -> B .. select ..``."""

    def __init__(self, query: BoundQuery, source: BoundPattern) -> None:
        self._schemas = {step.schema.name: step.schema.arrow for step in source.steps}
        self._streams = query.input_streams
        self._pattern = Pattern(query, source)
        self._selector = Selector(query, windowed=False)

    def process(self, inputs: Mapping[str, Sequence[Events]], timeline: Timeline) -> Events:
        """What the matches that the events complete make of it."""
        merged = [merge(inputs.get(name, ()), self._schemas[name]) for name in self._streams]
        matches = self._pattern.process(merged)
        return self._selector.process(self._pattern.frame(matches), matches)

    def next_time(self) -> int | None:
        """Patterns have no timers."""
        return None

    def snapshot(self) -> State:
        """Partial matches and aggregates."""
        return prefixed({"match": self._pattern.snapshot(), "select": self._selector.snapshot()})

    def restore(self, state: State) -> None:
        """Take over partial matches and aggregates."""
        self._pattern.restore(part(state, "match"))
        self._selector.restore(part(state, "select"))


RunningQuery = StreamQuery | PatternQuery


def start(query: BoundQuery, timer_path: int) -> RunningQuery:
    """The operators of ``query``, with nothing in them yet."""
    if isinstance(query.input, BoundPattern):
        return PatternQuery(query, query.input)
    assert isinstance(query.input, BoundStream), "the planner refuses joins"
    return StreamQuery(query, query.input, timer_path)


def _window_ms(window: Window) -> int:
    first = window.arguments[0] if window.arguments else None
    length = first.value if isinstance(first, Constant) else None
    if window.name != "time" or len(window.arguments) != 1 or not isinstance(length, int):
        raise MeshError(
            "MESH-O102",
            f'window "{window.name}" has no operator',
            detail="The planner accepted it, but this version can't run it.",
            hint="Do manager and worker have the same version?",
        )
    return length


def _filtered(events: Events, filters: Sequence[Callable[[Frame], Mask]]) -> Events:
    for passes in filters:
        if not len(events):
            break
        events = events.where(passes(Frame.of_rows(events.rows)))
    return events
