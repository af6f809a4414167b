"""What makes an event readable, said event by event.

A missing attribute, a value of the wrong type and text that is no JSON are errors; an explicit null
is null; an attribute that the schema does not know is ignored.  A whole number may stand for a
float or a double, but 42.0 is no int, "5" is no number and true is no number either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgpack  # type: ignore[import-untyped]  # it has no stubs
import numpy as np
import orjson
import pyarrow as pa

from pyspark_nats.arrow import kernels

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark_nats.arrow import Array

#: (attribute, wanted type, test and conversion: raises ValueError for a wrong value).
Check = tuple[str, str, "Callable[[Any], Any]"]

_SHOWN_MAX: Final = 60


def kind_of(content_type: str) -> str:
    """One of "json", "msgpack" and "arrow"; empty for a content type that is not known."""
    base = content_type.split(";", 1)[0].strip().lower()
    if not base or "json" in base or base in ("text/plain", "application/octet-stream"):
        return "json"
    if "msgpack" in base:
        return "msgpack"
    return "arrow" if "arrow" in base else ""


def events_of_json(payload: bytes) -> list[Any]:
    """The events of a payload: an object, an array of them, or one a line.

    A string stands for an event that can't be read, and says why.
    """
    try:
        value = orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        lines = [line for line in payload.split(b"\n") if line.strip()]
        if len(lines) < 2 or payload.lstrip()[:1] == b"[":
            return [f"not JSON: {error.msg}" if payload.strip() else "not JSON: empty"]
        return [_line(line) for line in lines]
    if isinstance(value, list):
        return [_object(item) for item in value]
    return [_object(value)]


def _line(line: bytes) -> Any:
    try:
        return _object(orjson.loads(line))
    except orjson.JSONDecodeError as error:
        return f"not JSON: {error.msg}"


def events_of_msgpack(payload: bytes) -> list[Any]:
    """The events of a MessagePack payload, a map or an array of maps; strings as in JSON."""
    try:
        value = msgpack.unpackb(payload, raw=False, strict_map_key=False)
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        return [f"not MessagePack: {error or type(error).__name__}"]
    if isinstance(value, list):
        return [_object(item) for item in value]
    return [_object(value)]


def _object(value: Any) -> Any:
    return value if isinstance(value, dict) else f"{_shown(value)} is not an object"


def is_complete(line: bytes, names: Sequence[str]) -> bool:
    """Whether a line that parses as an object has every attribute, null or not."""
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return isinstance(event, dict) and all(name in event for name in names)


def checks(schema: pa.Schema) -> list[Check]:
    """How the values of each attribute of ``schema`` are checked."""
    return [(field.name, type_name(field.type), _test(field.type)) for field in schema]


def row_of(event: dict[str, Any], rules: list[Check]) -> tuple[Any, ...] | str:
    """The event's values in the order of ``rules``, or why it has none."""
    values: list[Any] = []
    for name, wanted, test in rules:
        if name not in event:
            return f'attribute "{name}" is missing'
        value = event[name]
        if value is not None:
            try:
                value = test(value)
            except ValueError:
                return f'attribute "{name}" is {_shown(value)}, not {_article(wanted)}'
        values.append(value)
    return tuple(values)


def type_name(kind: pa.DataType) -> str:
    """What people call an Arrow type here.

    Raises:
        ValueError: no event has attributes of it.
    """
    try:
        return _NAMES[kind]
    except KeyError:
        raise ValueError(f"attributes can't be of type {kind}") from None


def _article(name: str) -> str:
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"


def _shown(value: Any) -> str:
    try:
        text = orjson.dumps(value).decode()
    except TypeError:
        text = repr(value)
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 3] + "..."


def _test(kind: pa.DataType) -> Callable[[Any], Any]:
    if pa.types.is_integer(kind):
        low, high = int(np.iinfo(str(kind)).min), int(np.iinfo(str(kind)).max)
        return lambda value: _whole(value, low, high)
    if pa.types.is_floating(kind):
        return _real
    return _text if pa.types.is_string(kind) else _truth


def _whole(value: Any, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        raise ValueError
    return value


def _real(value: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


_NAMES: Final = {
    pa.string(): "string",
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "bool",
}


def table_of_arrow(payload: pa.Buffer) -> pa.Table | str:
    """The table in an Arrow IPC stream, its buffers not checked yet, or why there is none."""
    try:
        with pa.ipc.open_stream(payload) as stream:
            return stream.read_all()
    except (pa.ArrowException, OSError, ValueError, EOFError) as error:
        return _no_arrow(error)


def _no_arrow(error: Exception) -> str:
    lines = str(error).splitlines()
    return f"not an Arrow stream: {lines[0] if lines else 'empty'}"


def rows_of_table(
    table: pa.Table, schema: pa.Schema, event_time: str
) -> tuple[pa.RecordBatch, Array] | str:
    """The rows of a table and the events' own times, or why it has none.

    Columns go by name.  A narrower number may stand for a wider one; other types must agree.
    """
    try:
        # A stranger's buffers may point anywhere.
        table.validate(full=True)
    except (pa.ArrowException, ValueError) as error:
        return _no_arrow(error)
    columns: list[Array] = []
    for field in schema:
        if field.name not in table.column_names:
            return f'attribute "{field.name}" is missing'
        column = _column(table, field.name)
        if column.type != field.type:
            if not _widens(column.type, field.type):
                wanted = _article(type_name(field.type))
                return f'attribute "{field.name}" is of Arrow type {column.type}, not {wanted}'
            column = column.cast(field.type, safe=False)
        columns.append(column)
    times: Array = pa.nulls(table.num_rows, pa.int64())
    if event_time in table.column_names and event_time not in schema.names:
        times = _column(table, event_time)
        if times.type != pa.int64():
            return f'attribute "{event_time}" is of Arrow type {times.type}, not a long'
    return pa.RecordBatch.from_arrays(columns, schema=schema), times


def _column(table: pa.Table, name: str) -> Array:
    column: Array = table.column(name).combine_chunks()
    return kernels.dictionary_decode(column) if pa.types.is_dictionary(column.type) else column


def _widens(given: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_string(wanted):
        return pa.types.is_large_string(given) or pa.types.is_string_view(given)
    if pa.types.is_floating(wanted):
        return pa.types.is_integer(given) or (
            pa.types.is_floating(given) and given.bit_width <= wanted.bit_width
        )
    if pa.types.is_signed_integer(wanted):
        return pa.types.is_signed_integer(given) and given.bit_width <= wanted.bit_width
    return False
