"""Stream functions that keep events: ``S#unique:deduplicate(key, 30 sec)``.

Each precedes the query's window, if there is one.  Its state is that of a window in Python: rows,
contents and timers of each partition instance.  Those that keep none are ``event_functions``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mesh.functions.vectors import object_values
from mesh.operators.base import namespaced, subset, with_timer_path
from mesh.operators.event_functions import EVENT_FUNCTIONS
from mesh.operators.expressions import Frame, compile_expression
from mesh.operators.failures import lost
from mesh.operators.windows.kind import WindowContext
from mesh.operators.windows.python_window import PythonWindow
from mesh.operators.windows.ranked import Priorities, RankedLengthBatch, RankedTimeBatch
from mesh.operators.windows.slack import AdaptiveSlack, Quality, Slack
from mesh.operators.windows.smoothed import KalmanExtremes, KernelExtremes
from mesh.operators.windows.unique import Deduplicate
from mesh.plan.bound import BoundStreamFunction, Constant

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from mesh.operators.base import EventBatch, Longs, State, Timeline
    from mesh.operators.event_functions import EventFunction
    from mesh.operators.windows import WindowOperator
    from mesh.operators.windows.contents import WindowContents
    from mesh.plan.bound import BoundExpression, BoundHandler

    _Maker = Callable[[Sequence[BoundExpression]], Callable[[], WindowContents]]


def _constant(arguments: Sequence[BoundExpression], index: int) -> Any:
    argument = arguments[index]
    assert isinstance(argument, Constant), "the catalogue accepts a constant here"
    return argument.value


def _deduplicate(arguments: Sequence[BoundExpression]) -> Callable[[], WindowContents]:
    span_ms = int(_constant(arguments, 1))
    return lambda: Deduplicate(span_ms)


def _slack(arguments: Sequence[BoundExpression]) -> Callable[[], WindowContents]:
    values = [_constant(arguments, index) for index in range(1, len(arguments))]
    discards = any(one is True for one in values)
    # A negative number stands for none.
    numbers = [None if one < 0 else int(one) for one in values if not isinstance(one, bool)]
    timeout_ms, slack_max = [*numbers, None, None][:2]
    return lambda: Slack(timeout_ms or None, slack_max, discards=discards)


def _adaptive_slack(arguments: Sequence[BoundExpression]) -> Callable[[], WindowContents]:
    values: list[Any] = [10_000, -1, -1, False, 0.03, 0.95]
    for place in range(len(arguments) - 2):
        values[place] = _constant(arguments, place + 2)
    batch, timeout_ms, slack_max, discards, error, confidence = values
    quality = Quality(int(batch), float(error), float(confidence))
    # A negative number stands for none.
    timeout = int(timeout_ms) if timeout_ms > 0 else None
    most = int(slack_max) if slack_max >= 0 else None
    return lambda: AdaptiveSlack(timeout, most, quality, discards=bool(discards))


def _by_length(*, rarest: bool) -> _Maker:
    def make(arguments: Sequence[BoundExpression]) -> Callable[[], WindowContents]:
        size, count = int(_constant(arguments, 1)), int(_constant(arguments, 2))
        return lambda: RankedLengthBatch(size, count, rarest=rarest)

    return make


def _by_time(*, rarest: bool) -> _Maker:
    def make(arguments: Sequence[BoundExpression]) -> Callable[[], WindowContents]:
        span_ms, count = int(_constant(arguments, 1)), int(_constant(arguments, -1))
        start_ms = int(_constant(arguments, 2)) if len(arguments) > 3 else None
        return lambda: RankedTimeBatch(span_ms, start_ms, count, rarest=rarest)

    return make


def _priorities(arguments: Sequence[BoundExpression]) -> Callable[[], WindowContents]:
    span_ms = int(_constant(arguments, 2))
    return lambda: Priorities(span_ms)


def _kalman(arguments: Sequence[BoundExpression]) -> Callable[[], WindowContents]:
    process, noise = float(_constant(arguments, 1)), float(_constant(arguments, 2))
    size, kinds = int(_constant(arguments, 3)), str(_constant(arguments, 4))
    return lambda: KalmanExtremes(process, noise, size, kinds)


def _kernel(arguments: Sequence[BoundExpression]) -> Callable[[], WindowContents]:
    width, size = float(_constant(arguments, 1)), int(_constant(arguments, 2))
    kinds = str(_constant(arguments, 3))
    return lambda: KernelExtremes(width, size, kinds)


#: By name, the maker of contents; they receive the values of all arguments.
PROCESSORS: Final[Mapping[str, _Maker]] = {
    "unique:deduplicate": _deduplicate,
    "reorder:akslack": _adaptive_slack,
    "reorder:kslack": _slack,
    "priority:time": _priorities,
    "extrema:kalmanMinMax": _kalman,
    "extrema:kernelMinMax": _kernel,
    "timeseries:kalmanMinMax": _kalman,
    "timeseries:kernelMinMax": _kernel,
    "extrema:topKLengthBatch": _by_length(rarest=False),
    "extrema:topKTimeBatch": _by_time(rarest=False),
    "extrema:bottomKLengthBatch": _by_length(rarest=True),
    "extrema:bottomKTimeBatch": _by_time(rarest=True),
}


def has_state(handler: BoundHandler) -> bool:
    """Whether it is a stream function with a state."""
    return isinstance(handler, BoundStreamFunction) and (
        handler.name in PROCESSORS or handler.name in EVENT_FUNCTIONS
    )


class StreamProcessor:
    """One stream function with a state.

    ``schema``: that of its output; ``failures``: the input events of the last call that failed,
    with the reasons; failed events are not processed.
    """

    def __init__(self, handler: BoundStreamFunction, schema: pa.Schema, timer_path: int) -> None:
        self._timer_path = timer_path
        self._arguments = [compile_expression(argument) for argument in handler.arguments]
        #: Values of the arguments of the events that are being processed.
        self._values: list[list[object]] = []
        self.failures: dict[int, str] = {}
        context = WindowContext(schema, timer_path, True, schema.names, False, False)
        make = PROCESSORS[handler.name](handler.arguments)
        self.window = PythonWindow(make, lambda rows: self._values, context, handler.adds)
        self.schema = self.window.schema

    def process(self, events: EventBatch, timeline: Timeline) -> EventBatch:
        """The events that it emits, and those of its timers."""
        self.failures = {}
        if len(events):
            frame = Frame.of_events(events)
            vectors = [evaluate(frame).spread(len(events)) for evaluate in self._arguments]
            columns = [object_values(vector) for vector in vectors]
            self.failures = frame.failures
            if frame.failures:
                rows = np.flatnonzero(~lost(frame, events))
                events = events.take(rows)
                columns = [[column[row] for row in rows.tolist()] for column in columns]
            self._values = [list(column) for column in columns]
        output = self.window.process(events, timeline)
        return with_timer_path(output, self._timer_path)


class FunctionsAndWindow:
    """The stream functions with a state of a query, and its window, if any, as one operator."""

    def __init__(
        self, functions: Sequence[PythonWindow | EventFunction], window: WindowOperator | None
    ) -> None:
        self._parts: dict[str, WindowOperator | EventFunction] = {
            f"function{place}": one for place, one in enumerate(functions)
        }
        if window is not None:
            self._parts["window"] = window

    def next_time(self) -> int | None:
        """Due time of the earliest timer; None without one."""
        times = (part.next_time() for part in self._parts.values())
        return min((time for time in times if time is not None), default=None)

    def forget(self, instances: Longs) -> None:
        """Drop these partition instances."""
        for part in self._parts.values():
            part.forget(instances)

    def snapshot(self) -> State:
        """The states of all."""
        return namespaced({name: part.snapshot() for name, part in self._parts.items()})

    def restore(self, state: State) -> None:
        """Restore what ``snapshot`` returned."""
        for name, part in self._parts.items():
            part.restore(subset(state, name))
