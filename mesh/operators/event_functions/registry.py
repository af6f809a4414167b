"""Registry of event functions: by name, what makes the models of a call."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from mesh.operators.event_functions import (
    clusters,
    kalman,
    learners,
    markov,
    ranks,
    regression,
    sketches,
    trees,
)
from mesh.plan.bound import Constant

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mesh.model.values import Row
    from mesh.operators.event_functions.model import Form
    from mesh.plan.bound import BoundExpression, BoundStreamFunction

    _Maker = Callable[[BoundStreamFunction], Form]


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
        "tree", name, lambda: trees.HoeffdingTree(classes, tuple(settings)), -1
    )


def _update_rules(handler: BoundStreamFunction) -> Form:
    name, settings = _settings(handler)
    return learners.training("rules", name, lambda: trees.RulesRegressor(settings), -1)


def _asking(family: str) -> _Maker:
    def make(handler: BoundStreamFunction) -> Form:
        return learners.asking(family, _settings(handler)[0], len(handler.adds))

    return make


def _clustering(form: Callable[..., Form]) -> _Maker:
    return lambda handler: form(*_constants(handler.arguments))


def _markov(handler: BoundStreamFunction) -> Form:
    return markov.chain(*_constants(handler.arguments[2:]))


def _ranks(sign: int) -> _Maker:
    return lambda handler: ranks.ranks(sign, *_constants(handler.arguments[1:]))


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
    "kf:kalmanFilter": lambda handler: kalman.kalman(len(handler.arguments)),
    "markov:markovChain": _markov,
    "streamingml:AMRulesRegressor": _asking("rules"),
    "streamingml:bayesianRegression": _asking("bayesian"),
    "streamingml:hoeffdingTreeClassifier": _asking("tree"),
    "streamingml:kMeansIncremental": _clustering(clusters.incremental),
    "streamingml:kMeansMiniBatch": _clustering(clusters.mini_batch),
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
