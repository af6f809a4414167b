"""Exact texts of columns: which text a column has of a text that is written to it.

A text that the column would change into another value, or refuse, has no form: a fraction that is
cut, a zone that is dropped, a label that is unknown.  Sessions of the mesh show values in UTC, ISO
dates, and intervals of PostgreSQL's style.
"""

from __future__ import annotations

import datetime
import decimal
import ipaddress
import json
import re
import uuid
from typing import TYPE_CHECKING, Any, Final
from xml.parsers import expat

import numpy as np

from mesh.model.column_types import Backend, Kind, NoFormError, matched

if TYPE_CHECKING:
    from collections.abc import Callable

    from mesh.model.column_types import ColumnType


_IS_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?")
_IS_WHOLE: Final = re.compile(r"[+-]?\d+")
_IS_MONEY: Final = re.compile(r"(-?)\$?(\d{1,3}(?:,\d{3})+|\d+)(\.\d{1,2})?")
_IS_MAC: Final = re.compile(r"[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5}(?:(?::[0-9a-fA-F]{2}){2})?")
_NUMBERS: Final = decimal.Context(prec=1000)
_QUOTED: Final = re.compile(r'[\s{}",\\]')

_DATE: Final = r"(\d{4,6})-(\d\d)-(\d\d)"
_CLOCK: Final = r"(\d\d):(\d\d):(\d\d)(?:\.(\d+))?"
_ZONE: Final = r"(Z|[+-]\d\d(?::?\d\d)?)"
_IS_DATE: Final = re.compile(rf"{_DATE}( BC)?")
_IS_CLOCK: Final = re.compile(rf"{_CLOCK}{_ZONE}?")
_IS_TIME: Final = re.compile(rf"{_DATE}[ T]{_CLOCK}{_ZONE}?( BC)?")
_IS_HOURS: Final = re.compile(r"(-?)(\d{2,3}):([0-5]\d):([0-5]\d)(?:\.(\d+))?")
_IS_INTERVAL: Final = re.compile(
    r"(?=.)(?:[+-]?\d+ years?)?(?: ?[+-]?\d+ mons?)?(?: ?[+-]?\d+ days?)?"
    r"(?: ?[+-]?\d{2,}:[0-5]\d:[0-5]\d(?:\.\d{1,6})?)?"
)
_SPECIAL_TIMES: Final = ("infinity", "-infinity")
#: Digits of a second's fraction where the type has no other number.
_FRACTION: Final = 6
#: Last second of MySQL's TIMESTAMP, and the longest TIME, in hours.
_LAST: Final = datetime.datetime(2038, 1, 19, 3, 14, 7, 999999)  # noqa: DTZ001
_FIRST: Final = datetime.datetime(1970, 1, 1, 0, 0, 1)  # noqa: DTZ001
_HOURS: Final = 838


def date_form(column: ColumnType, text: str) -> str:
    """A date."""
    if text in _SPECIAL_TIMES and column.backend is Backend.POSTGRESQL:
        return text
    year, month, day, is_before = matched(_IS_DATE, text).groups()
    _check_day(column, int(year), int(month), int(day), is_before is not None)
    return text


def _check_day(column: ColumnType, year: int, month: int, day: int, is_before: bool) -> None:
    if is_before or year > 9999:
        if column.backend is not Backend.POSTGRESQL:
            raise NoFormError("the year is beyond the range")
        # The calendar repeats itself after 400 years; 1 BC is the year 0.
        year = (1 - year if is_before else year) % 400 + 400
    datetime.date(year, month, day)


def _fraction(column: ColumnType, digits: str | None) -> str:
    """A second's fraction as the column shows it, with its point."""
    most = _FRACTION if column.length is None else column.length
    decimals = (digits or "").rstrip("0")
    if len(decimals) > most:
        raise NoFormError(f"it has more than {most} digits after the second")
    if column.backend is Backend.MYSQL:
        return "." + decimals.ljust(most, "0") if most else ""
    return "." + decimals if decimals else ""


def time_form(column: ColumnType, text: str) -> str:
    """A time of day, or MySQL's span of hours."""
    if column.backend is Backend.MYSQL:
        sign, hours, minutes, seconds, digits = matched(_IS_HOURS, text).groups()
        if int(hours) > _HOURS:
            raise NoFormError("it is beyond the range")
        return f"{sign}{hours}:{minutes}:{seconds}{_fraction(column, digits)}"
    hour, minute, second, digits, zone = matched(_IS_CLOCK, text).groups()
    if (zone is None) is (column.kind is Kind.TIMETZ):
        raise NoFormError("it needs a zone such as +00" if zone is None else "it has a zone")
    if (hour, minute, second) != ("24", "00", "00") or (digits or "").strip("0"):
        datetime.time(int(hour), int(minute), int(second))
    shown = f"{hour}:{minute}:{second}{_fraction(column, digits)}"
    return shown if zone is None else shown + _shown_zone(zone)


def _shown_zone(zone: str) -> str:
    if zone == "Z":
        return "+00"
    hours, minutes = zone[:3], zone[3:].removeprefix(":")
    if hours == "-00" and not minutes.strip("0"):
        hours = "+00"
    return hours if not minutes.strip("0") else f"{hours}:{minutes}"


def timestamp_form(column: ColumnType, text: str) -> str:
    """A date with a time, in UTC where the column has a zone."""
    is_postgresql = column.backend is Backend.POSTGRESQL
    if text in _SPECIAL_TIMES and is_postgresql:
        return text
    match = matched(_IS_TIME, text)
    year, month, day, hour, minute, second, digits, zone, is_before = match.groups()
    is_zoned = column.kind is Kind.TIMESTAMPTZ
    if zone is not None and not is_zoned:
        raise NoFormError("the column has no zone")
    if zone is None and is_zoned and is_postgresql:
        raise NoFormError("it needs a zone such as +00")
    fraction = _fraction(column, digits)
    after = "+00" if is_zoned and is_postgresql else ""
    if is_before or int(year) > 9999:
        _check_day(column, int(year), int(month), int(day), is_before is not None)
        datetime.time(int(hour), int(minute), int(second))
        if zone is not None and _shown_zone(zone) != "+00":
            raise NoFormError("a year beyond 9999 needs the zone +00")
        shown = f"{year}-{month}-{day} {hour}:{minute}:{second}{fraction}{after}"
        return shown + (is_before or "")
    parts = (year, month, day, hour, minute, second)
    at = datetime.datetime(*map(int, parts))  # type: ignore[arg-type]  # noqa: DTZ001
    if zone is not None and zone != "Z":
        shift = zone[1:].replace(":", "").ljust(4, "0")
        span = datetime.timedelta(hours=int(shift[:2]), minutes=int(shift[2:]))
        at = at - span if zone[0] == "+" else at + span
    if is_zoned and not is_postgresql and not _FIRST <= at <= _LAST:
        raise NoFormError("it is beyond the range")
    return f"{at.isoformat(' ')}{fraction}{after}"


def interval_form(_: ColumnType, text: str) -> str:
    """A span, as PostgreSQL shows it."""
    return matched(_IS_INTERVAL, text).group()


def form(column: ColumnType, text: str) -> str:
    """The text that a column has of a text.

    Raises:
        NoFormError: it is no value of the column, or would become another one.
    """
    formatter = _FORMS.get(column.kind)
    if formatter is None:
        return text
    try:
        return formatter(column, text)
    except NoFormError:
        raise
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise NoFormError(str(error)) from None


def is_tested(column: ColumnType) -> bool:
    """Whether texts are tested here; else only the database knows its values."""
    if column.element is not None:
        return is_tested(column.element)
    return column.kind is not Kind.OTHER


def _plain(column: ColumnType, text: str) -> str:
    if column.backend is Backend.SQLITE:
        return text
    if column.length is not None and len(text) > column.length:
        raise NoFormError(f"it has {len(text)} characters, and the column {column.length}")
    if column.octets and len(text.encode()) > column.octets:
        raise NoFormError(f"it has more than {column.octets} bytes")
    if column.charset:
        _check_set(column.charset, text)
    return text


def _check_set(charset: str, text: str) -> None:
    codec = {"latin1": "cp1252", "ascii": "ascii", "ucs2": "utf-16"}.get(charset)
    if codec is None and charset not in ("utf8", "utf8mb3"):
        codec = charset
    try:
        if codec is not None:
            text.encode(codec)
        if charset in ("utf8", "utf8mb3", "ucs2") and any(ord(one) > 0xFFFF for one in text):
            raise UnicodeError
    except (UnicodeError, LookupError):
        raise NoFormError(f"it has characters that the column's set {charset} lacks") from None


def _char(column: ColumnType, text: str) -> str:
    bare = text.rstrip(" ")
    _plain(column, bare)
    if column.backend is Backend.POSTGRESQL:
        return bare.ljust(column.length or 1)
    if bare != text:
        raise NoFormError("it ends with a space, which the column does not keep")
    return text


def _uuid(_: ColumnType, text: str) -> str:
    return str(uuid.UUID(matched(re.compile(r"[0-9a-fA-F-]{32,36}"), text).group()))


def _whole(column: ColumnType, text: str) -> str:
    value = int(matched(_IS_WHOLE, text).group())
    if not column.span[0] <= value <= column.span[1]:
        raise NoFormError("it is beyond the range")
    if column.declared.startswith("year") and value and value < 1901:
        raise NoFormError("it is beyond the range")
    width = 4 if column.declared.startswith("year") else column.length or 0
    return str(value).zfill(width)


def _numeric(column: ColumnType, text: str) -> str:
    if column.backend is Backend.SQLITE:
        return _affine(text)
    if text in ("NaN", "Infinity", "-Infinity") and column.backend is Backend.POSTGRESQL:
        if text != "NaN" and column.length is not None:
            raise NoFormError("the column has no infinity")
        return text
    return decimal_text(column, decimal.Decimal(matched(_IS_NUMBER, text).group()))


def decimal_text(column: ColumnType, value: decimal.Decimal) -> str:
    """The text of a number in a column of decimals.  Raises ``NoFormError`` if it has to round."""
    if column.scale is not None:
        rounded = value.quantize(decimal.Decimal(1).scaleb(-column.scale), context=_NUMBERS)
        if rounded != value:
            raise NoFormError(f"it has more than {column.scale} digits after the decimal point")
        value = rounded
    value = value or value.copy_abs()
    whole = max(value.adjusted() + 1, 0) if value else 0
    if column.length is not None and whole > column.length - (column.scale or 0):
        raise NoFormError("it is beyond the range")
    if column.declared.endswith("unsigned") and value < 0:
        raise NoFormError("it is beyond the range")
    return format(value, "f")


def _affine(text: str) -> str:
    """Refuse texts that SQLite would make other numbers of."""
    if _IS_NUMBER.fullmatch(text.strip()) is None:
        return text
    value = float(text)
    shown = str(int(text)) if _IS_WHOLE.fullmatch(text.strip()) else repr(value)
    if shown != text or (value.is_integer() and not _IS_WHOLE.fullmatch(text)):
        raise NoFormError("the column would make another number of it")
    return text


def _floating(column: ColumnType, text: str) -> str:
    if column.backend is Backend.SQLITE:
        return _affine(text)
    if text in ("NaN", "Infinity", "-Infinity") and column.backend is Backend.POSTGRESQL:
        return text
    number = decimal.Decimal(matched(_IS_NUMBER, text).group())
    shown = {repr(float(text))}
    if column.kind is Kind.REAL:
        single = np.float32(text)
        shown = {str(single), repr(float(single))}
    if number not in map(decimal.Decimal, shown):
        raise NoFormError("the column would round it")
    return text


def _boolean(_: ColumnType, text: str) -> str:
    if text not in ("true", "false"):
        raise NoFormError("it is true or false")
    return text


def _bytes(column: ColumnType, text: str) -> str:
    prefix = r"\x" if column.backend is Backend.POSTGRESQL else ""
    if not text.startswith(prefix):
        raise NoFormError(r"bytes are written \x00ff")
    digits = text[len(prefix) :]
    matched(re.compile(r"(?:[0-9a-fA-F]{2})*"), digits)
    count = len(digits) // 2
    if column.length is not None and (
        count > column.length or (column.is_fixed and count != column.length)
    ):
        raise NoFormError(f"it has {count} bytes, and the column {column.length}")
    return prefix + digits.lower()


def _bit(column: ColumnType, text: str) -> str:
    matched(re.compile("[01]*"), text)
    if column.length is not None and (
        len(text) > column.length or (column.is_fixed and len(text) != column.length)
    ):
        raise NoFormError(f"it has {len(text)} bits, and the column {column.length}")
    return text


def _enum(column: ColumnType, text: str) -> str:
    if text not in column.labels:
        raise NoFormError("it is none of the column's labels")
    return text


def _set(column: ColumnType, text: str) -> str:
    words = text.split(",") if text else []
    if not set(words) <= set(column.labels):
        raise NoFormError("it has a word that is none of the column's labels")
    return ",".join(label for label in column.labels if label in words)


def _inet(column: ColumnType, text: str) -> str:
    if column.kind is Kind.CIDR:
        network = ipaddress.ip_network(text)
        return f"{_shown_address(network.network_address)}/{network.prefixlen}"
    if column.backend is Backend.MYSQL:
        version = ipaddress.IPv4Address if column.declared == "inet4" else ipaddress.IPv6Address
        return _shown_address(version(text))
    if "%" in text:
        raise NoFormError("it has a zone")
    interface = ipaddress.ip_interface(text)
    length = interface.network.prefixlen
    shown = _shown_address(interface.ip)
    return shown if length == interface.max_prefixlen else f"{shown}/{length}"


def _shown_address(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    data = address.packed
    is_mapped = data[:12] in (bytes(12), bytes(10) + b"\xff\xff")
    if len(data) == 4 or not is_mapped or data[10:14] == bytes(4):
        return str(address)
    last = ipaddress.IPv4Address(data[12:])
    return f"::ffff:{last}" if data[11] else f"::{last}"


def _macaddr(column: ColumnType, text: str) -> str:
    matched(_IS_MAC, text)
    if (len(text) > 17) is not (column.declared == "macaddr8"):
        raise NoFormError("it has another form")
    return text.lower()


def _money(_: ColumnType, text: str) -> str:
    sign, whole, cents = matched(_IS_MONEY, text).groups()
    value = decimal.Decimal(whole.replace(",", "") + (cents or ""))
    if value > decimal.Decimal("92233720368547758.07"):
        raise NoFormError("it is beyond the range")
    return f"{sign if value else ''}${value:,.2f}"


def _no_number(word: str) -> object:
    raise NoFormError(f"{word} is no JSON")


def _json_form(column: ColumnType, text: str) -> str:
    """JSON, whose text is kept."""
    json.loads(text, parse_constant=_no_number)
    if column.octets and len(text.encode()) > column.octets:
        raise NoFormError(f"it has more than {column.octets} bytes")
    return text


def _jsonb_form(column: ColumnType, text: str) -> str:
    """JSON that is normalised."""
    value = json.loads(
        text, parse_float=decimal.Decimal, parse_int=decimal.Decimal, parse_constant=_no_number
    )
    if column.backend is Backend.MYSQL:
        return text
    return _shown_json(value)


def _shown_json(value: object) -> str:
    """JSON as PostgreSQL's jsonb shows it."""
    match value:
        case dict():
            order = sorted(value, key=lambda name: (len(name.encode()), name.encode()))
            return "{" + ", ".join(f"{_quote(n)}: {_shown_json(value[n])}" for n in order) + "}"
        case list():
            return "[" + ", ".join(map(_shown_json, value)) + "]"
        case str():
            return _quote(value)
        case decimal.Decimal():
            if abs(value.adjusted()) > 16_000:
                raise NoFormError("a number is beyond the range")
            return format(value or value.copy_abs(), "f")
        case _:
            return json.dumps(value)


def _quote(text: str) -> str:
    if "\0" in text:
        raise NoFormError("it has a character of code 0")
    text.encode()
    return json.dumps(text, ensure_ascii=False)


def _xml_form(_: ColumnType, text: str) -> str:
    """Content of XML."""
    if text.lstrip().startswith(("<?xml", "<!DOCTYPE")):
        raise NoFormError("write it without declarations")
    parser = expat.ParserCreate()
    try:
        # Inside of an element no entity can be declared.
        parser.Parse(f"<r>{text}</r>", True)
    except expat.ExpatError as error:
        raise NoFormError(f"it is no XML: {error}") from None
    return text


def _array(column: ColumnType, text: str) -> str:
    assert column.element is not None, "an array has elements"
    value, end = _array_at(text, 0)
    if end != len(text):
        raise NoFormError("it has another form")
    if len(_shapes(value)) > 1:
        raise NoFormError("its rows have different lengths")
    return _shown_array(column.element, value)


def _shapes(value: list[Any]) -> set[tuple[int, ...]]:
    if not any(isinstance(one, list) for one in value):
        return {(len(value),)}
    if not all(isinstance(one, list) for one in value):
        return {(), (1,)}
    return {(len(value), *shape) for one in value for shape in _shapes(one)}


def _array_at(text: str, at: int) -> tuple[list[Any], int]:
    """The array that begins at ``at``, and the place after it."""
    if text[at : at + 1] != "{":
        raise NoFormError("an array is written {a,b}")
    elements: list[Any] = []
    at += 1
    if text[at : at + 1] == "}":
        return elements, at + 1
    while True:
        if text[at : at + 1] == "{":
            inner, at = _array_at(text, at)
            elements.append(inner)
        elif quoted := _ELEMENT.match(text, at):
            elements.append(_ESCAPED.sub(r"\1", quoted.group(1)))
            at = quoted.end()
        else:
            bare = matched(_BARE, text[at : _end_of(text, at)])
            at += len(bare.group())
            elements.append(None if bare.group().upper() == "NULL" else bare.group())
        if text[at : at + 1] == "}":
            return elements, at + 1
        if text[at : at + 1] != ",":
            raise NoFormError("an array is written {a,b}")
        at += 1


_ELEMENT: Final = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_BARE: Final = re.compile(r'[^\s{}",\\]+(?: +[^\s{}",\\]+)*')


def _end_of(text: str, at: int) -> int:
    return min((p for p in (text.find(",", at), text.find("}", at)) if p >= 0), default=len(text))


def _shown_array(element: ColumnType, value: list[Any]) -> str:
    shown: list[str] = []
    for one in value:
        if isinstance(one, list):
            shown.append(_shown_array(element, one))
        elif one is None:
            shown.append("NULL")
        else:
            is_flag = element.kind is Kind.BOOLEAN
            text = form(element, {"t": "true", "f": "false"}.get(one, one) if is_flag else one)
            text = text[:1] if is_flag else text
            is_quoted = not text or text.upper() == "NULL" or _QUOTED.search(text)
            escaped = text.replace("\\", "\\\\").replace('"', '\\"')
            shown.append(f'"{escaped}"' if is_quoted else text)
    return "{" + ",".join(shown) + "}"


_FORMS: Final[dict[Kind, Callable[[ColumnType, str], str]]] = {
    Kind.TEXT: _plain, Kind.CHAR: _char, Kind.INTEGER: _whole, Kind.NUMERIC: _numeric,
    Kind.REAL: _floating, Kind.DOUBLE: _floating, Kind.BOOLEAN: _boolean, Kind.BYTES: _bytes,
    Kind.BIT: _bit, Kind.UUID: _uuid, Kind.DATE: date_form, Kind.TIME: time_form,
    Kind.TIMETZ: time_form, Kind.TIMESTAMP: timestamp_form, Kind.TIMESTAMPTZ: timestamp_form,
    Kind.INTERVAL: interval_form, Kind.JSON: _json_form, Kind.JSONB: _jsonb_form, Kind.ENUM: _enum,
    Kind.SET: _set, Kind.INET: _inet, Kind.CIDR: _inet, Kind.MACADDR: _macaddr,
    Kind.MONEY: _money, Kind.XML: _xml_form, Kind.ARRAY: _array,
}  # fmt: skip
