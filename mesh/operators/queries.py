"""One bound query as it runs: from the events of its input streams to what it puts out.

Events pass the handlers of their stream in the order written (filters, stream functions, a window),
the selector and the output rate; what then becomes of them is for ``nodes`` to say.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from mesh.language.syntax import EventKind, RateKind
from mesh.operators.aggregates import Leaving
from mesh.operators.base import OWN_TIMER, RESET, State, Stateful, merge, no_rows, part, prefixed
from mesh.operators.expressions import Frame, columns_of, compile_filter
from mesh.operators.failing import lost
from mesh.operators.following import Following, can_follow, schema_needed
from mesh.operators.patterns import PatternOperator
from mesh.operators.results import Results
from mesh.operators.windows import FollowedWindow, make_window
from mesh.plan.bound import (
    BoundFilter,
    BoundJoin,
    BoundPattern,
    BoundStream,
    BoundStreamFunction,
    Column,
    SourceKind,
    Window,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mesh.functions.vectors import Mask
    from mesh.operators.base import Events, Longs, Timeline
    from mesh.operators.joins.query import JoinQuery
    from mesh.operators.stream_functions import StreamFunction
    from mesh.operators.windows import WindowOperator
    from mesh.plan.bound import BoundHandler, BoundQuery

    #: Columns of a query's input by the names that they are told by.
    Named = Mapping[str, Column]


class RunningQuery(Stateful, Protocol):
    """A query with its state."""

    def process(self, inputs: Mapping[str, Sequence[Events]], timeline: Timeline) -> Events:
        """Take events, by the name of their stream, and return what goes out, as its kind is."""
        ...

    def next_time(self) -> int | None:
        """When its earliest timer is due."""
        ...

    def forget(self, instances: Longs) -> None:
        """Be as if these partition instances had never been."""
        ...


@dataclass(slots=True)
class Failures:
    """Events on which something failed: as they came into the query, why, and of which stream.

    No stream: of the only one, or of what several made together; of that the place in the total
    order says which event set it off.
    """

    found: list[tuple[Events, list[str], str | None]] = field(default_factory=list)

    def take(
        self,
        frame: Frame,
        events: Events,
        named: Named | None = None,
        stream: str | None = None,
    ) -> None:
        """Note the rows of ``events`` on which evaluation in ``frame`` failed.

        ``named``: what to tell of each, where the attributes of ``events`` don't say it.
        ``stream``: that of the events, if it is not the only one.
        """
        if not frame.failures:
            return
        rows = sorted(frame.failures)
        texts = [frame.failures[row] for row in rows]
        if named is not None:
            columns = [frame.column(column).to_arrow(len(events)) for column in named.values()]
            # Whose select clause names nothing has nothing to tell.
            columns = columns or [pa.nulls(len(events), pa.string())]
            attributes = pa.RecordBatch.from_arrays(columns, names=list(named) or ["#"])
            events = events.with_rows(attributes)
        self.found.append((events.take(np.array(rows, dtype=np.int64)), texts, stream))


def named_columns(query: BoundQuery, names: Sequence[str]) -> Named:
    """What ``query`` selects from, by a name: ``e1.price``; ``names``: by step."""
    expressions = [output.expression for output in query.outputs]
    if query.having is not None:
        expressions.append(query.having)
    columns = [column for expression in expressions for column in columns_of(expression)]
    return {
        f"{names[c.step]}{'' if c.index is None else f'[{c.index}]'}.{c.name}": c
        for c in columns
        if c.step >= 0
    }


class Filter:
    """``[condition]``; what resets aggregates passes it."""

    def __init__(self, handler: BoundFilter) -> None:
        self._passes: Callable[[Frame], Mask] = compile_filter(handler.condition)

    def process(self, events: Events, failures: Failures) -> Events:
        """The events for which the condition holds."""
        if not len(events):
            return events
        frame = Frame.of_events(events)
        passes = self._passes(frame)
        if frame.failures:
            passes = passes & ~lost(frame, events)
            failures.take(frame, events)
        if events.kind.any():
            passes = passes | (events.kind == RESET)
        return events.where(passes)


class Handlers:
    """What the events of one stream pass, in order.

    ``schema``: the attributes behind all of them; ``window``: the one among them, if there is one.
    ``used``: the attributes that are put out, None for what is computed; None: all are.
    ``expired``: whether it asks for events that leave the window.
    ``needed``: a query that looks at nothing behind the window but the attributes that it names.
    """

    def __init__(
        self,
        handlers: Sequence[BoundHandler],
        schema: pa.Schema,
        timer_path: int,
        *,
        used: Sequence[str | None] | None = None,
        expired: bool = True,
        needed: BoundQuery | None = None,
    ) -> None:
        self._timer_path = timer_path
        self._steps: list[Filter | StreamFunction | None] = []
        self.schema = schema
        self.window: WindowOperator | None = None
        for handler in handlers:
            match handler:
                case BoundFilter():
                    self._steps.append(Filter(handler))
                case BoundStreamFunction():
                    from mesh.operators.stream_functions import StreamFunction

                    function = StreamFunction(handler, self.schema)
                    self.schema = function.schema
                    self._steps.append(function)
                case Window():
                    kept = self.schema if needed is None else schema_needed(self.schema, needed)
                    self.window = make_window(
                        handler, kept, timer_path, expired=expired, used=used, followed=bool(needed)
                    )
                    self._steps.append(None)

    def before_window(self, events: Events, failures: Failures) -> Events:
        """What comes to the window, which stands behind all else."""
        for step in self._steps[:-1]:
            if isinstance(step, Filter):
                events = step.process(events, failures)
            elif step is not None:
                events = _computed(step, events, failures)
        return events

    def process(self, events: Events, timeline: Timeline, failures: Failures) -> Events:
        """What becomes of the events of the stream, and of the window's timers."""
        for step in self._steps:
            if isinstance(step, Filter):
                events = step.process(events, failures)
            elif step is None:
                assert self.window is not None, "None stands for the window"
                events = placed(self.window.process(events, timeline), self._timer_path)
            else:
                events = _computed(step, events, failures)
        return events


def _computed(step: StreamFunction, events: Events, failures: Failures) -> Events:
    if not len(events):
        return events.with_rows(no_rows(step.schema))
    made = step.process(events)
    failures.take(_failed(step.failures, len(events)), events)
    return made


def _failed(failures: dict[int, str], length: int) -> Frame:
    frame = Frame(length, {})
    frame.failures = failures
    return frame


def placed(events: Events, timer_path: int) -> Events:
    """Events with the path of the query's timers where its own timers made them."""
    own = events.path == OWN_TIMER
    return events.with_path(np.where(own, timer_path, events.path)) if own.any() else events


def _selected(query: BoundQuery) -> Sequence[str | None]:
    """For each output the attribute of the input that it is; None where it is computed."""
    parts = (output.expression for output in query.outputs)
    return [part.name if isinstance(part, Column) and part.step == 0 else None for part in parts]


def _is(source: BoundStream, window: str) -> bool:
    return source.window is not None and source.window.name == window


def _asks_for_expired(query: BoundQuery) -> bool:
    """Whether events that leave its window go on, or it has to know which are in it."""
    snapshots = query.rate is not None and query.rate.kind is RateKind.SNAPSHOT
    return snapshots or query.events is not EventKind.CURRENT


class StreamQuery:
    """``from S[..]#window.x(..)[..] select ..``."""

    def __init__(
        self, query: BoundQuery, source: BoundStream, timer_path: int, is_partitioned: bool = False
    ) -> None:
        self._timer_path = timer_path
        self._input = source.schema.arrow
        self._stream = source.schema.name
        follows = can_follow(query, source)
        self._handlers = Handlers(
            source.handlers,
            self._input,
            timer_path,
            used=_selected(query),
            expired=_asks_for_expired(query),
            needed=query if follows else None,
        )
        self._window = self._handlers.window
        is_batch = self._is_batch(source)
        leaving = self._leaving(source, query)
        if follows and is_batch:
            # Nothing of a batch is taken back where nobody asks for it: it is reset.
            leaving = Leaving.NEVER
        # Inside of a partition the engine's ``batch`` tells nobody that a batch is over, unless it
        # is asked for the events that leave it.
        is_silent = is_partitioned and not _asks_for_expired(query) and _is(source, "batch")
        if is_silent:
            leaving = Leaving.NEVER
        self._results = Results(
            query,
            leaving,
            is_batch,
            timer_path,
            is_partitioned=is_partitioned,
            begins_anew=not is_silent,
        )
        self._following: Following | None = None
        if follows:
            assert isinstance(self._window, FollowedWindow), "those windows alone are followed"
            self._following = Following(self._window, self._results.selector)
        self.failures = Failures()

    @staticmethod
    def _leaving(source: BoundStream, query: BoundQuery) -> Leaving:
        """To the engine named windows and sessions are batches, of which events leave singly."""
        is_named = source.kind is SourceKind.WINDOW
        if source.window is None and not is_named:
            return Leaving.NEVER
        if (is_named or _is(source, "session")) and not _asks_for_expired(query):
            return Leaving.UNTRACKED
        return Leaving.TRACKED

    def _is_batch(self, source: BoundStream) -> bool:
        """The engine takes whatever comes out of a named window as a batch."""
        if source.kind is SourceKind.WINDOW:
            return True
        return self._window is not None and self._window.is_batch

    def process(self, inputs: Mapping[str, Sequence[Events]], timeline: Timeline) -> Events:
        """What the events of its stream, and the timers, make of it."""
        events = merge(inputs.get(self._stream, ()), self._input)
        if self._following is not None:
            events = self._handlers.before_window(events, self.failures)
            return self._following.process(events, timeline)
        events = self._handlers.process(events, timeline, self.failures)
        frame = Frame.of_events(events)
        if self._window is not None and self._window.is_batch:
            # Of the batches that an array fills, the rest goes where one has failed.
            frame.joint_path = self._timer_path
        made = self._results.process(frame, events, timeline)
        self.failures.take(frame, events)
        return made

    def next_time(self) -> int | None:
        """When the next timer of window or rate is due."""
        times = [self._results.next_time()]
        if self._window is not None:
            times.append(self._window.next_time())
        return min((time for time in times if time is not None), default=None)

    def begin(self, instances: Longs, clocks_ms: Longs) -> None:
        """Count the time of these partition instances from there."""
        self._results.begin(instances, clocks_ms)

    def forget(self, instances: Longs) -> None:
        """Drop these instances from window and aggregates."""
        if self._window is not None:
            self._window.forget(instances)
        self._results.forget(instances)

    def snapshot(self) -> State:
        """Window and aggregates."""
        window = State() if self._window is None else self._window.snapshot()
        return prefixed({"window": window, "select": self._results.snapshot()})

    def restore(self, state: State) -> None:
        """Take over window and aggregates."""
        if self._window is not None:
            self._window.restore(part(state, "window"))
        self._results.restore(part(state, "select"))
        if self._following is not None:
            self._following.restored()


class PatternQuery:
    """``from every A -> B .. select ..``."""

    def __init__(
        self, query: BoundQuery, source: BoundPattern, timer_path: int, is_partitioned: bool
    ) -> None:
        self._schemas = {step.schema.name: step.schema.arrow for step in source.steps}
        self._streams = query.input_streams
        self._timer_path = timer_path
        self._pattern = PatternOperator(query, source, is_partitioned)
        self._results = Results(
            query, Leaving.NEVER, False, timer_path, is_partitioned=is_partitioned
        )
        self._named = named_columns(query, [step.name for step in source.steps])
        self.failures = Failures()

    def process(self, inputs: Mapping[str, Sequence[Events]], timeline: Timeline) -> Events:
        """What the matches that the events complete make of it."""
        merged = [merge(inputs.get(name, ()), self._schemas[name]) for name in self._streams]
        matches = self._pattern.process(merged, timeline, self.failures)
        matches = placed(matches, self._timer_path)
        frame = self._pattern.frame(matches).timed(matches)
        frame.joint_path = self._timer_path
        made = self._results.process(frame, matches, timeline)
        self.failures.take(frame, matches, self._named)
        return made

    def next_time(self) -> int | None:
        """When the next timer of an absent event or of the rate is due."""
        times = (self._pattern.next_time(), self._results.next_time())
        return min((time for time in times if time is not None), default=None)

    def begin(self, instances: Longs, clocks_ms: Longs) -> None:
        """Count the time of these partition instances from there."""
        self._results.begin(instances, clocks_ms)

    def forget(self, instances: Longs) -> None:
        """Drop these instances."""
        self._pattern.forget(instances)
        self._results.forget(instances)

    def snapshot(self) -> State:
        """Partial matches and aggregates."""
        return prefixed({"match": self._pattern.snapshot(), "select": self._results.snapshot()})

    def restore(self, state: State) -> None:
        """Take over partial matches and aggregates."""
        self._pattern.restore(part(state, "match"))
        self._results.restore(part(state, "select"))


def start(
    query: BoundQuery, timer_path: int, is_partitioned: bool = False
) -> StreamQuery | PatternQuery | JoinQuery:
    """The operators of ``query``, with nothing in them yet."""
    if isinstance(query.input, BoundPattern):
        return PatternQuery(query, query.input, timer_path, is_partitioned)
    if isinstance(query.input, BoundJoin):
        # The sides of a join are made of what is above.
        from mesh.operators.joins.query import JoinQuery

        return JoinQuery(query, query.input, timer_path, is_partitioned)
    return StreamQuery(query, query.input, timer_path, is_partitioned)
