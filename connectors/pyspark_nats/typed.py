"""The source's typed form: rows of the user's schema, with metadata columns where asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from pyspark_nats import decode, decode_values, frames, rows
from pyspark_nats.arrow import concat_batches, kernels, rows_at
from pyspark_nats.errors import CorruptError, SchemaError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_nats.arrow import Array
    from pyspark_nats.decoded import Decoded
    from pyspark_nats.fetch import Messages
    from pyspark_nats.source_options import SourceOptions

#: The metadata columns as DDL types.
METADATA_DDL: Final = {
    "_stream": "string",
    "_sequence": "long",
    "_index": "long",
    "_timestamp_ms": "long",
    "_event_time_ms": "long",
    "_error": "string",
    "_data": "binary",
}

#: What a format says of every message, whatever its content type.
_FORCED: Final = {
    "json": "application/json",
    "msgpack": "application/msgpack",
    "arrow": "application/vnd.apache.arrow.stream",
    "auto": "",
}


@dataclass(frozen=True, slots=True)
class Typed:
    """Turns messages into rows; it pickles."""

    #: The event's columns.
    schema: pa.Schema
    #: All columns, as Spark expects them.
    output: pa.Schema
    content_type: str
    corrupt: str
    event_time_header: str

    def __call__(self, messages: Messages) -> pa.RecordBatch:
        """The rows of ``messages``, and rows for those that can't be read if they are wanted.

        Raises:
            CorruptError: a message can't be read and ``corrupt`` is "fail".
        """
        count = len(messages)
        if self.content_type:
            content_type: Array = rows.constant(self.content_type, count)
        else:
            content_type = frames.header_values(messages.header, "Content-Type")
        decoded = decode.decode_messages(messages.data, content_type, self.schema)
        if decoded.errors and self.corrupt == "fail":
            message, index, reason = decoded.errors[0]
            raise CorruptError(
                f'message {messages.sequence[message]} of stream "{messages.stream}" '
                f"can't be read: {reason}",
                detail=f"It is event {index} of the message; {len(decoded.errors)} in this batch.",
                hint='Set option "corrupt" to "drop", or ask for "_error" in "metadata".',
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

    def _good(self, messages: Messages, decoded: Decoded) -> pa.RecordBatch:
        count = decoded.rows.num_rows
        columns = {name: decoded.rows.column(name) for name in self.schema.names}
        columns |= self._metadata(messages, decoded.message, decoded.index)
        columns["_event_time_ms"] = kernels.coalesce(
            decoded.event_time_ms, columns["_event_time_ms"]
        )
        columns["_error"] = pa.nulls(count, pa.string())
        columns["_data"] = pa.nulls(count, pa.binary())
        return self._output(columns)

    def _bad(self, messages: Messages, decoded: Decoded) -> pa.RecordBatch:
        message = np.array([error[0] for error in decoded.errors], np.int64)
        index = np.array([error[1] for error in decoded.errors], np.int64)
        columns = {field.name: pa.nulls(len(message), field.type) for field in self.schema}
        columns |= self._metadata(messages, message, index)
        columns["_error"] = pa.array([error[2] for error in decoded.errors], pa.string())
        columns["_data"] = messages.data.take(pa.array(message))
        return self._output(columns)

    def _metadata(
        self, messages: Messages, message: np.ndarray, index: np.ndarray
    ) -> dict[str, Array]:
        times = rows.event_times(messages, self.event_time_header)
        return {
            "_stream": rows.constant(messages.stream, len(message)),
            "_sequence": pa.array(messages.sequence[message]),
            "_index": pa.array(index),
            "_timestamp_ms": pa.array(messages.time_ns[message] // 1_000_000),
            "_event_time_ms": times.take(pa.array(message)),
        }

    def _output(self, columns: dict[str, Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [columns[name] for name in self.output.names], schema=self.output
        )


def typed(options: SourceOptions, schema: StructType) -> Typed:
    """How messages become rows of ``schema``.

    Raises:
        SchemaError: a metadata column is not in ``schema`` or of another type, or an attribute is
            of a type that events do not have.
    """
    for name in options.metadata:
        kind = METADATA_DDL[name]
        found = next((field for field in schema.fields if field.name == name), None)
        if found is None or found.dataType.simpleString() != _SIMPLE.get(kind, kind):
            raise SchemaError(
                f'metadata column "{name}" is not in the schema as {kind}',
                hint=f'Add "{name} {kind}" to ".schema(...)", or give the events\' own columns '
                'by option "schema" instead.',
            )
    output = to_arrow_schema(schema, timezone="UTC")
    own = pa.schema([field for field in output if field.name not in options.metadata])
    for field in own:
        try:
            decode_values.type_name(field.type)
        except ValueError as error:
            raise SchemaError(
                f'column "{field.name}" is of type {field.type}, which events do not have',
                detail="Events have string, int, long, float, double and boolean attributes.",
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
    )


def ddl(options: SourceOptions) -> str:
    """The columns by the options ``schema`` and ``metadata``.

    Raises:
        SchemaError: there is no option ``schema``.
    """
    if not options.schema:
        raise SchemaError(
            f'the format "{options.format}" needs a schema',
            hint='Give ".schema(...)", or option "schema" with DDL such as "id long, name string".',
        )
    return ", ".join([options.schema, *(f"{n} {METADATA_DDL[n]}" for n in options.metadata)])


_SIMPLE: Final = {"long": "bigint"}
