"""Registry of event functions: by name, what makes the models of a call.

Event function of a query: a model for each partition instance, and the columns that it adds.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from mesh.functions.vectors import from_values, python_values
from mesh.operators.base import RESET, WHOLE, State
from mesh.operators.event_functions import learners, regression, sketches
from mesh.operators.expressions import Frame, compile_expression
from mesh.operators.failures import lost, stopped
from mesh.operators.state.range_pieces import NUMBER, cut, stored, table
from mesh.plan.bound import Constant

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mesh.model.values import Row
    from mesh.operators.base import Bools, EventBatch, Longs
    from mesh.operators.event_functions.model import Added, Form, Model
    from mesh.plan.bound import BoundExpression, BoundStreamFunction

    _Maker = Callable[[BoundStreamFunction], Form]


_MODELS: Final = "models"


class EventFunction:
    """One event function.

    ``schema``: that of its output; ``failures``: the input events of the last call that failed,
    with the reasons; failed events are not emitted. An event with a null argument, and one that
    resets aggregates, is passed on with nulls, and changes no state.
    """

    def __init__(self, handler: BoundStreamFunction, schema: pa.Schema) -> None:
        self._form = EVENT_FUNCTIONS[handler.name](handler)
        self._arguments = [
            compile_expression(argument)
            for place, argument in enumerate(handler.arguments)
            if place not in self._form.skips
            and not (self._form.skips_constants and isinstance(argument, Constant))
        ]
        self._adds = handler.adds
        self._nothing: Added = (None,) * len(handler.adds)
        self.schema = pa.schema([*schema, *(pa.field(a.name, a.type.arrow) for a in self._adds)])
        self.failures: dict[int, str] = {}
        self._models: dict[int, Model] = {}
        #: By instance, its state as text, unless it has changed since.
        self._texts: dict[int, str] = {}

    def process(self, events: EventBatch) -> EventBatch:
        """The events that it passes on, in order."""
        frame = Frame.of_events(events)
        vectors = [evaluate(frame).spread(len(events)) for evaluate in self._arguments]
        self.failures = frame.failures
        missing = np.zeros(len(events), dtype=np.bool_)
        for vector in vectors:
            missing |= vector.null_mask
        missing |= events.kind == RESET
        if frame.failures:
            missing |= lost(frame, events)
        read = self._form.read
        columns = [python_values(v) for v in vectors] if read is None else read(vectors)
        added: list[Added | None] = []
        places = zip(
            zip(*columns, strict=True) if columns else [()] * len(events),
            missing.tolist(),
            events.kind.tolist(),
            events.time_ms.tolist(),
            self._numbers(events),
            strict=True,
        )
        ended: Bools | None = None
        for row, (values, is_missing, kind, time_ms, instance) in enumerate(places):
            if is_missing or (ended is not None and ended[row]):
                added.append(self._nothing)
                continue
            model = self._models.get(instance)
            if model is None:
                model = self._models[instance] = self._form.make()
            self._texts.pop(instance, None)
            try:
                added.append(model.step(values, kind, time_ms))
            except (ValueError, ArithmeticError) as error:
                frame.failures.setdefault(row, str(error))
                added.append(None)
                # The models learn nothing from the rest of its chunk.
                ended = stopped(frame, events)
        return self._passed(events, frame, added)

    def _numbers(self, events: EventBatch) -> list[int]:
        """The number of each event's model."""
        return [WHOLE] * len(events) if self._form.is_shared else events.instance.tolist()

    def _passed(self, events: EventBatch, frame: Frame, added: list[Added | None]) -> EventBatch:
        mask = np.fromiter((one is not None for one in added), np.bool_, len(added))
        if frame.failures:
            mask &= ~lost(frame, events)
        rows = np.flatnonzero(mask)
        if len(rows) < len(events):
            events = events.take(rows)
        additions = [one for one in itertools.compress(added, mask.tolist()) if one]
        columns = [
            from_values([one[place] for one in additions], attribute.type).to_arrow(len(rows))
            for place, attribute in enumerate(self._adds)
        ]
        arrays = [*events.rows.columns, *columns]
        return events.with_rows(pa.RecordBatch.from_arrays(arrays, schema=self.schema))

    def next_time(self) -> int | None:
        """None: it has no timers."""
        return None

    def forget(self, instances: Longs) -> None:
        """Drop these partition instances."""
        if self._form.is_shared:
            return
        for instance in instances.tolist():
            self._models.pop(instance, None)
            self._texts.pop(instance, None)

    def snapshot(self) -> State:
        """The models, by instance, in pieces by ranges of instances."""
        for instance, model in self._models.items():
            # Another query may have changed a shared one.
            if instance not in self._texts or self._form.is_shared:
                self._texts[instance] = json.dumps(model.dump(), separators=(",", ":"))
        numbers = sorted(self._models)
        texts = pa.array([self._texts[number] for number in numbers], pa.string())
        return State(cut(_MODELS, table(numbers, {"json": texts})))

    def restore(self, state: State) -> None:
        """Restore the models."""
        self._models, self._texts = {}, {}
        batch = stored(_MODELS, state.pieces)
        if batch is None:
            return
        rows = zip(batch.column(NUMBER), batch.column("json"), strict=True)
        for number, text in rows:
            instance, written = number.as_py(), text.as_py()
            model = self._models[instance] = self._form.make()
            model.load_dump(json.loads(written))
            self._texts[instance] = written


def _of_constants(form: Callable[..., Form]) -> _Maker:
    """``form`` of the constants that follow the first argument."""

    def make(handler: BoundStreamFunction) -> Form:
        return form(*_constants(handler.arguments[1:]))

    return make


def _constants(arguments: Sequence[BoundExpression]) -> list[Any]:
    return [one.value for one in arguments if isinstance(one, Constant)]


def _settings(handler: BoundStreamFunction) -> tuple[str, Row]:
    """The name of the model, and the constants after it."""
    name, *settings = _constants(handler.arguments)
    return str(name), tuple(settings)


def _update_perceptron(handler: BoundStreamFunction) -> Form:
    name, rate = _settings(handler)
    return learners.training("perceptron", name, lambda: learners.Perceptron(*rate or (0.1,)), 0)


def _ask_perceptron(handler: BoundStreamFunction) -> Form:
    name, settings = _settings(handler)
    return learners.classifying(name, *settings)


def _update_regression(handler: BoundStreamFunction) -> Form:
    # Samples, optimizer and rate are those of an approximation; this one is exact.
    name, _ = _settings(handler)
    return learners.training("bayesian", name, learners.BayesianRegression, 0)


def _update_tree(handler: BoundStreamFunction) -> Form:
    name, (classes, *settings) = _settings(handler)
    return learners.training(
        "tree", name, lambda: learners.HoeffdingTree(classes, tuple(settings)), -1
    )


def _update_rules(handler: BoundStreamFunction) -> Form:
    name, settings = _settings(handler)
    return learners.training("rules", name, lambda: learners.RulesRegressor(settings), -1)


def _asking(family: str) -> _Maker:
    def make(handler: BoundStreamFunction) -> Form:
        return learners.asking(family, _settings(handler)[0], len(handler.adds))

    return make


def _clustering(form: Callable[..., Form]) -> _Maker:
    return lambda handler: form(*_constants(handler.arguments))


def _markov(handler: BoundStreamFunction) -> Form:
    return regression.chain(*_constants(handler.arguments[2:]))


def _ranks(sign: int) -> _Maker:
    return lambda handler: sketches.ranks(sign, *_constants(handler.arguments[1:]))


def _regression(kind: str, settings: tuple[int, ...], span: int | None = None) -> _Maker:
    """A call with or without ``settings``: places of the interval, the number and the confidence.

    With ``span``, the place of a time, the number has its own place in the short form, too.
    """

    def make(handler: BoundStreamFunction) -> Form:
        arguments = handler.arguments
        last = settings[-1]
        is_long = len(arguments) > last + 2 and isinstance(arguments[last], Constant)
        places = settings if is_long else settings[1:2] if span is not None else ()
        values = [_constant(arguments[place]) for place in places]
        if len(values) == 1:
            values = [1, values[0], 0.95]
        span_ms = None if span is None else _constant(arguments[span])
        form = regression.regression(kind, len(handler.adds), values, span_ms)
        taken = places if span is None else (span, *places)
        return replace(form, skips=taken)

    return make


def _constant(argument: BoundExpression) -> Any:
    assert isinstance(argument, Constant), "the catalogue accepts a constant here"
    return argument.value


#: By name, the form of a call.
EVENT_FUNCTIONS: Final[Mapping[str, _Maker]] = {
    "approximate:count": _of_constants(sketches.value_count),
    "approximate:distinctCount": _of_constants(sketches.distinct_values(forgets=True)),
    "approximate:distinctCountEver": _of_constants(sketches.distinct_values(forgets=False)),
    "extrema:bottomK": _ranks(1),
    "extrema:topK": _ranks(-1),
    "kf:kalmanFilter": lambda handler: regression.kalman(len(handler.arguments)),
    "markov:markovChain": _markov,
    "streamingml:AMRulesRegressor": _asking("rules"),
    "streamingml:bayesianRegression": _asking("bayesian"),
    "streamingml:hoeffdingTreeClassifier": _asking("tree"),
    "streamingml:kMeansIncremental": _clustering(learners.incremental),
    "streamingml:kMeansMiniBatch": _clustering(learners.mini_batch),
    "streamingml:perceptronClassifier": _ask_perceptron,
    "streamingml:updateAMRulesRegressor": _update_rules,
    "streamingml:updateBayesianRegression": _update_regression,
    "streamingml:updateHoeffdingTree": _update_tree,
    "streamingml:updatePerceptronClassifier": _update_perceptron,
    "timeseries:forecast": _regression("forecast", (0, 1, 2)),
    "timeseries:lengthTimeForecast": _regression("forecast", (3, 1, 4), 0),
    "timeseries:lengthTimeOutlier": _regression("outlier", (3, 1, 4), 0),
    "timeseries:lengthTimeRegress": _regression("regress", (2, 1, 3), 0),
    "timeseries:outlier": _regression("outlier", (0, 1, 2)),
    "timeseries:regress": _regression("regress", (0, 1, 2)),
}
