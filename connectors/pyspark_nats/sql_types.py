"""Types of Spark SQL that events have: one rule for the source and the sink.

``event_schema`` gives the Arrow types of columns, or refuses a column by its name.  What it
accepts is written and read back exactly in each format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import types as sql
from pyspark.sql.pandas.types import to_arrow_schema

from pyspark_nats.conversions import EXACT, NO, REFUSED, Conversions
from pyspark_nats.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

#: Types without parts that events have.
PLAIN: Final = (
    sql.StringType, sql.ByteType, sql.ShortType, sql.IntegerType, sql.LongType, sql.FloatType,
    sql.DoubleType, sql.BooleanType, sql.TimestampType, sql.TimestampNTZType, sql.DateType,
    sql.BinaryType, sql.DecimalType,
)  # fmt: skip

_DETAIL: Final = (
    "Events have string, byte, short, int, long, float, double, boolean, timestamp, timestamp_ntz, "
    "date, binary and decimal attributes, arrays and structs of them, and maps with strings for "
    "keys."
)
_RAW_HINT: Final = 'Use a column of type string, or the format "raw" with to_json and from_json.'
_HINTS: Final[tuple[tuple[type[sql.DataType], str], ...]] = (
    (sql.CharType, "Declare it as string, which has the same values."),
    (sql.VarcharType, "Declare it as string, which has the same values."),
    (sql.NullType, "Give it a type, for example with cast(NULL AS string)."),
    (sql.VariantType, 'Use the format "raw" with to_json and parse_json.'),
    (sql.AnsiIntervalType, "Cast it to a string, or to a number of its unit; cast it back later."),
    (sql.AnyTimeType, "Cast it to a string, and the string to a time later."),
)

_YEARS: Final = EXACT.unless("before year 1 or after year 9999")

SPARK: Final = Conversions(
    "Spark SQL",
    "written",
    {
        "string, boolean, binary": (EXACT,) * 3,
        "byte, short, int, long": (EXACT,) * 3,
        "float, double": (EXACT.unless("NaN or infinite"), EXACT, EXACT),
        "decimal": (EXACT,) * 3,
        "timestamp, timestamp_ntz, date": (_YEARS,) * 3,
        "array, struct, map with strings for keys": (EXACT,) * 3,
        "map with other keys": (NO,) * 3,
        "interval": (NO,) * 3,
        "time": (NO,) * 3,
        "void": (NO,) * 3,
        "variant": (NO,) * 3,
        "char, varchar": (NO,) * 3,
        "geometry, geography, types of users": (NO,) * 3,
    },
    columns=("json", "msgpack", "arrow"),
    notes=(
        "Rows of the connector `pyspark_nats`, by its option `format`. An exact value is read back",
        "with the same schema as the same value. The same types are refused in the schema of a",
        "read. A refused column or value fails the query with an error that names the column.",
        "Spark has `char` and `varchar` in the schema of a read only.",
    ),
)

_FIT: Final = EXACT.unless("a digit would be lost")
_TIME: Final = EXACT.unless("it is no such time in the years 1 to 9999")
_NO_DIGITS: Final = EXACT.unless("it is no number, or a digit would be lost")
#: Outcomes of ``decode.values.reader_of``; each cell is a test.
SPARK_READ: Final = Conversions(
    "Spark SQL",
    "read",
    {
        "text": (
            EXACT, REFUSED, REFUSED, REFUSED, _NO_DIGITS, _TIME, _TIME, _TIME,
            EXACT.unless("it is no base64"), REFUSED, REFUSED,
        ),
        "whole number": (
            REFUSED, EXACT.unless("it is outside the range"), _FIT, REFUSED, _FIT,
            EXACT.unless("these seconds are after the year 9999"), REFUSED, REFUSED, REFUSED,
            REFUSED, REFUSED,
        ),
        "number with a fraction": (
            REFUSED, REFUSED, EXACT, REFUSED, _FIT, *(REFUSED,) * 6,
        ),
        "true, false": (*(REFUSED,) * 3, EXACT, *(REFUSED,) * 7),
        "array": (*(REFUSED,) * 9, EXACT, REFUSED),
        "object": (*(REFUSED,) * 10, EXACT),
        "binary of MessagePack": (*(REFUSED,) * 8, EXACT, REFUSED, REFUSED),
        "timestamp of MessagePack": (*(REFUSED,) * 5, EXACT, *(REFUSED,) * 5),
    },
    columns=(
        "string", "byte .. long", "float, double", "boolean", "decimal", "timestamp",
        "timestamp_ntz", "date", "binary", "array", "struct, map",
    ),
    notes=(
        "Values of JSON and MessagePack that others wrote, by the column's type in the schema of a",
        "read; null is null.  Digits of a time beyond microseconds are cut.  A whole number is the",
        "seconds of a timestamp, as in `from_json`.  Text of a timestamp without a zone is UTC;",
        "text of a timestamp_ntz has no zone.  Option `corrupt` decides about refused events.",
    ),
)  # fmt: skip


def event_schema(columns: list[sql.StructField]) -> pa.Schema:
    """The columns of events as Arrow fields.

    Raises:
        SchemaError: one is of a type that events do not have, or holds one.
    """
    for field in columns:
        for path, kind, hint in _unsupported(field.name, field.dataType):
            place = "" if path == field.name else f'"{path}" of '
            raise SchemaError(
                f'{place}column "{field.name}" is of type {kind}, which events do not have',
                detail=_DETAIL,
                hint=hint,
            )
    return to_arrow_schema(sql.StructType(columns), timezone="UTC")


def _unsupported(path: str, kind: sql.DataType) -> Iterator[tuple[str, str, str]]:
    """Path, type and hint of each part of a type that events do not have."""
    if isinstance(kind, sql.ArrayType):
        yield from _unsupported(f"{path}[]", kind.elementType)
    elif isinstance(kind, sql.MapType):
        if not isinstance(kind.keyType, sql.StringType):
            hint = "Make strings of its keys with transform_keys; cast them back later."
            yield path, kind.simpleString(), hint
        yield from _unsupported(f"{path}.*", kind.valueType)
    elif isinstance(kind, sql.StructType):
        names = kind.fieldNames()
        for at, field in enumerate(kind.fields):
            if field.name in names[:at]:
                yield path, kind.simpleString(), f'Rename one of its two fields "{field.name}".'
            yield from _unsupported(f"{path}.{field.name}", field.dataType)
    elif not isinstance(kind, PLAIN):
        hint = next((hint for base, hint in _HINTS if isinstance(kind, base)), _RAW_HINT)
        yield path, kind.simpleString(), hint
