"""Rows of the typed form: the user's schema, with metadata columns on request.

Nulls inside of values where the schema of a read has none.

A column's own nulls are found where its events are read.  Spark's fields, elements and values of a
map may be NOT NULL as well; it would read a null there as a value, such as 0.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from pyspark_nats import decode, sql_types
from pyspark_nats.arrow import constant, kernels, rows_at
from pyspark_nats.decode.result import USUAL, MessageLimits, without
from pyspark_nats.errors import CorruptError, OptionError, SchemaError
from pyspark_nats.protocol.frames import header_values
from pyspark_nats.source import rows
from pyspark_nats.source.few_messages import decode_few

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    import numpy.typing as npt
    from pyspark.sql.types import StructType

    from pyspark_nats.arrow import Array, DataType
    from pyspark_nats.decode.result import DecodeResult, Ints
    from pyspark_nats.source.messages import Messages
    from pyspark_nats.source.source_options import SourceOptions

    #: With the arguments and the result of ``decode_messages``.
    Decoder = Callable[..., DecodeResult]


#: The metadata columns as DDL types.
METADATA_DDL: Final = {
    "_stream": "string",
    "_sequence": "long",
    "_index": "long",
    "_subject": "string",
    "_headers": "map<string,array<string>>",
    "_timestamp": "timestamp",
    "_timestamp_ms": "long",
    "_event_time_ms": "long",
    "_error": "string",
    "_data": "binary",
}

#: Columns that option "corrupt" adds if it is "column" and "metadata" does not name the first.
_ERROR_COLUMNS: Final = ("_error", "_data")

#: Content type of all messages by format, whatever their headers.
_FORCED: Final = {
    "json": "application/json",
    "msgpack": "application/msgpack",
    "arrow": "application/vnd.apache.arrow.stream",
    "auto": "",
}

#: Spark's names of types that DDL may spell differently.
_SIMPLE: Final = {"long": "bigint"}


@dataclass(frozen=True, slots=True)
class Typed:
    """Function that converts messages to rows; it pickles."""

    #: The event's columns.
    schema: pa.Schema
    #: All columns, as Spark expects them.
    output: pa.Schema
    content_type: str
    corrupt: str
    event_time_header: str
    #: The meaning of a missing attribute: "error" or "null".
    missing: str = "error"
    limits: MessageLimits = USUAL
    decoder: Decoder = decode.decode_messages
    #: Columns of events that can't be null.
    required: tuple[str, ...] = ()
    #: Columns of events with something inside that can't be null.
    strict: tuple[str, ...] = ()

    def __call__(self, messages: Messages) -> Iterator[pa.RecordBatch]:
        """The rows of ``messages``, and rows for unreadable ones if requested.

        Raises:
            CorruptError: a message can't be read and ``corrupt`` is "fail".
        """
        while len(messages):
            decoded = self.decoded(messages)
            if decoded.errors and self.corrupt == "fail":
                message, index, reason = decoded.errors[0]
                raise CorruptError(
                    f'message {messages.sequence[message]} of stream "{messages.stream}" '
                    f"can't be read: {reason}",
                    detail=f"It is event {index} of the message; "
                    f"{len(decoded.errors)} in this batch.",
                    hint='Set option "corrupt" to "drop", or to "column" for rows with the reason.',
                )
            yield from self.rows_of(messages, decoded)
            if decoded.taken == len(messages):
                return
            messages = messages.slice(decoded.taken, len(messages))

    def decoded(self, messages: Messages) -> DecodeResult:
        """The events of some messages, from the first on."""
        result = self._read(messages)
        reasons: dict[int, str] = {}
        for name in self.required:
            nulls = kernels.is_null(result.rows.column(name)).to_numpy(zero_copy_only=False)
            reasons = dict.fromkeys(np.flatnonzero(nulls).tolist(), _null_reason(name)) | reasons
        for name in self.strict:
            for at, path in nulls_inside(name, result.rows.column(name)):
                reasons = dict.fromkeys(at.tolist(), _null_reason(path)) | reasons
        return without(result, reasons)

    def _read(self, messages: Messages) -> DecodeResult:
        if not self.content_type and self.missing == "error":
            result = decode_few(messages, self.schema, self._time_header, self.limits)
            if result is not None:
                return result
        if self.content_type:
            content_type: Array = constant(self.content_type, len(messages))
        else:
            content_type = header_values(messages.header, "Content-Type")
        decoded = self.decoder(
            messages.data, content_type, self.schema, missing=self.missing, limits=self.limits
        )
        if not self._has_times:
            return decoded
        message_ms = rows.event_times(messages, self.event_time_header)
        return decode.with_event_times(
            decoded, message_ms, lambda: messages.time_ns // 1_000_000, self.limits
        )

    @property
    def _time_header(self) -> str:
        """The header of event times, if they are asked for."""
        return self.event_time_header if self._has_times else ""

    @property
    def _has_times(self) -> bool:
        return bool(self.output.get_field_index("_event_time_ms") >= 0)

    def rows_of(self, messages: Messages, decoded: DecodeResult) -> Iterator[pa.RecordBatch]:
        """All rows in order, in batches of bounded size: events repeat their message's metadata."""
        columns = {name: decoded.rows.column(name) for name in self.schema.names}
        columns["_event_time_ms"] = decoded.event_time_ms
        message, index = decoded.message, decoded.index
        if decoded.errors and self.corrupt == "column":
            columns, message, index = self._with_errors(messages, decoded, columns)
        cuts = self._cuts(messages, message)
        for first, last in pairwise((0, *cuts, len(message))):
            some = columns
            if cuts:
                some = {name: column.slice(first, last - first) for name, column in columns.items()}
            yield self._output(some, messages, message[first:last], index[first:last])

    def _with_errors(
        self, messages: Messages, decoded: DecodeResult, columns: dict[str, Array]
    ) -> tuple[dict[str, Array], Ints, Ints]:
        """The columns of events and of unreadable ones; the message and the index of each row."""
        numbers, places, reasons = zip(*decoded.errors, strict=True)
        message = np.concatenate((decoded.message, np.array(numbers, np.int64)))
        index = np.concatenate((decoded.index, np.array(places, np.int64)))
        order = np.lexsort((index, message))
        good, bad = decoded.rows.num_rows, len(numbers)
        output = {
            name: _joined(column, pa.nulls(bad, column.type)) for name, column in columns.items()
        }
        output["_error"] = _joined(pa.nulls(good, pa.string()), pa.array(reasons, pa.string()))
        if "_data" in self.output.names:
            # The payload may be large, and its events many: the first of them has it.
            is_first = np.diff(np.array(numbers), prepend=-1) > 0
            at = pa.array(np.array(numbers), mask=~is_first)
            output["_data"] = _joined(pa.nulls(good, pa.binary()), messages.data.take(at))
        at = rows_at(order)
        return (
            {name: column.take(at) for name, column in output.items()},
            message[order],
            index[order],
        )

    def _cuts(self, messages: Messages, message: Ints) -> list[int]:
        """Rows at which to begin another batch, so that metadata of many events stay bounded."""
        repeated = []
        if "_headers" in self.output.names:
            repeated.append(messages.header)
        if "_subject" in self.output.names:
            repeated.append(messages.subject)
        if not repeated or len(message) <= len(messages):
            return []
        sizes = np.zeros(len(messages), np.int64)
        for column in repeated:
            lengths = kernels.fill_null(kernels.binary_length(column), 0)
            sizes += lengths.to_numpy(zero_copy_only=False)
        total = np.cumsum(sizes[message])
        if total[-1] <= self.limits.batch_bytes_max:
            return []
        return [*(np.flatnonzero(np.diff(total // self.limits.batch_bytes_max)) + 1).tolist()]

    def _output(
        self, columns: dict[str, Array], messages: Messages, message: Ints, index: Ints
    ) -> pa.RecordBatch:
        """The columns of the events, and the requested metadata."""
        is_one_each = len(message) == len(messages) and not index.any()
        arrays: list[Array] = []
        for field in self.output:
            name = field.name
            if name in columns:
                arrays.append(columns[name])
            elif name == "_index":
                arrays.append(pa.array(index))
            elif name in _ERROR_COLUMNS:
                arrays.append(pa.nulls(len(message), field.type))
            else:
                column = self._metadata(name, messages)
                # Mostly a message is one event.
                arrays.append(column if is_one_each else column.take(rows_at(message)))
        return pa.RecordBatch.from_arrays(arrays, schema=self.output)

    def _metadata(self, name: str, messages: Messages) -> Array:
        """A metadata column with one value for each message."""
        if name == "_stream":
            return constant(messages.stream, len(messages))
        if name == "_sequence":
            return pa.array(messages.sequence)
        if name == "_subject":
            return messages.subject
        if name == "_headers":
            return rows.header_maps(messages.header)
        if name == "_timestamp":
            return rows.timestamps(messages)
        assert name == "_timestamp_ms"
        return pa.array(messages.time_ns // 1_000_000)


def _null_reason(path: str) -> str:
    return f'attribute "{path}" is null, and the schema has it as not null'


def _joined(good: Array, bad: Array) -> Array:
    return pa.concat_arrays([good, bad])


def typed(options: SourceOptions, schema: StructType) -> Typed:
    """The function that converts messages to rows of ``schema``.

    Raises:
        SchemaError: a metadata column is not in ``schema`` or of another type, or an attribute is
            of a type that events can't have.
    """
    metadata = _metadata_names(options)
    for name in metadata:
        _check_metadata(name, options, schema)
    attrs = sql_types.event_schema([field for field in schema.fields if field.name not in metadata])
    if "_corrupt_record" in attrs.names:
        raise SchemaError(
            'column "_corrupt_record" is not filled by this source',
            hint='Set option "corrupt" to "column": "_error" has the reason, "_data" the payload.',
        )
    if not len(attrs):
        raise SchemaError("the schema has no column of an event")
    return Typed(
        schema=pa.schema([pa.field(field.name, field.type) for field in attrs]),
        output=to_arrow_schema(schema, timezone="UTC"),
        content_type=_FORCED[options.format],
        corrupt=options.corrupt,
        event_time_header=options.event_time_header,
        missing=options.missing,
        required=_required(options, schema, attrs.names),
        strict=tuple(field.name for field in attrs if is_strict(field.type)),
        limits=options.message,
        decoder=_decoder(options.decoder),
    )


def _required(
    options: SourceOptions, schema: StructType, names: Collection[str]
) -> tuple[str, ...]:
    """The columns of events that can't be null; SchemaError if rows with errors are asked for."""
    required = tuple(f.name for f in schema.fields if f.name in names and not f.nullable)
    if required and options.corrupt == "column":
        raise SchemaError(
            f'column "{required[0]}" is not null, and rows of unreadable events have nulls',
            hint='Leave NOT NULL out of the schema, or set option "corrupt" to "fail" or "drop".',
        )
    return required


def _decoder(name: str) -> Decoder:
    """The decoder of option ``decoder``; OptionError if it can't be imported."""
    if not name:
        return decode.decode_messages
    module, _, function = name.partition(":")
    try:
        decoder: Decoder = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise OptionError(
            f'option "decoder" is "{name}", which can\'t be imported',
            detail=f"{error}.",
            hint="Write package.module:function, as it is installed on the executors.",
        ) from error
    return decoder


def _check_metadata(name: str, options: SourceOptions, schema: StructType) -> None:
    kind = METADATA_DDL[name]
    column = next((field for field in schema.fields if field.name == name), None)
    is_requested = name in options.metadata
    if column is None and name == "_data" and not is_requested:
        return
    if column is None or column.dataType.simpleString() != _SIMPLE.get(kind, kind):
        added = f"{name} {kind}" if is_requested else "_error string, _data binary"
        raise SchemaError(
            f'metadata column "{name}" is not in the schema as {kind}',
            detail="" if is_requested else 'It is where option "corrupt", "column", puts reasons.',
            hint=f'Add "{added}" to ".schema(...)", or give the events\' own columns '
            'by option "schema" instead.',
        )


def _metadata_names(options: SourceOptions) -> tuple[str, ...]:
    """The metadata columns that are requested or needed."""
    names = options.metadata
    if options.corrupt != "column" or "_error" in names:
        return names
    return (*names, *(name for name in _ERROR_COLUMNS if name not in names))


def ddl(options: SourceOptions) -> str:
    """The columns by the options ``schema``, ``metadata`` and ``corrupt``.

    Raises:
        SchemaError: the option ``schema`` is missing.
    """
    if not options.schema:
        raise SchemaError(
            f'the format "{options.format}" needs a schema',
            hint='Give ".schema(...)", or option "schema" with DDL such as "id long, name string".',
        )
    names = _metadata_names(options)
    return ", ".join([options.schema, *(f"{name} {METADATA_DDL[name]}" for name in names)])


def is_strict(kind: DataType) -> bool:
    """Whether a value of the type has parts that can't be null, other than the keys of maps."""
    return any(not part.nullable or is_strict(part.type) for _, part in _parts(kind))


def nulls_inside(name: str, column: Array) -> Iterator[tuple[Ints, str]]:
    """The rows of a column with a null where its type has none, and the path of the place.

    Rows may repeat.  A null of the column itself is none, nor is one inside of a null.
    """
    yield from _nulls(name, column, np.arange(len(column), dtype=np.int64))


def _nulls(path: str, values: Array, rows: Ints) -> Iterator[tuple[Ints, str]]:
    if not len(values) or not is_strict(values.type):
        return
    if values.null_count:
        is_there = kernels.is_valid(values)
        values, rows = values.filter(is_there), rows[_mask(is_there)]
    for step, part in _parts(values.type):
        inner, origin = _inside(values, step, rows)
        if not part.nullable and inner.null_count:
            yield origin[_mask(kernels.is_null(inner))], path + step
        yield from _nulls(path + step, inner, origin)


def _parts(kind: DataType) -> Iterator[tuple[str, pa.Field[Any]]]:
    """The parts of a nested type, each with its step in a path."""
    if pa.types.is_map(kind):
        yield ".*", kind.item_field
    elif pa.types.is_list(kind):
        yield "[]", kind.value_field
    elif pa.types.is_struct(kind):
        for field in kind.fields:
            yield f".{field.name}", field


def _inside(values: Array, step: str, rows: Ints) -> tuple[Array, Ints]:
    """A part of all values, none of which is null, and the row of each."""
    if pa.types.is_struct(values.type):
        return kernels.struct_field(values, step[1:]), rows
    offsets = values.offsets.to_numpy()
    whole = values.items if pa.types.is_map(values.type) else values.values
    return whole.slice(offsets[0], offsets[-1] - offsets[0]), np.repeat(rows, np.diff(offsets))


def _mask(column: Array) -> npt.NDArray[np.bool_]:
    mask: npt.NDArray[np.bool_] = column.to_numpy(zero_copy_only=False)
    return mask
