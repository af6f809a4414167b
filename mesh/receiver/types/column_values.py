"""Values of columns in the payloads of rows, from the texts that a server shows.

Sessions show times in UTC, ISO dates, and all digits (``mesh.store.engine``).  A number becomes a
JSON number with these digits, and every other value stays the server's text.
"""

from __future__ import annotations

import decimal
import re
from typing import TYPE_CHECKING, Final, NamedTuple

import orjson

from mesh.mapping.row_source import REFUSED as UNREAD
from pyspark_nats.conversions import EXACT, NO, REFUSED, TEXT, Conversions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.model.values import JsonMapping

#: Types of PostgreSQL by their number: int8, int2, int4, oid, float4, float8, numeric; bool.
_PG_NUMBERS: Final = frozenset((20, 21, 23, 26, 700, 701, 1700))
_PG_BOOL: Final = 16
_NUMBER: Final = re.compile(r"(-?)0*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\Z")
_MYSQL_NUMBERS: Final = (
    "tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "year",
)  # fmt: skip
_MYSQL_FRACTIONS: Final = ("float", "double")
_BIT: Final = re.compile(r"bit\((\d+)\)")


_FAR: Final = EXACT.unless("beyond its range")
_CUT: Final = EXACT.unless("a fraction or beyond its range")
_OTHER: Final = EXACT.unless("a whole number that it does not have")
_FLAG: Final = EXACT.unless("other than 0 and 1")
_WHOLE: Final = (TEXT, _FAR, _FAR, _OTHER, _OTHER, _FLAG, NO)
_DECIMAL: Final = (TEXT, _CUT, _CUT, _OTHER, _OTHER, _FLAG, NO)
_FLOATING: Final = (TEXT, _CUT, _CUT, _OTHER, EXACT, _FLAG, NO)
_TEXTS: Final = (TEXT, REFUSED, REFUSED, REFUSED, REFUSED, REFUSED, NO)
_MODES: Final = "Source cdc: both modes have the same values."
PG_READ: Final = Conversions(
    "PostgreSQL, source cdc",
    "read",
    {
        "smallint, integer, bigint, oid": _WHOLE,
        "numeric": _DECIMAL,
        "real, double precision": _FLOATING,
        "NaN, Infinity of numbers": (TEXT, REFUSED, REFUSED, EXACT, EXACT, REFUSED, NO),
        "boolean": (TEXT, REFUSED, REFUSED, REFUSED, REFUSED, EXACT, NO),
        "other types": _TEXTS,
    },
    notes=(
        _MODES,
        "Among the other types are char, text, bytea, dates, times, uuid, jsonb, inet and arrays.",
        "Their text is that of psql in the zone UTC, with DateStyle ISO and bytea_output hex.",
        "A domain is as the type below it.",
        "With implicit.cast.enable='true' of keyvalue texts are read as numbers and bools.",
    ),
)
MYSQL_READ: Final = Conversions(
    "MySQL and MariaDB, source cdc",
    "read",
    {
        "tinyint to bigint, boolean, bit(1), year": _WHOLE,
        "decimal": _DECIMAL,
        "float, double": _FLOATING,
        "binary, varbinary, blob, geometry": _TEXTS,
        "other types": _TEXTS,
    },
    notes=(
        _MODES,
        "BOOLEAN is a number there, and its text is 1 or 0.",
        "Octets are hexadecimal digits, and a longer bit(n) is n digits 0 and 1.",
        "Among the other types are char, text, json, enum, set, dates, times, uuid and inet6.",
        "Their text is that of a session in the zone UTC, also of 0000-00-00 and 838:59:59.",
    ),
)
SQLITE_READ: Final = Conversions(
    "SQLite, source cdc",
    "read",
    {
        "integer": _WHOLE,
        "real": _FLOATING,
        "text": _TEXTS,
        "blob": _TEXTS,
    },
    notes=("A value counts, not the declared type of its column.",),
)


def number_of(text: str) -> object:
    """A number with its digits; the text if JSON has no such number: NaN."""
    match = _NUMBER.match(text)
    return text if match is None else orjson.Fragment(f"{match[1]}{match[2]}")


class Unreadable(NamedTuple):
    """In place of a value that has none, with what follows the column's name in a reason."""

    reason: str
    #: The text that is not in UTF-8.
    octets: bytes = b""


def decoded(octets: bytes) -> str | Unreadable:
    """The text of octets that should be UTF-8."""
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return Unreadable("is a text that is not in UTF-8", octets)


def pg_value(octets: bytes, kind: int) -> object:
    """A value of PostgreSQL, of a type that is no domain."""
    text = decoded(octets)
    if isinstance(text, Unreadable):
        return text
    if kind in _PG_NUMBERS:
        return number_of(text)
    return text == "t" if kind == _PG_BOOL else text


def mysql_value(raw: str | bytes, kind: str) -> object:
    """A value of MySQL or MariaDB, of a type as ``int(10) unsigned``."""
    if match := _BIT.match(kind):
        bits = int(match[1])
        number = int.from_bytes(raw, "big") if isinstance(raw, bytes) else int(raw, 2)
        return number if bits == 1 else f"{number:0{bits}b}"
    if isinstance(raw, bytes):
        return raw.hex()
    if kind.startswith(_MYSQL_NUMBERS):
        return number_of(raw)
    if kind.startswith(_MYSQL_FRACTIONS):
        return number_of(_mysql_double(float(raw)))
    # A session may show the blanks at the end.
    return raw.rstrip(" ") if kind.startswith("char(") else raw


def _mysql_double(value: float) -> str:
    """The text of a double as the server shows it."""
    if value == 0 or 1e-15 <= abs(value) < 1e15:
        text = format(decimal.Decimal(repr(value)), "f")
        return text.removesuffix(".0").removeprefix("-" if value == 0 else "")
    digits, _, exponent = repr(value).partition("e")
    if not exponent:
        digits, _, exponent = f"{decimal.Decimal(repr(value)).normalize():e}".partition("e")
    return f"{digits}e{int(exponent)}"


def sqlite_value(value: object) -> object:
    """A value of SQLite, whose columns have values of any type."""
    if isinstance(value, float):
        text = repr(value).removesuffix(".0")
        return {"inf": "Infinity", "-inf": "-Infinity"}.get(text) or number_of(text)
    if isinstance(value, int):
        return number_of(str(value))
    return value.hex() if isinstance(value, bytes) else value


def payload_of(row: JsonMapping, refused: Mapping[str, list[str]] | None = None) -> bytes:
    """The payload of a row, with the columns that could not be read by reason."""
    wrong = {name: value for name, value in row.items() if isinstance(value, Unreadable)}
    if not wrong and not refused:
        return orjson.dumps(row)
    reasons = {reason: list(names) for reason, names in (refused or {}).items()}
    for name, value in wrong.items():
        reasons.setdefault(value.reason, []).append(name)
    good = {name: value for name, value in row.items() if name not in wrong}
    return orjson.dumps({**good, UNREAD: reasons})
