"""The host of stateful groups with the clock of a case, called by ``mapInArrow``.

Everything but the clock is the host's own: it reads messages, finds the state at the position where
the batch starts, runs the operators, encodes the output, and leaves the state at the end. Many
cases share a query; a micro-batch is the next step of each.

Callbacks of queries in groups without state, seen in the task of such a group.

Its queries have no callbacks of their own: a second task runs the same compiled routes, and returns
what each query emits.  The rows of one step are one call, as those of an array in the reference
engine.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson
import pyarrow as pa

from mesh.errors import MeshError
from mesh.language.parser import parse_on_demand_query
from mesh.operators.base import CURRENT
from mesh.operators.executor import CallRun, Executor
from mesh.operators.on_demand import answer, stores_of
from mesh.plan.bind import bind_on_demand
from mesh.plan.bind.apps import bind_group
from mesh.plan.bound import AnswerOutput
from mesh.spark.instance_io import InputPosition, InstanceIO
from mesh.spark.partition_task import PartitionRun, PartitionTask
from mesh.spark.sink_rows import SINK_FIELDS, for_sink
from mesh.spark.stateless_task import SourceEvents, compiled_routes
from pyspark_nats.arrow import ipc_stream
from pyspark_nats.gc_freeze import freeze_imported
from tools.conformance.script import AskCall

if TYPE_CHECKING:
    from mesh.operators.executor import InputRun, OutputRun
    from mesh.plan.bound import BoundOnDemandQuery
    from mesh.spark.partition_task import LivePartition
    from mesh.spark.routes import Route


#: In place of a JetStream stream: rows with a call of a query, with an answer or the error in its
#: place, and with the error of a case.
CALLS: Final = "?calls."
ANSWER: Final = "?answer"
REFUSAL: Final = "?refusal"
ERROR: Final = "?error"
_PLACE: Final = SINK_FIELDS.names.index("producer")
_CALL_COLUMNS: Final = ("#call", "#kind", "#clock_ms", "#time_ms")

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


@dataclass(frozen=True, slots=True)
class CaseTask(PartitionTask):
    """One case in one leg.

    ``is_log``: there is one stream, and its events arrive at their own times.  The input is then as
    from a log, and the operators are driven as with one.
    """

    callbacks: tuple[str, ...]
    playback: bool
    is_log: bool
    #: On-demand queries by the number of their step.
    ask_calls: Mapping[int, AskCall]


@dataclass(frozen=True, slots=True)
class CasesTask:
    """Cases by number; ``owners``: the case of each JetStream stream."""

    cases: dict[int, CaseTask]
    owners: dict[str, int]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the next step of the cases with rows in this batch."""
        freeze_imported()
        # Rows that fail are part of the answers.
        logging.disable(logging.CRITICAL)
        non_empty = [batch for batch in batches if batch.num_rows]
        if not non_empty:
            return
        rows = pa.Table.from_batches(non_empty).combine_chunks().to_batches()[0]
        streams: list[Any] = rows.column("stream").to_pylist()
        owners = [self.owners[stream] for stream in streams]
        cuts = [n for n in range(1, len(owners)) if owners[n] != owners[n - 1]]
        for start, stop in pairwise([0, *cuts, len(owners)]):
            part = rows.slice(start, stop - start)
            # The first row is a marker without a subject; it has the number of the step there.
            place = int(part.column("subject")[0].as_py())
            name = f"{owners[start]}/{place}"
            for output in _run(self.cases[owners[start]], place, part):
                producer = pa.array([name] * output.num_rows, pa.string())
                yield for_sink(output.set_column(_PLACE, SINK_FIELDS.field(_PLACE), producer))


def _run(task: CaseTask, place: int, rows: pa.RecordBatch) -> list[pa.RecordBatch]:
    run = CaseRun(task, task.ask_calls.get(place))
    try:
        outputs = [*run.take(rows), *run.finish(), *map(call_row, run.calls)]
        return [*outputs, *run.answered()]
    except Exception as error:  # One case's answer, not the end of the others.
        return [_row(ERROR, f"{type(error).__name__}: {error}".encode())]


class CaseRun(PartitionRun):
    """One step of one case; ``calls``: what queries called back with.

    ``ask_call``: the on-demand query that is the step.  A change is made by the operators before
    their state is stored; any other is answered from the stored state, without the operators.
    """

    def __init__(self, task: CaseTask, ask_call: AskCall | None = None) -> None:
        super().__init__(task)
        self._case = task
        self._ask_call = ask_call
        self._refusal: MeshError | None = None
        self._has_come = False
        self.calls: list[CallRun] = []

    def _executor(self) -> Executor:
        case, group = self._case, self._io.group
        outputs = [channel.stream.name for channel in group.outputs]
        return Executor(bind_group(group), outputs, case.callbacks, playback=case.playback)

    def _advance(
        self, partition: LivePartition, inputs: list[InputRun]
    ) -> tuple[list[OutputRun], bool]:
        """Advance to the case's time, with the events sent at it."""
        if self._ask_call is not None:
            self._perform(partition.executor, self._ask_call)
            return [], True
        now_ms = max(end["time_ms"] for end in self.ends.values())
        if self._has_come:
            return [], True
        self._has_come = bool(inputs)
        executor = partition.executor
        if self._case.is_log:
            outputs = executor.run(inputs, dict.fromkeys(partition.clocks, now_ms))
        elif inputs:
            (sent,) = inputs
            outputs = executor.step(now_ms, sent.stream, sent.time_ms, sent.rows)
        else:
            outputs = executor.step(now_ms)
        self.calls += executor.take_calls()
        return outputs, True

    def _perform(self, executor: Executor, ask_call: AskCall) -> None:
        """Make the change that is asked for, if it is one, once."""
        query = self._query(ask_call)
        if self._has_come or isinstance(query.action, AnswerOutput):
            return
        self._has_come = True
        try:
            executor.ask(query, ask_call.now_ms)
        except MeshError as error:
            self._refusal = error

    def answered(self) -> list[pa.RecordBatch]:
        """The answer to what is asked, from the stored state; none if nothing is."""
        if self._ask_call is None:
            return []
        query = self._query(self._ask_call)
        try:
            if self._refusal is not None:
                raise self._refusal
            return [_row(ANSWER, ipc_stream(self._stored_answer(query, self._ask_call.now_ms)))]
        except MeshError as error:
            return [_row(REFUSAL, orjson.dumps(error.to_dict()))]

    def _query(self, ask_call: AskCall) -> BoundOnDemandQuery:
        return bind_on_demand(parse_on_demand_query(ask_call.text), bind_group(self._io.group))

    def _stored_answer(self, query: BoundOnDemandQuery, now_ms: int) -> pa.RecordBatch:
        if not isinstance(query.action, AnswerOutput):
            return pa.RecordBatch.from_pylist([], query.action.target.arrow)
        local = self._case.state(0)
        manifest = local.manifest(InputPosition.of(self.ends, self.ends))
        assert manifest is not None, "stored at the end of the step"
        app, places = bind_group(self._io.group), self._executor().places
        stores = stores_of(app, local.load(manifest), places, query.reads)
        return answer(query, stores, now_ms)


def call_row(call: CallRun) -> pa.RecordBatch:
    """A call of a query's callback as a row for the sink."""
    added = (call.call, call.kind, call.clock_ms, call.time_ms)
    columns = [*(pa.array(column) for column in added), *call.rows.columns]
    names = [*_CALL_COLUMNS, *call.rows.schema.names]
    return _row(CALLS + call.query, ipc_stream(pa.RecordBatch.from_arrays(columns, names)))


def call_run(stream: str, rows: pa.RecordBatch) -> CallRun:
    """Decode a row of ``call_row``."""
    width = len(_CALL_COLUMNS)
    call, kind, clock_ms, time_ms = (c.to_numpy() for c in rows.columns[:width])
    names = rows.schema.names[width:]
    batch = pa.RecordBatch.from_arrays(rows.columns[width:], names)
    return CallRun(stream.removeprefix(CALLS), call, kind, clock_ms, time_ms, batch)


def _row(stream: str, data: bytes) -> pa.RecordBatch:
    row = dict.fromkeys(SINK_FIELDS.names) | {"stream": stream, "data": data}
    return pa.RecordBatch.from_pylist([row], SINK_FIELDS)
