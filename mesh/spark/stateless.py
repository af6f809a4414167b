"""Stateless groups as DataFrame expressions: Catalyst runs them, and Spark's UI shows them.

The source decodes to typed columns; filters and projections follow; the last projection makes rows
for the sink.  An event that can't be read travels along as a row with ``_error`` set, past every
filter, and leaves for the error stream through the same sink, so that recording it costs no second
read.

Each path from an input channel to an output channel is a leg with a producer of its own.  An event
on which a query fails is recorded by the first leg that the query is in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType, _parse_datatype_string

from mesh.model.app import Channel, Format, GroupKind
from mesh.model.types import AttributeType
from mesh.plan.bound import BoundStream
from mesh.plan.build import bind_group
from mesh.spark import emit
from mesh.spark.expressions import SPARK_TYPES, is_native, to_column
from mesh.spark.kernel_query import KernelTask, as_events
from mesh.spark.placing import channel_rows
from mesh.spark.wiring import METADATA, POSITIONS_PER_MESSAGE, SINK_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from mesh.model.app import GroupInput
    from mesh.model.types import Attribute
    from mesh.operators.base import Events
    from mesh.plan.bound import BoundQuery, Column
    from mesh.spark.wiring import Wiring

#: The stubs know each function of Arrow by a dozen overloads, and reject most honest calls.
kernels: Any = pyarrow.compute


@dataclass(frozen=True, slots=True)
class Leg:
    """One path through a stateless group."""

    input: GroupInput
    queries: tuple[BoundQuery, ...]
    output: Channel


def legs(wiring: Wiring) -> tuple[Leg, ...]:
    """Every path from an input of the group to one of its outputs, in the order of its queries."""
    group = wiring.group
    if group.kind in (GroupKind.PARTITIONER, GroupKind.RECEIVER):
        return tuple(Leg(i, (), output) for i in group.inputs for output in group.outputs)
    app = bind_group(group)
    found: list[Leg] = []

    def follow(group_input: GroupInput, stream: str, path: tuple[BoundQuery, ...]) -> None:
        for query in app.queries:
            if query.input_streams != (stream,) or query in path:
                continue
            outputs = wiring.outputs(query.target.name)
            found.extend(Leg(group_input, (*path, query), output) for output in outputs)
            follow(group_input, query.target.name, (*path, query))

    for group_input in group.inputs:
        follow(group_input, group_input.channel.stream.name, ())
    return tuple(found)


@dataclass(frozen=True, slots=True)
class NumberedLeg:
    """A leg as one of its group's: which of them records what."""

    leg: Leg
    #: From 1 on.
    number: int
    #: Whether it records the events of its input that can't be read.
    records: bool
    #: Names of the queries of which it records the events that they fail on.
    tells: frozenset[str]

    def producer(self, wiring: Wiring) -> str:
        """The name of its markers."""
        return wiring.producer(self.salt(wiring))

    def salt(self, wiring: Wiring) -> str:
        """What tells it from the group's other legs, and from this one of other instances."""
        return f"{wiring.assignment.index}of{wiring.group.parallel}-{self.number}"

    def part(self, wiring: Wiring) -> str:
        """What the producer of its errors goes by."""
        index = wiring.assignment.index
        return str(index) if self.records else f"{index}-{self.number}"


def numbered(wiring: Wiring) -> Iterator[NumberedLeg]:
    """The group's legs; each event and each failure is recorded by one of them."""
    recorded: set[str] = set()
    told: set[tuple[str, str]] = set()
    for number, leg in enumerate(legs(wiring), 1):
        name = leg.input.channel.stream.name
        records = leg.input.records_errors and name not in recorded
        recorded.add(name)
        tells = frozenset(query.name for query in leg.queries if (name, query.name) not in told)
        told |= {(name, query) for query in tells}
        yield NumberedLeg(leg, number, records, tells)


def build(wiring: Wiring, read: Callable[[GroupInput], DataFrame]) -> DataFrame:
    """The group as one DataFrame of sink rows; ``read`` gives an input's typed rows."""
    frames = [_leg(wiring, one, read(one.leg.input)) for one in numbered(wiring)]
    return reduce(lambda a, b: a.unionAll(b), frames)


def _leg(wiring: Wiring, one: NumberedLeg, frame: DataFrame) -> DataFrame:
    if not one.records:
        frame = frame.where(F.col("_error").isNull())
    for query in one.leg.queries:
        frame = _query(wiring, query, one, frame)
    producer, part, output = one.producer(wiring), one.part(wiring), one.leg.output
    if output.format is Format.JSON and not output.is_keyed and not emit.has_objects(output.stream):
        return _json_rows(wiring, one.leg, producer, part, frame)
    return frame.mapInArrow(EncodeTask(wiring, one.leg, producer, part), SINK_SCHEMA)


def _query(wiring: Wiring, query: BoundQuery, one: NumberedLeg, frame: DataFrame) -> DataFrame:
    assert isinstance(query.input, BoundStream)
    if not is_native(query):
        return _by_kernels(wiring, query, one, frame)
    failed = F.col("_error").isNotNull()

    def attribute(column: Column) -> SparkColumn:
        return F.col(f"`{column.name}`")

    for condition in query.input.filters:
        frame = frame.where(failed | to_column(condition, attribute))
    outputs = {o.name: to_column(o.expression, attribute) for o in query.outputs}

    def output_or_attribute(column: Column) -> SparkColumn:
        return outputs[column.name] if column.step == -1 else attribute(column)

    if query.having is not None:
        frame = frame.where(failed | to_column(query.having, output_or_attribute))
    # The target's attribute names count, by place, when the stream is defined with other ones.
    named = zip(query.target.names, outputs.values(), strict=True)
    return frame.select(*(column.alias(name) for name, column in named), *METADATA)


def _by_kernels(wiring: Wiring, query: BoundQuery, one: NumberedLeg, frame: DataFrame) -> DataFrame:
    """What has no expression in Spark, computed in Python on batches of Arrow."""
    metadata = frame.select(*METADATA).schema.fields
    fields = [
        StructField(attribute.name, _parse_datatype_string(SPARK_TYPES[attribute.type]))
        for attribute in query.target.attributes
    ]
    return frame.mapInArrow(kernel_task(wiring, query, one), StructType([*fields, *metadata]))


def kernel_task(wiring: Wiring, query: BoundQuery, one: NumberedLeg) -> KernelTask:
    """A query of a leg, to be computed by our own kernels."""
    queries = bind_group(wiring.group).queries
    number = next(n for n, bound in enumerate(queries) if bound.name == query.name)
    return KernelTask(wiring.group, number, one.salt(wiring), METADATA, query.name in one.tells)


def _json_rows(wiring: Wiring, leg: Leg, producer: str, part: str, frame: DataFrame) -> DataFrame:
    """Encoded by Catalyst: no Python between the source and the sink."""
    failed = F.col("_error").isNotNull()
    error_stream, error_subject = wiring.errors
    error_producer = wiring.producer(f"errors-{leg.input.channel.stream.name}-{part}")
    event = F.to_json(
        F.struct(*(_json_value(attribute) for attribute in leg.output.stream.attributes)),
        {"ignoreNullFields": "false"},
    )
    text = F.try_validate_utf8(F.col("_data").cast("string"))
    error = F.to_json(
        F.struct(
            F.lit(leg.input.channel.stream.name).alias("stream"),
            F.col("_sequence").alias("sequence"),
            F.col("_index").alias("index"),
            F.col("_timestamp_ms").alias("time_ms"),
            F.lit(wiring.group.name).alias("group"),
            F.col("_error").alias("reason"),
            text.alias("data"),
            F.when(text.isNull(), F.base64("_data")).alias("data_base64"),
        )
    )
    position = F.col("_sequence") * POSITIONS_PER_MESSAGE + F.col("_index")
    return frame.select(
        F.when(failed, error_stream).otherwise(leg.output.js_stream()).alias("stream"),
        F.when(failed, error_subject).otherwise(leg.output.subject()).alias("subject"),
        F.when(failed, error).otherwise(event).cast("binary").alias("data"),
        F.lit(emit.JSON_TYPE).alias("content_type"),
        F.when(~failed, F.col("_event_time_ms")).alias("event_time_ms"),
        F.when(failed, error_producer).otherwise(producer).alias("producer"),
        position.alias("position"),
        position.alias("first_position"),
    )


def _json_value(attribute: Attribute) -> SparkColumn:
    """An attribute as JSON can say it: null for what is no number, as our own encoder has it."""
    value = F.col(f"`{attribute.name}`")
    if attribute.type not in (AttributeType.FLOAT, AttributeType.DOUBLE):
        return value
    # Spark takes NaN for larger than anything.
    return F.when(F.abs(value) < F.lit(float("inf")), value).alias(attribute.name)


@dataclass(frozen=True, slots=True)
class EncodeTask:
    """What ``mapInArrow`` calls where Catalyst can't encode: Arrow messages and keyed channels."""

    wiring: Wiring
    leg: Leg
    producer: str
    #: What the producer of its errors goes by.
    part: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows with metadata in, sink rows out."""
        for batch in batches:
            if batch.num_rows:
                failed = kernels.is_valid(batch.column("_error"))
                yield from self._errors(batch.filter(failed))
                yield from self._events(batch.filter(kernels.invert(failed)))

    def _errors(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if batch.num_rows:
            messages = pa.RecordBatch.from_arrays(
                [
                    batch.column(c)
                    for c in ("_sequence", "_timestamp_ms", "_event_time_ms", "_data")
                ],
                names=["sequence", "time_ms", "event_time_ms", "data"],
            )
            indexes: list[Any] = batch.column("_index").to_pylist()
            reasons: list[Any] = batch.column("_error").to_pylist()
            found = [(row, indexes[row], reasons[row]) for row in range(batch.num_rows)]
            stream = self.leg.input.channel.stream.name
            yield emit.error_rows(self.wiring, stream, messages, found, self.part)

    def _events(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        output = self.leg.output
        rows = batch.select(list(output.stream.names)).cast(output.stream.arrow)
        position = kernels.add(
            kernels.multiply(batch.column("_sequence"), POSITIONS_PER_MESSAGE),
            batch.column("_index").cast(pa.int64()),
        )
        times = batch.column("_event_time_ms")

        def events() -> Events:
            return as_events(batch, output.stream.arrow)

        yield from channel_rows(
            output, self.wiring.group.text, self.producer, rows, position, times, events
        )
