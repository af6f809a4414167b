"""``math:`` functions over double, with the results of Java's ``Math``; and ``unitconversion:``.

Source: the documentation of siddhi-execution-math.  Two differences: where the extensions raise on
a null, these give null, and ``math:rand`` gives an event the same number in every replay.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from mesh.functions import kernels
from mesh.functions.catalogue import DOCUMENTED_FUNCTIONS
from mesh.functions.catalogue.notation import UNIT_RATIOS
from mesh.functions.identifiers import splitmix64
from mesh.functions.kernels import parse_real
from mesh.functions.vectors import Function, Rows, Vector, each_row, either_null
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from fractions import Fraction

    import numpy.typing as npt

    Array = npt.NDArray[Any]


RADIANS = 0.017453292519943295
_DEGREES = 57.29577951308232
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def _of(function: Callable[..., Array]) -> Function:
    """Wrap a function of doubles; the result is converted to the call's type."""

    def apply(arguments: Sequence[Vector], type: AttributeType, rows: Rows) -> Vector:
        doubles = [kernels.cast(a, AttributeType.DOUBLE) for a in arguments]
        # NumPy uses other loops, with other last bits, for values that are not contiguous.
        values = [np.ascontiguousarray(one.values) for one in doubles]
        with np.errstate(all="ignore"):
            results = function(*values)
        nulls = either_null(*doubles)
        if nulls is not None:
            nulls = np.broadcast_to(nulls, len(results))
        if type is AttributeType.BOOL:
            return Vector(type, results, nulls)
        double = Vector(AttributeType.DOUBLE, results.astype(np.float64), nulls)
        return kernels.cast(double, type)

    return apply


def _constant(value: float) -> Function:
    fixed = Vector(AttributeType.DOUBLE, np.array([value]))
    return lambda arguments, type, rows: fixed


def half_up(values: Array) -> Array:
    """To the nearest whole number, halves up."""
    floor = np.floor(values)
    # floor(x + 0.5) would round 0.49999999999999994 up.
    result: Array = floor + (values - floor >= 0.5)
    return result


def _exponents(values: Array) -> Array:
    _, exponents = np.frexp(values)
    small = np.abs(values) < np.finfo(np.float64).tiny
    plain = np.where(small, -1023, exponents - 1)
    return np.where(np.isfinite(values), plain, 1024)


def _arc_tangent(values: Array, *others: Array) -> Array:
    result: Array = np.arctan2(values, others[0]) if others else np.arctan(values)
    return result


def _maximum(a: Array, b: Array) -> Array:
    # Of two zeros the positive one is the larger.
    return np.where((a == 0) & (b == 0), np.where(np.signbit(a), b, a), np.maximum(a, b))


def _minimum(a: Array, b: Array) -> Array:
    return np.where((a == 0) & (b == 0), np.where(np.signbit(a), a, b), np.minimum(a, b))


def _power(a: Array, b: Array) -> Array:
    result: Array = np.power(a, b)
    # In Java 1 to the power of NaN or infinity is NaN; in C it is 1.
    return np.where((np.abs(a) == 1) & ~np.isfinite(b), np.nan, result)


def _in_base(base: int) -> Callable[[object], str]:
    def write(value: Any) -> str:
        bits = 32 if isinstance(value, np.int32) else 64
        return in_base(int(value) % (1 << bits), base)

    return write


def in_base(value: int, base: int) -> str:
    """A whole number written in a base from 2 to 36."""
    sign, value = ("-", -value) if value < 0 else ("", value)
    digits = ""
    while value >= base:
        value, digit = divmod(value, base)
        digits = _DIGITS[digit] + digits
    return sign + _DIGITS[value] + digits


def _hex(value: object) -> str:
    if not isinstance(value, float | np.floating):
        return _in_base(16)(value)
    number = float(value)
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    mantissa, _, exponent = number.hex().partition("p")
    whole, _, fraction = mantissa.partition(".")
    return f"{whole}.{fraction.rstrip('0') or '0'}p{int(exponent)}"


def parse_whole(text: str, bits: int, base: int = 10) -> int:
    """Parse a whole number of that many bits by Java's rules; ValueError if it isn't one."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not 2 <= base <= 36:
        raise ValueError(f"there are no digits to base {base}")
    if not digits.isalnum():
        raise ValueError(f"'{text}' is no whole number")
    try:
        value = int(text, base)
    except ValueError:
        raise ValueError(f"'{text}' is no whole number to base {base}") from None
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise ValueError(f"'{text}' is beyond {bits} bits")
    return value


def _conv(text: str, source: int, target: int) -> str:
    value = parse_whole(text, 32, int(source))
    # In Java an invalid base means ten.
    return in_base(value, int(target) if 2 <= target <= 36 else 10)


def _parse_real(text: str) -> float:
    value = parse_real(text)
    if value is None:
        raise ValueError(f"'{text}' is no number")
    return value


def _random(arguments: Sequence[Vector], type: AttributeType, rows: Rows) -> Vector:
    words = splitmix64(rows.numbers.view(np.uint64))
    if arguments:
        seeds = kernels.cast(arguments[0], AttributeType.LONG).values.view(np.uint64)
        words = splitmix64(words ^ seeds)
    return Vector(type, (words >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def _parsed(bits: int) -> Function:
    return each_row(lambda text: parse_whole(text, bits))


FUNCTIONS: dict[str, Function] = {
    "math:abs": _of(np.abs),
    "math:acos": _of(np.arccos),
    "math:asin": _of(np.arcsin),
    "math:atan": _of(_arc_tangent),
    "math:bin": each_row(_in_base(2)),
    "math:cbrt": _of(np.cbrt),
    "math:ceil": _of(np.ceil),
    "math:conv": each_row(_conv),
    "math:copysign": _of(np.copysign),
    "math:cos": _of(np.cos),
    "math:cosh": _of(np.cosh),
    "math:e": _constant(math.e),
    "math:exp": _of(np.exp),
    "math:floor": _of(np.floor),
    "math:getexponent": _of(_exponents),
    "math:hex": each_row(_hex),
    "math:isinfinite": _of(np.isinf),
    "math:isnan": _of(np.isnan),
    "math:ln": _of(np.log),
    "math:log": _of(lambda number, base: np.log(number) / np.log(base)),
    "math:log10": _of(np.log10),
    "math:log2": _of(lambda number: np.log(number) / math.log(2.0)),
    "math:max": _of(_maximum),
    "math:min": _of(_minimum),
    "math:oct": each_row(_in_base(8)),
    "math:parsedouble": each_row(_parse_real),
    "math:parsefloat": each_row(_parse_real),
    "math:parseint": _parsed(32),
    "math:parselong": _parsed(64),
    "math:pi": _constant(math.pi),
    "math:power": _of(_power),
    "math:rand": _random,
    "math:round": _of(half_up),
    "math:signum": _of(np.sign),
    "math:sin": _of(np.sin),
    "math:sinh": _of(np.sinh),
    "math:sqrt": _of(np.sqrt),
    "math:tan": _of(np.tan),
    "math:tanh": _of(np.tanh),
    "math:todegrees": _of(lambda values: values * _DEGREES),
    "math:toradians": _of(lambda values: values * RADIANS),
}


def _conversion(ratio: Fraction) -> Function:
    def apply(arguments: Sequence[Vector], type: AttributeType, rows: Rows) -> Vector:
        value = kernels.cast(arguments[0], AttributeType.DOUBLE)
        with np.errstate(all="ignore"):
            results = value.values * float(ratio.numerator) / float(ratio.denominator)
        return Vector(type, results, value.nulls)

    return apply


UNIT_FUNCTIONS: dict[str, Function] = {
    DOCUMENTED_FUNCTIONS[f"unitconversion:{name}"].bound_name: _conversion(ratio)
    for name, ratio in UNIT_RATIOS.items()
}
