"""Stream functions that learn: ``streamingml:``.

Transcribed from the public API documentation of siddhi-execution-streamingml and
siddhi-gpl-execution-streamingml.  Settings are constants, and features attributes, so that they can
be distinguished; the target of a tree or of rules is the last attribute.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Final

from mesh.functions.catalogue.model import Argument, ArgumentForm, NameKind, Objection, Reason
from mesh.functions.catalogue.notation import signatures
from mesh.model.types import NUMERIC, Attribute, AttributeType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mesh.functions.catalogue.model import Rule, Signature

_NAME: Final = "model.name string constant"
_FEATURES: Final = "model.feature number attribute, more.features number attribute .."
#: With a target that follows the features.
_TARGETED: Final = (
    "model.feature number attribute, feature.or.target number|string|bool attribute, "
    "more.features.and.target number|string|bool attribute .."
)
_CLUSTERS: Final = "no.of.clusters int constant"
_DECAY: Final = "decay.rate double constant"
_TREE: Final = (
    "grace.period int constant, split.criterion int constant, split.confidence double constant, "
    "tie.break.threshold double constant, binary.split bool constant, pre.prune bool constant, "
    "leaf.prediction.strategy int constant"
)
_RULES: Final = (
    "split.confidence double constant, tie.break.threshold double constant, "
    "grace.period int constant, change.detector int constant, anomaly.detector int constant"
)
_PERCEPTRON_TARGET: Final = "model.label bool|string attribute"
_PREDICTION: Final = "prediction double, confidence double"
_CLUSTERS_MAX: Final = 1000


def _forms(name: str, first: str, options: Sequence[str], last: str, adds: str) -> Iterator[str]:
    """A line for each choice of ``options``, in order; the longest choice first."""
    for count in reversed(range(len(options) + 1)):
        for chosen in combinations(options, count):
            parts = ", ".join([first, *chosen, last])
            yield f"streamingml:{name}({parts})" + (f" -> {adds}" if adds else "")


def _lines() -> Iterator[str]:
    yield "# Add the prediction of a linear regression that another query trains."
    yield from _forms("bayesianRegression", _NAME, ["prediction.samples int constant"], _FEATURES,
                      _PREDICTION)  # fmt: skip
    optional = [
        "model.samples int constant",
        "model.optimizer string constant",
        "learning.rate double constant",
    ]
    target = f"{_NAME}, model.target number attribute"
    yield "# Train a linear regression; the target precedes the features."
    yield from _forms("updateBayesianRegression", target, optional, _FEATURES, "loss double")
    settings = (
        "model.bias double constant",
        "model.bias double constant, model.threshold double constant",
    )
    yield "# Add the class that a perceptron predicts, which another query trains."
    for one in (*reversed(settings), ""):
        first = f"{_NAME}, {one}" if one else _NAME
        yield from _forms("perceptronClassifier", first, [], _FEATURES,
                          "prediction bool, confidenceLevel double")  # fmt: skip
    first = f"{_NAME}, {_PERCEPTRON_TARGET}"
    yield "# Train a perceptron; the label precedes the features."
    yield from _forms(
        "updatePerceptronClassifier", first, ["learning.rate double constant"], _FEATURES, ""
    )
    yield "# Add the nearest of k centroids, which moves towards the point."
    yield from _forms("kMeansIncremental", _CLUSTERS, [_DECAY], _FEATURES, "")
    optional = [
        _DECAY,
        "maximum.iterations int constant",
        "no.of.events.to.retrain int constant",
    ]
    yield "# Add the nearest of k centroids, which are moved with every n points."
    yield from _forms("kMeansMiniBatch", _CLUSTERS, optional, _FEATURES, "")
    classes = f"{_NAME}, no.of.classes int constant"
    yield "# Train a tree; the last argument is the class."
    yield from _forms("updateHoeffdingTree", classes, [_TREE], _TARGETED, "accuracy double")
    yield "# Add the class that a tree predicts, which another query trains."
    yield from _forms(
        "hoeffdingTreeClassifier", _NAME, [], _FEATURES,
        "prediction string, confidenceLevel double",
    )  # fmt: skip
    yield "# Train a set of rules; the last argument is the number to predict."
    yield from _forms(
        "updateAMRulesRegressor", _NAME, [_RULES], _TARGETED, "meanSquaredError double"
    )
    yield "# Add the prediction of a set of rules that another query trains."
    yield from _forms(
        "AMRulesRegressor", _NAME, [], _FEATURES, "prediction double, meanSquaredError double"
    )


def _weights(arguments: tuple[Argument, ...]) -> tuple[Attribute, ...]:
    """The weight of each feature; the first attribute is the label."""
    _, *features = (one for one in arguments if one.form is ArgumentForm.ATTRIBUTE)
    return tuple(Attribute(f"{one.name}.weight", AttributeType.DOUBLE) for one in features)


def _centroid(arguments: tuple[Argument, ...]) -> tuple[Attribute, ...]:
    """The distance of the nearest centroid, and its coordinates."""
    count = sum(one.form is ArgumentForm.ATTRIBUTE for one in arguments)
    names = ["euclideanDistanceToClosestCentroid"]
    names += [f"closestCentroidCoordinate{place}" for place in range(1, count + 1)]
    return tuple(Attribute(name, AttributeType.DOUBLE) for name in names)


def _targets(*types: AttributeType) -> Rule:
    """The last argument, of ``types``, is the target, and the attributes before it are features."""

    def rule(arguments: tuple[Argument, ...]) -> Objection | None:
        *features, target = (one for one in arguments if one.form is ArgumentForm.ATTRIBUTE)
        if not features or target.type not in types:
            what = f"takes a {' or '.join(types)} as its last argument, the target of training"
            return Objection(Reason.TYPE, what, len(arguments) - 1)
        for place, one in enumerate(arguments[:-1]):
            if one.form is ArgumentForm.ATTRIBUTE and one.type not in NUMERIC:
                return Objection(Reason.TYPE, "takes numbers as its features", place)
        return _settings(arguments)

    return rule


def _settings(arguments: tuple[Argument, ...]) -> Objection | None:
    """Numbers of classes and of events are above 0, and choices among those that there are."""
    for place, one in enumerate(arguments):
        if isinstance(one.value, float) and not 0 <= one.value <= 1:
            return Objection(Reason.VALUE, "takes numbers from 0.0 to 1.0", place)
    whole = [
        (place, one.value)
        for place, one in enumerate(arguments)
        if one.type is AttributeType.INT and isinstance(one.value, int)
    ]
    # Of a tree the classes, the period, the criterion, and the prediction of leaves; of rules the
    # period, the detector of changes, and that of anomalies.
    has_classes = len(arguments) > 1 and arguments[1].type is AttributeType.INT
    bounds = ((1, 1000), (1, 100_000), (0, 1), (0, 2)) if has_classes else (
        (1, 100_000), (0, 2), (0, 2)
    )  # fmt: skip
    for (place, value), (least, most) in zip(whole, bounds, strict=False):
        if not least <= value <= most:
            return Objection(Reason.VALUE, f"takes a number from {least} to {most}", place)
    return None


def _is_clustering(arguments: tuple[Argument, ...]) -> Objection | None:
    for place, one in enumerate(arguments):
        if isinstance(one.value, float) and not 0 <= one.value <= 1:
            return Objection(Reason.VALUE, "takes a decay rate from 0.0 to 1.0", place)
        if isinstance(one.value, int) and not 1 <= one.value <= _CLUSTERS_MAX:
            what = f"takes numbers from 1 to {_CLUSTERS_MAX}"
            return Objection(Reason.VALUE, what, place)
    return None


_ADDS: Final = {
    "streamingml:kMeansIncremental": _centroid,
    "streamingml:kMeansMiniBatch": _centroid,
    "streamingml:updatePerceptronClassifier": _weights,
}


def _with_adds(one: Signature) -> Signature:
    adds = _ADDS.get(one.name)
    if adds is None:
        return one
    return replace(one, overloads=tuple(replace(o, adds_for=adds) for o in one.overloads))


_TEXT: Final = AttributeType.STRING, AttributeType.BOOL
#: By name; all of them run.
LEARNING: Final = {
    name: _with_adds(one)
    for name, one in signatures(
        "\n".join(_lines()),
        NameKind.STREAM_PROCESSOR,
        runs=True,
        rules={
            "streamingml:kMeansIncremental": _is_clustering,
            "streamingml:kMeansMiniBatch": _is_clustering,
            "streamingml:updateAMRulesRegressor": _targets(*NUMERIC),
            "streamingml:updateHoeffdingTree": _targets(*_TEXT),
        },
    ).items()
}
#: By name of those that ask a model, the one that trains it.
TRAINED_BY: Final = {
    "streamingml:AMRulesRegressor": "streamingml:updateAMRulesRegressor",
    "streamingml:bayesianRegression": "streamingml:updateBayesianRegression",
    "streamingml:hoeffdingTreeClassifier": "streamingml:updateHoeffdingTree",
    "streamingml:perceptronClassifier": "streamingml:updatePerceptronClassifier",
}
#: Those that need the library river.
OF_RIVER: Final = frozenset(name for name in LEARNING if "oeffding" in name or "AMRules" in name)
