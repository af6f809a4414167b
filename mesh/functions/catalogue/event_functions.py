"""Stream functions of extensions that keep a state, but no events: one event in, one or none out.

Transcribed from the public API documentation of siddhi-execution-approximate.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Final

from mesh.functions.catalogue.learning import LEARNING
from mesh.functions.catalogue.model import Argument, NameKind, Objection, Reason
from mesh.functions.catalogue.notation import signatures
from mesh.functions.catalogue.series import SERIES

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
