"""Registry of event functions: by name, what makes the models of a call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from mesh.operators.event_functions import clusters, learners, sketches, trees
from mesh.plan.bound import Constant

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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


def _settings(handler: BoundStreamFunction) -> tuple[str, tuple[Any, ...]]:
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


#: By name, the form of a call.
EVENT_FUNCTIONS: Final[Mapping[str, _Maker]] = {
    "approximate:count": _of_constants(sketches.value_count),
    "approximate:distinctCount": _of_constants(sketches.distinct_values(forgets=True)),
    "approximate:distinctCountEver": _of_constants(sketches.distinct_values(forgets=False)),
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
}
