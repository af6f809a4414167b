"""Arithmetic, comparison and logic over vectors, with the reference engine's (Java's) semantics.

- Operands of arithmetic are converted to the result's type first; int and long wrap on overflow.
- Division and remainder truncate toward zero; a divisor of zero, of any type, gives null.
- Null in arithmetic gives null.  A comparison is never null: with a null operand it is false, and
  ``!=`` is the opposite of ``==``, so true.
- Operands of different types meet as Java's do: with a double as doubles, else with a float as
  floats, else as longs.
- In logic a null bool counts as false.

Source: observed on Siddhi 5.1.7; tests/cases/operators/expressions.jsonl.

``convert(x, 'type')``: type conversion as in the reference engine.

Text is parsed and formatted with Java's rules.  That is done once for each distinct value, in
Python: Arrow implements neither Java's number formats nor its parsers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mesh.functions.objects import java_text as java_text
from mesh.functions.objects import object_text
from mesh.functions.vectors import Mask, Vector, dtype_of, either_null
from mesh.model.types import NUMERIC, AttributeType

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from pyspark_nats.arrow import ArrowArray

    Array = npt.NDArray[Any]


def cast(vector: Vector, type: AttributeType) -> Vector:
    """Convert numbers to another numeric type by Java's casts: wrapping, saturating, rounding."""
    if vector.type is type:
        return vector
    dtype = dtype_of(type)
    values = vector.values
    if values.dtype.kind == "f" and dtype.kind == "i":
        values = _truncate(values, dtype)
    else:
        # A double beyond float's range becomes infinite, as in Java.
        with np.errstate(over="ignore", invalid="ignore"):
            values = values.astype(dtype)
    return Vector(type, values, vector.nulls)


def _truncate(values: Array, dtype: np.dtype[Any]) -> Array:
    """Floating point to integer: toward zero, NaN to 0, out of range to the nearest limit."""
    info = np.iinfo(dtype)
    wide = values.astype(np.float64)
    # The largest long is no double, so values from 2**63 on are set separately.
    high, low = wide >= float(info.max), wide <= float(info.min)
    plain = np.where(np.isnan(wide) | high | low, 0.0, wide).astype(dtype)
    plain[high] = info.max
    plain[low] = info.min
    return plain


def arithmetic(operator: str, left: Vector, right: Vector, type: AttributeType) -> Vector:
    """``left operator right`` for ``+ - * / %``, as numbers of ``type``."""
    a, b = cast(left, type).values, cast(right, type).values
    nulls = either_null(left, right)
    with np.errstate(all="ignore"):
        match operator:
            case "+":
                return Vector(type, a + b, nulls)
            case "-":
                return Vector(type, a - b, nulls)
            case "*":
                return Vector(type, a * b, nulls)
            case "/" | "%":
                return _divide(operator, a, b, nulls, type)
            case _:
                raise AssertionError(f"no arithmetic operator: {operator}")


def _divide(operator: str, a: Array, b: Array, nulls: Mask | None, type: AttributeType) -> Vector:
    a, b = np.broadcast_arrays(a, b)
    zero = b == 0
    if zero.any():
        b = np.where(zero, b.dtype.type(1), b)
        nulls = zero if nulls is None else nulls | zero
    if a.dtype.kind == "f":
        return Vector(type, a / b if operator == "/" else np.fmod(a, b), nulls)
    # fmod on integers keeps the dividend's sign, as Java's remainder does; a less it is a multiple
    # of b, so that flooring division is exact.
    remainder = np.fmod(a, b)
    return Vector(type, (a - remainder) // b if operator == "/" else remainder, nulls)


def negate(operand: Vector) -> Vector:
    """``-operand``; the least int and long are their own negation."""
    with np.errstate(over="ignore"):
        return Vector(operand.type, np.negative(operand.values), operand.nulls)


_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": np.equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


def compare(operator: str, left: Vector, right: Vector) -> Vector:
    """``left operator right`` for ``== != < <= > >=``; never null."""
    if operator == "!=":
        return Vector(AttributeType.BOOL, ~compare("==", left, right).values)
    if AttributeType.STRING in (left.type, right.type):
        return _compare_strings(left, right)
    if left.type is AttributeType.BOOL or right.type is AttributeType.BOOL:
        a, b = left.values, right.values
    else:
        type = common_numeric_type(operator, left.type, right.type)
        a, b = cast(left, type).values, cast(right, type).values
    result = _COMPARE[operator](a, b)
    nulls = either_null(left, right)
    return Vector(AttributeType.BOOL, result if nulls is None else result & ~nulls)


def common_numeric_type(operator: str, left: AttributeType, right: AttributeType) -> AttributeType:
    """The numeric type that two operands of a comparison are converted to."""
    if operator == "==" and {left, right} == {AttributeType.LONG, AttributeType.FLOAT}:
        # Java would convert both to float; the engine compares these as doubles.
        return AttributeType.DOUBLE
    return max(left, right, key=NUMERIC.index)


def _compare_strings(left: Vector, right: Vector) -> Vector:
    if left.type is not right.type:
        # A bare null is the only non-string operand of a string comparison.
        return Vector(AttributeType.BOOL, np.zeros(max(len(left), len(right)), dtype=np.bool_))
    a = left.values[0] if len(left) == 1 and len(right) != 1 else left.values
    b = right.values[0] if len(right) == 1 and len(left) != 1 else right.values
    equal = pc.fill_null(pc.equal(a, b), False)
    return Vector(AttributeType.BOOL, equal.to_numpy(zero_copy_only=False))


def truth(operand: Vector) -> Mask:
    """Mask of the rows where a bool is true; null counts as false."""
    values: Mask = operand.values
    return values if operand.nulls is None else values & ~operand.nulls


def logic(operator: str, left: Vector, right: Vector) -> Vector:
    """``and``, ``or``; never null."""
    a, b = truth(left), truth(right)
    return Vector(AttributeType.BOOL, a & b if operator == "and" else a | b)


def invert(operand: Vector) -> Vector:
    """``not operand``; never null."""
    return Vector(AttributeType.BOOL, ~truth(operand))


def is_null(operand: Vector) -> Vector:
    """``operand is null``."""
    return Vector(AttributeType.BOOL, operand.null_mask)


_INTEGER = re.compile(r"[+-]?\d+\Z")
_DECIMAL = re.compile(
    r"([+-]?)(?:(NaN|Infinity)|((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|(0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?)\Z"
)
#: The characters that Java's trim() removes.
_BLANK = "".join(map(chr, range(33)))


def convert(vector: Vector, type: AttributeType) -> Vector:
    """``vector`` as ``type``; text that is not a number gives null, or false for bool."""
    if type is AttributeType.STRING:
        return _to_text(vector)
    if vector.type is AttributeType.STRING:
        return _from_text(vector, type)
    if type is AttributeType.BOOL:
        # Only 1 is true; there is no null bool, so null converts to false.
        true = vector.values == 1
        return Vector(type, true if vector.nulls is None else true & ~vector.nulls)
    return cast(vector, type)


def _from_text(vector: Vector, type: AttributeType) -> Vector:
    texts = vector.values
    if type is AttributeType.BOOL:
        is_true = pc.equal(pc.ascii_lower(texts), pa.scalar("true"))
        true = pc.fill_null(is_true, pa.scalar(False))
        return Vector(type, true.to_numpy(zero_copy_only=False))
    parse = parse_real if type in (AttributeType.FLOAT, AttributeType.DOUBLE) else _parse_integer
    if type is AttributeType.INT:
        parse = _parse_int
    whole = dtype_of(type).kind == "i"
    parsed = _each(texts, parse, pa.int64() if whole else pa.float64())
    nulls = parsed.is_null().to_numpy(zero_copy_only=False)
    values: Any = parsed.fill_null(0).to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        return Vector(type, values.astype(dtype_of(type)), nulls if nulls.any() else None)


def _to_text(vector: Vector) -> Vector:
    if vector.type is AttributeType.STRING:
        return vector
    if vector.type is AttributeType.OBJECT:
        texts = [None if value is None else object_text(value) for value in vector.values]
        return Vector(AttributeType.STRING, pa.array(texts, pa.string()))
    array = vector.to_arrow(len(vector))
    if vector.type is AttributeType.FLOAT:
        text = _each(array, lambda x: java_text(np.float32(x)), pa.string())
    elif vector.type is AttributeType.DOUBLE:
        text = _each(array, lambda x: java_text(np.float64(x)), pa.string())
    else:
        text = array.cast(pa.string())
    return Vector(AttributeType.STRING, text)


def _each(array: ArrowArray, function: Callable[[Any], Any], type: pa.DataType) -> ArrowArray:
    """``function`` of each distinct value; null stays null."""
    coded = array.dictionary_encode()
    results = pa.array([function(v) for v in coded.dictionary.to_pylist()], type)
    return results.take(coded.indices)


def _parse_integer(text: str) -> int | None:
    if not _INTEGER.match(text):
        return None
    value = int(text)
    return value if -(2**63) <= value < 2**63 else None


def _parse_int(text: str) -> int | None:
    value = _parse_integer(text)
    return value if value is not None and -(2**31) <= value < 2**31 else None


def parse_real(text: str) -> float | None:
    """Parse a double by Java's rules; None if the text is no number."""
    match = _DECIMAL.match(text.strip(_BLANK))
    if not match:
        return None
    sign, word, decimal, hexadecimal = match.groups()
    try:
        value = float.fromhex(hexadecimal) if hexadecimal else float(word or decimal)
    except OverflowError:
        value = float("inf")
    return -value if sign == "-" else value
