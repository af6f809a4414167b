"""Values of JSON and of typed formats for attributes: one conversion for all of them.

A parser gives values of Python, and ``Exact`` for what Python has no exact type for.  Here they
become values that ``pyspark_nats.decode.values`` accepts; what has no exact value is left as it is,
and is refused there with the attribute's name.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import msgpack  # type: ignore[import-untyped]  # it has no stubs
import numpy as np
import pyarrow as pa

from mesh.functions.exact_json import JsonReal, write_exact
from pyspark_nats.decode.values import real_of

_STRING = pa.string().id
_PLAIN = frozenset((bool, int, float))


class Exact:
    """A time, a decimal or the like: its exact text, and its number if it has one."""

    __slots__ = ("number", "text")

    def __init__(self, text: str, number: int | Decimal | None = None) -> None:
        self.text, self.number = text, number

    def __repr__(self) -> str:
        return self.text


def value_for(value: object, kind: Any) -> Any:
    """The value for an attribute of a type; the same value if there is none."""
    value_type = type(value)
    if value is None or value_type is str or (value_type in _PLAIN and kind.id != _STRING):
        return value
    if isinstance(value, msgpack.Timestamp):
        value = instant(value.seconds * 1_000_000_000 + value.nanoseconds, "ns", "ms")
    if pa.types.is_string(kind):
        return value if value is None or isinstance(value, str) else _text_of(value)
    if isinstance(value, JsonReal):
        return float(value) if math.isfinite(value) else value
    if not isinstance(value, Exact) or value.number is None or pa.types.is_boolean(kind):
        return value
    number = value.number
    if isinstance(number, Decimal):
        if pa.types.is_floating(kind):
            real = real_of(number, kind)
            shortest = np.float32(real) if kind.bit_width == 32 and real is not None else real
            return real if shortest is not None and Decimal(str(shortest)) == number else value
        return int(number) if number == number.to_integral_value() else value
    return number


def _text_of(value: object) -> object:
    """The exact text of a value; the value itself if it, or one inside, is octets."""
    if isinstance(value, Exact):
        return value.text
    try:
        return write_exact(_plain(value))
    except (TypeError, ValueError):
        return value


def _plain(value: object) -> Any:
    """A value with those of JSON only."""
    match value:
        case Exact():
            return JsonReal(value.text) if isinstance(value.number, Decimal) else value.text
        case msgpack.Timestamp():
            return value_for(value, pa.string())
        case list() | tuple():
            return [_plain(one) for one in value]
        case dict():
            return {_key(key): _plain(one) for key, one in value.items()}
        case _:
            return value


def _key(key: object) -> str:
    if not isinstance(key, str | int) or isinstance(key, bool):
        raise TypeError(f"a map has the key {key!r}")
    return str(key)


_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def instant(count: int, unit: str, number_unit: str = "", *, is_local: bool = False) -> Exact:
    """A time as ISO 8601, in UTC if it is not local.

    Args:
        count: units since 1970.
        unit: "s", "ms", "us" or "ns".
        number_unit: of the number, which is None if the time is none of it; ``unit`` if empty.
        is_local: the time has no zone.
    """
    per_second = _UNITS[unit]
    seconds, rest = divmod(count, per_second)
    text = f"{np.datetime64(seconds, 's')}{_fraction(rest, per_second)}{'' if is_local else 'Z'}"
    number, odd = divmod(count * _UNITS[number_unit or unit], per_second)
    return Exact(text, None if odd else number)


def time_of_day(count: int, unit: str) -> Exact:
    """A time of day as ISO 8601; more than a day has no text.

    Raises:
        ValueError: it is beyond a day.
    """
    per_second = _UNITS[unit]
    seconds, rest = divmod(count, per_second)
    if not 0 <= seconds < 86_400:
        raise ValueError(f"{count} {unit} is no time of a day")
    hours, minutes = divmod(seconds // 60, 60)
    return Exact(f"{hours:02}:{minutes:02}:{seconds % 60:02}{_fraction(rest, per_second)}", count)


def _fraction(rest: int, per_second: int) -> str:
    """The fraction of a second with 0, 3, 6 or 9 digits, as Java writes it."""
    if not rest:
        return ""
    digits = f"{rest * (10**9 // per_second):09}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return f".{digits}"


def day(count: int) -> Exact:
    """A day by its number since 1970, as ISO 8601."""
    return Exact(str(np.datetime64(count, "D")), count)


def decimal(unscaled: int, scale: int) -> Exact:
    """A decimal; its text has all digits of the scale."""
    digits = tuple(map(int, str(abs(unscaled))))
    number = Decimal((unscaled < 0, digits, -scale))
    return Exact(format(number, "f"), number)
