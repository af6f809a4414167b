"""Stateless groups: the task that converts rows of an input to rows for the sink.

A group without state is a set of routes, each from one input channel through its queries to one
output channel.  A route has its own producer.  The queries run in the operators' kernels, one Arrow
batch at a time; nothing is kept between batches.  The shared query and a dedicated query call the
same task, so that an instance publishes the same bytes in both.

An event that can't be read, or on which a query fails, is recorded in the error stream by one route
of the group: the first that reads the input, or the first that contains the query.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from mesh.functions.scripts import compile_scripts
from mesh.operators.base import CURRENT, WHOLE, EventBatch, Timeline, concat
from mesh.operators.dataflow.build import make_query
from mesh.operators.expressions import Environment, using
from mesh.operators.failures import failure_events
from mesh.operators.query.stream import StreamQuery
from mesh.plan.bind.apps import bind_group
from mesh.spark import sink_rows
from mesh.spark.instance_io import METADATA, POSITIONS_PER_MESSAGE, InstanceIO, js_stream_of
from mesh.spark.partition_task import without_skipped
from mesh.spark.partitioning import channel_rows
from mesh.spark.routes import Route, positioned_routes, routes
from pyspark_nats.arrow import kernels, rows_at
from pyspark_nats.few_rows import FewRows, as_batch

if TYPE_CHECKING:
    from mesh.model.app import GroupSpec
    from mesh.model.types import StreamSchema
    from mesh.operators.base import Kinds, Longs
    from pyspark_nats.decode.result import DecodeResult
    from pyspark_nats.source.messages import Messages

#: Compiled instances and queries kept per process: more than a shared query runs at a time.
_COMPILED_MAX = 1024
#: Columns of an event to record; an unreadable one has no query.
_FAILED: Final = [*METADATA, "_query"]


@dataclass(frozen=True, slots=True)
class StatelessTask:
    """Function that ``mapInArrow`` applies to the rows of one input; it pickles."""

    io: InstanceIO
    #: The input's JetStream stream.
    js_stream: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run all routes that begin at the input.

        Args:
            batches: rows of the source in its typed form, with ``METADATA``.

        Returns:
            Rows for the sink; those of one producer are ordered by position.
        """
        skips, refused = self.io.skips(self.js_stream), self.io.refusals(self.js_stream)
        for batch in batches:
            rows = without_skipped(batch, "_sequence", skips)
            if refused:
                reported, rows = self._refused(rows, refused)
                yield reported
            if not rows.num_rows:
                continue
            events, unreadable = rows, None
            if rows.column("_error").null_count < rows.num_rows:
                is_unreadable = kernels.is_valid(rows.column("_error"))
                unreadable = rows.filter(is_unreadable).select(METADATA)
                events = rows.filter(kernels.invert(is_unreadable))
            yield from self.run(SourceEvents.of_rows(events), unreadable)

    @property
    def takes_all(self) -> bool:
        """Whether no message is skipped, or refused."""
        return not self.io.skips(self.js_stream) and not self.io.refusals(self.js_stream)

    def run(
        self, events: SourceEvents, unreadable: pa.RecordBatch | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Run all routes; ``unreadable`` has ``METADATA`` of what can't be read, None for none."""
        for one in compiled_routes(self.io, self.js_stream):
            yield from one.run(self.io, events, unreadable)

    def _refused(
        self, rows: pa.RecordBatch, refused: Mapping[int, str]
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Error entries of the readable events of refused messages, and the other rows."""
        sequences: list[Any] = rows.column("_sequence").to_pylist()
        indexes: list[Any] = rows.column("_index").to_pylist()
        is_readable = kernels.is_null(rows.column("_error")).to_pylist()
        is_ours = [
            s in refused and readable for s, readable in zip(sequences, is_readable, strict=True)
        ]
        mask = pa.array(is_ours, pa.bool_())
        events = rows.filter(mask)
        read = {
            one.input.channel
            for one in routes(self.io)
            if js_stream_of(one.input, 0) == self.js_stream
        }
        (channel,) = read
        columns = ("_sequence", "_timestamp_ms", "_event_time_ms")
        data = sink_rows.to_json(channel, events.select(channel.stream.names))
        messages = pa.RecordBatch.from_arrays(
            [*map(events.column, columns), data],
            names=["sequence", "time_ms", "event_time_ms", "data"],
        )
        at = [row for row, ours in enumerate(is_ours) if ours]
        errors = [(n, indexes[row], refused[sequences[row]]) for n, row in enumerate(at)]
        where = str(self.io.assignment.index)
        reported = sink_rows.refused_messages(self.io, channel.stream.name, messages, errors, where)
        return reported, rows.filter(kernels.invert(mask))


def input_tasks(io: InstanceIO) -> dict[str, StatelessTask]:
    """The task of each input that a route begins at, by JetStream stream."""
    read = dict.fromkeys(js_stream_of(one.input, 0) for one in routes(io))
    return {js_stream: StatelessTask(io, js_stream) for js_stream in read}


@dataclass(frozen=True, slots=True)
class SourceEvents:
    """Events with their places in the input, n of them."""

    #: The attributes of the events, among other columns.
    rows: pa.RecordBatch
    #: int64[n]: the event's message, its index in it, and the server's time of the message.
    sequence: Longs
    index: Longs
    broker_ms: Longs
    #: int64[n], Arrow, null for events without a time of their own; None if none has one.
    event_ms: Any | None

    @classmethod
    def of_rows(cls, batch: pa.RecordBatch) -> SourceEvents:
        """From rows of the source's typed form, with ``METADATA``."""
        event_ms = batch.column("_event_time_ms")
        return cls(
            batch,
            _longs(batch.column("_sequence")),
            _longs(batch.column("_index")),
            _longs(batch.column("_timestamp_ms")),
            None if event_ms.null_count == len(event_ms) else event_ms,
        )

    @classmethod
    def of_decoded(cls, messages: Messages, decoded: DecodeResult) -> SourceEvents:
        """From messages, all of which could be read."""
        sequence, broker_ms = messages.sequence, messages.time_ns // 1_000_000
        if len(decoded.message) != len(messages) or decoded.index.any():
            sequence, broker_ms = sequence[decoded.message], broker_ms[decoded.message]
        event_ms = decoded.event_time_ms
        has_times = event_ms.null_count < len(event_ms)
        return cls(
            decoded.rows, sequence, decoded.index, broker_ms, event_ms if has_times else None
        )

    def __len__(self) -> int:
        return len(self.sequence)

    def with_rows(self, rows: pa.RecordBatch) -> SourceEvents:
        """The same events with other attributes."""
        return SourceEvents(rows, self.sequence, self.index, self.broker_ms, self.event_ms)

    def take(self, row: Longs, rows: pa.RecordBatch) -> SourceEvents:
        """Events with attributes ``rows`` that come from the events at ``row``."""
        event_ms = None if self.event_ms is None else self.event_ms.take(rows_at(row))
        return SourceEvents(
            rows, self.sequence[row], self.index[row], self.broker_ms[row], event_ms
        )

    def metadata(self) -> pa.RecordBatch:
        """``METADATA`` of readable events."""
        count = len(self)
        event_ms = pa.nulls(count, pa.int64()) if self.event_ms is None else self.event_ms
        places = [pa.array(one) for one in (self.sequence, self.index, self.broker_ms)]
        none: list[Any] = [pa.nulls(count, pa.string()), pa.nulls(count, pa.binary())]
        return pa.RecordBatch.from_arrays([*places, event_ms, *none], names=list(METADATA))

    def as_events(self, schema: pa.Schema) -> EventBatch:
        """Each one as a chunk of its own, ordered by its message and its place in it."""
        time_ms = self.broker_ms
        if self.event_ms is not None:
            time_ms = _longs(kernels.coalesce(self.event_ms, pa.array(time_ms)))
        whole, current = _ordinary(len(self))
        return EventBatch(
            time_ms, time_ms, self.sequence, whole, self.index, current, whole,
            _of_schema(self.rows, schema),
        )  # fmt: skip


@lru_cache(maxsize=64)
def _ordinary(count: int) -> tuple[Longs, Kinds]:
    """Path, and instance, of events from outside, which are 0; and their kind."""
    assert WHOLE == 0, "one array serves for both"
    whole = np.zeros(count, dtype=np.int64)
    current = np.full(count, CURRENT, dtype=np.int8)
    whole.flags.writeable = current.flags.writeable = False
    return whole, current


@dataclass(frozen=True, slots=True)
class _CompiledQuery:
    name: str
    source: StreamSchema
    query: StreamQuery
    #: Whether the events on which it fails are recorded by this route.
    records_failures: bool
    #: Events that entered it, and that it emitted.
    counts: list[int] = field(default_factory=lambda: [0, 0])

    def run(self, source: SourceEvents) -> tuple[SourceEvents, list[pa.RecordBatch]]:
        """Evaluate the query on n > 0 events.

        Returns:
            The events that it emits, with the places of their source events; and ``_FAILED`` of
            the events on which it failed, if they are to be recorded.
        """
        if not self.query.takes_few:
            source = source.with_rows(as_batch(source.rows))
        events = source.as_events(self.source.arrow)
        clocks_ms = np.maximum.accumulate(events.clock_ms)
        timeline = Timeline(0, clocks_ms, int(clocks_ms[-1]))
        output = self.query.process({self.source.name: [events]}, timeline)
        self.counts[0] += len(events)
        self.counts[1] += len(output)
        is_each = output.order is events.order and output.chunk is events.chunk
        if is_each:
            emitted = source.with_rows(output.rows)
        else:
            emitted = source.take(_row_numbers(output, events), output.rows)
        failed: list[pa.RecordBatch] = []
        if not self.query.failures.entries:
            return emitted, failed
        # The operators collect failures until they are fetched.
        failures, self.query.failures.entries = self.query.failures.entries, []
        metadata = source.metadata()
        for lost, reasons, _ in failures if self.records_failures else ():
            rows = _row_numbers(lost, events)
            reported = failure_events(self.name, self.source.name, events.take(rows), reasons).rows
            failed.append(_failed(metadata.take(rows_at(rows)), reported))
        return emitted, failed


@dataclass(frozen=True, slots=True)
class _CompiledRoute:
    """A route with its queries, ready to run."""

    route: Route
    records_unreadable: bool
    queries: tuple[_CompiledQuery, ...]
    producer: str
    error_part: str

    def run(
        self, io: InstanceIO, events: SourceEvents, unreadable: pa.RecordBatch | None
    ) -> Iterator[pa.RecordBatch]:
        """Rows for the sink, from events and from ``METADATA`` of unreadable ones."""
        failed = []
        if self.records_unreadable and unreadable is not None:
            failed.append(_failed(unreadable))
        count = sum(batch.num_rows for batch in failed)
        for query in self.queries:
            if not len(events):
                break
            events, more = query.run(events)
            failed += more
        if failed:
            yield self._errors(io, failed, count)
        if len(events):
            yield from self._events(io, events)

    def _errors(
        self, io: InstanceIO, failed: list[pa.RecordBatch], unreadable: int
    ) -> pa.RecordBatch:
        """Error entries, by position: one producer records the failures of all queries.

        Args:
            io: of the instance.
            failed: ``_FAILED`` of events.
            unreadable: number of the events that can't be read, which come first.
        """
        rows = concat(failed)
        order = np.lexsort((_longs(rows.column("_index")), _longs(rows.column("_sequence"))))
        batch = rows.take(order)
        columns = ("_sequence", "_timestamp_ms", "_event_time_ms", "_data")
        messages = pa.RecordBatch.from_arrays(
            [batch.column(name) for name in columns],
            names=["sequence", "time_ms", "event_time_ms", "data"],
        )
        indexes: list[Any] = batch.column("_index").to_pylist()
        reasons: list[Any] = batch.column("_error").to_pylist()
        places = _with_data(messages, order < unreadable)
        errors = list(zip(places, indexes, reasons, strict=True))
        queries = batch.column("_query").to_pylist()
        stream = self.route.input.channel.stream.name
        return sink_rows.error_rows(io, stream, messages, errors, self.error_part, queries)

    def _events(self, io: InstanceIO, events: SourceEvents) -> Iterator[pa.RecordBatch]:
        output = self.route.output
        rows = _of_schema(events.rows, output.stream.arrow)
        position = events.sequence * POSITIONS_PER_MESSAGE + events.index
        yield from channel_rows(
            output, io.group.text, self.producer, rows, position, events.event_ms,
            lambda: events.as_events(output.stream.arrow),
        )  # fmt: skip


def compiled_routes(io: InstanceIO, js_stream: str) -> tuple[_CompiledRoute, ...]:
    """The routes that begin at an input, ready to run."""
    # By identity first: the hash of an instance takes as long as its queries for a few events.  The
    # entry keeps the instance alive, so no other one has its identity.
    entry = _cache.get((id(io), js_stream))
    if entry is None:
        if len(_cache) >= _COMPILED_MAX:
            _cache.clear()
        entry = _cache[id(io), js_stream] = io, _compiled(io, js_stream)
    return entry[1]


_cache: dict[tuple[int, str], tuple[InstanceIO, tuple[_CompiledRoute, ...]]] = {}


@lru_cache(maxsize=_COMPILED_MAX)
def _compiled(io: InstanceIO, js_stream: str) -> tuple[_CompiledRoute, ...]:
    return tuple(
        _CompiledRoute(
            one.route,
            one.records_unreadable,
            tuple(
                _compiled_query(
                    io.group, query.name, one.salt(io), query.name in one.records_failures
                )
                for query in one.route.queries
            ),
            one.producer(io),
            one.error_part(io),
        )
        for one in positioned_routes(io)
        if js_stream_of(one.route.input, 0) == js_stream
    )


def figures(io: InstanceIO, js_stream: str) -> tuple[object, list[tuple[str, str, int, int, None]]]:
    """The counters of an input's queries, and their values: see ``Executor.figures``.

    A query of several routes has the counts of one of them: all process the same events.
    """
    compiled = compiled_routes(io, js_stream)
    by_name = {query.name: query.counts for route in compiled for query in route.queries}
    return compiled, [("query", name, *counts, None) for name, counts in by_name.items()]  # type: ignore[misc]  # two counts


def _compiled_query(
    group: GroupSpec, name: str, salt: str, records_failures: bool
) -> _CompiledQuery:
    """The operators of a query; ``salt`` gives each route random values of its own."""
    app = bind_group(group)
    query = next(one for one in app.queries if one.name == name)
    environment = Environment(compile_scripts(app.scripts), salt=f"{app.name}/{salt}")
    with using(environment):
        running = make_query(query, 0)
    assert isinstance(running, StreamQuery), "a stateless query reads one stream"
    return _CompiledQuery(name, app.stream(query.input_streams[0]), running, records_failures)


def _of_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if batch.schema.equals(schema):
        return batch
    if isinstance(batch, FewRows):
        batch = batch.whole()
    subset = batch.select(schema.names)
    return subset if subset.schema.equals(schema) else subset.cast(schema)


def _failed(metadata: pa.RecordBatch, reported: pa.RecordBatch | None = None) -> pa.RecordBatch:
    """``_FAILED`` of events: with reason, event and query of a failure; None if unreadable."""
    columns = dict(zip(METADATA, metadata.columns, strict=True))
    columns["_query"] = pa.nulls(metadata.num_rows, pa.string())
    if reported is not None:
        columns["_error"], columns["_query"] = reported.column("reason"), reported.column("query")
        columns["_data"] = reported.column("event").cast(pa.binary())
    return pa.RecordBatch.from_arrays([*columns.values()], names=_FAILED)


def _row_numbers(output: EventBatch, events: EventBatch) -> Longs:
    """int64[n], the source row in ``events`` of each row of ``output``."""
    if output.order is events.order and output.chunk is events.chunk:
        return np.arange(len(output.order))
    if not len(output.order):
        return np.zeros(0, np.int64)
    keys = events.order * POSITIONS_PER_MESSAGE + events.chunk
    targets = output.order * POSITIONS_PER_MESSAGE + output.chunk
    if np.array_equal(keys, targets):
        return np.arange(len(keys))
    if (np.diff(keys) >= 0).all():
        return np.searchsorted(keys, targets)
    order = np.argsort(keys, kind="stable")
    return order[np.searchsorted(keys, targets, sorter=order)]


def _with_data(messages: pa.RecordBatch, is_unreadable: Any) -> list[int]:
    """For each row the one with its data: of a message's unreadable events, the first has it."""
    sequence = _longs(messages.column("sequence"))
    has_data = messages.column("data").is_valid().to_numpy(zero_copy_only=False)
    places: list[int] = []
    last = -1
    for row in range(messages.num_rows):
        if is_unreadable[row] and has_data[row]:
            last = row
        is_later = not has_data[row] and last >= 0 and sequence[last] == sequence[row]
        places.append(last if is_later else row)
    return places


def _longs(column: Any) -> Any:
    return column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
