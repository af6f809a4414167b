"""Column types of databases, and which values each one shares with an attribute's type.

One table for stores, sinks and sources:

    fit(column, attribute)          which values pass: all, the exact text, some, none
    mesh.model.column_texts.form    the text that a column has of a text
    mesh.store.catalogue            columns of a table, by the database's own catalogue
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from collections.abc import Collection

#: Digits of a decimal number that a double has for certain; bits of its whole numbers.
DOUBLE_DIGITS: Final = 15
_DOUBLE_BITS: Final = 53
_FLOAT_BITS: Final = 24
_INT_DIGITS, _LONG_DIGITS = 9, 18


class NoFormError(ValueError):
    """A text that is no value of a column."""


class Backend(StrEnum):
    """Kind of a database."""

    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"
    MYSQL = "mysql"
    REDIS = "redis"


_BACKENDS: Final = {
    "sqlite": Backend.SQLITE,
    "postgresql": Backend.POSTGRESQL,
    "postgres": Backend.POSTGRESQL,
    "mysql": Backend.MYSQL,
    "mariadb": Backend.MYSQL,
}


def backend_of(url: str) -> Backend | None:
    """The database of ``jdbc:mysql:..`` or ``mysql+driver:..``; None for one without a driver."""
    kind = url.removeprefix("jdbc:").partition(":")[0]
    return _BACKENDS.get(kind.partition("+")[0].lower())


class Kind(StrEnum):
    """Kinds of column types, over all databases."""

    TEXT = "text"
    #: Text that is padded to its length.
    CHAR = "char"
    INTEGER = "integer"
    NUMERIC = "numeric"
    REAL = "real"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    BYTES = "bytes"
    BIT = "bit"
    UUID = "uuid"
    DATE = "date"
    TIME = "time"
    TIMETZ = "timetz"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    INTERVAL = "interval"
    JSON = "json"
    #: JSON that is normalised.
    JSONB = "jsonb"
    ENUM = "enum"
    SET = "set"
    INET = "inet"
    CIDR = "cidr"
    MACADDR = "macaddr"
    MONEY = "money"
    XML = "xml"
    ARRAY = "array"
    #: A column of SQLite, or a field of Redis, that takes any value as it is.
    ANY = "any"
    #: A type whose texts only the database can test.
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The type of a column, as its database's catalogue has it."""

    backend: Backend
    #: The database's own name of it, with its parameters.
    declared: str
    kind: Kind
    #: Characters of a text, digits of a number, digits of a second's fraction; None: no limit.
    length: int | None = None
    #: Digits after the decimal point; None: any number.
    scale: int | None = None
    #: Smallest and largest whole number.
    span: tuple[int, int] = (0, 0)
    #: Of an enumeration or a set.
    labels: tuple[str, ...] = ()
    #: Of an array.
    element: ColumnType | None = None
    #: Most bytes of a text; 0: no limit beside ``length``.
    octets: int = 0
    #: Character set of a text, where it lacks characters.
    charset: str = ""
    #: Whether the length is fixed.
    is_fixed: bool = False
    #: Whether the database computes the column.
    is_generated: bool = False

    @property
    def is_text(self) -> bool:
        """Whether strings are its own values."""
        return self.kind in (Kind.TEXT, Kind.ANY)


class Fit(StrEnum):
    """Values of a column that an attribute can have."""

    #: All of them.
    EXACT = "exact"
    #: Their exact text.
    TEXT = "its text"
    #: Those that the attribute's type has too; an event with another value is refused.
    BY_VALUE = "by value"
    #: None: the app is refused when it is deployed.
    NONE = "refused"


def fit(column: ColumnType, attribute: AttributeType) -> Fit:
    """Which values of a column an attribute of this type can have, and the reverse."""
    if attribute is AttributeType.OBJECT:
        is_bytes = column.kind is Kind.BYTES or column.kind is Kind.ANY
        return Fit.EXACT if is_bytes else Fit.NONE
    if column.backend is Backend.REDIS:
        # Bytes, which may be a text.
        return Fit.BY_VALUE
    if column.backend is Backend.SQLITE:
        # Any column may have any value.
        is_compatible = column.kind is not Kind.TEXT or attribute is AttributeType.STRING
        return Fit.BY_VALUE if is_compatible else Fit.NONE
    if attribute is AttributeType.STRING:
        return Fit.EXACT if column.is_text else Fit.TEXT
    if attribute is AttributeType.BOOL:
        return _fit_bool(column)
    if attribute in (AttributeType.INT, AttributeType.LONG):
        return _fit_whole(column, attribute)
    return _fit_fraction(column, attribute)


def fitting(column: ColumnType) -> tuple[AttributeType, ...]:
    """The types of attributes that can have values of a column."""
    return tuple(
        attribute
        for attribute in AttributeType
        if attribute is not AttributeType.OBJECT and fit(column, attribute) is not Fit.NONE
    )


def problem(name: str, column: ColumnType, attribute: AttributeType) -> str:
    """The reason why an attribute can't have its column's values; empty if it can."""
    if fit(column, attribute) is not Fit.NONE:
        return ""
    others = " or ".join(fitting(column)) or "none"
    return (
        f'column "{name}" is {column.declared}, and attribute "{name}" {attribute}; '
        f"fitting: {others}"
    )


def _fit_bool(column: ColumnType) -> Fit:
    if column.kind is Kind.BOOLEAN:
        return Fit.EXACT
    if column.kind is Kind.BIT and column.length == 1 and column.backend is Backend.MYSQL:
        return Fit.EXACT
    # Flags of keys are such numbers in tables of the mesh.
    is_small = column.kind is Kind.INTEGER and column.span[1] < 2**16
    is_small &= not column.declared.startswith("year")
    return Fit.BY_VALUE if is_small else Fit.NONE


def _fit_whole(column: ColumnType, attribute: AttributeType) -> Fit:
    is_int = attribute is AttributeType.INT
    if column.kind is Kind.INTEGER:
        if column.span[1] < (2**31 if is_int else 2**63):
            return Fit.EXACT
        # Numbers of rows are unsigned by custom; few are beyond a long.
        return Fit.NONE if is_int else Fit.BY_VALUE
    if column.kind is Kind.BIT and column.backend is Backend.MYSQL:
        bits = column.length or 1
        if bits <= (31 if is_int else 63):
            return Fit.EXACT
        return Fit.NONE if is_int else Fit.BY_VALUE
    if column.kind is not Kind.NUMERIC or (column.scale or 0) > 0:
        return Fit.NONE
    if column.length is not None and column.length <= (_INT_DIGITS if is_int else _LONG_DIGITS):
        return Fit.EXACT
    return Fit.BY_VALUE


def _fit_fraction(column: ColumnType, attribute: AttributeType) -> Fit:
    is_float = attribute is AttributeType.FLOAT
    match column.kind:
        case Kind.REAL:
            return Fit.EXACT
        case Kind.DOUBLE:
            if not is_float:
                return Fit.EXACT
            # The type of a float in tables that the mesh creates there.
            return Fit.BY_VALUE if column.backend is Backend.MYSQL else Fit.NONE
        case Kind.INTEGER:
            exact = 2 ** (_FLOAT_BITS if is_float else _DOUBLE_BITS)
            return Fit.EXACT if column.span[1] < exact else Fit.NONE if is_float else Fit.BY_VALUE
        case Kind.NUMERIC if not is_float:
            digits = column.length
            return Fit.EXACT if digits is not None and digits <= DOUBLE_DIGITS else Fit.BY_VALUE
        case _:
            return Fit.NONE


#: By name, digits of the decimal parameters apart: the kinds of PostgreSQL's types.
_POSTGRESQL: Final = {
    "text": Kind.TEXT, "character varying": Kind.TEXT, "name": Kind.TEXT, "citext": Kind.TEXT,
    '"char"': Kind.TEXT, "character": Kind.CHAR,
    "smallint": Kind.INTEGER, "integer": Kind.INTEGER, "bigint": Kind.INTEGER,
    "oid": Kind.INTEGER, "numeric": Kind.NUMERIC, "real": Kind.REAL,
    "double precision": Kind.DOUBLE, "boolean": Kind.BOOLEAN, "bytea": Kind.BYTES,
    "bit": Kind.BIT, "bit varying": Kind.BIT, "uuid": Kind.UUID, "date": Kind.DATE,
    "time without time zone": Kind.TIME, "time with time zone": Kind.TIMETZ,
    "timestamp without time zone": Kind.TIMESTAMP, "timestamp with time zone": Kind.TIMESTAMPTZ,
    "interval": Kind.INTERVAL, "json": Kind.JSON, "jsonb": Kind.JSONB, "inet": Kind.INET,
    "cidr": Kind.CIDR, "macaddr": Kind.MACADDR, "macaddr8": Kind.MACADDR, "money": Kind.MONEY,
    "xml": Kind.XML,
}  # fmt: skip
_MYSQL: Final = {
    "char": Kind.CHAR, "varchar": Kind.TEXT, "tinytext": Kind.TEXT, "text": Kind.TEXT,
    "mediumtext": Kind.TEXT, "longtext": Kind.TEXT,
    "tinyint": Kind.INTEGER, "smallint": Kind.INTEGER, "mediumint": Kind.INTEGER,
    "int": Kind.INTEGER, "bigint": Kind.INTEGER, "year": Kind.INTEGER, "decimal": Kind.NUMERIC,
    "float": Kind.REAL, "double": Kind.DOUBLE, "bit": Kind.BIT, "binary": Kind.BYTES,
    "varbinary": Kind.BYTES, "tinyblob": Kind.BYTES, "blob": Kind.BYTES,
    "mediumblob": Kind.BYTES, "longblob": Kind.BYTES, "date": Kind.DATE, "time": Kind.TIME,
    "datetime": Kind.TIMESTAMP, "timestamp": Kind.TIMESTAMPTZ, "json": Kind.JSONB,
    "enum": Kind.ENUM, "set": Kind.SET, "uuid": Kind.UUID, "inet4": Kind.INET,
    "inet6": Kind.INET,
}  # fmt: skip
_BITS: Final = {
    "tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "integer": 32, "bigint": 64,
}  # fmt: skip
#: Of texts in MySQL: those that have each character.
_WHOLE_SETS: Final[Collection[str]] = ("", "utf8mb4", "utf16", "utf16le", "utf32")


def kind_of(backend: Backend, name: str) -> Kind:
    """The kind of a type of this name, without parameters."""
    return (_MYSQL if backend is Backend.MYSQL else _POSTGRESQL).get(name, Kind.OTHER)


def span_of(name: str, *, is_unsigned: bool = False) -> tuple[int, int]:
    """Smallest and largest value of a type of whole numbers."""
    if name == "year":
        return 0, 2155
    if name == "oid":
        return 0, 2**32 - 1
    bits = _BITS[name]
    return (0, 2**bits - 1) if is_unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def lacking_set(name: str) -> str:
    """A character set of MySQL if it lacks characters, otherwise empty."""
    return "" if name in _WHOLE_SETS else name


def sqlite_type(declared: str) -> ColumnType:
    """A column of SQLite, whose declared type says which values it converts."""
    upper = declared.upper()
    if "INT" in upper:
        kind = Kind.NUMERIC
    elif any(word in upper for word in ("CHAR", "CLOB", "TEXT")):
        kind = Kind.TEXT
    elif "BLOB" in upper or not upper:
        kind = Kind.ANY
    elif any(word in upper for word in ("REAL", "FLOA", "DOUB")):
        kind = Kind.DOUBLE
    else:
        kind = Kind.NUMERIC
    return ColumnType(Backend.SQLITE, declared or "any", kind)


def matched(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    """The match of a whole text.  Raises ``NoFormError`` if it has another form."""
    match = pattern.fullmatch(text)
    if match is None:
        raise NoFormError("it has another form")
    return match
