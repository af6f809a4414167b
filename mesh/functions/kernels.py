"""Arithmetic, comparison and logic over vectors, with the reference engine's (Java's) semantics.

- Operands of arithmetic are converted to the result's type first; int and long wrap on overflow.
- Division and remainder truncate toward zero; a divisor of zero, of any type, gives null.
- Null in arithmetic gives null.  A comparison is never null: with a null operand it is false, and
  ``!=`` is the opposite of ``==``, so true.
- Operands of different types meet as Java's do: with a double as doubles, else with a float as
  floats, else as longs.
- In logic a null bool counts as false.

Source: observed on Siddhi 5.1.7; tests/cases/operators/expressions.jsonl.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from mesh.functions.vectors import Mask, Vector, dtype_of, either_null
from mesh.model.types import NUMERIC, AttributeType

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

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
