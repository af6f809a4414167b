"""Spans of the tasks of a dedicated query, one for each partition of a batch with messages.

    source: column of headers ──▶ task: links ──▶ rows with a column of headers ──▶ sink

Range markers and typed rows have no headers, so the source adds a column of them, and the rows for
the sink have one.  Both are there only if traces are on when the query starts.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

from mesh.spark.instance_io import METADATA, SINK_SCHEMA
from mesh.telemetry import traces
from pyspark_nats.arrow import arrow, kernels
from pyspark_nats.source.rows import MESSAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mesh.spark.instance_io import InstanceIO

    Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

#: Columns with headers: of range markers and of typed rows, and of rows for the sink.
MARKED_COLUMN: Final = "headers"
TYPED_COLUMN: Final = "_headers"
_SINK_COLUMN: Final = pa.field("headers", pa.map_(pa.string(), pa.string()))
_SINK_SCHEMA: Final = f"{SINK_SCHEMA}, headers map<string,string>"


def is_on() -> bool:
    """Whether this process sends spans."""
    return bool(os.environ.get(traces.ENDPOINT_VARIABLE))


def marked_options() -> dict[str, str]:
    """Further options of the source of a group with state."""
    return {"includeHeaders": "true"} if is_on() else {}


def typed_options() -> dict[str, str]:
    """Further options of the source of a group without state."""
    return {"metadata": ",".join((*METADATA, TYPED_COLUMN))} if is_on() else {}


def with_headers(schema: StructType) -> StructType:
    """The typed columns of the source, with ``typed_options``."""
    if not is_on():
        return schema
    kind = MapType(StringType(), ArrayType(StringType()))
    return StructType([*schema.fields, StructField(TYPED_COLUMN, kind)])


def traced(io: InstanceIO, task: Task, column: str) -> tuple[Task, str]:
    """A task with the schema of its rows; it makes spans of its batches if traces are on."""
    return (TracedTask(io, task, column), _SINK_SCHEMA) if is_on() else (task, SINK_SCHEMA)


@dataclass(frozen=True, slots=True)
class TracedTask:
    """A task that links its span to the messages, and gives its rows the header; it pickles."""

    io: InstanceIO
    task: Task
    #: Column with the headers of messages.
    column: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the task, with a column of headers."""
        assignment = self.io.assignment
        trace = traces.begin(
            f"process {self.io.group.name}",
            mesh_app=assignment.app,
            mesh_instance=assignment.instance,
        )
        count, has_rows = 0, False

        def traced() -> Iterator[pa.RecordBatch]:
            nonlocal count
            for batch in batches:
                if trace is not None:
                    count += _messages(batch)
                    trace.look(parents(batch.column(self.column)))
                yield batch.drop_columns([self.column])

        try:
            for rows in self.task(traced()):
                has_rows = has_rows or rows.num_rows > 0
                parent = trace.publishing_parent() if trace is not None and rows.num_rows else ""
                yield with_parent(rows, parent)
        except Exception as error:
            if trace is not None:
                trace.end(error)
            raise
        # Spark runs a task for partitions without messages, too.
        if trace is not None and (count or has_rows):
            trace.end(messaging_batch_message_count=count)


def parents(headers: object) -> list[str | None]:
    """Each ``traceparent`` once, in the order of the messages.

    Args:
        headers: length n, map of string to a list of strings; null for a range marker.
    """
    values = kernels.map_lookup(headers, pa.scalar(traces.HEADER), "first")
    return kernels.unique(kernels.list_element(values, 0)).to_pylist()  # type: ignore[no-any-return]


def with_parent(rows: pa.RecordBatch, parent: str) -> pa.RecordBatch:
    """Rows for the sink with this ``traceparent``; empty for none."""
    count = rows.num_rows
    column = pa.nulls(count, _SINK_COLUMN.type)
    if parent:
        column = arrow.MapArray.from_arrays(
            pa.array(np.arange(count + 1, dtype=np.int32)),
            pa.repeat(pa.scalar(traces.HEADER), count),
            pa.repeat(pa.scalar(parent), count),
        )
    schema = rows.schema.append(_SINK_COLUMN)
    return pa.RecordBatch.from_arrays([*rows.columns, column], schema=schema)


def _messages(batch: pa.RecordBatch) -> int:
    if "kind" not in batch.schema.names:
        return batch.num_rows
    return int(kernels.sum(kernels.equal(batch.column("kind"), MESSAGE)).as_py() or 0)
