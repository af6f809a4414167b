"""Rules of types: which values an attribute of each type accepts, and their conversion for Arrow.

Values are the Python objects that JSON or MessagePack gives.  ``reader_of`` returns the rule of a
type: a function that converts a value other than null for Arrow, or raises ``WrongValueError`` with
the path inside the attribute.

===============  ==================================================================================
type             is read from
===============  ==================================================================================
string           text
byte .. long     a whole number in range
float, double    a number in range; a whole one only if no digit is lost
boolean          true or false
timestamp        ISO 8601 text (UTC where it names no zone), whole seconds since 1970, or a
                 MessagePack timestamp; microseconds, further digits are cut
timestamp_ntz    ISO 8601 text without a zone
date             text ``2026-11-21``
binary           MessagePack binary, or base64 text
decimal          a number or text that fits without loss of digits
array            an array
struct           an object or map; attributes that the type does not know are ignored
map              an object, or a map with text for keys
===============  ==================================================================================

A number means whole seconds, as in Spark's ``from_json``.  Milliseconds would then be after the
year 9999, which is an error rather than a wrong time.
"""

from __future__ import annotations

import binascii
import math
import re
import reprlib
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import msgpack  # type: ignore[import-untyped]  # it has no stubs
import numpy as np
import orjson
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_nats.arrow import DataType
    from pyspark_nats.json_types import JsonObject

_SHOWN_MAX: Final = 60
#: Microseconds since 1970 of the first and last instant of the years 1 to 9999.
TIMES_MIN: Final = -62_135_596_800_000_000
TIMES_MAX: Final = 253_402_300_799_999_999
#: Days since 1970 of their first and last day.
DAYS_MIN: Final = -719_162
DAYS_MAX: Final = 2_932_896

_NAMES: Final = {
    pa.string(): "string",
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "bool",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
}


class WrongValueError(ValueError):
    """A value, or one inside of it, is missing or of a wrong type."""

    def __init__(self, value: object, expected: pa.DataType | None, path: str = "") -> None:
        super().__init__()
        self.value = value
        #: None for a missing value.
        self.expected = expected
        self.path = path

    def reason(self, name: str) -> str:
        """The error text for attribute ``name``."""
        place = f'attribute "{name}{self.path}"'
        if self.expected is None:
            return f"{place} is missing"
        return f"{place} is {shown(self.value)}, not {article(type_name(self.expected))}"

    def inside(self, step: str) -> WrongValueError:
        """The same error, with its path extended by one level."""
        return WrongValueError(self.value, self.expected, step + self.path)


def type_name(kind: pa.DataType) -> str:
    """The name of an Arrow type in messages to users.

    Raises:
        ValueError: no event can have attributes of it.
    """
    if kind in _NAMES:
        return _NAMES[kind]
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_map(kind):
        if not pa.types.is_string(kind.key_type):
            raise ValueError(f"attributes can't be of type {kind}: keys of a map are strings")
        type_name(kind.item_type)
        return "map"
    if pa.types.is_list(kind):
        type_name(kind.value_type)
        return "array"
    if pa.types.is_struct(kind):
        for field in kind.fields:
            type_name(field.type)
        return "struct"
    raise ValueError(f"attributes can't be of type {kind}")


def article(name: str) -> str:
    """The name with "a" or "an"."""
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"


def shown(value: object) -> str:
    """A value as JSON, shortened; any value, however deep."""
    try:
        text = orjson.dumps(value, default=_plain).decode()
    except (TypeError, ValueError, RecursionError):
        try:
            text = _BOUNDED.repr(value)
        except (ArithmeticError, RuntimeError, ValueError):
            text = type(value).__name__
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 3] + "..."


_BOUNDED: Final = reprlib.Repr()
_BOUNDED.maxstring = _BOUNDED.maxother = _BOUNDED.maxlong = _SHOWN_MAX + 1


def _plain(value: object) -> Any:
    if isinstance(value, Decimal):
        return orjson.Fragment(str(value))
    raise TypeError


def reader_of(kind: pa.DataType, missing: str) -> Callable[[object], object]:
    """The rule of a type.

    Args:
        kind: a type with a ``type_name``.
        missing: "error", or "null" if a struct may lack attributes.
    """
    if pa.types.is_integer(kind):
        return _whole(kind)
    if pa.types.is_floating(kind):
        return lambda value: _real(value, kind)
    if pa.types.is_decimal(kind):
        return _decimal(kind)
    if pa.types.is_timestamp(kind):
        return (lambda value: _instant(value, kind)) if kind.tz else (lambda v: _local(v, kind))
    if pa.types.is_date(kind):
        return lambda value: _day(value, kind)
    if pa.types.is_binary(kind):
        return lambda value: _octets(value, kind)
    if pa.types.is_map(kind):
        return _map(kind, missing)
    if pa.types.is_list(kind):
        return _list(kind, missing)
    if pa.types.is_struct(kind):
        return _struct(kind, missing)
    expected = str if pa.types.is_string(kind) else bool
    return lambda value: _instance(value, expected, kind)


def _instance(value: object, expected: type, kind: pa.DataType) -> object:
    if not isinstance(value, expected):
        raise WrongValueError(value, kind)
    return value


def _whole(kind: pa.DataType) -> Callable[[Any], Any]:
    low, high = int(np.iinfo(str(kind)).min), int(np.iinfo(str(kind)).max)

    def read(value: object) -> int:
        if type(value) is not int or not low <= value <= high:
            raise WrongValueError(value, kind)
        return value

    return read


def _real(value: Any, kind: pa.DataType) -> float:
    # A Decimal represents a JSON number with all of its digits.
    if type(value) not in (int, float, Decimal):
        raise WrongValueError(value, kind)
    number = real_of(value, kind)
    if number is None:
        raise WrongValueError(value, kind)
    return number


def real_of(value: int | float | Decimal, kind: pa.DataType) -> float | None:
    """The nearest number of a floating-point type.

    None if a finite number is beyond the range of the type, or if a whole number loses digits: the
    shortest decimal text of the result is another number.
    """
    try:
        double = float(value)
    except OverflowError:
        return None
    nearest: Any = double
    if kind.bit_width == 32:
        with np.errstate(over="ignore"):
            nearest = np.float32(double)
    if math.isinf(nearest):
        return double if type(value) is float and math.isinf(value) else None
    if type(value) is int and int(nearest) != value and Decimal(str(nearest)) != value:
        return None
    return float(nearest)


_DECIMAL_TEXT: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?")


def _decimal(kind: DataType) -> Callable[[object], object]:
    limit = Decimal(10) ** (kind.precision - kind.scale)

    def read(value: Any) -> Decimal:
        if type(value) is float:
            # From MessagePack: the shortest decimal text of the number is the intended value.
            number = Decimal(repr(value))
        elif type(value) in (int, Decimal) or (
            isinstance(value, str) and _DECIMAL_TEXT.fullmatch(value)
        ):
            number = Decimal(value)
        else:
            raise WrongValueError(value, kind)
        if (
            not number.is_finite()
            or number.copy_abs() >= limit
            or not _has_places(number, kind.scale)
        ):
            raise WrongValueError(value, kind)
        return number if number else Decimal(0)

    return read


def _has_places(number: Decimal, scale: int) -> bool:
    """Whether the number needs at most ``scale`` decimal places."""
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    excess = -scale - exponent
    return excess <= 0 or not any(digits[-excess:])


_ISO: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[T ]([0-9]{2})(?::([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?)?"
    r"(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  # arithmetic only
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()


def _iso(value: object, kind: pa.DataType) -> tuple[int, str | None]:
    """Microseconds since 1970 by the text's own clock, and its zone."""
    match = _ISO.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise WrongValueError(value, kind)
    year, month, day, hour, minute, second = (int(match[n] or 0) for n in range(1, 7))
    try:
        whole = datetime(year, month, day, hour, minute, second) - _EPOCH  # noqa: DTZ001
    except ValueError:
        raise WrongValueError(value, kind) from None
    fraction = int((match[7] or "0")[:6].ljust(6, "0"))
    return (whole.days * 86_400 + whole.seconds) * 1_000_000 + fraction, match[8]


def _instant(value: object, kind: pa.DataType) -> int:
    if type(value) is int:
        time_us = value * 1_000_000
    elif isinstance(value, msgpack.Timestamp):
        time_us = value.to_unix_nano() // 1000
    else:
        time_us, zone = _iso(value, kind)
        if zone and zone != "Z":
            hours, minutes = int(zone[1:3]), int(zone[3:].lstrip(":") or 0)
            if hours > 23 or minutes > 59:
                raise WrongValueError(value, kind)
            ahead_us = (hours * 60 + minutes) * 60_000_000
            time_us += ahead_us if zone[0] == "-" else -ahead_us
    if not TIMES_MIN <= time_us <= TIMES_MAX:
        raise WrongValueError(value, kind)
    return time_us


def _local(value: object, kind: pa.DataType) -> int:
    time_us, zone = _iso(value, kind)
    if zone:
        raise WrongValueError(value, kind)
    return time_us


_DAY: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")


def _day(value: object, kind: pa.DataType) -> int:
    match = _DAY.fullmatch(value) if isinstance(value, str) else None
    try:
        if match is not None:
            return date(int(match[1]), int(match[2]), int(match[3])).toordinal() - _EPOCH_DAY
    except ValueError:
        pass  # The day does not exist.
    raise WrongValueError(value, kind)


def _octets(value: object, kind: pa.DataType) -> bytes:
    if isinstance(value, bytes):
        return value
    try:
        if isinstance(value, str) and len(value) % 4 == 0:
            return binascii.a2b_base64(value, strict_mode=True)
    except ValueError:
        pass  # Invalid base64, or text beyond ASCII.
    raise WrongValueError(value, kind)


def _list(kind: DataType, missing: str) -> Callable[[object], object]:
    read_one = reader_of(kind.value_type, missing)

    def read(value: object) -> list[Any]:
        if not isinstance(value, list):
            raise WrongValueError(value, kind)
        items = []
        for place, item in enumerate(value):
            try:
                items.append(None if item is None else read_one(item))
            except WrongValueError as wrong:
                raise wrong.inside(f"[{place}]") from None
        return items

    return read


def _map(kind: DataType, missing: str) -> Callable[[object], object]:
    read_one = reader_of(kind.item_type, missing)

    def read(value: object) -> list[tuple[str, Any]]:
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise WrongValueError(value, kind)
        entries = []
        for key, item in value.items():
            try:
                entries.append((key, None if item is None else read_one(item)))
            except WrongValueError as wrong:
                raise wrong.inside(f".{key}") from None
        return entries

    return read


def _struct(kind: DataType, missing: str) -> Callable[[object], object]:
    readers = [(field.name, reader_of(field.type, missing)) for field in kind.fields]

    def read(value: object) -> JsonObject:
        if not isinstance(value, dict):
            raise WrongValueError(value, kind)
        fields: JsonObject = {}
        for name, read_one in readers:
            item = value.get(name)
            if item is None:
                if missing == "error" and name not in value:
                    raise WrongValueError(None, None, f".{name}")
                fields[name] = None
                continue
            try:
                fields[name] = read_one(item)
            except WrongValueError as wrong:
                raise wrong.inside(f".{name}") from None
        return fields

    return read
