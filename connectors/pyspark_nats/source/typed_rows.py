"""Rows of the typed form: the user's schema, with metadata columns on request."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from pyspark_nats import decode, sql_types
from pyspark_nats.arrow import constant, kernels, rows_at
from pyspark_nats.decode.limits import USUAL, MessageLimits
from pyspark_nats.errors import CorruptError, SchemaError
from pyspark_nats.protocol.header_columns import header_values
from pyspark_nats.source import rows

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    limits: MessageLimits = USUAL

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
        if self.content_type:
            content_type: Array = constant(self.content_type, len(messages))
        else:
            content_type = header_values(messages.header, "Content-Type")
        decoded = decode.decode_messages(
            messages.data, content_type, self.schema, missing=self.missing, limits=self.limits
        )
        if "_event_time_ms" not in self.output.names:
            return decoded
        own_ms = rows.event_times(messages, self.event_time_header)
        return decode.with_event_times(
            decoded, own_ms, lambda: messages.time_ns // 1_000_000, self.limits
        )

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
        found = {
            name: _joined(column, pa.nulls(bad, column.type)) for name, column in columns.items()
        }
        found["_error"] = _joined(pa.nulls(good, pa.string()), pa.array(reasons, pa.string()))
        if "_data" in self.output.names:
            # The payload may be large, and its events many: the first of them has it.
            is_first = np.diff(np.array(numbers), prepend=-1) > 0
            at = pa.array(np.array(numbers), mask=~is_first)
            found["_data"] = _joined(pa.nulls(good, pa.binary()), messages.data.take(at))
        at = rows_at(order)
        return (
            {name: column.take(at) for name, column in found.items()},
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
        found: list[Array] = []
        for field in self.output:
            name = field.name
            if name in columns:
                found.append(columns[name])
            elif name == "_index":
                found.append(pa.array(index))
            elif name in _ERROR_COLUMNS:
                found.append(pa.nulls(len(message), field.type))
            else:
                column = self._metadata(name, messages)
                # Mostly a message is one event.
                found.append(column if is_one_each else column.take(rows_at(message)))
        return pa.RecordBatch.from_arrays(found, schema=self.output)

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
    own = sql_types.event_schema([field for field in schema.fields if field.name not in metadata])
    if "_corrupt_record" in own.names:
        raise SchemaError(
            'column "_corrupt_record" is not filled by this source',
            hint='Set option "corrupt" to "column": "_error" has the reason, "_data" the payload.',
        )
    if not len(own):
        raise SchemaError("the schema has no column of an event")
    return Typed(
        schema=pa.schema([pa.field(field.name, field.type) for field in own]),
        output=to_arrow_schema(schema, timezone="UTC"),
        content_type=_FORCED[options.format],
        corrupt=options.corrupt,
        event_time_header=options.event_time_header,
        missing=options.missing,
        limits=options.message,
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
