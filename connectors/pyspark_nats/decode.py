"""Messages to rows: JSON, MessagePack and Arrow, by content type.

A message is one event or many.  What can't be read is reported event by event with its reason, and
never spoils its neighbours.  The rules are those of ``decode_rules``; the fast path below reads
whole blocks with Arrow's JSON parser, which is looser (a missing attribute looks like null to it)
and gives up on a block with one wrong value.  So a block that fails is halved, rows with nulls are
looked at again, and what remains is read message by message; either way gives the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from pyspark_nats import decode_rules
from pyspark_nats.arrow import arrow, concat_batches, kernels, rows_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from pyspark_nats.arrow import Array

    Ints = npt.NDArray[np.int64]

#: Payload column of Arrow messages with the events' own times, ms since 1970.
EVENT_TIME: Final = "_event_time_ms"
#: Below so many lines, reading one by one costs no more than another try of the fast path.
_LINES_MIN: Final = 1024
#: A block's text must stay addressable by 32-bit offsets.
_BLOCK_BYTES_MAX: Final = 64 << 20

JSON, MSGPACK, ARROW = "json", "msgpack", "arrow"


@dataclass(frozen=True, slots=True)
class Decoded:
    """Rows and where they come from; rows are in the order of messages and of events in them."""

    rows: pa.RecordBatch
    #: The message of each row, counted from 0.
    message: Ints
    #: The place of each row's event in its message, counted from 0.
    index: Ints
    #: int64, ms since 1970; null unless an Arrow message carries ``EVENT_TIME``.
    event_time_ms: Array
    #: (message, index, reason) in order; index 0 when the message as a whole can't be read.
    errors: list[tuple[int, int, str]]


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of some of the messages."""

    rows: pa.RecordBatch
    message: Ints
    index: Ints
    event_time_ms: Array


def decode_messages(data: Array, content_type: Array, schema: pa.Schema) -> Decoded:
    """Decode messages into rows of ``schema``.

    Args:
        data: length n, binary; null counts as empty.
        content_type: length n, string; null means JSON.
        schema: string, int32, int64, float, double and bool fields; all taken as nullable.

    Returns:
        Every event that can be read, and an error for every one that can't.

    Raises:
        ValueError: ``data`` and ``content_type`` differ in length.
    """
    if len(data) != len(content_type):
        raise ValueError(f"{len(data)} payloads and {len(content_type)} content types")
    schema = pa.schema([pa.field(field.name, field.type) for field in schema])
    data = kernels.fill_null(data.cast(pa.binary()), b"")
    errors: list[tuple[int, int, str]] = []
    parts: list[_Part] = []
    for kind, at in _by_kind(content_type, errors):
        chosen = data if len(at) == len(data) else data.take(pa.array(at))
        if kind == JSON:
            parts += _decode_json(chosen, at, schema, errors)
        elif kind == ARROW:
            parts += _decode_arrow(chosen, at, schema, errors)
        else:
            parts += _decode_each(chosen, at, schema, errors, kind)
    return _assembled(parts, schema, errors)


def _by_kind(content_type: Array, errors: list[tuple[int, int, str]]) -> list[tuple[str, Ints]]:
    """The messages of each kind; an error for those of none."""
    if content_type.null_count == len(content_type):
        return [(JSON, np.arange(len(content_type)))] if len(content_type) else []
    encoded = content_type.dictionary_encode()
    kinds = [decode_rules.kind_of(text) for text in encoded.dictionary.to_pylist()]
    codes = kernels.fill_null(encoded.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    # The last entry is reached by -1: no content type.
    by_code = np.array([*kinds, JSON], dtype=object)[codes]
    errors += [
        (int(at), 0, f'content type "{content_type[int(at)].as_py()}" is not known')
        for at in np.flatnonzero(by_code == "")
    ]
    found = [(kind, np.flatnonzero(by_code == kind)) for kind in (JSON, MSGPACK, ARROW)]
    return [(kind, at) for kind, at in found if len(at)]


def _assembled(
    parts: list[_Part], schema: pa.Schema, errors: list[tuple[int, int, str]]
) -> Decoded:
    errors.sort(key=lambda error: error[:2])
    if not parts:
        rows = schema.empty_table().combine_chunks().to_batches()
        empty = rows[0] if rows else pa.RecordBatch.from_pylist([], schema)
        none = np.zeros(0, np.int64)
        return Decoded(empty, none, none, pa.array([], pa.int64()), errors)
    if len(parts) == 1:
        part = parts[0]
        rows_, message, index, times = part.rows, part.message, part.index, part.event_time_ms
    else:
        rows_ = concat_batches([part.rows for part in parts])
        message = np.concatenate([part.message for part in parts])
        index = np.concatenate([part.index for part in parts])
        times = pa.concat_arrays([part.event_time_ms for part in parts])
    steps = np.diff(message)
    if ((steps < 0) | ((steps == 0) & (np.diff(index) < 0))).any():
        order = np.lexsort((index, message))
        rows_, times = rows_.take(rows_at(order)), times.take(rows_at(order))
        message, index = message[order], index[order]
    return Decoded(rows_, message, index, times, errors)


# --- JSON


def _decode_json(
    data: Array, at: Ints, schema: pa.Schema, errors: list[tuple[int, int, str]]
) -> list[_Part]:
    """Decode JSON messages; ``at`` are their numbers."""
    is_plain = _is_plain(data)
    slow = np.flatnonzero(~is_plain)
    plain = np.flatnonzero(is_plain)
    parts: list[_Part] = []
    odd: list[Ints] = [slow]
    if len(plain) and len(schema):
        texts = data.take(pa.array(plain)) if len(slow) else data
        for first, last in _blocks(texts):
            _fast(texts, plain, first, last, at, schema, parts, odd)
    else:
        odd.append(plain)
    left = np.sort(np.concatenate(odd))
    if len(left):
        parts += _decode_each(data.take(pa.array(left)), at[left], schema, errors, JSON)
    return parts


def _is_plain(data: Array) -> npt.NDArray[np.bool_]:
    """Which messages the fast path may take: objects, one a line, in valid UTF-8."""
    plain = kernels.starts_with(data, pattern="{")
    # Arrow's parser knows these words; JSON does not.
    for word in ("NaN", "Inf"):
        plain = kernels.and_(plain, kernels.invert(kernels.match_substring(data, word)))
    flags = np.array(plain.to_numpy(zero_copy_only=False), bool)
    try:
        data.cast(pa.string())
    except pa.ArrowInvalid:
        for n, payload in enumerate(data.to_pylist()):
            flags[n] &= _is_utf8(payload)
    return flags


def _is_utf8(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def _blocks(texts: Array) -> list[tuple[int, int]]:
    """Cut into stretches (first, last + 1) of bounded size."""
    ends = np.cumsum(kernels.binary_length(texts).to_numpy(zero_copy_only=False).astype(np.int64))
    cuts = np.flatnonzero(np.diff(ends // _BLOCK_BYTES_MAX)) + 1
    bounds = [0, *cuts.tolist(), len(texts)]
    return list(pairwise(bounds))


def _fast(
    texts: Array, numbers: Ints, first: int, last: int, at: Ints, schema: pa.Schema,
    parts: list[_Part], odd: list[Ints],
) -> None:  # fmt: skip
    """Decode ``texts[first:last]`` by blocks; what a block can't take goes to ``odd``."""
    if last - first < 1:
        return
    block = texts.slice(first, last - first)
    lines, parent = _lines(block)
    table = _parsed(lines, schema) if lines is not None else None
    if table is None:
        if last - first <= _LINES_MIN:
            odd.append(numbers[first:last])
            return
        middle = (first + last) // 2
        _fast(texts, numbers, first, middle, at, schema, parts, odd)
        _fast(texts, numbers, middle, last, at, schema, parts, odd)
        return
    # A null may be a missing attribute: only the text can tell.
    is_odd = np.zeros(last - first, bool)
    suspect = np.zeros(len(parent), bool)
    for column in table.columns:
        if column.null_count:
            suspect |= np.asarray(column.is_null().to_numpy(zero_copy_only=False), bool)
        if pa.types.is_floating(column.type):
            suspect |= ~np.isfinite(kernels.fill_null(column, 0.0).to_numpy(zero_copy_only=False))
    if suspect.any():
        assert lines is not None
        rows = np.flatnonzero(suspect)
        wrong = [
            row
            for row, line in zip(rows, lines.take(pa.array(rows)).to_pylist(), strict=True)
            if not decode_rules.is_complete(line, schema.names)
        ]
        is_odd[parent[wrong]] = True
    index = np.arange(len(parent)) - np.searchsorted(parent, parent)
    keep = ~is_odd[parent]
    if is_odd.any():
        odd.append(numbers[first:last][is_odd])
        table, parent, index = table.filter(pa.array(keep)), parent[keep], index[keep]
    message = at[numbers[first:last][parent]]
    parts.append(_Part(table, message, index, pa.nulls(len(message), pa.int64())))


def _lines(block: Array) -> tuple[Array | None, Ints]:
    """The lines of the messages and the message of each; no lines when one is no object."""
    if not kernels.any(kernels.match_substring(block, "\n")).as_py():
        return block, np.arange(len(block))
    split = kernels.split_pattern(block, b"\n")
    offsets = split.offsets.to_numpy()
    lines = split.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    parent = np.repeat(np.arange(len(block)), np.diff(offsets))
    is_blank = kernels.match_substring_regex(lines, r"^[ \t\r]*$").to_numpy(zero_copy_only=False)
    if is_blank.any():
        lines, parent = lines.filter(pa.array(~is_blank)), parent[~is_blank]
    if not kernels.all(kernels.starts_with(lines, pattern="{")).as_py():
        return None, parent
    return lines, parent


def _parsed(lines: Array, schema: pa.Schema) -> pa.RecordBatch | None:
    """One row a line; None when Arrow's parser does not take them all.

    Every line starts with a brace, and a value can't go on in a line that does; so as many rows
    as lines means one row for each.
    """
    separated = kernels.binary_join_element_wise(lines, pa.scalar(b"", lines.type), b"\n")
    _, bounds, octets = separated.buffers()
    ends = np.frombuffer(bounds, np.int32)[separated.offset :][: len(separated) + 1]
    text = octets.slice(int(ends[0]), int(ends[-1] - ends[0]))
    try:
        table = pj.read_json(
            arrow.BufferReader(text),
            read_options=pj.ReadOptions(use_threads=False, block_size=text.size + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=_read_schema(schema), unexpected_field_behavior="ignore"
            ),
        )
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return None
    if table.num_rows != len(lines):
        return None
    columns = [table.column(f.name).combine_chunks().cast(f.type, safe=False) for f in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _read_schema(schema: pa.Schema) -> pa.Schema:
    """Floats are read as doubles and rounded once more, as the slow path does."""
    return pa.schema(
        [(f.name, pa.float64() if pa.types.is_floating(f.type) else f.type) for f in schema]
    )


def _decode_each(
    data: Array, at: Ints, schema: pa.Schema, errors: list[tuple[int, int, str]], kind: str
) -> list[_Part]:
    """Decode message by message, by the rules themselves."""
    events: list[Sequence[object]] = []
    message: list[int] = []
    index: list[int] = []
    read = decode_rules.events_of_json if kind == JSON else decode_rules.events_of_msgpack
    checks = decode_rules.checks(schema)
    for number, payload in zip(at.tolist(), data.to_pylist(), strict=True):
        for place, event in enumerate(read(payload)):
            row = event if isinstance(event, str) else decode_rules.row_of(event, checks)
            if isinstance(row, str):
                errors.append((number, place, row))
                continue
            events.append(row)
            message.append(number)
            index.append(place)
    if not events:
        return []
    columns = [
        pa.array(values, field.type)
        for values, field in zip(zip(*events, strict=True), schema, strict=True)
    ]
    return [
        _Part(
            pa.RecordBatch.from_arrays(columns, schema=schema),
            np.array(message, np.int64),
            np.array(index, np.int64),
            pa.nulls(len(message), pa.int64()),
        )
    ]


# --- Arrow


def _decode_arrow(
    data: Array, at: Ints, schema: pa.Schema, errors: list[tuple[int, int, str]]
) -> list[_Part]:
    """Messages of one schema are turned into rows together: what costs is the call, not the row."""
    parts: list[_Part] = []
    numbers: list[int] = []
    tables: list[pa.Table] = []
    for number, payload in zip(at.tolist(), data, strict=True):
        table = decode_rules.table_of_arrow(payload.as_buffer())
        if isinstance(table, str):
            errors.append((number, 0, table))
            continue
        if tables and not table.schema.equals(tables[-1].schema):
            parts += _arrow_part(numbers, tables, schema, errors)
            numbers, tables = [], []
        numbers.append(number)
        tables.append(table)
    if tables:
        parts += _arrow_part(numbers, tables, schema, errors)
    return parts


def _arrow_part(
    numbers: list[int],
    tables: list[pa.Table],
    schema: pa.Schema,
    errors: list[tuple[int, int, str]],
) -> list[_Part]:
    read = decode_rules.rows_of_table(pa.concat_tables(tables), schema, EVENT_TIME)
    if isinstance(read, str):
        if len(tables) > 1:
            # One bad message must not take its neighbours along.
            parts: list[_Part] = []
            for number, table in zip(numbers, tables, strict=True):
                parts += _arrow_part([number], [table], schema, errors)
            return parts
        errors.append((numbers[0], 0, read))
        return []
    rows, times = read
    counts = np.array([table.num_rows for table in tables])
    message = np.repeat(np.array(numbers, np.int64), counts)
    index = np.arange(len(message)) - np.repeat(np.cumsum(counts) - counts, counts)
    return [_Part(rows, message, index, times)] if len(message) else []
