"""Runs a case on the operators themselves: no Spark, no broker, no waiting.

Tables and aggregations in a store are written to it after each step.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

from mesh.errors import MeshError
from mesh.functions.objects import from_binary
from mesh.language.parser import parse_app, parse_on_demand_query
from mesh.model.types import Attribute, AttributeType
from mesh.model.values import JsonMapping, JsonObject
from mesh.operators.base import EXPIRED, RESET, State
from mesh.operators.executor import CallRun, Executor, OutputRun
from mesh.operators.failures import FAILED
from mesh.plan.bind import bind, bind_on_demand
from mesh.plan.outside_calls import as_planned
from mesh.plan.supported import check_supported
from mesh.spark.store_output import StoreOutput
from mesh.testing.conformance import answers
from mesh.testing.conformance.cases import (
    CaseClock,
    CaseError,
    ConformanceCase,
    TimeMode,
    batch,
    case,
    sent,
)
from mesh.testing.conformance.stored_answers import answer_with_rows
from pyspark_nats.arrow import ipc_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mesh.plan.bound import BoundApp, BoundOnDemandQuery, BoundOutput

R = TypeVar("R", bound="DirectRun")


def answer(line: JsonMapping, *, unchecked: bool = False) -> JsonObject:
    """Run a case on the operators and return the answer; never raises.

    An app with parts that don't run yet has the status ``error``, and the error names them;
    ``unchecked`` runs it nevertheless, as far as possible.
    """
    result, run = play(line, DirectRun, unchecked=unchecked)
    if run is not None:
        run.close()
        result |= run.results()
    return result


def play(
    line: JsonMapping, kind: Callable[[ConformanceCase, BoundApp], R], *, unchecked: bool
) -> tuple[JsonObject, R | None]:
    """Play a case; the beginning of its answer, and the run unless the case or app is refused."""
    try:
        test_case = case(line)
    except (CaseError, KeyError, TypeError, ValueError) as error:
        return {"name": line.get("name"), "status": "bad_case", "error": str(error)}, None
    result: JsonObject = {"name": test_case.name, "status": "ok", "mode": test_case.mode.value}
    result["t0"] = test_case.start_ms
    run = None
    try:
        try:
            app = bind(as_planned(parse_app(test_case.app)))
        except MeshError as error:
            refusal = {"creation_error": answers.refusal(error), "streams": {}, "queries": {}}
            return result | {"status": "creation_error"} | refusal, None
        if not unchecked:
            check_supported(app)
        run = kind(test_case, app)
        run.all_steps()
    except Exception as error:  # An error of ours is one case's answer, not the end of the others.
        result |= {"status": "error", "error": answers.reason(error)}
    return result, run


@dataclass(slots=True)
class DirectRun:
    """The run of one case; ``streams``, ``queries``, ``ondemand`` and ``errors`` grow."""

    case: ConformanceCase
    app: BoundApp
    now_ms: int = 0
    streams: dict[str, list[JsonObject]] = field(default_factory=dict)
    queries: dict[str, list[JsonObject]] = field(default_factory=dict)
    errors: list[JsonObject] = field(default_factory=list)
    ondemand: list[JsonObject] = field(default_factory=list)
    _executor: Executor = field(init=False)
    _output: StoreOutput | None = field(init=False, default=None)
    #: By query, the attributes of its callback's events.
    _targets: dict[str, tuple[Attribute, ...]] = field(default_factory=dict)
    _snapshots: dict[str, State] = field(default_factory=dict)
    _step: int = -1
    _count: int = 0
    #: Of playback: the highest time of an event so far.
    _latest_ms: int | None = None

    def all_steps(self) -> None:
        """Do the steps, in order."""
        self.now_ms = self.case.start_ms
        watched = self.case.outputs
        if watched is None:
            names = sorted(stream.name for stream in self.app.streams)
            watched = tuple(name for name in names if name not in self.case.fed)
        self.streams = {name: [] for name in watched}
        inside = [query for part in self.app.partitions for query in part.queries]
        targets = {query.name: query.outputs for query in (*self.app.queries, *inside)}
        self._targets = {
            name: tuple(Attribute(o.name, _type(o)) for o in outputs)
            for name, outputs in targets.items()
        }
        query_names = self.case.queries
        if query_names is None:
            # The engine has no callbacks for queries inside of partitions.
            names = [query.name for query in self.app.queries]
            query_names = tuple(name for name in names if self.case.names_in_text(name))
        self.queries = {name: [] for name in query_names}
        self._create()
        for number, step in enumerate(self.case.inputs):
            self._step = number
            try:
                self._one(step)
            except CaseError as error:
                self._error(type(error).__name__, str(error))

    def _create(self) -> None:
        """A new executor, at the clock's time."""
        playback = self.case.mode is TimeMode.PLAYBACK
        self._executor = Executor(
            self.app,
            list(self.streams),
            list(self.queries),
            playback=playback,
            salt=self.case.name,
        )
        self.close()
        self._output = StoreOutput.of(self._executor, 1)
        if self.case.mode is TimeMode.VIRTUAL:
            self._pass(self.now_ms)

    def _one(self, step: JsonMapping) -> None:
        clock = CaseClock(self.case.start_ms, self.now_ms)
        match step:
            case {"stream": str(stream)}:
                self._send(stream, step, clock)
                if "tick_ms" in step:
                    self._pass(self._event_now() + step["tick_ms"])
            case {"sleep_ms": ms} | {"advance_ms": ms}:
                self._pass(self._event_now() + ms)
            case {"advance_to": time}:
                self._pass(clock.time(time) or 0)
            case {"align_ms": ms}:
                now_ms = self._event_now()
                self._pass(now_ms + -self.now_ms % ms)
            case {"wait_events": count, "max_ms": max_ms}:
                self._wait(count, max_ms, max(1, step.get("poll_ms", 100)), step.get("of"))
            case {"query": str(text)}:
                self._ask(text)
            case {"snapshot": name}:
                self._snapshots[name] = _through_text(self._executor.snapshot())
            case {"restore": name}:
                self._executor.restore(self._snapshots[name])
            case {"restart": name}:
                self._create()
                if name is not None:
                    self._executor.restore(self._snapshots[name])
            case _:
                raise CaseError(f"a step that is not done here: {', '.join(step)}")

    def _ask(self, text: str) -> None:
        """Record the answer to an on-demand query."""
        record: JsonObject = {"step": self._step, "query": text}
        self.ondemand.append(record)
        try:
            query = bind_on_demand(parse_on_demand_query(text), self.app)
            if self._output is not None:
                self._output.prepare()
            rows = self._rows_of(query)
        except MeshError as error:
            record["error"] = {"type": error.code, "message": str(error)}
            return
        if self._output is not None:
            # A change is written before the next query reads the database.
            self._output.take(self._executor.take_written())
            self._output.commit()
        attributes = tuple(Attribute(o.name, _type(o)) for o in query.outputs)
        record["result"] = [answers.event(-1, row, attributes) for row in plain_rows(rows)]

    def _rows_of(self, query: BoundOnDemandQuery) -> pa.RecordBatch:
        is_stored = any(cells.schema.name in query.reads for cells in self.app.aggregations)
        if self._output is not None and is_stored:
            return answer_with_rows(self.app, self._executor, query, self._event_now())
        return self._executor.ask(query, self._event_now())

    def _send(self, stream: str, step: JsonMapping, clock: CaseClock) -> None:
        schema = next((s for s in self.app.streams if s.name == stream), None)
        if schema is None:
            self._error("DefinitionNotExistException", f"no stream {stream}")
            return
        events = sent(step, clock)
        if not events:
            return
        now_ms = self._event_now()
        times = np.array([now_ms if t is None else t for t, _ in events], dtype=np.int64)
        rows = batch(schema, [row for _, row in events], clock)
        if self.case.mode is TimeMode.PLAYBACK:
            # An array that is sent moves time to that of its last event.
            last_ms = int(times[-1])
            latest_ms = last_ms if self._latest_ms is None else self._latest_ms
            self._latest_ms = max(last_ms, latest_ms)
            self.now_ms = max(self.now_ms, self._latest_ms)
        self._do(lambda: self._executor.step(self._event_now(), stream, times, rows))

    def _event_now(self) -> int:
        if self.case.mode is TimeMode.PLAYBACK and self._latest_ms is not None:
            return self._latest_ms
        return self.now_ms

    def _pass(self, time_ms: int) -> None:
        if self.case.mode is TimeMode.PLAYBACK:
            self._latest_ms = max(time_ms, self._latest_ms or time_ms)
        self.now_ms = max(self.now_ms, time_ms)
        self._do(lambda: self._executor.step(self._event_now()))

    def _do(self, step: Callable[[], list[OutputRun]]) -> None:
        """Do a step, record its output, and write the rows for databases."""
        if self._output is None:
            self._take(step())
            return
        self._output.prepare()
        self._take([run for run in self._output.take(step()) if run.stream != FAILED])
        self._output.commit()

    def results(self) -> JsonObject:
        """The members of the answer that the steps have filled."""
        members = {"streams": self.streams, "queries": self.queries}
        lists = {"errors": self.errors, "ondemand": self.ondemand}
        return members | {name: entries for name, entries in lists.items() if entries}

    def close(self) -> None:
        """Close the connections to databases."""
        if self._output is not None:
            self._output.close()
            self._output = None

    def _wait(self, count: int, max_ms: int, poll_ms: int, side: str | None) -> None:
        waited_ms = 0
        while self._seen(side) < count and waited_ms <= max_ms:
            self._pass(self._event_now() + poll_ms)
            waited_ms += poll_ms

    def _seen(self, side: str | None) -> int:
        calls = self.queries.values()
        if side == "remove":
            return sum(len(c["remove"] or ()) for q in calls for c in q)
        counts = [len(events) for events in self.streams.values()]
        counts += [sum(len(c["in"] or ()) for c in q) for q in calls]
        return max(counts, default=0)

    def _take(self, runs: Sequence[OutputRun]) -> None:
        """Record the output of a step."""
        entries = []
        for run in runs:
            attributes = self.app.stream(run.stream).attributes
            places, times = run.position.tolist(), run.time_ms.tolist()
            for place, time_ms, values in zip(places, times, plain_rows(run.rows), strict=True):
                entries.append((place, run.stream, answers.event(time_ms, values, attributes)))
        for _, name, event in sorted(entries, key=lambda one: one[0]):
            self._count += 1
            self.streams[name].append(event | {"seq": self._count, "step": self._step})
        for call in self._executor.take_calls():
            self._call(call)

    def _call(self, call_run: CallRun) -> None:
        attributes = self._targets[call_run.query]
        rows = plain_rows(call_run.rows)
        numbers = call_run.call.tolist()
        for number in dict.fromkeys(numbers):
            places = [place for place, other in enumerate(numbers) if other == number]
            sides: dict[bool, list[JsonObject]] = {False: [], True: []}
            for place in places:
                if int(call_run.kind[place]) == RESET:
                    # The engine calls back with nothing when that is all there is.
                    continue
                expired = int(call_run.kind[place]) == EXPIRED
                time_ms = int(call_run.time_ms[place])
                event = answers.event(time_ms, rows[place], attributes, expired=expired)
                sides[expired].append(event)
            self._count += 1
            call = {
                "ts": int(call_run.time_ms[places[-1]]),
                "in": sides[False] or None,
                "remove": sides[True] or None,
                "seq": self._count,
                "step": self._step,
            }
            self.queries[call_run.query].append(call)

    def _error(self, kind: str, message: str) -> None:
        where = f"step {self._step}"
        self.errors.append({"type": kind, "message": message, "where": where, "step": self._step})


def _type(output: BoundOutput) -> AttributeType:
    # A constant null has no type, and its value is null.
    return output.expression.type or AttributeType.OBJECT


def plain_rows(rows: pa.RecordBatch) -> list[list[object]]:
    """The rows of a record batch, each as a list; objects unchanged."""
    columns = [
        list(from_binary(column)) if pa.types.is_binary(column.type) else column.to_pylist()
        for column in rows.columns
    ]
    return [list(row) for row in zip(*columns, strict=True)] or [[] for _ in range(rows.num_rows)]


def _through_text(state: State) -> State:
    """The state after a round trip through its stored form."""
    pieces = {}
    for name, piece in state.pieces.items():
        with pa.ipc.open_stream(ipc_stream(piece)) as reader:
            table = reader.read_all().combine_chunks()
            batches = table.to_batches()
            pieces[name] = batches[0] if batches else pa.RecordBatch.from_pylist([], piece.schema)
    return State(pieces, json.loads(json.dumps(dict(state.scalars))))
