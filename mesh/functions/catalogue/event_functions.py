"""Stream functions of extensions that keep a state, but no events: one event in, one or none out.

Transcribed from the public API documentation of siddhi-execution-approximate.

Stream functions over series of events: ``timeseries:``, ``markov:`` and ``extrema:topK``.

Transcribed from the public API documentation of siddhi-execution-timeseries, -markov and -extrema.

Stream functions that learn: ``streamingml:``.

Transcribed from the public API documentation of siddhi-execution-streamingml and
siddhi-gpl-execution-streamingml.  Settings are constants, and features attributes, so that they can
be distinguished; the target of a tree or of rules is the last attribute.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

from mesh.functions.catalogue.model import Argument, ArgumentForm, NameKind, Objection, Reason
from mesh.functions.catalogue.notation import signatures
from mesh.model.types import NUMERIC, Attribute, AttributeType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mesh.functions.catalogue.model import Adds, Rule, Signature


#: Forms of an approximate count; ``{0}`` is its name, and that of its estimate, ``{1}`` a sentence.
_APPROXIMATE: Final = """
# {1}
approximate:{0}(value any) -> {0} long, {0}LowerBound long, {0}UpperBound long
approximate:{0}(value any, relative.error float|double constant) -> {0} long,
    {0}LowerBound long, {0}UpperBound long
approximate:{0}(value any, relative.error float|double constant,
    confidence float|double constant) -> {0} long, {0}LowerBound long, {0}UpperBound long
"""
_COUNTS: Final = {
    "count": "How often the value occurred, approximately, in a bounded memory.",
    "distinctCount": "The number of different values in the window before it, approximately.",
    "distinctCountEver": "The number of different values so far, approximately.",
}
#: Counters or registers of an approximate count, at most.
_CELLS_MAX: Final = 1 << 18

#: Settings: every n-th event is passed on, the number of events, and the confidence.
_SETTINGS: Final = (
    "calculation.interval int constant, batch.size int constant, "
    "confidence.interval double constant, "
)
#: Those that follow a time and a number of events.
_LATE: Final = "calculation.interval int constant, confidence.interval double constant, "
_SPAN: Final = "time.window int|long constant, batch.size int constant, "
_POINTS: Final = "y.stream number attribute, x.stream number attribute"
_MORE: Final = f"{_POINTS}, x.streams number attribute .."
_SERIES: Final = f"""
# Add a linear regression over the last events: stderr, beta0, beta1 ..
timeseries:regress({_SETTINGS}{_MORE})
timeseries:regress({_MORE})
# Add a linear regression, and its value for the next x.
timeseries:forecast({_SETTINGS}next.x.value number, {_POINTS})
timeseries:forecast(next.x.value number, {_POINTS})
# Add a linear regression, and whether the event is far from the one before.
timeseries:outlier({_SETTINGS}range number, {_POINTS})
timeseries:outlier(range number, {_POINTS})
# A regression over the events of a time, at most n.
timeseries:lengthTimeRegress({_SPAN}{_LATE}{_MORE})
timeseries:lengthTimeRegress({_SPAN}{_MORE})
# A forecast by the events of a time, at most n.
timeseries:lengthTimeForecast({_SPAN}next.x.value number, {_LATE}{_POINTS})
timeseries:lengthTimeForecast({_SPAN}next.x.value number, {_POINTS})
# Outliers from the events of a time, at most n.
timeseries:lengthTimeOutlier({_SPAN}range number, {_LATE}{_POINTS})
timeseries:lengthTimeOutlier({_SPAN}range number, {_POINTS})
"""
_CHAIN: Final = """
# Add the probability of the change of an id's state.
markov:markovChain(id string, state string, duration.to.keep int|long constant,
    alert.threshold double constant, notifications.limit int|long constant) -> lastState string,
    transitionProbability double, notify bool
markov:markovChain(id string, state string, duration.to.keep int|long constant,
    alert.threshold double constant, notifications.limit int|long constant,
    train bool constant) -> lastState string, transitionProbability double, notify bool
"""
_RANKED: Final = """
# The k most frequent values so far, or in the window before it.
extrema:topK(attribute scalar attribute, k.value int constant)
# The k least frequent values so far, or in the window before it.
extrema:bottomK(attribute scalar attribute, k.value int constant)
"""
_RANKS_MAX: Final = 100
#: Events that a regression holds, and the least number that stands for all.
_EVENTS_MAX: Final = 100_000
_ALL: Final = 100_000_000

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
_LEARNED_RULES: Final = (
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
        "updateAMRulesRegressor", _NAME, [_LEARNED_RULES], _TARGETED, "meanSquaredError double"
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


_LEARNED_ADDS: Final = {
    "streamingml:kMeansIncremental": _centroid,
    "streamingml:kMeansMiniBatch": _centroid,
    "streamingml:updatePerceptronClassifier": _weights,
}


def _with_adds(one: Signature) -> Signature:
    adds = _LEARNED_ADDS.get(one.name)
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


def ranked_attributes(side: str, value: AttributeType, count: int) -> tuple[Attribute, ...]:
    """The values of the ranks with their counts: Top1Element, Top1Frequency, .."""
    ranks = [f"{side}{rank}" for rank in range(1, count + 1)]
    return tuple(
        attribute
        for rank in ranks
        for attribute in (
            Attribute(f"{rank}Element", value),
            Attribute(f"{rank}Frequency", AttributeType.LONG),
        )
    )


def _ranks(side: str) -> Adds:
    def adds(arguments: tuple[Argument, ...]) -> tuple[Attribute, ...]:
        return ranked_attributes(side, arguments[0].type, int(arguments[1].value or 0))

    return adds


def _coefficients(name: str | None, kind: AttributeType = AttributeType.DOUBLE) -> Adds:
    """The standard error, a coefficient for y and each x, and ``name``, of type ``kind``."""

    def adds(arguments: tuple[Argument, ...]) -> tuple[Attribute, ...]:
        points = arguments[-2:]
        if name is None:
            points = tuple(one for one in arguments if one.form is ArgumentForm.ATTRIBUTE)
        names = ["stderr", *(f"beta{place}" for place in range(len(points)))]
        attributes = tuple(Attribute(one, AttributeType.DOUBLE) for one in names)
        return attributes if name is None else (*attributes, Attribute(name, kind))

    return adds


def _is_ranked(arguments: tuple[Argument, ...]) -> Objection | None:
    count = arguments[1].value
    if isinstance(count, int) and 0 < count <= _RANKS_MAX:
        return None
    return Objection(Reason.VALUE, f"takes 1 to {_RANKS_MAX} values as its last argument", 1)


def _is_chain(arguments: tuple[Argument, ...]) -> Objection | None:
    if isinstance(arguments[2].value, int) and arguments[2].value > 0:
        return None
    return Objection(Reason.VALUE, "takes a duration above 0", 2)


def _is_regression(arguments: tuple[Argument, ...]) -> Objection | None:
    settings = [
        (place, one) for place, one in enumerate(arguments) if one.form is ArgumentForm.CONSTANT
    ]
    # A single constant is that of a forecast or of a range.
    for place, one in settings if len(settings) > 1 else ():
        value = one.value
        if isinstance(value, int) and not isinstance(value, bool) and value < 0:
            return Objection(Reason.VALUE, "takes numbers above 0", place)
        if isinstance(value, int) and _EVENTS_MAX < value < _ALL and place == 1:
            what = f"takes up to {_EVENTS_MAX:,} events, or from {_ALL:,} on for all"
            return Objection(Reason.VALUE, what, place)
        if place < 2 and value == 0:
            return Objection(Reason.VALUE, "takes numbers above 0", place)
    return None


_RULES: Final = {
    "extrema:topK": _is_ranked,
    "extrema:bottomK": _is_ranked,
    "markov:markovChain": _is_chain,
    **dict.fromkeys(
        (line.partition("(")[0] for line in _SERIES.split("\n") if line), _is_regression
    ),
}
_ADDS: Final[dict[str, Adds]] = {
    "extrema:topK": _ranks("Top"),
    "extrema:bottomK": _ranks("Bottom"),
    "timeseries:regress": _coefficients(None),
    "timeseries:lengthTimeRegress": _coefficients(None),
    "timeseries:forecast": _coefficients("forecastY"),
    "timeseries:lengthTimeForecast": _coefficients("forecastY"),
    "timeseries:outlier": _coefficients("outlier", AttributeType.BOOL),
    "timeseries:lengthTimeOutlier": _coefficients("outlier", AttributeType.BOOL),
}
#: By name; all of them run.
SERIES: Final = {
    name: replace(one, overloads=tuple(replace(o, adds_for=_ADDS.get(name)) for o in one.overloads))
    for name, one in signatures(
        _SERIES + _CHAIN.lstrip() + _RANKED.lstrip(),
        NameKind.STREAM_PROCESSOR,
        runs=True,
        rules=_RULES,
    ).items()
}


def _is_possible(arguments: tuple[Argument, ...]) -> Objection | None:
    for place, one in enumerate(arguments[1:], 1):
        if not isinstance(one.value, float) or not 0 < one.value < 1:
            what = "takes a relative error and a confidence between 0 and 1"
            return Objection(Reason.VALUE, what, place)
    return None


def _has_few_counters(arguments: tuple[Argument, ...]) -> Objection | None:
    error, confidence = _value_at(arguments, 1, 0.01), _value_at(arguments, 2, 0.99)
    return _within(math.e / error * max(1.0, math.log(1 / (1 - confidence))))


def _has_few_registers(arguments: tuple[Argument, ...]) -> Objection | None:
    error, confidence = _value_at(arguments, 1, 0.01), _value_at(arguments, 2, 0.95)
    return _within((1.04 * NormalDist().inv_cdf((1 + confidence) / 2) / error) ** 2)


def _value_at(arguments: tuple[Argument, ...], place: int, otherwise: float) -> float:
    return float(arguments[place].value or 0) if place < len(arguments) else otherwise


def _within(cells: float) -> Objection | None:
    if cells <= _CELLS_MAX:
        return None
    what = f"would count with {cells:,.0f} numbers, and {_CELLS_MAX:,} are possible"
    return Objection(Reason.VALUE, what, 1, "Allow a greater error, or a lower confidence.")


def _count_rule(arguments: tuple[Argument, ...]) -> Objection | None:
    return _is_possible(arguments) or _has_few_counters(arguments)


def _distinct_rule(arguments: tuple[Argument, ...]) -> Objection | None:
    return _is_possible(arguments) or _has_few_registers(arguments)


#: By name; all of them run.
EVENT_FUNCTIONS: Final = (
    LEARNING
    | SERIES
    | signatures(
        "".join(_APPROXIMATE.format(*one) for one in _COUNTS.items()),
        NameKind.STREAM_PROCESSOR,
        runs=True,
        rules={
            "approximate:count": _count_rule,
            "approximate:distinctCount": _distinct_rule,
            "approximate:distinctCountEver": _distinct_rule,
        },
    )
)
