"""Stream functions over series of events: ``timeseries:``, ``markov:`` and ``extrema:topK``.

Transcribed from the public API documentation of siddhi-execution-timeseries, -markov and -extrema.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mesh.functions.catalogue.model import Argument, ArgumentForm, NameKind, Objection, Reason
from mesh.functions.catalogue.notation import signatures
from mesh.model.types import Attribute, AttributeType

if TYPE_CHECKING:
    from mesh.functions.catalogue.model import Adds

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
