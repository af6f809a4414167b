"""Tables of conversions of the mappers of this package, for docs/types.md."""

from __future__ import annotations

from typing import Final

from pyspark_nats.conversions import EXACT, NO, REFUSED, TEXT, ConversionCell, Conversions

_Row = tuple[ConversionCell, ...]

_INT: Final = EXACT.unless("beyond 32 bits")
_LONG: Final = EXACT.unless("beyond 64 bits")
#: A whole number as a floating-point number; a decimal as one.
_DIGITS: Final = EXACT.unless("digits would be lost")
_RANGE: Final = EXACT.unless("beyond the range")
_FORM: Final = EXACT.unless("of another form")

_NULL: Final[_Row] = (*(EXACT,) * 6, NO)
_NONE: Final[_Row] = (*(REFUSED,) * 6, NO)
_BOOL: Final[_Row] = (TEXT, *(REFUSED,) * 4, EXACT, NO)
_WHOLE: Final[_Row] = (TEXT, _INT, _LONG, _DIGITS, _DIGITS, REFUSED, NO)
_STRING: Final[_Row] = (EXACT, *(REFUSED,) * 5, NO)
_AS_TEXT: Final[_Row] = (TEXT, *(REFUSED,) * 5, NO)
_ONLY_BOOL: Final[_Row] = (*(REFUSED,) * 5, EXACT, NO)

JSON_READ: Final = Conversions(
    "JSON",
    "read",
    {
        "null": _NULL,
        "true, false": _BOOL,
        "whole number": _WHOLE,
        "number with point or exponent": (TEXT, REFUSED, REFUSED, _RANGE, _RANGE, REFUSED, NO),
        "string": _STRING,
        "array, object": _AS_TEXT,
    },
    notes=(
        "Mappers `json`, with and without `@attributes`, `passThrough`, and `keyvalue` with maps.",
        "A text has the digits of the document: `1.10`, `12345678901234567890`, `1e400`; so have",
        "the results of `json:` and `map:` functions. The number `-0` is 0, also as a double.",
    ),
)
JSON_WRITTEN: Final = Conversions(
    "JSON",
    "written",
    {"value": (EXACT, EXACT, EXACT, *(EXACT.unless("NaN or infinite"),) * 2, EXACT, NO)},
    notes=(
        "Mappers `json` and `keyvalue`, and `passThrough`. In a template NaN is a word inside of a",
        "text, and refused elsewhere. A stream in JSON that a query writes has no mapper: NaN and",
        "infinities are null in it, and in what a sink of that stream writes later.",
    ),
)
TEXT_READ: Final = Conversions(
    "CSV, XML, text, forms and transport properties",
    "read",
    {
        "whole number": (EXACT, *_WHOLE[1:]),
        "number with point or exponent": (EXACT, REFUSED, REFUSED, _RANGE, _RANGE, REFUSED, NO),
        "NaN, Infinity": (EXACT, REFUSED, REFUSED, EXACT, EXACT, REFUSED, NO),
        "true, false in any case": (EXACT, *(REFUSED,) * 4, EXACT, NO),
        "1, 0": (*(EXACT,) * 6, NO),
        "empty text": _NULL,
        "other text": _STRING,
    },
    notes=(
        "Spaces around numbers and truth values are ignored. The empty text is null for all types",
        "but string. In CSV and text the word `null` without quotes is null. Numbers of text may",
        "have commas before each three digits, as in `1,000.5`. The text of an XML",
        "element has those of the elements inside, and is no number or bool then; of elements with",
        "one name the last counts, and with `@attributes` the first.",
    ),
)
TEXT_WRITTEN: Final = Conversions(
    "CSV, XML, text, forms and transport properties",
    "written",
    {"text": (*(EXACT,) * 6, NO)},
    notes=(
        "A floating-point number has the fewest digits that read as the same number. A text with a",
        "control character is refused in XML, which has none but tab, line feed and return.",
    ),
)
MSGPACK_READ: Final = Conversions(
    "MessagePack",
    "read",
    {
        "nil": _NULL,
        "boolean": _BOOL,
        "integer": _WHOLE,
        "float 32, float 64": (TEXT, REFUSED, REFUSED, _RANGE, EXACT, REFUSED, NO),
        "string": _STRING,
        "binary": _NONE,
        "array, map": _AS_TEXT,
        "timestamp": (
            TEXT, _INT, EXACT.unless("not whole milliseconds"), _DIGITS, _DIGITS, REFUSED, NO,
        ),
        "other extension": _NONE,
    },
    notes=(
        "A payload is a map by attribute name, or an array of such maps. A timestamp is a number",
        "of milliseconds since 1970.",
    ),
)  # fmt: skip
MSGPACK_WRITTEN: Final = Conversions("MessagePack", "written", {"value": (*(EXACT,) * 6, NO)})

_TIME: Final[_Row] = (TEXT, _INT, EXACT, _DIGITS, _DIGITS, REFUSED, NO)
_FRACTION: Final = EXACT.unless("not whole")
AVRO_READ: Final = Conversions(
    "Avro",
    "read",
    {
        "null": _NULL,
        "boolean": _BOOL,
        "int": (TEXT, EXACT, EXACT, _DIGITS, EXACT, REFUSED, NO),
        "long": (TEXT, _INT, EXACT, _DIGITS, _DIGITS, REFUSED, NO),
        "float": (TEXT, REFUSED, REFUSED, EXACT, EXACT, REFUSED, NO),
        "double": (TEXT, REFUSED, REFUSED, _RANGE, EXACT, REFUSED, NO),
        "string, enum": _STRING,
        "bytes, fixed": _NONE,
        "array, map, record": _AS_TEXT,
        "date, time-millis": (TEXT, EXACT, EXACT, _DIGITS, EXACT, REFUSED, NO),
        "time-micros": (TEXT, _INT, EXACT, _DIGITS, EXACT, REFUSED, NO),
        "timestamp-, local-timestamp-": _TIME,
        "uuid": _AS_TEXT,
        "decimal": (TEXT, _FRACTION, _FRACTION, _DIGITS, _DIGITS, REFUSED, NO),
        "duration": _AS_TEXT,
    },
    notes=(
        "Times, dates and timestamps are the number in the payload, in the unit of their type, or",
        "ISO 8601: `2026-03-01T12:00:00.123Z`, without `Z` if local. uuid is on string or fixed,",
        "decimal on bytes or fixed. A duration is a text such as `P1M2DT3.5S`. Octets inside of an",
        "array, map or record refuse it.",
    ),
)
_RAW: Final[_Row] = (_FORM, EXACT, EXACT, REFUSED, REFUSED, REFUSED, NO)
_RAW_INT: Final[_Row] = (_FORM, EXACT, _INT, REFUSED, REFUSED, REFUSED, NO)
_PRECISION: Final = EXACT.unless("beyond the precision or scale")
AVRO_WRITTEN: Final = Conversions(
    "Avro",
    "written",
    {
        "boolean": _ONLY_BOOL,
        "int": (REFUSED, EXACT, _INT, REFUSED, REFUSED, REFUSED, NO),
        "long": (REFUSED, EXACT, EXACT, REFUSED, REFUSED, REFUSED, NO),
        "float": (REFUSED, _DIGITS, _DIGITS, EXACT, _RANGE, REFUSED, NO),
        "double": (REFUSED, EXACT, _DIGITS, EXACT, EXACT, REFUSED, NO),
        "string": _STRING,
        "enum": (EXACT.unless("no symbol"), *(REFUSED,) * 5, NO),
        "bytes, fixed": _NONE,
        "date, time-millis": _RAW_INT,
        "time-micros": _RAW,
        "timestamp-, local-timestamp-": _RAW,
        "uuid": (_FORM, *(REFUSED,) * 5, NO),
        "decimal": (_PRECISION, *(_PRECISION,) * 4, REFUSED, NO),
        "duration": (_FORM, *(REFUSED,) * 5, NO),
    },
    notes=(
        "The texts are those that are read; one with digits that the type lacks is refused. A",
        "refusal names the field. Arrays, maps and records are written by a template.",
    ),
)
PROTOBUF_READ: Final = Conversions(
    "Protocol Buffers",
    "read",
    {
        "not set": _NULL,
        "bool": _BOOL,
        "int32, sint32, sfixed32": (TEXT, EXACT, EXACT, _DIGITS, EXACT, REFUSED, NO),
        "int64, sint64, sfixed64": (TEXT, _INT, EXACT, _DIGITS, _DIGITS, REFUSED, NO),
        "uint32, fixed32": (TEXT, _INT, EXACT, _DIGITS, EXACT, REFUSED, NO),
        "uint64, fixed64": _WHOLE,
        "float": (TEXT, REFUSED, REFUSED, EXACT, EXACT, REFUSED, NO),
        "double": (TEXT, REFUSED, REFUSED, _RANGE, EXACT, REFUSED, NO),
        "string": _STRING,
        "bytes": (NO,) * 7,
        "enum": (TEXT, EXACT, EXACT, _DIGITS, EXACT, REFUSED, NO),
        "message, map, repeated": _AS_TEXT,
        "Timestamp, Duration": (
            TEXT, _INT, EXACT.unless("not whole milliseconds"), _DIGITS, _DIGITS, REFUSED, NO,
        ),
    },
    notes=(
        "Wrappers such as `Int64Value` are as the value in them, or null. A text of a message, map",
        "or repeated field is the JSON of Protocol Buffers, in which 64-bit numbers are strings.",
        "An enum is its name or its number. A field of a `oneof` that is not set is null.",
    ),
)  # fmt: skip
_NUMBER32: Final[_Row] = (REFUSED, EXACT, _INT, REFUSED, REFUSED, REFUSED, NO)
PROTOBUF_WRITTEN: Final = Conversions(
    "Protocol Buffers",
    "written",
    {
        "bool": _ONLY_BOOL,
        "int32, sint32, sfixed32": _NUMBER32,
        "int64, sint64, sfixed64": (REFUSED, EXACT, EXACT, REFUSED, REFUSED, REFUSED, NO),
        "uint64, fixed64": (
            REFUSED, EXACT.unless("negative"), EXACT.unless("negative"), REFUSED, REFUSED, REFUSED,
            NO,
        ),
        "float": (REFUSED, _DIGITS, _DIGITS, EXACT, _RANGE, REFUSED, NO),
        "double": (REFUSED, EXACT, _DIGITS, EXACT, EXACT, REFUSED, NO),
        "string": _STRING,
        "bytes": (NO,) * 7,
        "enum": (EXACT.unless("no name of it"), EXACT, _INT, REFUSED, REFUSED, REFUSED, NO),
        "message, map, repeated": (_FORM, *(REFUSED,) * 5, NO),
        "Timestamp, Duration": (_FORM, EXACT, EXACT, REFUSED, REFUSED, REFUSED, NO),
    },
    notes=("A number for a Timestamp or Duration is in milliseconds. null leaves a field unset.",),
)  # fmt: skip
ARROW_READ: Final = Conversions(
    "Arrow",
    "read",
    {
        "null": _NULL,
        "bool": _ONLY_BOOL,
        "int8 to int32, uint8, uint16": (REFUSED, EXACT, EXACT, _DIGITS, EXACT, REFUSED, NO),
        "int64": (REFUSED, REFUSED, EXACT, _DIGITS, _DIGITS, REFUSED, NO),
        "uint32": (REFUSED, REFUSED, EXACT, _DIGITS, EXACT, REFUSED, NO),
        "uint64": (REFUSED, REFUSED, REFUSED, _DIGITS, _DIGITS, REFUSED, NO),
        "halffloat, float": (REFUSED, REFUSED, REFUSED, EXACT, EXACT, REFUSED, NO),
        "double": (REFUSED, REFUSED, REFUSED, REFUSED, EXACT, REFUSED, NO),
        "string, large_string, string_view": _STRING,
        "binary, decimal": _NONE,
        "date, time, timestamp, duration": _NONE,
        "list, map, struct": _NONE,
    },
    notes=(
        "Dictionary-encoded and run-end-encoded columns are read as their values. A message whose",
        "column is of another type is refused as a whole, and of one with such values those rows.",
    ),
)
ARROW_WRITTEN: Final = Conversions("Arrow", "written", {"column": (*(EXACT,) * 6, NO)})
