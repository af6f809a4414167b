"""Executor: runs the queries of one group for one partition, as a fold over its input.

The result doesn't depend on how the input was cut into runs: events are merged into a total order,
timers fire at positions in that order, and each output row gets its number in it.  The file is
longer than 400 lines because order, time and numbers are one state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mesh.errors import MeshError
from mesh.functions.scripts import compile_scripts
from mesh.language.syntax import find
from mesh.model.stored import is_stored, rows_channel
from mesh.operators.aggregations.tables import channels_in
from mesh.operators.base import (
    BEFORE_ALL,
    CURRENT,
    WHOLE,
    EventBatch,
    Kinds,
    Longs,
    State,
    Timeline,
    concat,
    namespaced,
    restore_subset,
    subset,
)
from mesh.operators.dataflow.aggregation_node import AggregationNode
from mesh.operators.dataflow.build import DataflowBuilder, make_dataflow
from mesh.operators.dataflow.graph import DataflowNode, Emitted
from mesh.operators.dataflow.merge import InputMerger, MergedRun, around_changes, causes_of
from mesh.operators.dataflow.partition import NodeGroup
from mesh.operators.dataflow.query_node import QueryNode
from mesh.operators.expressions import Environment, using
from mesh.operators.failures import FAILED
from mesh.operators.gaps import PERIODS_FIRST, ROWS_MAX, Gap
from mesh.operators.on_demand import TableChanges, answer, as_chunk
from mesh.operators.tables import Tables
from mesh.operators.tables.lookup_table import LookupTable
from mesh.operators.tables.prefetch import Prefetch, Replay
from mesh.operators.tables.written import WrittenTable, change_channels
from mesh.operators.total_order import chunk_starts

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from mesh.model.stored import ReadRun, StoredTable, StoreTarget
    from mesh.operators.aggregations.bucket_reads import BucketReads
    from mesh.operators.dataflow.aggregation_node import NamedWindowNode
    from mesh.plan.bound import BoundApp, BoundOnDemandQuery

#: The format of ``snapshot``; a state of another one is not read.
STATE_VERSION = 3


class ExecutionMode(StrEnum):
    """Execution mode: see ``dataflow``. ``AUTO``: in bulk where that is possible."""

    AUTO = "auto"
    STEP = "step"


@dataclass(frozen=True, slots=True)
class InputRun:
    """Events of one input stream, in the order of its sequence.

    ``sequence``, ``time_ms``: int64[n]; ``rows``: n rows in the stream's schema.
    ``chunk``: int64[n], never falling over the stream's life; events of one number were sent as one
    array, and are processed together.  None: each was sent alone.
    """

    stream: str
    sequence: Longs
    time_ms: Longs
    rows: pa.RecordBatch
    chunk: Longs | None = None

    def slice(self, start: int, stop: int) -> InputRun:
        """The events from ``start`` to below ``stop``."""
        part = slice(start, stop)
        rows = self.rows.slice(start, stop - start)
        chunk = None if self.chunk is None else self.chunk[part]
        return InputRun(self.stream, self.sequence[part], self.time_ms[part], rows, chunk)


@dataclass(frozen=True, slots=True)
class OutputRun:
    """Rows for one stream that leaves the group, n of them.

    ``position``: int64[n], growing; over all output streams each of the numbers 1, 2 .. occurs
    once.
    ``time_ms``: int64[n], the events' own times.
    ``order``: int64[n], the place of each row's cause, if ``keeps_order``: ``2 * k + 1`` for the
    external event number k, from 0, and ``2 * k`` for a timer before it.
    """

    stream: str
    position: Longs
    time_ms: Longs
    rows: pa.RecordBatch
    order: Longs | None = None


@dataclass(frozen=True, slots=True)
class CallRun:
    """The arguments of one query's callback, n events in all.

    ``call``: int64[n], growing from 0 in each run: the number of the call that passes the event.
    ``kind``: int8[n], ``CURRENT`` or ``EXPIRED``; ``clock_ms``: the time of the call.
    """

    query: str
    call: Longs
    kind: Kinds
    clock_ms: Longs
    time_ms: Longs
    rows: pa.RecordBatch


class Executor:
    """The queries of ``app`` over one partition.

    With one input stream its events are processed as they arrive; then the timers due by its
    clock fire.  With several, events are merged by (time, input in the order of first mention,
    sequence), and wait until every input's clock is past them.  At one instant timers are first.

    ``outputs``: the streams to return, ``FAILED`` among them.  ``callbacks``: queries whose calls
    are recorded for ``take_calls``.  ``salt``: of ``UUID()``, for executors over other events.
    ``playback``: whether only events and ``step`` move time; None: as the app says.
    """

    def __init__(
        self,
        app: BoundApp,
        outputs: Collection[str],
        callbacks: Collection[str] = (),
        mode: ExecutionMode = ExecutionMode.AUTO,
        salt: str = "",
        playback: bool | None = None,
        shard: str = "",
    ) -> None:
        #: Whether time is that of the events alone.
        has_playback = find(app.annotations, "app:playback") is not None
        self.plays_back = has_playback if playback is None else playback
        self._schemas = {stream.name: stream.arrow for stream in app.streams}
        self.outputs = [stream.name for stream in app.streams if stream.name in outputs]
        self.outputs += [FAILED] if FAILED in outputs else []
        self.outputs += [*channels_in(app.aggregations), *change_channels(app)]
        tables = Tables()
        windows: dict[str, NamedWindowNode] = {}
        scripts = compile_scripts(app.scripts)
        aggregations: dict[str, AggregationNode] = {}
        environment = Environment(
            scripts, tables, windows, aggregations, salt=f"{app.name}/{salt}", shard=shard
        )
        with using(environment):
            tables.define(app.tables)
            self._prefetch = Prefetch(app, tables)
            nodes = DataflowBuilder(app, tables, windows, self.outputs, aggregations)
            self.nodes, self._flow = make_dataflow(
                nodes, self.outputs, in_bulk=mode is not ExecutionMode.STEP
            )
            for number, node in enumerate(self.nodes):
                node.work = node.make(self._flow.timers[number])
        self._takes_few = not app.tables and self._flow.takes_few
        self.tables = tables
        self._environment = environment
        self._changes = TableChanges(app, environment)
        #: Earlier reads of tables in databases.
        rollups = [node.cells for node in aggregations.values()]
        self._joined = [cells for cells in rollups if cells.reads]
        repeated = [table for table in self.lookup_tables if not table.is_cached]
        self.replay = Replay([*repeated, *self.bucket_reads])
        #: Whether rows for databases left since the last ``take_reads``.
        self._has_written = False
        self._watermark_ms = BEFORE_ALL
        #: Of the last ``run``; None before the first.
        self._clocks: Mapping[str, int] | None = None
        # Queries inside of partitions have no callbacks in the engine either.
        outside = [one for one in nodes.parts if isinstance(one, DataflowNode)]
        self._calls = [n.work.calls for n in outside if isinstance(n.work, QueryNode)]
        for calls in self._calls:
            calls.is_enabled = calls.query in callbacks
        mentioned = (channel for node in self.nodes for channel in node.reads)
        streams = [name for name in dict.fromkeys(mentioned) if name in self._schemas]
        self._inputs = InputMerger(tuple(streams), self._schemas)
        #: External events processed so far; those sent at once count as one.
        self._events = 0
        self._now_ms = BEFORE_ALL
        self._is_started = False
        #: Whether a part without a state is among parts with one: it begins at their present time.
        self._has_new = False
        #: Positions used so far.
        self.outputs_count = 0
        #: Whether output has the places of its causes.
        self.keeps_order = False
        periodic = environment.periodic
        self._periodic = [part for part in periodic if part.period_ms is not None]
        self._gap = Gap()

    def run(
        self, inputs: Sequence[InputRun], clocks: Mapping[str, int], *, is_by_events: bool = False
    ) -> list[OutputRun]:
        """Process events, let time pass, and return the output.

        Args:
            inputs: events that follow those of earlier calls, stream by stream; ``CHANGES`` too.
            clocks: for every input stream the time, milliseconds since 1970, up to which it is
                known; also for those that have no event in this run.
            is_by_events: whether times that clients gave let time pass: long gaps are passed over,
                see ``gaps``.

        Returns:
            For each output stream that has any, its rows.
        """
        for run in inputs:
            self._inputs.add(run.stream, run.sequence, run.time_ms, run.rows, run.chunk)
        ready, watermark_ms = self._inputs.ready(clocks)
        self._watermark_ms, self._clocks = watermark_ms, clocks
        outputs: list[OutputRun] = []
        for part, until_ms in self.replay.parts(ready, watermark_ms):
            outputs += self._run_part(part, until_ms, is_by_events)
        return outputs

    def _run_part(
        self, ready: list[MergedRun], watermark_ms: int, is_by_events: bool
    ) -> list[OutputRun]:
        outputs: list[OutputRun] = []
        for events, change, clock_ms in around_changes(ready, watermark_ms):
            until_ms = BEFORE_ALL if self.plays_back else clock_ms
            first = self.outputs_count + 1
            runs = self._advance(events, until_ms, is_by_events)
            outputs += runs
            for reads in self.bucket_reads:
                for run in runs:
                    if run.stream == rows_channel(reads.table.name):
                        reads.settle_positions(first, run.position, run.rows)
            if change is not None:
                now_ms = max(clock_ms, self._now_ms)
                self._changes.perform(change, now_ms)
                outputs += self._number(self._written(now_ms))
        return outputs

    def take_written(self) -> list[OutputRun]:
        """The rows for databases of changes that ``ask`` has made since the last run."""
        return self._number(self._written(self._now_ms))

    def take_reads(self, *, continues: bool) -> ReadRun | None:
        """The reads of the last run in databases; None for none.

        ``continues``: whether rows of the run before were at hand.
        """
        # Buckets that left are counted by the run in which they did: see ``bucket_reads``.
        writes, self._has_written = self._has_written and bool(self._joined), False
        return self.replay.read(self._watermark_ms, continues=continues, writes=writes)

    def _written(self, now_ms: int) -> list[Emitted]:
        """Changes of tables in stores by an on-demand change, also by one that failed later."""
        changes: list[Emitted] = []
        count = 0
        for table in self.tables.values():
            taken = table.take_changes() if isinstance(table, WrittenTable) else None
            if taken is not None:
                assert isinstance(table, WrittenTable), "asked above"
                rank = np.arange(count, count + len(taken[0]))
                count += len(rank)
                time_ms = np.full(len(rank), now_ms, dtype=np.int64)
                changes.append(Emitted(table.channel, rank, as_chunk(taken[1], time_ms, now_ms)))
        return changes

    def step(
        self,
        now_ms: int,
        stream: str | None = None,
        time_ms: Longs | None = None,
        rows: pa.RecordBatch | None = None,
    ) -> list[OutputRun]:
        """Let time pass to ``now_ms`` and then process one chunk of events, unmerged.

        Args:
            now_ms: the present time, not earlier than that of earlier calls.
            stream: the chunk's stream; None: only time passes.
            time_ms: int64[n], the events' own times, which need not be ``now_ms``.
            rows: n rows in the stream's schema.
        """
        if stream is None or rows is None or not rows.num_rows:
            return self._advance([], now_ms)
        if stream not in self._flow.roots and not self.plays_back:
            return self._advance([], now_ms)
        assert time_ms is not None, "events have times"
        clock_ms = np.full(rows.num_rows, now_ms, dtype=np.int64)
        index = np.arange(rows.num_rows)
        first = np.zeros(rows.num_rows, dtype=np.int64) if rows.num_rows > 1 else index
        return self._advance([MergedRun(stream, index, first, time_ms, clock_ms, rows)], now_ms)

    def _advance(
        self, ready: Sequence[MergedRun], watermark_ms: int, is_by_events: bool = False
    ) -> list[OutputRun]:
        for cells in self._joined:
            cells.position = self.outputs_count + 1
        if not ready and self._is_still(watermark_ms, is_by_events):
            self._now_ms = max(self._now_ms, watermark_ms)
            return []
        causes_ms, numbers = causes_of(ready)
        clocks_ms = np.maximum(causes_ms, self._now_ms)
        count = len(clocks_ms)
        last_ms = int(clocks_ms[-1]) if count else self._now_ms
        leaving: list[Emitted] = []
        start_ms = BEFORE_ALL
        if not self._is_started:
            # The app starts with its first event or the first known time: sources without input
            # begin to count.
            if not count and watermark_ms <= 0:
                return []
            self._is_started = True
            start_ms = int(clocks_ms[0]) if count else watermark_ms
            self._gap = Gap(start_ms)
            leaving += self._flow.begin(Timeline(0, clocks_ms[:0], start_ms, self.plays_back))
            if not count:
                self._now_ms = watermark_ms
                return self._number(leaving)
        elif self._has_new:
            # The other parts get no events, and no time passes for them.
            here = Timeline(self._events, clocks_ms[:0], self._now_ms, self.plays_back)
            leaving += self._flow.begin(here)
        self._has_new = False
        now_ms = max(last_ms, watermark_ms)
        if is_by_events and self._periodic:
            self._pass_gaps(ready, numbers, clocks_ms, now_ms, leaving)
        else:
            until_ms = last_ms if self.plays_back else now_ms
            self._flow_part(ready, numbers, clocks_ms, until_ms, leaving)
            if count and self._periodic:
                self._begin_gap(last_ms, leaving)
            self._now_ms = now_ms
        if self.plays_back:
            self._stop_at_timers(max(last_ms, start_ms), now_ms, leaving)
        return self._number(leaving)

    def _is_still(self, until_ms: int, is_by_events: bool) -> bool:
        """Whether nothing happens up to ``until_ms`` without events: no timer is due by then.

        Most runs end at the time of their last event.
        """
        if not self._is_started or self._has_new or self.plays_back:
            return False
        if is_by_events and self._periodic:
            return False
        times = (node.work.next_time() for node in self.nodes)
        return all(time is None or time > until_ms for time in times)

    def is_settled(self, clocks: Mapping[str, int]) -> bool:
        """Whether the last ``run`` had these clocks, and one without events changes nothing now.

        It does in playback, with databases, and for times that clients gave (``is_by_events``).
        """
        reads = self.lookup_tables or self._joined
        return clocks == self._clocks and not reads and self._is_still(self._watermark_ms, False)

    def _flow_part(
        self,
        ready: Sequence[MergedRun],
        numbers: Sequence[Longs],
        clocks_ms: Longs,
        now_ms: int,
        leaving: list[Emitted],
    ) -> None:
        """Process the events of all of ``clocks_ms``, and the timers up to ``now_ms``."""
        timeline = Timeline(self._events, clocks_ms, now_ms, self.plays_back)
        # In playback an event of a stream without a reader moves time as well.
        entering = [
            (part.stream, self._events_of(part, number, clocks_ms))
            for part, number in zip(ready, numbers, strict=True)
            if part.stream in self._flow.roots
        ]
        self._events += len(clocks_ms)
        self._now_ms = now_ms
        self._flow_on(entering, timeline, leaving)

    def _pass_gaps(
        self,
        ready: Sequence[MergedRun],
        numbers: Sequence[Longs],
        clocks_ms: Longs,
        now_ms: int,
        leaving: list[Emitted],
    ) -> None:
        """Process events between which time may jump: the rest of a long gap is passed over."""
        period_ms = min(part.period_ms or 0 for part in self._periodic)
        gaps_ms = np.diff(clocks_ms, prepend=self._gap.since_ms)
        begin = 0
        bounds = np.flatnonzero(gaps_ms > PERIODS_FIRST * period_ms).tolist()
        for end in [*bounds, len(clocks_ms)]:
            if end > begin:
                parts = [part_of(*one, begin, end) for one in zip(ready, numbers, strict=True)]
                inside = [number for _, number in parts]
                last_ms = int(clocks_ms[end - 1])
                runs = [run for run, _ in parts]
                self._flow_part(runs, inside, clocks_ms[begin:end], last_ms, leaving)
                self._begin_gap(last_ms, leaving)
                begin = end
            until_ms = int(clocks_ms[end]) if end < len(clocks_ms) else now_ms + 1
            self._pass_gap(period_ms, until_ms, leaving)
        if now_ms > self._now_ms and not self.plays_back:
            self._flow_part([], [], clocks_ms[:0], now_ms, leaving)
        self._now_ms = now_ms

    def _pass_gap(self, period_ms: int, to_ms: int, leaving: list[Emitted]) -> None:
        """Let time pass in a gap that is known up to just before ``to_ms``, if it is long."""
        gap = self._gap
        for at_ms, is_last in gap.looks(period_ms, self._now_ms, to_ms):
            if gap.is_over:
                break
            if not self.plays_back:
                self._flow_part([], [], np.empty(0, dtype=np.int64), at_ms, leaving)
            gap.is_over = is_last or self._rows(leaving) - gap.rows >= ROWS_MAX
        if gap.is_over:
            for part in self._periodic:
                part.skip(to_ms)

    def _begin_gap(self, since_ms: int, leaving: list[Emitted]) -> None:
        self._gap = Gap(since_ms, self._rows(leaving))

    def _rows(self, leaving: Sequence[Emitted]) -> int:
        return self.outputs_count + sum(len(one.rank) for one in leaving)

    def _stop_at_timers(self, from_ms: int, now_ms: int, leaving: list[Emitted]) -> None:
        """Let time pass without events, in playback: it stops at each timer, for any time steps."""
        none = np.empty(0, dtype=np.int64)
        fired_ms = BEFORE_ALL
        while True:
            due = [due for n in self.nodes if (due := n.work.next_time()) is not None]
            next_ms = min(due, default=now_ms)
            if next_ms >= now_ms or from_ms >= now_ms:
                break
            # Timers that were due before they were set fire at the present time, when it is moved
            # there.
            is_idle_playback = next_ms <= from_ms and next_ms != fired_ms
            from_ms = from_ms if is_idle_playback else max(next_ms, from_ms + 1)
            fired_ms = next_ms
            self._flow_on(
                [], Timeline(self._events, none, from_ms, True, is_idle_playback), leaving
            )
        if from_ms < now_ms:
            self._flow_on([], Timeline(self._events, none, now_ms, True), leaving)

    def _flow_on(
        self, entering: list[tuple[str, EventBatch]], timeline: Timeline, leaving: list[Emitted]
    ) -> None:
        """Append the output of the dataflow to ``leaving``, ranked after its present content."""
        self._prefetch.load(entering)
        before = sum(len(one.rank) for one in leaving)
        output = self._flow.run(entering, timeline)
        leaving += [replace(one, rank=one.rank + before) for one in output] if before else output

    def _events_of(self, ready: MergedRun, number: Longs, clocks_ms: Longs) -> EventBatch:
        count = len(ready.index)
        none = np.zeros(count, dtype=np.int64)
        return EventBatch(
            ready.time_ms,
            clocks_ms.take(number),
            2 * (self._events + number) + 1,
            none,
            none,
            np.full(count, CURRENT, dtype=np.int8),
            np.full(count, WHOLE, dtype=np.int64),
            ready.rows,
        )

    def _number(self, leaving: Sequence[Emitted]) -> list[OutputRun]:
        """Number the output rows."""
        parts: dict[str, list[Emitted]] = {}
        for one in leaving:
            parts.setdefault(one.channel, []).append(one)
        runs = [self._output(stream, parts[stream]) for stream in self.outputs if stream in parts]
        self.outputs_count += sum(len(one.rank) for one in leaving)
        self._has_written |= any(map(is_stored, parts))
        return runs

    def _output(self, stream: str, parts: list[Emitted]) -> OutputRun:
        position = np.concatenate([one.rank for one in parts]) + (self.outputs_count + 1)
        time_ms = np.concatenate([one.events.time_ms for one in parts])
        rows = parts[0].events.rows
        if len(parts) > 1:
            rows = concat([one.events.rows for one in parts])
        causes = np.concatenate([p.events.order for p in parts]) if self.keeps_order else None
        if not (position[1:] > position[:-1]).all():
            order = np.argsort(position)
            position, time_ms, rows = position[order], time_ms[order], rows.take(order)
            causes = None if causes is None else causes[order]
        return OutputRun(stream, position, time_ms, rows, causes)

    def take_calls(self) -> list[CallRun]:
        """The recorded calls of the callbacks since the previous ``take_calls``."""
        call_runs = []
        for calls in self._calls:
            number = 0
            for run in calls.runs:
                starts = chunk_starts(run)
                call = np.zeros(len(run), dtype=np.int64)
                call[starts] = 1
                call = np.cumsum(call) + (number - 1)
                number += len(starts)
                call_runs.append(
                    CallRun(calls.query, call, run.kind, run.clock_ms, run.time_ms, run.rows)
                )
            calls.runs.clear()
        return call_runs

    @property
    def takes_few(self) -> bool:
        """Whether the rows of events may be ``FewRows``."""
        return self._takes_few

    @property
    def now_ms(self) -> int:
        """The present time."""
        return self._now_ms

    def next_time(self) -> int | None:
        """The earliest time at which the passing of time alone changes anything; None without."""
        times = [node.work.next_time() for node in self.nodes]
        times.append(self._inputs.next_time())
        return min((time for time in times if time is not None), default=None)

    def wakeup_time(self) -> int | None:
        """The earliest time at which ``run`` has output without a further event; or None."""
        return self._inputs.next_time() if self.plays_back else self.next_time()

    def snapshot(self) -> State:
        """All that a later run depends on."""
        scalars: dict[str, object] = {
            "version": STATE_VERSION,
            "events": self._events,
            "now_ms": self._now_ms,
            "outputs": self.outputs_count,
            "started": self._is_started,
        }
        if self._has_new:
            scalars["new"] = True
        if self.lookup_tables or self._joined:
            scalars["reads"] = [self.replay.taken, self.replay.number]
        scalars |= {"changes": dict(outcomes)} if (outcomes := self._changes.outcomes) else {}
        if self._periodic:
            scalars["gap"] = [self._gap.since_ms, self._gap.rows, self._gap.is_over]
        parts = {node.name: node.work.snapshot() for node in self.nodes}
        parts |= {"inputs": self._inputs.snapshot(), "tables": self.tables.snapshot()}
        return namespaced({"own": State({}, scalars), **parts})

    def count_from(self, outputs: int) -> None:
        """Number the next rows as those of an executor that has emitted so many."""
        self._gap.rows += outputs - self.outputs_count
        self.outputs_count = outputs

    def restore(self, state: State) -> None:
        """Continue from ``state``, a snapshot of an executor of the same app.

        Parts without a state begin: see ``remap``.

        Raises:
            MeshError: MESH-O105, the state was written by another version.
        """
        if (scalars := dict[str, Any](subset(state, "own").scalars)).get(
            "version"
        ) != STATE_VERSION:
            raise MeshError(
                "MESH-O105",
                f"state has format {scalars.get('version')}",
                detail=f"This version reads format {STATE_VERSION}.",
                hint="Run it with the version of mesh that wrote it, or start from nothing.",
            )
        self._events, self._now_ms = scalars["events"], scalars["now_ms"]
        self.outputs_count, self._is_started = scalars["outputs"], scalars["started"]
        self._has_new = scalars.get("new", False)
        self._changes.outcomes = dict(scalars.get("changes", {}))
        self.replay.taken, self.replay.number = scalars.get("reads", (0, 0))
        self._gap = Gap(*scalars.get("gap", (self._now_ms, self.outputs_count, False)))
        self._inputs.restore(subset(state, "inputs"))
        self.tables.restore(subset(state, "tables"))
        for node in self.nodes:
            restore_subset(node.work, state, node.name)

    def ask(self, query: BoundOnDemandQuery, now_ms: int) -> pa.RecordBatch:
        """The rows of an on-demand query."""
        return answer(query, self._environment, now_ms)

    def figures(self) -> list[tuple[str, str, int, int, int | None]]:
        """Of each query, window and table: kind, name, events in and out, and rows of a table."""
        counts = self._environment.counts
        entries: list[tuple[str, str, int, int, int | None]] = [
            (kind, name, events_in, events_out, None)
            for (kind, name), (events_in, events_out) in counts.items()
        ]
        return [*entries, *(("table", name, 0, 0, len(t)) for name, t in self.tables.items())]

    @property
    def producer(self) -> str:
        """The name of this executor among all, for markers in databases."""
        return self._environment.salt

    @property
    def stores(self) -> list[StoreTarget]:
        """The tables in databases that rows are returned for."""
        nodes = (node.work for node in self.nodes if isinstance(node.work, AggregationNode))
        targets = [
            replace(work.cells.tables.target, is_repeated=bool(work.cells.reads))
            for work in nodes
            if work.cells.tables is not None
        ]
        written = (one for one in self.tables.values() if isinstance(one, WrittenTable))
        return targets + [table.target for table in written]

    def describe(self, tables: Mapping[str, StoredTable]) -> None:
        """Let tables know the types of their columns, by the names that databases have."""
        for one in self.tables.values():
            if isinstance(one, WrittenTable) and one.stored.name in tables:
                one.stored = tables[one.stored.name]

    @property
    def lookup_tables(self) -> list[LookupTable]:
        """Tables that are read from their databases; their reader has to be set."""
        return [one for one in self.tables.values() if isinstance(one, LookupTable)]

    @property
    def bucket_reads(self) -> list[BucketReads]:
        """Tables of aggregations that joins look up; their reader has to be set."""
        return [one for cells in self._joined for reads in cells.reads.values() for one in reads]

    @property
    def begun_tables(self) -> frozenset[str]:
        """The tables in databases that had no part in a restored state."""
        begun = (self.tables[name] for name in self.tables.begun)
        return frozenset(one.stored.name for one in begun if isinstance(one, WrittenTable))

    def fill(self, table: str, rows: pa.RecordBatch) -> None:
        """Give a table in a store the rows of its database, before any event."""
        for one in self.tables.values():
            if isinstance(one, WrittenTable) and one.stored.name == table:
                one.fill(rows)

    def written_again(self, table: str) -> pa.RecordBatch:
        """The rows of a table in a store, as changes that make all of them."""
        tables = self.tables.values()
        (one,) = (t for t in tables if isinstance(t, WrittenTable) and t.stored.name == table)
        return one.written_again()

    @property
    def places(self) -> dict[str, str]:
        """By name of a query, a window or a key router, the place of its state in a snapshot."""
        by_name: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node.work, NodeGroup):
                inside = node.work.places.items()
                by_name |= {name: f"{node.name}/{place}" for name, place in inside}
            else:
                by_name[node.name] = node.name
        return by_name

    @property
    def input_schemas(self) -> dict[str, pa.Schema]:
        """Those of the streams from outside."""
        return self._inputs.schemas


def part_of(run: MergedRun, number: Longs, begin: int, end: int) -> tuple[MergedRun, Longs]:
    """The events of a run whose causes, ``number``, are from ``begin`` to ``end``; from 0 then."""
    low, high = np.searchsorted(number, [begin, end]).tolist()
    return run.slice(low, high), number[low:high] - begin
