"""Tables of conversions of databases for docs/types.md, computed by the comparison of a deploy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.model.column_types import Backend, ColumnType, Fit, Kind, fit, span_of, sqlite_type
from mesh.model.types import AttributeType
from pyspark_nats.conversions import EXACT, NO, TEXT, Conversions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_nats.conversions import ConversionCell


def _postgresql(kind: Kind, length: int | None = None, scale: int | None = None) -> ColumnType:
    return ColumnType(Backend.POSTGRESQL, str(kind), kind, length, scale)


def _whole(backend: Backend, name: str, *, is_unsigned: bool = False) -> ColumnType:
    span = span_of(name, is_unsigned=is_unsigned)
    return ColumnType(backend, name, Kind.INTEGER, span=span)


def _mysql(kind: Kind, length: int | None = None, scale: int | None = None) -> ColumnType:
    return ColumnType(Backend.MYSQL, str(kind), kind, length, scale)


POSTGRESQL_TYPES: Final[Mapping[str, ColumnType]] = {
    "smallint": _whole(Backend.POSTGRESQL, "smallint"),
    "integer": _whole(Backend.POSTGRESQL, "integer"),
    "bigint": _whole(Backend.POSTGRESQL, "bigint"),
    "numeric": _postgresql(Kind.NUMERIC),
    "numeric(10,2)": _postgresql(Kind.NUMERIC, 10, 2),
    "real": _postgresql(Kind.REAL),
    "double precision": _postgresql(Kind.DOUBLE),
    "boolean": _postgresql(Kind.BOOLEAN),
    "text, varchar, citext": _postgresql(Kind.TEXT),
    "char(5)": _postgresql(Kind.CHAR, 5),
    "uuid": _postgresql(Kind.UUID),
    "date": _postgresql(Kind.DATE),
    "time, time with time zone": _postgresql(Kind.TIME),
    "timestamp": _postgresql(Kind.TIMESTAMP),
    "timestamptz": _postgresql(Kind.TIMESTAMPTZ),
    "interval": _postgresql(Kind.INTERVAL),
    "json, jsonb": _postgresql(Kind.JSONB),
    "bytea": _postgresql(Kind.BYTES),
    "bit, bit varying": _postgresql(Kind.BIT),
    "money": _postgresql(Kind.MONEY),
    "xml": _postgresql(Kind.XML),
    "inet, cidr": _postgresql(Kind.INET),
    "macaddr": _postgresql(Kind.MACADDR),
    "enumerations": _postgresql(Kind.ENUM),
    "arrays": _postgresql(Kind.ARRAY),
    "composite and other types": _postgresql(Kind.OTHER),
}
MYSQL_TYPES: Final[Mapping[str, ColumnType]] = {
    "tinyint": _whole(Backend.MYSQL, "tinyint"),
    "smallint": _whole(Backend.MYSQL, "smallint"),
    "int": _whole(Backend.MYSQL, "int"),
    "int unsigned": _whole(Backend.MYSQL, "int", is_unsigned=True),
    "bigint": _whole(Backend.MYSQL, "bigint"),
    "bigint unsigned": _whole(Backend.MYSQL, "bigint", is_unsigned=True),
    "year": _whole(Backend.MYSQL, "year"),
    "decimal(10,2)": _mysql(Kind.NUMERIC, 10, 2),
    "decimal(30,0)": _mysql(Kind.NUMERIC, 30, 0),
    "float": _mysql(Kind.REAL),
    "double": _mysql(Kind.DOUBLE),
    "bit(1)": _mysql(Kind.BIT, 1),
    "bit(20)": _mysql(Kind.BIT, 20),
    "varchar, text": _mysql(Kind.TEXT),
    "char(5)": _mysql(Kind.CHAR, 5),
    "binary, varbinary, blob": _mysql(Kind.BYTES),
    "date": _mysql(Kind.DATE),
    "time": _mysql(Kind.TIME),
    "datetime": _mysql(Kind.TIMESTAMP),
    "timestamp": _mysql(Kind.TIMESTAMPTZ),
    "json": _mysql(Kind.JSON),
    "enum": _mysql(Kind.ENUM),
    "set": _mysql(Kind.SET),
    "uuid": _mysql(Kind.UUID),
    "inet4, inet6": _mysql(Kind.INET),
}
SQLITE_TYPES: Final[Mapping[str, ColumnType]] = {
    name: sqlite_type(name.partition(",")[0])
    for name in ("integer, numeric, date", "real, double", "text, varchar", "blob")
}
REDIS_TYPES: Final[Mapping[str, ColumnType]] = {
    "field": ColumnType(Backend.REDIS, "field", Kind.ANY),
}
#: Values that are refused where a type has some that an attribute lacks.
_BEYOND: Final = "another value of the column"


def _cells(column: ColumnType) -> tuple[ConversionCell, ...]:
    outcomes = {
        Fit.EXACT: EXACT, Fit.TEXT: TEXT, Fit.BY_VALUE: EXACT.unless(_BEYOND), Fit.NONE: NO,
    }  # fmt: skip
    # Tables in stores have no objects.
    others = (one for one in AttributeType if one is not AttributeType.OBJECT)
    return (*(outcomes[fit(column, attribute)] for attribute in others), NO)


def _table(world: str, types: Mapping[str, ColumnType], *notes: str) -> Conversions:
    rows = {name: _cells(column) for name, column in types.items()}
    return Conversions(world, "read", rows, notes=notes)


POSTGRESQL: Final = _table(
    "PostgreSQL", POSTGRESQL_TYPES,
    "Texts are those that the server shows, in UTC, with ISO dates.",
    "A text that is written is refused if the column can't have it, or would change its value.",
    "Domains are as the type below.",
    "A decimal number is a double's if it is the shortest text of one.",
)  # fmt: skip
MYSQL: Final = _table(
    "MySQL and MariaDB", MYSQL_TYPES,
    "Times of TIMESTAMP are in UTC. Bytes are hexadecimal digits, bits are 0 and 1.",
    "NaN and infinity are refused.",
)  # fmt: skip
SQLITE: Final = _table(
    "SQLite", SQLITE_TYPES,
    "Any column may have values of any kind, so each value is compared.",
)  # fmt: skip
REDIS: Final = _table(
    "Redis", REDIS_TYPES,
    "A field has the text of a value, in UTF-8, and a null has no field.",
    "Numbers are decimal digits, with NaN, Infinity and -Infinity for doubles; flags are true and "
    "false, and 1 and 0 when they are read.",
    "A text with more digits than a double or a float has is refused.",
)  # fmt: skip
