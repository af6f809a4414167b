"""Values of drivers as those of attributes: exactly, or not at all."""

from __future__ import annotations

import decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from mesh.model.stored_limits import single
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_nats.arrow import ArrowArray

#: The driver's types that are an attribute's own; Arrow takes them all at once.
_NATIVE_TYPES: Final[dict[AttributeType, set[type]]] = {
    AttributeType.STRING: {str},
    AttributeType.INT: {int},
    AttributeType.LONG: {int},
    AttributeType.FLOAT: {float},
    AttributeType.DOUBLE: {float},
    AttributeType.BOOL: {bool},
    AttributeType.OBJECT: {bytes},
}


def column_of(listed: Sequence[Any], attribute: AttributeType) -> tuple[ArrowArray, dict[int, str]]:
    """Values as a column, and by row the reasons for those that it can't have, which are null."""
    if set(map(type, listed)) <= {*_NATIVE_TYPES[attribute], type(None)}:
        try:
            column = pa.array(listed, attribute.arrow)
            if attribute is not AttributeType.FLOAT or _are_single(listed):
                return column, {}
        except (OverflowError, pa.ArrowException):
            # One of the numbers is too large.
            pass
    values = []
    reasons: dict[int, str] = {}
    for row, value in enumerate(listed):
        try:
            values.append(None if value is None else exact(value, attribute))
        except (ValueError, TypeError, ArithmeticError):
            values.append(None)
            reasons[row] = f"{shown(value)}, which no {attribute} is"
    return pa.array(values, attribute.arrow), reasons


def exact(value: Any, attribute: AttributeType) -> Any:
    """A driver's value as an attribute's.

    Raises:
        ValueError, TypeError, ArithmeticError: it has no equal among them.
    """
    match attribute:
        case AttributeType.STRING:
            return _text(value)
        case AttributeType.BOOL:
            return bool([0, 1].index(value))
        case AttributeType.INT | AttributeType.LONG:
            return _whole(value, 31 if attribute is AttributeType.INT else 63)
        case AttributeType.FLOAT | AttributeType.DOUBLE:
            return _fraction(value, is_float=attribute is AttributeType.FLOAT)
        case AttributeType.OBJECT:
            return bytes(_of(value, bytes | bytearray | memoryview))


def shown(value: object) -> str:
    """The kind of a value, and the beginning of its text."""
    text = str(value)
    return f"{type(value).__name__} {text[:40]}{'..' if len(text) > 40 else ''}"


def _of(value: object, kinds: Any) -> Any:
    if not isinstance(value, kinds):
        raise TypeError(type(value).__name__)
    return value


def _text(value: object) -> str:
    if isinstance(value, float):
        return repr(value)
    return str(_of(value, str | int | decimal.Decimal))


def _whole(value: Any, bits: int) -> int:
    number = int(_of(value, int | float | decimal.Decimal))
    if number != value or not -(2**bits) <= number < 2**bits:
        raise ValueError(value)
    return number


def _are_single(listed: Sequence[float | None]) -> bool:
    """Whether numbers have single precision: the exact ones, or those of its shortest texts."""
    numbers = np.array([0.0 if value is None else value for value in listed], np.float64)
    return bool(np.all(single(numbers) | np.isnan(numbers)))


def _fraction(value: Any, *, is_float: bool) -> float:
    number = float(_of(value, int | float | decimal.Decimal))
    if isinstance(value, decimal.Decimal):
        # A double's shortest text is the number that it stands for.
        is_same = value.is_nan() or decimal.Decimal(repr(number)) == value
    else:
        is_same = number == value or number != number
    if not is_same or (is_float and not _are_single([number])):
        raise ValueError(value)
    return number
