"""Roles of the columns of a DataFrame that is written, checked once when the query starts.

In the raw form the columns are the parts of a message, by name.  In the typed forms a column is an
attribute of the event, unless it has the name of a metadata column of the source.  So the source's
columns can be passed through: ``_stream`` and ``_sequence`` give the position, and so on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark_nats import sql_types
from pyspark_nats.encode import templates
from pyspark_nats.errors import SchemaError
from pyspark_nats.options import nearest

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_nats.sink.sink_options import SinkOptions

STREAM: Final = "_stream"
SEQUENCE: Final = "_sequence"
INDEX: Final = "_index"

_RAW: Final = (
    "stream", "subject", "data", "content_type", "event_time_ms", "headers",
    "producer", "position", "first_position",
)  # fmt: skip
#: Metadata of the source for the origin of a row.
_SOURCE: Final = (STREAM, SEQUENCE, INDEX)
#: Metadata that becomes a part of the message.
_PARTS: Final = {"_subject": "subject", "_headers": "headers", "_event_time_ms": "event_time_ms"}
#: Metadata that a message gets when it is stored.
_LEFT_OUT: Final = ("_timestamp", "_timestamp_ms")
#: Metadata of events that could not be read.
_ERRORS: Final = ("_error", "_data")


@dataclass(frozen=True, slots=True)
class ColumnRoles:
    """Roles of the columns; it pickles."""

    #: Columns of the event; empty in the raw form.
    event: tuple[str, ...]
    #: Column of the DataFrame by the part of the message: a name of ``messages_out.SCHEMA``, or
    #: ``headers``.
    parts: dict[str, str]
    #: Whether ``_stream`` and ``_sequence`` give the producer and the position.
    has_source: bool

    @property
    def has_positions(self) -> bool:
        """Whether rows have their positions; otherwise they are counted, batch by batch."""
        return self.has_source or "position" in self.parts


def columns(options: SinkOptions, schema: StructType) -> ColumnRoles:
    """Assign roles to the columns of ``schema``.

    Raises:
        SchemaError: one is missing, unknown, or of a type that the format does not support.
    """
    names = schema.fieldNames()
    for at, name in enumerate(names):
        if name in names[:at]:
            raise SchemaError(f'there are two columns "{name}"', hint="Rename one of them.")
    has_source = {STREAM, SEQUENCE} <= set(names)
    if has_source:
        _check_source(schema)
    templates.check_columns(
        options.subject, {field.name: field.dataType.simpleString() for field in schema.fields}
    )
    roles = (
        _raw(options, names, has_source=has_source)
        if options.format == "raw"
        else _typed(options, schema, has_source=has_source)
    )
    if "subject" not in roles.parts and not options.subject.text:
        raise SchemaError(
            'neither a column nor an option "subject" says where rows go',
            hint='Set option "subject", for example to "events.{deviceID}".',
        )
    return roles


def _check_source(schema: StructType) -> None:
    for name, expected in (
        (STREAM, ("string",)),
        (SEQUENCE, ("bigint",)),
        (INDEX, ("bigint", "int")),
    ):
        types = [field.dataType.simpleString() for field in schema.fields if field.name == name]
        if types and types[0] not in expected:
            raise SchemaError(
                f'column "{name}" is of type {types[0]}, not {expected[0]}',
                hint="It gives a row's position, as the source's metadata does; or drop it.",
            )


def _raw(options: SinkOptions, names: list[str], *, has_source: bool) -> ColumnRoles:
    valid_names = {*_RAW, *_SOURCE, *options.subject.columns}
    extra = [name for name in names if name not in valid_names]
    if extra:
        raise SchemaError(
            f'column "{extra[0]}" is not one the raw form writes',
            detail=f"It writes {', '.join(sorted(_RAW))}.",
            hint='Set option "format" to "json" to write all columns as an event. '
            + nearest(extra[0], _RAW),
        )
    if "data" not in names:
        raise SchemaError(
            'column "data" is missing',
            hint='It holds the payload; or set option "format" to "json".',
        )
    if ("producer" in names) != ("position" in names):
        raise SchemaError('the columns "producer" and "position" go together')
    if "first_position" in names and "position" not in names:
        raise SchemaError('column "first_position" needs the column "position"')
    return ColumnRoles(
        event=(),
        parts={name: name for name in names if name in _RAW},
        has_source=has_source and "position" not in names,
    )


def _typed(options: SinkOptions, schema: StructType, *, has_source: bool) -> ColumnRoles:
    names = schema.fieldNames()
    for name in names:
        if name in _ERRORS:
            raise SchemaError(
                f'column "{name}" tells of events that could not be read, and is part of none',
                hint='Write such rows elsewhere, and drop "_error" and "_data" here.',
            )
    parts = {part: name for name, part in _PARTS.items() if name in names}
    if options.subject.text:
        parts.pop("subject", None)
    one_each = options.rows_per_message == 1
    if "headers" in parts and not one_each:
        raise SchemaError('column "_headers" needs "rowsPerMessage" to be 1')
    if "event_time_ms" in parts and not one_each and options.format != "arrow":
        raise SchemaError(
            'column "_event_time_ms" goes to a header of each message',
            hint='Set "rowsPerMessage" to 1 or "format" to "arrow", or drop the column.',
        )
    taken = {*_PARTS, *_LEFT_OUT, *_SOURCE}
    event = tuple(name for name in names if name not in taken)
    if not event:
        raise SchemaError("there is no column that an event could be made of")
    sql_types.event_schema([field for field in schema.fields if field.name in event])
    return ColumnRoles(event=event, parts=parts, has_source=has_source)
