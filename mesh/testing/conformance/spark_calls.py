"""Callbacks of queries in groups without state, seen in the task of such a group.

Its queries have no callbacks of their own: a second task runs the same compiled routes, and returns
what each query emits.  The rows of one step are one call, as those of an array in the reference
engine.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mesh.operators.base import CURRENT
from mesh.operators.executor import CallRun
from mesh.spark.instance_io import InstanceIO
from mesh.spark.sink_rows import SINK_FIELDS, for_sink
from mesh.spark.stateless_task import SourceEvents, compiled_routes
from mesh.testing.conformance.spark_host import call_row

if TYPE_CHECKING:
    from mesh.spark.routes import Route

_PRODUCER = SINK_FIELDS.names.index("producer")


@dataclass(frozen=True, slots=True)
class CallsTask:
    """Function that ``mapInArrow`` applies to the rows of one input: the calls of ``queries``."""

    io: InstanceIO
    #: The input's JetStream stream.
    js_stream: str
    queries: frozenset[str]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """A row for each call, with the number of its step as the producer."""
        logging.disable(logging.CRITICAL)
        for batch in batches:
            if not batch.num_rows:
                continue
            seen: set[str] = set()
            for route in compiled_routes(self.io, self.js_stream):
                source = SourceEvents.of_rows(batch)
                for query in route.queries:
                    if not len(source):
                        break
                    source, _ = query.run(source)
                    if query.name in self.queries - seen:
                        yield from _calls(query.name, source)
                    seen.add(query.name)


def _calls(query: str, source: SourceEvents) -> Iterator[pa.RecordBatch]:
    """The calls of a query, from what it emits, step by step."""
    events = source.as_events(source.rows.schema)
    for place in np.unique(events.order).tolist():
        step_events = events.where(events.order == place)
        count = len(step_events)
        call = np.zeros(count, dtype=np.int64)
        kind = np.full(count, CURRENT, dtype=np.int8)
        row = call_row(
            CallRun(query, call, kind, step_events.clock_ms, step_events.time_ms, step_events.rows)
        )
        producer = pa.array([str(place)], pa.string())
        yield for_sink(row.set_column(_PRODUCER, SINK_FIELDS.field(_PRODUCER), producer))


def queries_in(routes: Iterable[Route]) -> frozenset[str]:
    """The names of the queries on some routes."""
    return frozenset(query.name for route in routes for query in route.queries)
