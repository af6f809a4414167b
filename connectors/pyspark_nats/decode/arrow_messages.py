"""Decoder of Arrow messages: IPC streams with equal schemas are read together.

The cost is per call, not per row.  So the schema, the first frame of a stream, is read once for all
messages that start with the same octets.  Their batches are read without a copy and become one
table.  Its buffers are validated at once, because a foreign buffer may point anywhere.

Columns are matched by name, and converted to the schema's types.

Columns of Arrow messages as columns of a schema's types.

A narrower type is accepted for a wider one; other types must agree.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from pyspark_nats.arrow import arrow, kernels
from pyspark_nats.decode import columns
from pyspark_nats.decode.arrow_sizes import converted_bytes, decompressed_bytes, is_bounded, is_list
from pyspark_nats.decode.result import DecodedPart, row_bytes, width
from pyspark_nats.decode.values import WrongValueError, article, reader_of, type_name

if TYPE_CHECKING:
    from pyspark_nats.arrow import Array, DataType
    from pyspark_nats.decode.result import Ints, MessageLimits, Unreadable


#: Payload column of Arrow messages with the events' own times, ms since 1970.
EVENT_TIME: Final = "_event_time_ms"
_CONTINUATION: Final = b"\xff\xff\xff\xff"
#: End of a stream, if it has one.
_END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"


class UnreadableError(ValueError):
    """The reason why a table has no rows of the schema."""


class WrongRowsError(UnreadableError):
    """Rows of a table have values that an attribute does not have."""

    def __init__(self, reasons: dict[int, str]) -> None:
        """The error; ``reasons`` by the numbers of the rows, at least one."""
        super().__init__(next(iter(reasons.values())))
        self.reasons = reasons


def as_kind(array: Array, kind: DataType, missing: str, path: str) -> Array:
    """An array as one of ``kind``; an error names the ``path`` that can't be converted."""
    types, source = pa.types, array.type
    if types.is_null(source):
        return pa.nulls(len(array), kind)
    if types.is_dictionary(source):
        return as_kind(kernels.dictionary_decode(array), kind, missing, path)
    if types.is_run_end_encoded(source):
        return as_kind(kernels.run_end_decode(array), kind, missing, path)
    if types.is_struct(kind) and types.is_struct(source):
        return _as_struct(array, kind, missing, path)
    if types.is_list(kind) and is_list(source):
        lists = array.cast(pa.list_(source.value_type))
        items = _inside(lists.values, kind.value_type, missing, f"{path}[]")
        return _rebuilt(lists, kind, [items])
    if types.is_map(kind) and types.is_map(source):
        entries = arrow.StructArray.from_arrays(
            [
                _inside(array.keys, kind.key_type, missing, f"{path}.key"),
                _inside(array.items, kind.item_type, missing, f"{path}.value"),
            ],
            fields=[kind.key_field, kind.item_field],
        )
        return _rebuilt(array, kind, [entries])
    if source == kind:
        return _checked(array)
    if not _widens(source, kind):
        raise UnreadableError(
            f'attribute "{path}" is of Arrow type {source}, not {article(type_name(kind))}'
        )
    if types.is_timestamp(kind) and types.is_timestamp(source):
        # Digits beyond microseconds are cut, and a time without a zone is UTC.
        return _checked(array.cast(pa.timestamp("us"), safe=False).cast(pa.int64()).cast(kind))
    if types.is_timestamp(kind):
        return _checked(array.cast(pa.timestamp("us")).cast(pa.int64()).cast(kind))
    if types.is_integer(source) and types.is_floating(kind):
        try:
            return columns.column(array.to_pylist(), kind, missing)
        except WrongValueError:
            raise WrongRowsError(_reasons(array, kind, missing, path)) from None
    if types.is_decimal(kind):
        return array.cast(kind)
    return _checked(array.cast(kind, safe=False))


def _inside(array: Array, kind: DataType, missing: str, path: str) -> Array:
    """As ``as_kind``, for an array whose numbers of rows are not those of the message."""
    try:
        return as_kind(array, kind, missing, path)
    except WrongRowsError as wrong:
        raise UnreadableError(str(wrong)) from None


def _reasons(array: Array, kind: DataType, missing: str, path: str) -> dict[int, str]:
    """The reasons against values of an array, by their numbers."""
    read = reader_of(kind, missing)
    reasons: dict[int, str] = {}
    for row, value in enumerate(array.to_pylist()):
        try:
            read(0 if value is None else value)
        except WrongValueError as wrong:
            reasons[row] = wrong.reason(path)
    return reasons


def _checked(array: Array) -> Array:
    """Check that times are in Spark's range of years."""
    if pa.types.is_timestamp(array.type):
        return columns.checked_times(array)
    return columns.checked_days(array) if pa.types.is_date(array.type) else array


def _as_struct(array: Array, kind: pa.DataType, missing: str, path: str) -> Array:
    names = [array.type.field(n).name for n in range(array.type.num_fields)]
    children: list[Array] = []
    for field in _fields(kind):
        if field.name in names:
            inner = array.field(names.index(field.name))
            children.append(_inside(inner, field.type, missing, f"{path}.{field.name}"))
        elif missing == "error":
            raise UnreadableError(f'attribute "{path}.{field.name}" is missing')
        else:
            children.append(pa.nulls(len(array), field.type))
    mask = array.is_null() if array.null_count else None
    return arrow.StructArray.from_arrays(children, fields=_fields(kind), mask=mask)


def _fields(kind: Any) -> list[Any]:
    return [kind.field(n) for n in range(kind.num_fields)]


def _rebuilt(array: Array, kind: pa.DataType, children: list[Array]) -> Array:
    """The same lists with other items."""
    return pa.Array.from_buffers(
        kind, len(array), array.buffers()[:2], offset=array.offset, children=children
    )


def _widens(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether every value of a type is valid in another, apart from digits below a microsecond."""
    types = pa.types
    if types.is_string(target):
        return types.is_large_string(source) or types.is_string_view(source)
    if types.is_binary(target):
        return (
            types.is_large_binary(source)
            or types.is_binary_view(source)
            or types.is_fixed_size_binary(source)
        )
    if types.is_floating(target):
        return types.is_integer(source) or (
            types.is_floating(source) and source.bit_width <= target.bit_width
        )
    if types.is_signed_integer(target):
        if types.is_unsigned_integer(source):
            return bool(source.bit_width < target.bit_width)
        return bool(types.is_signed_integer(source) and source.bit_width <= target.bit_width)
    if types.is_decimal(target):
        whole = target.precision - target.scale
        if types.is_decimal(source):
            return bool(source.scale <= target.scale and source.precision - source.scale <= whole)
        return bool(types.is_integer(source) and len(str(2**source.bit_width)) <= whole)
    if types.is_timestamp(target):
        if types.is_timestamp(source):
            return bool(target.tz) or not source.tz
        return types.is_date(source)
    return types.is_date(target) and types.is_date(source)


def decode_arrow(
    data: Array,
    at: Ints,
    schema: pa.Schema,
    missing: str,
    errors: list[Unreadable],
    limits: MessageLimits,
) -> tuple[list[DecodedPart], int]:
    """Decode Arrow messages, as many as fit into ``limits.batch_bytes_max``, at least one.

    Args:
        data: length n, binary, no nulls.
        at: length n, the messages' numbers.
        schema: the attributes.
        missing: "error" or "null".
        errors: receives what can't be read.
        limits: of one message.

    Returns:
        The rows, and the number of messages that were decoded.
    """
    parts: list[DecodedPart] = []
    numbers: list[int] = []
    tables: list[pa.Table] = []
    streams = _Streams(schema, limits)
    taken = total = 0
    for number, payload in zip(at.tolist(), _payloads(data), strict=True):
        try:
            table, size = streams.table(payload)
        except MemoryError:
            raise
        # A stranger's octets may fail in any way.
        except Exception as error:
            errors.append((number, 0, _reason(error)))
            taken += 1
            continue
        if taken and total + size > limits.batch_bytes_max:
            break
        taken += 1
        total += size
        if tables and not (
            table.schema is tables[-1].schema or table.schema.equals(tables[-1].schema)
        ):
            parts += _part(numbers, tables, schema, missing, errors)
            numbers, tables = [], []
        numbers.append(number)
        tables.append(table)
    if tables:
        parts += _part(numbers, tables, schema, missing, errors)
    return parts, taken


def _payloads(data: Array) -> list[pa.Buffer]:
    """The payloads, without a copy."""
    bounds = np.frombuffer(data.buffers()[1], np.int32)[data.offset :][: len(data) + 1].tolist()
    octets = data.buffers()[2] or pa.py_buffer(b"")
    return [octets.slice(first, end - first) for first, end in pairwise(bounds)]


class _Streams:
    """Reader of streams, which remembers the schema of the last one."""

    def __init__(self, schema: pa.Schema, limits: MessageLimits) -> None:
        self._target = schema
        self._limits = limits
        self._row_bytes = row_bytes(schema) + width(pa.int64())
        #: The first frame of a stream, and the schema in it; empty for none.
        self._frame = b""
        self._schema: pa.Schema | None = None
        #: Whether the wanted columns of the last stream are never longer than their buffers.
        self._is_bounded = False

    def table(self, payload: pa.Buffer) -> tuple[pa.Table, int]:
        """The table in a stream, and the bytes of its rows; its buffers may not be validated yet.

        Raises:
            UnreadableError: it is beyond the limits; other errors: it is malformed.
        """
        octets = memoryview(payload).cast("B")
        if self._frame and octets[: len(self._frame)] == self._frame:
            try:
                return self._measured(*self._of_last_schema(payload))
            except MemoryError:
                raise
            # The reason for a message must not depend on the messages around it.
            except Exception:
                self._frame = b""
        _, size = self._batches(payload)
        with pa.ipc.open_stream(payload) as stream:
            self._remember(octets, stream.schema)
            self._is_bounded = self._has_bounded_columns(stream.schema)
            table = stream.read_all()
        return self._measured(table, size)

    def _of_last_schema(self, payload: pa.Buffer) -> tuple[pa.Table, int]:
        """The table in a stream of the last schema, and the bytes of its messages."""
        assert self._schema is not None
        batches, size = self._batches(payload.slice(len(self._frame)))
        read = [pa.ipc.read_record_batch(batch, self._schema) for batch in batches]
        return pa.Table.from_batches(read, self._schema), size

    def _measured(self, table: pa.Table, size: int) -> tuple[pa.Table, int]:
        """The table, and the bytes of its rows, within the limits."""
        size += table.num_rows * self._row_bytes
        self._check(table.num_rows, size)
        if self._is_bounded:
            return table, size
        size = self._converted_bytes(table)
        self._check(table.num_rows, size)
        return table, size

    def _batches(self, payload: pa.Buffer) -> tuple[list[Any], int]:
        """The messages of a stream, which should be batches; their bytes after decompression."""
        source = arrow.BufferReader(payload)
        batches: list[Any] = []
        size = 0
        while source.tell() < source.size():
            rest = source.size() - source.tell()
            if rest == len(_END) and payload.slice(source.tell()).to_pybytes() == _END:
                break
            try:
                message = pa.ipc.read_message(source)
            except EOFError:
                # The stream has an end marker.
                if source.tell() < source.size():
                    raise UnreadableError("octets follow the end of the Arrow stream") from None
                break
            size += decompressed_bytes(message) or len(message.body or b"")
            self._check(0, size)
            batches.append(message)
        return batches, size

    def _check(self, events: int, size: int) -> None:
        reason = self._limits.reason(events, size)
        if reason is not None:
            raise UnreadableError(reason)

    def _has_bounded_columns(self, schema: pa.Schema) -> bool:
        return all(
            is_bounded(schema.field(n).type)
            for n, name in enumerate(schema.names)
            if name in self._target.names
        )

    def _converted_bytes(self, table: pa.Table) -> int:
        names = [name for name in self._target.names if name in table.column_names]
        table.select(names).validate(full=True)
        return table.num_rows * self._row_bytes + sum(
            converted_bytes(chunk, self._target.field(name).type)
            for name in names
            for chunk in table.column(name).chunks
        )

    def _remember(self, octets: memoryview, schema: pa.Schema) -> None:
        self._frame = b""
        # Dictionaries have frames of their own.
        has_dictionary = [_has_dictionary(schema.field(n)) for n in range(len(schema))]
        if bytes(octets[:4]) != _CONTINUATION or any(has_dictionary):
            return
        length = 8 + int.from_bytes(octets[4:8], "little")
        if length <= len(octets):
            self._frame, self._schema = bytes(octets[:length]), schema


def _has_dictionary(field: Any) -> bool:
    """Whether a field contains a dictionary; UnicodeDecodeError for a name that is not text."""
    assert isinstance(field.name, str)
    inside = [_has_dictionary(field.type.field(n)) for n in range(field.type.num_fields)]
    return pa.types.is_dictionary(field.type) or any(inside)


def _reason(error: Exception) -> str:
    if isinstance(error, UnreadableError):
        return str(error)
    lines = str(error).splitlines()
    return f"not an Arrow stream: {lines[0] if lines else 'empty'}"


def _part(
    numbers: list[int],
    tables: list[pa.Table],
    schema: pa.Schema,
    missing: str,
    errors: list[Unreadable],
) -> list[DecodedPart]:
    try:
        rows, times = _rows(pa.concat_tables(tables), schema, missing)
    except MemoryError:
        raise
    # A stranger's octets may fail in any way.
    except Exception as error:
        if len(tables) > 1:
            # One bad message must not affect its neighbours.
            middle = len(tables) // 2
            return [
                *_part(numbers[:middle], tables[:middle], schema, missing, errors),
                *_part(numbers[middle:], tables[middle:], schema, missing, errors),
            ]
        if isinstance(error, WrongRowsError):
            return _good_rows(numbers[0], tables[0], schema, missing, errors)
        errors.append((numbers[0], 0, _reason(error)))
        return []
    counts = [table.num_rows for table in tables]
    message = np.repeat(np.array(numbers, np.int64), counts)
    indexes = np.arange(max(counts))
    index = np.concatenate([indexes[:count] for count in counts])
    return [DecodedPart(rows, message, index, times)] if len(message) else []


def _good_rows(
    number: int, table: pa.Table, schema: pa.Schema, missing: str, errors: list[Unreadable]
) -> list[DecodedPart]:
    """The rows of a message without those that have wrong values; each of these is an error."""
    index = np.arange(table.num_rows)
    while table.num_rows:
        try:
            rows, times = _rows(table, schema, missing)
        except WrongRowsError as wrong:
            # One attribute at a time.
            errors += [(number, int(index[row]), why) for row, why in wrong.reasons.items()]
            keep = np.ones(len(index), bool)
            keep[list(wrong.reasons)] = False
            table, index = table.filter(pa.array(keep)), index[keep]
        # A stranger's octets may fail in any way.
        except Exception as error:
            errors.append((number, 0, _reason(error)))
            break
        else:
            return [DecodedPart(rows, np.full(len(index), number, np.int64), index, times)]
    return []


def _rows(table: pa.Table, schema: pa.Schema, missing: str) -> tuple[pa.RecordBatch, Array]:
    """The rows of a table and the events' own times."""
    has_times = EVENT_TIME in table.column_names and EVENT_TIME not in schema.names
    names = [*schema.names, EVENT_TIME] if has_times else schema.names
    present = [name for name in names if name in table.column_names]
    try:
        chosen = table.select(present)
        chosen.validate(full=True)
    except (pa.ArrowException, KeyError, ValueError) as error:
        raise UnreadableError(_reason(error)) from error
    arrays: list[Array] = []
    for field in schema:
        if field.name in present:
            arrays.append(_column(chosen, field.name, field.type, missing))
        elif missing == "error":
            raise UnreadableError(f'attribute "{field.name}" is missing')
        else:
            arrays.append(pa.nulls(table.num_rows, field.type))
    times = (
        _column(chosen, EVENT_TIME, pa.int64(), missing)
        if has_times
        else pa.nulls(table.num_rows, pa.int64())
    )
    return pa.RecordBatch.from_arrays(arrays, schema=schema), times


def _column(table: pa.Table, name: str, kind: pa.DataType, missing: str) -> Array:
    column = table.column(name)
    array: Array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    try:
        return as_kind(array, kind, missing, name)
    except pa.ArrowInvalid as error:
        reason = str(error).splitlines()[0]
        raise UnreadableError(
            f'attribute "{name}" is not {article(type_name(kind))}: {reason}'
        ) from error
