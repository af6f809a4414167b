"""Encoder of rows: JSON with one object for each row, or Arrow IPC streams with many rows each.

Arrow's kernels convert flat columns to text; only arrays, maps, structs and binary values are
written one by one.
"""

from __future__ import annotations

import base64
import json
import math
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson
import pyarrow as pa

from pyspark_nats.arrow import FEW, kernels, sizes_of
from pyspark_nats.decode import EVENT_TIME
from pyspark_nats.few_rows import values_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from pyspark_nats.arrow import Array

    Ints = npt.NDArray[np.int64]
    #: From rows and the name of a column to its texts.
    _Writer = Callable[[pa.RecordBatch, str], list[str]]

#: Schemas whose writers are kept.
_WRITERS_MAX: Final = 1024
#: Characters to escape in a JSON string: quote, backslash and control characters.
_ESCAPED = r'["\\\x00-\x1f]'


def to_json(rows: pa.RecordBatch) -> Array:
    """One JSON object for each row.

    Args:
        rows: n rows, without columns of durations and intervals.

    Returns:
        Length n, binary: ``{"symbol":"IBM","price":null}``.  Null is null, and so are NaN and the
        infinities, which JSON does not have.  Numbers, decimals too, read back as the same value.
        Times and dates are ISO 8601 text, binary is base64, a map is an object.
    """
    if rows.num_columns == 0:
        return pa.array([b"{}"] * rows.num_rows, pa.binary())
    if rows.num_rows <= FEW:
        return pa.array(few_to_json(rows), pa.binary())
    leads = _leads(tuple(rows.schema.names))
    pieces: list[Array] = []
    for lead, column in zip(leads, rows.columns, strict=True):
        pieces += [pa.scalar(lead), _values(column)]
    pieces.append(pa.scalar("}"))
    return kernels.binary_join_element_wise(*pieces, pa.scalar("")).cast(pa.binary())


@lru_cache(maxsize=256)
def _leads(names: tuple[str, ...]) -> tuple[str, ...]:
    """The text before each value of an object."""
    written = [json.dumps(name, ensure_ascii=False) + ":" for name in names]
    return tuple(("," if at else "{") + name for at, name in enumerate(written))


def _object(leads: tuple[str, ...], texts: tuple[str, ...]) -> bytes:
    pieces = [piece for pair in zip(leads, texts, strict=True) for piece in pair]
    return "".join((*pieces, "}")).encode()


def few_to_json(rows: pa.RecordBatch) -> list[bytes]:
    """``to_json`` of few rows with a column: a loop costs less than the kernels' calls."""
    written = [(lead, write(rows, name)) for name, lead, write in _writers(rows.schema)]
    leads, texts = zip(*written, strict=True)
    return [_object(leads, row) for row in zip(*texts, strict=True)]


def _writers(
    schema: pa.Schema,
) -> list[tuple[str, str, _Writer]]:
    """By column, its name, the text before its values, and the writer of their texts."""
    # By identity: to hash a schema takes as long as to write a row.  The entry keeps it alive.
    entry = _writer_cache.get(id(schema))
    if entry is None:
        if len(_writer_cache) >= _WRITERS_MAX:
            _writer_cache.clear()
        leads = _leads(tuple(schema.names))
        writers = [(f.name, lead, _writer(f.type)) for f, lead in zip(schema, leads, strict=True)]
        entry = _writer_cache[id(schema)] = schema, writers
    return entry[1]


_writer_cache: dict[int, Any] = {}


def _writer(kind: Any) -> _Writer:
    """A writer of the texts of ``_values`` for columns of a type."""
    if pa.types.is_floating(kind):
        is_double = kind.bit_width == 64
        return lambda rows, name: _numbers(rows, name, is_double)
    if pa.types.is_string(kind) or pa.types.is_integer(kind):
        return lambda rows, name: [orjson.dumps(v).decode() for v in values_of(rows, name)]
    return lambda rows, name: _values(rows.column(name)).to_pylist()


def _numbers(rows: pa.RecordBatch, name: str, is_double: bool) -> list[str]:
    values = values_of(rows, name)
    if is_double:
        return [*map(_double, values)]
    texts: list[Any] = rows.column(name).cast(pa.string()).to_pylist()
    written = zip(values, texts, strict=True)
    return [
        "null"
        if value is None or not math.isfinite(value)
        else f"{text}.0"
        if text.removeprefix("-").isdigit()
        else text
        for value, text in written
    ]


def _values(column: Array) -> Array:
    """The values as JSON text; no nulls."""
    kind = column.type
    if pa.types.is_floating(kind):
        # Arrow prints the shortest text that reads back as the same value, as JSON requires.
        if not np.isfinite(column.to_numpy(zero_copy_only=False)).all():
            column = kernels.if_else(kernels.is_finite(column), column, None)
        texts = column.cast(pa.string())
        # ``23`` would read as an integer by readers that derive types from the text; ``23.0``
        # doesn't.
        whole = kernels.match_substring_regex(texts, r"^-?[0-9]+$")
        texts = kernels.if_else(whole, kernels.binary_join_element_wise(texts, "0", "."), texts)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        texts = _quoted(column.cast(pa.string()))
    elif pa.types.is_temporal(kind):
        texts = kernels.binary_join_element_wise('"', iso_texts(column), '"', "")
    elif pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        plain = plain_value(kind, binary=_base64)
        texts = pa.array(
            [orjson.dumps(plain(value)).decode() for value in column.to_pylist()], pa.string()
        )
    else:
        # Arrow prints truth values as true and false.
        texts = column.cast(pa.string())
    return kernels.fill_null(texts, "null") if texts.null_count else texts


def _double(value: float | None) -> str:
    """The text of a double: both Python and Arrow write the fewest digits, each with exponents."""
    if value is None or not math.isfinite(value):
        return "null"
    text = repr(value)
    if 1e-4 <= (size := abs(value)) < 1e10 or size >= 1e16 or not size:
        return text
    sign = "-" * (value < 0)
    mantissa, _, exponent = text.removeprefix("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    if size >= 1e10:
        rest = f"{whole[1:]}{fraction}".rstrip("0")
        return f"{sign}{whole[0]}{'.' * bool(rest)}{rest}e+{len(whole) - 1}"
    if size >= 1e-6:
        return f"{sign}0.{'0' * (-int(exponent) - 1)}{whole}{fraction}"
    return f"{sign}{mantissa}e{int(exponent)}"


def _quoted(texts: Array) -> Array:
    needs = kernels.match_substring_regex(texts, _ESCAPED)
    if kernels.any(needs).as_py():
        needs = kernels.fill_null(needs, False)
        # Few strings contain such characters; a JSON encoder quotes those.
        escaped = pa.array(
            [orjson.dumps(text)[1:-1].decode() for text in texts.filter(needs).to_pylist()],
            pa.string(),
        )
        texts = kernels.replace_with_mask(texts, needs, escaped)
    return kernels.binary_join_element_wise('"', texts, '"', "")


def iso_texts(column: Array) -> Array:
    """Timestamps, dates and times of day as ISO 8601 text; a timestamp with a zone is in UTC."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        column = column.cast(pa.timestamp(kind.unit, "UTC"))
    texts = column.cast(pa.string())
    if pa.types.is_timestamp(kind):
        texts = kernels.replace_substring(texts, " ", "T", max_replacements=1)
    return texts


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def plain_value(
    kind: pa.DataType,
    *,
    binary: Callable[[bytes], object],
    decimal: Callable[[object], object] | None = None,
) -> Callable[[object], object]:
    """A function from a value of an Arrow type, as ``to_pylist`` gives it, to one of JSON's.

    Args:
        kind: the type; no duration or interval, and none inside of it.
        binary: the function for bytes.
        decimal: the function for a decimal; a JSON number if not given.
    """
    number = decimal or (lambda value: orjson.Fragment(str(value)))

    def of(kind: pa.DataType) -> Callable[[Any], Any]:
        types = pa.types
        if types.is_list(kind) or types.is_large_list(kind):
            item = of(kind.value_type)
            return lambda value: None if value is None else [item(v) for v in value]
        if types.is_map(kind):
            key, item = _text_of(kind.key_type), of(kind.item_type)
            return lambda value: None if value is None else {key(k): item(v) for k, v in value}
        if types.is_struct(kind):
            fields = [(field.name, of(field.type)) for field in kind]
            return lambda value: (
                None if value is None else {name: convert(value[name]) for name, convert in fields}
            )
        if types.is_binary(kind) or types.is_large_binary(kind):
            return lambda value: None if value is None else binary(value)
        if types.is_decimal(kind):
            return lambda value: None if value is None else number(value)
        if types.is_temporal(kind):
            text = _text_of(kind)
            return lambda value: None if value is None else text(value)
        return lambda value: value

    return of(kind)


def _text_of(kind: pa.DataType) -> Callable[[object], str]:
    """The text of one value, as in ``iso_texts`` and JSON."""
    if pa.types.is_temporal(kind):
        return lambda value: str(iso_texts(pa.array([value], kind))[0].as_py())
    if pa.types.is_boolean(kind):
        return lambda value: "true" if value else "false"
    return str


def to_arrow(
    rows: pa.RecordBatch,
    event_time_ms: Array | None,
    rows_per_message: int,
    bytes_max: int | None = None,
) -> tuple[Array, Ints]:
    """Arrow IPC streams of up to ``rows_per_message`` rows each.

    Args:
        rows: n rows.
        event_time_ms: length n, int64, ms since 1970; becomes a column of its own.
        rows_per_message: at least 1.
        bytes_max: size above which a stream of several rows is divided; None for any size.

    Returns:
        The payloads, length m, binary; and int64[m + 1], the first row of each, and n.
    """
    if event_time_ms is not None:
        rows = pa.RecordBatch.from_arrays(
            [*rows.columns, event_time_ms],
            schema=rows.schema.append(pa.field(EVENT_TIME, pa.int64())),
        )
    firsts = np.append(np.arange(0, rows.num_rows, rows_per_message), rows.num_rows)
    while True:
        payloads = arrow_streams(rows, firsts)
        is_large = (sizes_of(payloads) > (bytes_max or math.inf)) & (np.diff(firsts) > 1)
        if not is_large.any():
            return payloads, firsts
        middles = (firsts[:-1] + firsts[1:]) // 2
        firsts = np.sort(np.concatenate((firsts, middles[is_large])))


def arrow_streams(rows: pa.RecordBatch, firsts: Ints) -> Array:
    """Arrow IPC streams, binary: one for the rows from each of ``firsts`` to below the next."""
    sink = pa.BufferOutputStream()
    ends = [0]
    for first, end in pairwise(firsts.tolist()):
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_batch(rows.slice(first, end - first))
        ends.append(sink.tell())
    bounds = np.array(ends, np.int32)
    buffers = [None, pa.py_buffer(bounds.data), sink.getvalue()]
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers)
