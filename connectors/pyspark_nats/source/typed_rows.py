"""Rows of the typed form: the user's schema, with metadata columns on request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from pyspark_nats import decode
from pyspark_nats.arrow import concat_batches, kernels, rows_at
from pyspark_nats.decode import values
from pyspark_nats.errors import CorruptError, SchemaError
from pyspark_nats.protocol import frames
from pyspark_nats.source import rows

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_nats.arrow import Array
    from pyspark_nats.decode.result import DecodeResult, Ints
    from pyspark_nats.source.messages import Messages
    from pyspark_nats.source.source_options import SourceOptions

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

    def __call__(self, messages: Messages) -> pa.RecordBatch:
        """The rows of ``messages``, and rows for unreadable ones if requested.

        Raises:
            CorruptError: a message can't be read and ``corrupt`` is "fail".
        """
        count = len(messages)
        if self.content_type:
            content_type: Array = rows.constant(self.content_type, count)
        else:
            content_type = frames.header_values(messages.header, "Content-Type")
        decoded = decode.decode_messages(
            messages.data, content_type, self.schema, missing=self.missing
        )
        if decoded.errors and self.corrupt == "fail":
            message, index, reason = decoded.errors[0]
            raise CorruptError(
                f'message {messages.sequence[message]} of stream "{messages.stream}" '
                f"can't be read: {reason}",
                detail=f"It is event {index} of the message; {len(decoded.errors)} in this batch.",
                hint='Set option "corrupt" to "drop", or to "column" for rows with the reason.',
            )
        good = self._good(messages, decoded)
        if not decoded.errors or self.corrupt == "drop":
            return good
        bad = self._bad(messages, decoded)
        order = np.lexsort(
            (
                np.concatenate((decoded.index, [e[1] for e in decoded.errors])),
                np.concatenate((decoded.message, [e[0] for e in decoded.errors])),
            )
        )
        return concat_batches([good, bad]).take(rows_at(order))

    def _good(self, messages: Messages, decoded: DecodeResult) -> pa.RecordBatch:
        columns = {name: decoded.rows.column(name) for name in self.schema.names}
        times = decoded.event_time_ms
        return self._output(columns, messages, decoded.message, decoded.index, times)

    def _bad(self, messages: Messages, decoded: DecodeResult) -> pa.RecordBatch:
        message = np.array([error[0] for error in decoded.errors], np.int64)
        index = np.array([error[1] for error in decoded.errors], np.int64)
        columns = {field.name: pa.nulls(len(message), field.type) for field in self.schema}
        columns["_error"] = pa.array([error[2] for error in decoded.errors], pa.string())
        if "_data" in self.output.names:
            columns["_data"] = messages.data.take(pa.array(message))
        times = pa.nulls(len(message), pa.int64())
        return self._output(columns, messages, message, index, times)

    def _output(
        self,
        columns: dict[str, Array],
        messages: Messages,
        message: Ints,
        index: Ints,
        event_time_ms: Array,
    ) -> pa.RecordBatch:
        """The columns of the events, and the requested metadata."""
        is_one_each = len(message) == len(messages) and not index.any()
        for field in self.output:
            name = field.name
            if name in columns:
                continue
            if name == "_index":
                columns[name] = pa.array(index)
            elif name in _ERROR_COLUMNS:
                columns[name] = pa.nulls(len(message), field.type)
            else:
                column = self._metadata(name, messages)
                # Mostly a message is one event.
                column = column if is_one_each else column.take(rows_at(message))
                if name == "_event_time_ms" and event_time_ms.null_count < len(event_time_ms):
                    column = kernels.coalesce(event_time_ms, column)
                columns[name] = column
        return pa.RecordBatch.from_arrays(
            [columns[name] for name in self.output.names], schema=self.output
        )

    def _metadata(self, name: str, messages: Messages) -> Array:
        """A metadata column with one value for each message."""
        if name == "_stream":
            return rows.constant(messages.stream, len(messages))
        if name == "_sequence":
            return pa.array(messages.sequence)
        if name == "_subject":
            return messages.subject
        if name == "_headers":
            return rows.header_maps(messages.header)
        if name == "_timestamp":
            return rows.timestamps(messages)
        if name == "_timestamp_ms":
            return pa.array(messages.time_ns // 1_000_000)
        return rows.event_times(messages, self.event_time_header)


def typed(options: SourceOptions, schema: StructType) -> Typed:
    """The function that converts messages to rows of ``schema``.

    Raises:
        SchemaError: a metadata column is not in ``schema`` or of another type, or an attribute is
            of a type that events can't have.
    """
    metadata = _metadata_names(options)
    for name in metadata:
        _check_metadata(name, options, schema)
    output = to_arrow_schema(schema, timezone="UTC")
    own = pa.schema([field for field in output if field.name not in metadata])
    for field in own:
        try:
            values.type_name(field.type)
        except ValueError as error:
            raise SchemaError(
                f'column "{field.name}" is of type {field.type}, which events do not have',
                detail="Events have string, byte, short, int, long, float, double, boolean, "
                "timestamp, timestamp_ntz, date, binary and decimal attributes, arrays and structs "
                "of them, and maps with strings for keys.",
                hint='Read the format "raw" and decode the payload with from_json for others.',
            ) from error
    if not len(own):
        raise SchemaError("the schema has no column of an event")
    return Typed(
        schema=pa.schema([pa.field(field.name, field.type) for field in own]),
        output=output,
        content_type=_FORCED[options.format],
        corrupt=options.corrupt,
        event_time_header=options.event_time_header,
        missing=options.missing,
    )


def _check_metadata(name: str, options: SourceOptions, schema: StructType) -> None:
    kind = METADATA_DDL[name]
    found = next((field for field in schema.fields if field.name == name), None)
    is_asked_for = name in options.metadata
    if found is None and name == "_data" and not is_asked_for:
        return
    if found is None or found.dataType.simpleString() != _SIMPLE.get(kind, kind):
        added = f"{name} {kind}" if is_asked_for else "_error string, _data binary"
        raise SchemaError(
            f'metadata column "{name}" is not in the schema as {kind}',
            detail="" if is_asked_for else 'It is where option "corrupt", "column", puts reasons.',
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
