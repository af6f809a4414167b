"""Values of Avro schemas: logical types as exact values, and values for fields of a record.

The library's own readers of logical types give values of Python that lose digits or ranges, and
lack some types.  So a schema's logical types are renamed, and read by the functions of this module.
"""

from __future__ import annotations

import re
import uuid
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from mesh.connect.contract import library
from mesh.functions.exact_json import JsonReal
from mesh.mapping.outside import Exact, day, decimal, instant, time_of_day
from pyspark_nats.decode.values import article, real_of, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mesh.model.values import EventValues, JsonMapping

#: Before the name of a logical type that is read here.
_PREFIX: Final = "mesh-"
_UNITS: Final = {"millis": "ms", "micros": "us", "nanos": "ns"}
_PER_SECOND: Final = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}
_RANGES: Final = {"int": 1 << 31, "long": 1 << 63}
#: Up to it each whole number is a double.
_WHOLE_MAX: Final = 1 << 53
#: Types that have all values of an attribute's type.
_SAME: Final = {
    pa.string(): ("string",),
    pa.bool_(): ("boolean",),
    pa.int32(): ("int", "long", "double"),
    pa.int64(): ("long",),
    pa.float32(): ("float", "double"),
    pa.float64(): ("double",),
}
_TIME: Final = re.compile(
    r"(?:(\d{4}-\d\d-\d\d)[T ])?(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(Z|[+-]\d\d:?\d\d)?"
)
_DURATION: Final = re.compile(
    r"P(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)D)?"
    r"(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,3}))?S)?)?"
)


class UnfitError(ValueError):
    """A value that a field of a schema does not have."""


# --- From Avro


def _duration(octets: bytes) -> Exact:
    months, days, millis = (int.from_bytes(octets[at : at + 4], "little") for at in (0, 4, 8))
    seconds, rest = divmod(millis, 1000)
    fraction = f".{rest:03}" if rest else ""
    return Exact(f"P{months}M{days}DT{seconds}{fraction}S")


def _decimal(octets: bytes, schema: JsonMapping) -> Exact:
    return decimal(int.from_bytes(octets, "big", signed=True), schema.get("scale", 0))


def _instants(unit: str, *, is_local: bool) -> Callable[[Any, Any], Any]:
    return lambda raw, _: instant(raw, unit, is_local=is_local)


def _readers() -> dict[str, Callable[[object, object], object]]:
    """The values of logical types by base and name, each from the raw value and its schema."""
    readers: dict[str, Callable[[Any, Any], Any]] = {
        "int-date": lambda raw, _: day(raw),
        "int-time-millis": lambda raw, _: time_of_day(raw, "ms"),
        "long-time-micros": lambda raw, _: time_of_day(raw, "us"),
        "bytes-decimal": _decimal,
        "fixed-decimal": _decimal,
        "fixed-uuid": lambda raw, _: Exact(str(uuid.UUID(bytes=raw))),
        "fixed-duration": lambda raw, _: _duration(raw),
    }
    for name, unit in _UNITS.items():
        readers[f"long-timestamp-{name}"] = _instants(unit, is_local=False)
        readers[f"long-local-timestamp-{name}"] = _instants(unit, is_local=True)
    return readers


READERS: Final = _readers()


def with_mesh_types(schema: object) -> Any:
    """A schema whose logical types are read by this module; register them with the library."""
    readers = library("fastavro.read", "avro").LOGICAL_READERS
    for key, read in READERS.items():
        base, _, name = key.partition("-")
        readers[f"{base}-{_PREFIX}{name}"] = lambda raw, writer=None, reader=None, read=read: read(
            raw, writer
        )
    return _renamed(schema)


def _renamed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_renamed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    result = {
        key: _renamed(value) if key in ("type", "items", "values", "fields") else value
        for key, value in schema.items()
    }
    logical = result.pop("logicalType", None)
    if f"{result.get('type')}-{logical}" in READERS and _has_size(result, logical):
        result["logicalType"] = f"{_PREFIX}{logical}"
    elif logical == "uuid":
        result["logicalType"] = f"{_PREFIX}uuid"
    return result


def _has_size(schema: JsonMapping, logical: str) -> bool:
    """Whether a fixed type has the size of its logical type; without it that is ignored."""
    return schema.get("size") == {"uuid": 16, "duration": 12}.get(logical, schema.get("size"))


# --- To Avro


def fits(schema: object, kind: pa.DataType, *, has_nulls: bool) -> bool:
    """Whether a field has all values of an attribute, which the library writes as they are.

    Args:
        schema: of the field.
        kind: of the attribute.
        has_nulls: whether null is one of the values.
    """
    branches = schema if isinstance(schema, list) else [schema]
    others = [branch for branch in branches if branch != "null"]
    may_be_null = len(others) < len(branches)
    return (
        len(others) == 1
        and isinstance(others[0], str)
        and others[0] in _SAME.get(kind, ())
        and (may_be_null or not has_nulls)
    )


def kind_of(values: Sequence[Any]) -> pa.DataType | None:
    """The attribute's type that has all values of JSON but null; None if there is none."""
    types = set(map(type, values)) - {type(None)}
    if types == {int}:
        numbers = [value for value in values if value is not None]
        is_short = -_RANGES["int"] <= min(numbers) and max(numbers) < _RANGES["int"]
        is_long = -_RANGES["long"] <= min(numbers) and max(numbers) < _RANGES["long"]
        return pa.int32() if is_short else pa.int64() if is_long else None
    if types == {int, float}:
        size = max(abs(value) for value in values if type(value) is int)
        return pa.float64() if size <= _WHOLE_MAX else None
    kinds: dict[type, Any] = {str: pa.string(), bool: pa.bool_(), float: pa.float64()}
    return kinds.get(types.pop()) if len(types) == 1 else None


def encoded(value: Any, schema: Any, named: JsonMapping, path: str = "") -> Any:
    """A value as the library writes it without any check.

    Args:
        value: of an attribute or of JSON.
        schema: of ``with_mesh_types``, parsed.
        named: its named types.
        path: of the field, for errors.

    Raises:
        UnfitError: the schema has no such value; it names the field.
    """
    if isinstance(schema, list):
        return _of_union(value, schema, named, path)
    if isinstance(schema, str) and schema in named:
        schema = named[schema]
    kind = schema if isinstance(schema, str) else schema["type"]
    details: JsonMapping = schema if isinstance(schema, dict) else {}
    if not isinstance(kind, str):
        return encoded(value, kind, named, path)
    match kind:
        case "record" | "error" if isinstance(value, dict):
            return _of_record(value, details, named, path)
        case "array" if isinstance(value, list):
            items = details["items"]
            return [encoded(v, items, named, f"{path}[{n}]") for n, v in enumerate(value)]
        case "map" if isinstance(value, dict):
            values = details["values"]
            return {k: encoded(v, values, named, f"{path}.{k}") for k, v in value.items()}
        case "enum" if isinstance(value, str) and value in details["symbols"]:
            return value
    raw = _raw(value, kind, details)
    limit = _RANGES.get(kind)
    if (raw is None and kind != "null") or (limit is not None and not -limit <= raw < limit):
        raise _unfit(value, schema, path)
    return raw


def _raw(value: object, kind: str, details: JsonMapping) -> Any:
    """The raw value of a primitive or logical type; None if there is none."""
    try:
        logical = details.get("logicalType", "")
        return _of_logical(value, logical, details) if logical else _of_plain(value, kind)
    except (ArithmeticError, ValueError):
        return None


def _unfit(value: object, schema: object, path: str) -> UnfitError:
    return UnfitError(f'field "{path}" is {shown(_shown(value))}, not {_name(schema)}')


def _shown(value: object) -> object:
    return float(value) if isinstance(value, np.float32) else value


def _name(schema: Any) -> str:
    """A type in the words of an error."""
    if isinstance(schema, list):
        return " or ".join(map(_name, schema))
    if isinstance(schema, str):
        return schema if schema == "null" else article(schema)
    logical = schema.get("logicalType", "").removeprefix(_PREFIX)
    return article(logical or schema.get("name") or str(schema["type"]))


def _of_union(value: object, schema: list[Any], named: JsonMapping, path: str) -> Any:
    if value is None and "null" in schema:
        return None
    others = [branch for branch in schema if branch != "null"]
    for branch in others:
        try:
            datum = encoded(value, branch, named, path)
        except UnfitError:
            if len(others) == 1:
                raise
            continue
        whole = named.get(branch, branch) if isinstance(branch, str) else branch
        if isinstance(whole, str):
            return (whole, datum)
        return (whole["name"], datum) if whole["type"] == "record" else datum
    raise _unfit(value, schema, path)


def _of_record(
    value: JsonMapping, schema: JsonMapping, named: JsonMapping, path: str
) -> EventValues:
    record = {}
    for field in schema["fields"]:
        name = field["name"]
        inner = f"{path}.{name}" if path else name
        if name in value:
            record[name] = encoded(value[name], field["type"], named, inner)
        elif "default" not in field:
            raise UnfitError(f'field "{inner}" is missing')
    return record


def _of_plain(value: object, kind: str) -> object:
    """A value of a primitive type; None if it has none."""
    match kind:
        case "boolean":
            return value if isinstance(value, bool) else None
        case "int" | "long":
            return value if type(value) is int else None
        case "float" | "double":
            if isinstance(value, bool) or not isinstance(value, int | float | np.float32):
                return None
            number = value if type(value) is int else float(value)
            return real_of(number, pa.float32() if kind == "float" else pa.float64())
        case "string":
            return value if isinstance(value, str) else None
        case "bytes" | "fixed":
            return value if isinstance(value, bytes) else None
        case _:
            return None


def _of_logical(value: object, logical: str, schema: JsonMapping) -> object:
    """The raw value of a logical type; None or an error if there is none."""
    name = logical.removeprefix(_PREFIX)
    if name == "decimal":
        return _of_decimal(value, schema)
    if name == "uuid":
        identifier = uuid.UUID(value) if isinstance(value, str) else None
        return identifier and (identifier.bytes if schema["type"] == "fixed" else value)
    if name == "duration":
        return _of_duration(value) if isinstance(value, str) else None
    if type(value) is int:
        return value
    if not isinstance(value, str):
        return None
    if name == "date":
        return int(np.datetime64(value, "D").astype(int)) if len(value) == 10 else None
    return _of_time(value, name)


def _of_time(text: str, name: str) -> int | None:
    """The number of a time or a time of day; None for a text of another form or too many digits."""
    match = _TIME.fullmatch(text)
    takes_day, takes_zone = "timestamp" in name, name.startswith("timestamp")
    if match is None or (match[1] is not None) != takes_day or (match[6] and not takes_zone):
        return None
    hours, minutes, seconds = (int(match[at] or 0) for at in (2, 3, 4))
    if hours > 23 or minutes > 59 or seconds > 59:
        return None
    if match[1]:
        days = int(np.datetime64(match[1], "D").astype(int))
        seconds += days * 86_400
    if match[6] and match[6] != "Z":
        sign = -1 if match[6][0] == "+" else 1
        seconds += sign * (int(match[6][1:3]) * 3600 + int(match[6][-2:]) * 60)
    per_second = _PER_SECOND[name.rpartition("-")[2]]
    nanos = int((match[5] or "").ljust(9, "0"))
    count, odd = divmod(nanos * per_second, 10**9)
    return None if odd else (seconds + hours * 3600 + minutes * 60) * per_second + count


def _of_decimal(value: object, schema: JsonMapping) -> bytes | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str | np.float32):
        return None
    try:
        number = Decimal(value.text if isinstance(value, JsonReal) else str(value))
    except InvalidOperation:
        return None
    if not number.is_finite():
        return None
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    shift = exponent + schema.get("scale", 0)
    if abs(shift) > schema["precision"] + len(digits):
        return None if any(digits) else _of_decimal(0, schema)
    unscaled, odd = divmod(
        int("".join(map(str, digits))) * 10 ** max(shift, 0), 10 ** max(-shift, 0)
    )
    if odd or unscaled >= 10 ** schema["precision"]:
        return None
    signed: int = -unscaled if sign else unscaled
    size = int(schema.get("size") or signed.bit_length() // 8 + 1)
    return signed.to_bytes(size, "big", signed=True)


def _of_duration(text: str) -> bytes | None:
    match = _DURATION.fullmatch(text)
    if match is None or text[-1] in "PT":
        return None
    years, months, days, hours, minutes, seconds = (int(match[at] or 0) for at in range(1, 7))
    millis = ((hours * 60 + minutes) * 60 + seconds) * 1000 + int((match[7] or "").ljust(3, "0"))
    parts = (years * 12 + months, days, millis)
    return b"".join(part.to_bytes(4, "little") for part in parts)
