"""Reference decoder: reads one event at a time and defines which events are readable.

Invalid JSON and a value of the wrong type are errors.  So is a missing attribute, unless missing
attributes are read as null.  An explicit null is null; an attribute that is not in the schema is
ignored.  The rules for values are those of ``decode.values``: a whole number is accepted for a
float or a double, but 42.0 is no int, and neither "5" nor true is a number.
"""

from __future__ import annotations

import json
from decimal import Decimal
from functools import partial
from sys import getsizeof
from typing import TYPE_CHECKING, Any

import msgpack  # type: ignore[import-untyped]  # it has no stubs
import numpy as np
import orjson
import pyarrow as pa

from pyspark_nats.arrow import kernels
from pyspark_nats.decode import columns, plans
from pyspark_nats.decode.result import USUAL, part
from pyspark_nats.decode.values import WrongValueError, reader_of, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_nats.arrow import Array, DataType
    from pyspark_nats.decode.columns import Conversion
    from pyspark_nats.decode.result import DecodedPart, Ints, MessageLimits, Unreadable

#: (attribute, rule of its values).
Rule = tuple[str, "Callable[[Any], Any]"]

#: Bytes of Python values per octet of MessagePack, at most: maps of one pair.
_EXPANSION = 100
#: Bytes of a short text, the largest of the objects that have no items.
_OBJECT_BYTES = 56
#: Payloads that are converted to columns together: enough for speed, few enough for the cache.
_TOGETHER = 4096
#: Bytes of payloads that are converted together; as Python values they are up to 60 times as many.
_TOGETHER_BYTES = 4 << 20


def kind_of(content_type: str) -> str:
    """One of "json", "msgpack" and "arrow"; empty for an unknown content type."""
    base = content_type.split(";", 1)[0].strip().lower()
    if not base or "json" in base or base in ("text/plain", "application/octet-stream"):
        return "json"
    if "msgpack" in base:
        return "msgpack"
    return "arrow" if "arrow" in base else ""


def decode_each(
    data: Array,
    at: Ints,
    schema: pa.Schema,
    missing: str,
    errors: list[Unreadable],
    events_of: Callable[[bytes], list[Any]],
    limits: MessageLimits,
    convert: Conversion | None = None,
) -> list[DecodedPart]:
    """Decode message by message, by the rules themselves.

    Args:
        data: length n, binary, no nulls.
        at: length n, the messages' numbers.
        schema: the attributes.
        missing: "error" or "null".
        errors: receives what can't be read.
        events_of: a payload's events, a string for an unreadable one.
        limits: of one message.
        convert: for values that the rules do not know.
    """
    parts: list[DecodedPart] = []
    row_size = plans.of(schema).row_bytes
    for first, last in _together(data):
        events = []
        message: list[int] = []
        index: list[int] = []
        payloads = data.slice(first, last - first).to_pylist()
        for number, payload in zip(at[first:last].tolist(), payloads, strict=True):
            items = events_of(payload)
            reason = limits.reason(len(items), len(items) * row_size)
            if reason is not None:
                errors.append((number, 0, reason))
                continue
            for place, event in enumerate(items):
                if isinstance(event, str):
                    errors.append((number, place, event))
                    continue
                events.append(event)
                message.append(number)
                index.append(place)
        if events:
            parts += _rows(events, message, index, schema, missing, errors, convert)
    return parts


def _together(data: Array) -> Iterator[tuple[int, int]]:
    """Slices (first, last + 1) of bounded length and size, of at least one payload."""
    count = len(data)
    if count <= _TOGETHER and data.nbytes <= _TOGETHER_BYTES:
        yield from [(0, count)] if count else ()
        return
    ends = np.cumsum(kernels.binary_length(data).to_numpy(zero_copy_only=False).astype(np.int64))
    first = 0
    while first < count:
        before = int(ends[first - 1]) if first else 0
        last = int(np.searchsorted(ends, before + _TOGETHER_BYTES, side="right"))
        last = max(first + 1, min(last, first + _TOGETHER, count))
        yield first, last
        first = last


def _rows(
    events: list[Any],
    message: list[int],
    index: list[int],
    schema: pa.Schema,
    missing: str,
    errors: list[Unreadable],
    convert: Conversion | None,
) -> list[DecodedPart]:
    numbers, places = np.array(message, np.int64), np.array(index, np.int64)
    try:
        arrays = columns.columns(events, plans.of(schema).fields, missing, convert)
    except MemoryError:
        raise
    # The rules name the event that fails here, in whatever way.
    except Exception:
        rows = rules(schema, missing, convert)
        values = []
        good: list[int] = []
        for at, event in enumerate(events):
            row = row_of(event, rows, missing)
            if isinstance(row, str):
                errors.append((message[at], index[at], row))
                continue
            values.append(row)
            good.append(at)
        if not good:
            return []
        numbers, places = numbers[good], places[good]
        arrays = [
            pa.array(column, field.type)
            for column, field in zip(zip(*values, strict=True), schema, strict=True)
        ]
    if not arrays:
        # Without a schema there are no columns to count rows by.
        return []
    return [part(pa.RecordBatch.from_arrays(arrays, schema=schema), numbers, places)]


def reader_of_json(schema: pa.Schema) -> Callable[[bytes], list[Any]]:
    """``events_of_json``, which keeps all digits of numbers if ``schema`` needs them."""
    load = _with_decimals if plans.of(schema).holds_decimals else orjson.loads
    return lambda payload: events_of_json(payload, load)


def events_of_json(payload: bytes, load: Callable[[bytes], object] = orjson.loads) -> list[Any]:
    """The events of a payload: an object, an array of them, or one in each line.

    A string represents an unreadable event and gives the reason.  ``load`` parses a text, or raises
    ``orjson.JSONDecodeError``.
    """
    try:
        value = load(payload)
    except orjson.JSONDecodeError as error:
        lines = [line for line in payload.split(b"\n") if line.strip()]
        if len(lines) < 2 or payload.lstrip()[:1] == b"[":
            return [f"not JSON: {error.msg}" if payload.strip() else "not JSON: empty"]
        return [_line(line, load) for line in lines]
    if isinstance(value, list):
        return [_object(item) for item in value]
    return [_object(value)]


def _line(line: bytes, load: Callable[[bytes], object]) -> Any:
    try:
        return _object(load(line))
    except orjson.JSONDecodeError as error:
        return f"not JSON: {error.msg}"


def _with_decimals(text: bytes) -> object:
    # The first parser validates; the second one reads with every digit.
    orjson.loads(text)
    return json.loads(text, parse_float=Decimal)


def events_of_msgpack(payload: bytes, bytes_max: int = USUAL.bytes_max) -> list[Any]:
    """The events of a MessagePack payload, a map or an array of maps; strings as in JSON.

    Maps and arrays take up to a hundred times their octets.  Where they may exceed ``bytes_max``,
    they are counted while they are made, and the message is given up at the limit.
    """
    hooks = {}
    if len(payload) * _EXPANSION > bytes_max:
        count = _Budget(bytes_max - len(payload)).charge
        hooks = {"object_hook": count, "list_hook": count}
    try:
        value = msgpack.unpackb(payload, raw=False, strict_map_key=False, **hooks)
    except _BudgetError:
        return [f"the message needs too many bytes when decoded, more than {bytes_max}"]
    except (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException) as error:
        # A TypeError: a map or an array is the key of a map.
        return [f"not MessagePack: {error or type(error).__name__}"]
    if isinstance(value, list):
        return [_object(item) for item in value]
    return [_object(value)]


class _BudgetError(Exception):
    """The containers of a message are too large."""


class _Budget:
    """Bytes that containers may still take."""

    def __init__(self, left: int) -> None:
        self._left = left

    def charge(self, container: Any) -> object:
        """Charge a container and the objects of its items, without their text; return it."""
        items = len(container) if isinstance(container, list) else 2 * len(container)
        self._left -= getsizeof(container) + _OBJECT_BYTES * items
        if self._left < 0:
            raise _BudgetError
        return container


def _object(value: object) -> object:
    return value if isinstance(value, dict) else f"{shown(value)} is not an object"


def rules(schema: pa.Schema, missing: str, convert: Conversion | None = None) -> list[Rule]:
    """The rule of each attribute of ``schema``; it is for values after their conversion."""
    readers = [(field.name, reader_of(field.type, missing)) for field in schema]
    if convert is None:
        return readers
    return [
        (name, partial(_read_converted, read, convert, field.type))
        for (name, read), field in zip(readers, schema, strict=True)
    ]


def _read_converted(
    read: Callable[[object], object], convert: Conversion, kind: DataType, value: object
) -> object:
    result = convert(value, kind)
    return None if result is None else read(result)


def row_of(event: dict[str, object], rows: list[Rule], missing: str) -> tuple[object, ...] | str:
    """The event's values in the order of ``rows``, or the reason why it is unreadable."""
    values = []
    for name, read in rows:
        value = event.get(name)
        if value is None:
            if missing == "error" and name not in event:
                return f'attribute "{name}" is missing'
        else:
            try:
                value = read(value)
            except WrongValueError as wrong:
                return wrong.reason(name)
            except (ArithmeticError, RuntimeError, TypeError, ValueError) as error:
                return f'attribute "{name}" can\'t be read: {type(error).__name__}'
        values.append(value)
    return tuple(values)


def is_complete(line: bytes, schema: pa.Schema) -> bool:
    """Whether a line that parses as an object has every attribute, null or not."""
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return isinstance(event, dict) and all(
        field.name in event and _is_whole(event[field.name], field.type) for field in schema
    )


def _is_whole(value: object, kind: pa.DataType) -> bool:
    """Whether every struct inside of a value has all its attributes."""
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return all(f.name in value and _is_whole(value[f.name], f.type) for f in kind.fields)
    if pa.types.is_list(kind) and isinstance(value, list):
        return all(_is_whole(item, kind.value_type) for item in value)
    return True
