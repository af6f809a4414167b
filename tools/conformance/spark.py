"""Runs cases through Spark: streaming queries of the workers' code, without the broker.

Each step of a case is a micro-batch: a source of prepared rows replaces the log, and a table in
memory replaces the sink.  An app with state runs in the host of stateful groups as one group: a
query for many cases, each with its own state on disk.  An app without state is the DataFrame that
a dedicated query makes of it.  Where a case stores its state, restores it or restarts, the query
ends, its snapshot is passed unchanged to other workers, and another query starts from it.
``halved`` does the same after half of the steps.

An on-demand query is a step of its own, and an app with one runs in the host: it is answered from
the state that the step stores.  Callbacks of a dedicated query are seen by ``spark_host``.

The file is longer than 400 lines because both kinds of queries share the steps of a case.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import orjson
import pyarrow as pa

from mesh.errors import MeshError
from mesh.files import scratch
from mesh.language.parser import parse_app
from mesh.language.syntax import Annotation, find
from mesh.model import names
from mesh.model.app import Channel, Format, GroupInput, GroupSpec, Strategy
from mesh.model.cluster import Assignment
from mesh.model.values import JsonMapping, JsonObject
from mesh.operators.executor import OutputRun
from mesh.plan.build import plan
from mesh.processes import java
from mesh.settings import SparkSettings
from mesh.spark import session as spark_session
from mesh.spark.dedicated_query.query import stateless_rows
from mesh.spark.instance_io import (
    POSITIONS_PER_MESSAGE,
    SINK_SCHEMA,
    InputPosition,
    InstanceIO,
    LocalState,
    Manifest,
    js_stream_of,
    typed_schema,
)
from mesh.spark.routes import routes
from mesh.spark.sink_rows import POSITION_COLUMN, TIME_COLUMN
from mesh.testing.conformance import direct
from mesh.testing.conformance.cases import TimeMode
from pyspark_nats.source.rows import MARKED_DDL
from tools.conformance import spark_rows
from tools.conformance.script import (
    AskCall,
    Leg,
    Recording,
    Replaying,
    StepCall,
    StepResult,
    legs,
)
from tools.conformance.spark_host import (
    ANSWER,
    CALLS,
    ERROR,
    REFUSAL,
    CallsTask,
    CasesTask,
    CaseTask,
    call_run,
    queries_in,
)
from tools.conformance.spark_rows import marked_rows, typed_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from mesh.model.types import StreamSchema
    from mesh.plan.bound import BoundApp
    from mesh.testing.conformance.cases import ConformanceCase

#: Cases that share a query.
_CASES_MAX = 200
_TIMEOUT_S = 300.0


@contextmanager
def session(jobs: int) -> Iterator[SparkSession]:
    """A worker's session on ``jobs`` cores, and its end."""
    with scratch.directory("cases") as directory:
        before = dict(os.environ)
        os.environ["JAVA_HOME"] = str(java.java_home())
        settings = SparkSettings(master=f"local[{jobs}]")
        spark = spark_session.start(settings, "conformance", directory)
        try:
            yield spark
        finally:
            spark_session.stop(spark)
            os.environ.clear()
            os.environ.update(before)


@dataclass(slots=True)
class _RunningCase:
    """A case being run: its script, and the output so far."""

    #: The beginning of its answer.
    head: JsonObject
    case: ConformanceCase
    app: BoundApp
    group: GroupSpec
    legs: list[Leg]
    streams: tuple[str, ...]
    queries: tuple[str, ...]
    results: dict[int, StepResult] = field(default_factory=dict)
    #: By leg, the snapshot at its end.
    snapshots: list[_Snapshot] = field(default_factory=list)
    error: str | None = None

    @property
    def is_log(self) -> bool:
        """Whether a log of one stream, with the broker's times, expresses all steps."""
        steps = [one for leg in self.legs for _, one in leg.steps]
        sent = [one for one in steps if isinstance(one, StepCall)]
        in_time = all(one.time_ms is None or (one.time_ms == one.now_ms).all() for one in sent)
        inside = [query for part in self.app.partitions for query in part.queries]
        read = {name for query in (*self.app.queries, *inside) for name in query.input_streams}
        is_one = len(self.case.fed) == 1 and self.case.fed[0] in read
        return is_one and in_time and self.case.mode is TimeMode.VIRTUAL


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """A snapshot as workers share it; without a manifest there was no state yet."""

    position: InputPosition
    manifest: bytes | None = None
    pieces: Mapping[str, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, local: LocalState, position: InputPosition) -> _Snapshot:
        """The snapshot after the last batch."""
        manifest = local.manifest(position)
        if manifest is None:
            raise RuntimeError(f"no state at {position}")
        pieces = {name: local.piece_path(name).read_bytes() for name in manifest.pieces}
        return cls(position, manifest.to_bytes(), pieces)

    def restore(self, local: LocalState) -> None:
        """Store it in the place where the first batch finds it."""
        if self.manifest is not None:
            local.directory.mkdir(parents=True)
            for name, data in self.pieces.items():
                local.piece_path(name).write_bytes(data)
            local.put_manifest(Manifest.from_bytes(self.manifest))


def answer_all(
    cases: Sequence[JsonMapping],
    jobs: int = 1,
    *,
    halved: bool = False,
    unchecked: bool = False,
) -> list[JsonObject]:
    """The answers to ``cases``, in order; never raises for a case's errors."""
    return answer_each([(line, halved) for line in cases], jobs, unchecked=unchecked)


def answer_each(
    cases: Sequence[tuple[JsonMapping, bool]], jobs: int = 1, *, unchecked: bool = False
) -> list[JsonObject]:
    """The same with ``halved`` beside each case."""
    prepared = [
        _prepared(line, number, halved=halved, unchecked=unchecked)
        for number, (line, halved) in enumerate(cases)
    ]
    running = {n: one for n, one in enumerate(prepared) if isinstance(one, _RunningCase)}
    with session(jobs) as spark:
        with_state = [n for n, one in running.items() if one.group.stateful]
        for first in range(0, len(with_state), _CASES_MAX):
            chosen = with_state[first : first + _CASES_MAX]
            _run_hosted(spark, {n: running[n] for n in chosen}, jobs)
        for one in running.values():
            if not one.group.stateful:
                _run_stateless(spark, one)
    return [_answer(one) if isinstance(one, _RunningCase) else one for one in prepared]


# Before and after


def _prepared(
    line: JsonMapping, number: int, *, halved: bool, unchecked: bool
) -> _RunningCase | JsonObject:
    """A case with its script; or the answer, if it needs no Spark."""
    head, run = direct.play(line, Recording, unchecked=unchecked)
    if run is None or head["status"] != "ok":
        return head
    case, app, streams, queries = run.case, run.app, tuple(run.streams), tuple(run.queries)
    is_queried = any(isinstance(command, AskCall) for command in run.commands)
    group = _group(case, app, f"c{number}", streams, queries, is_queried)
    case_legs = legs(run.commands, halved=halved)
    return _RunningCase(head, case, app, group, case_legs, streams, queries)


def _group(
    case: ConformanceCase,
    app: BoundApp,
    name: str,
    watched: tuple[str, ...],
    callbacks: tuple[str, ...],
    is_queried: bool,
) -> GroupSpec:
    """The app as one group: the case's fed streams are inputs, the watched ones outputs.

    Without state, the targets of queries with ``callbacks`` are outputs as well, or nothing would
    run them.  With on-demand queries the group has state.
    """
    schemas = {stream.name: stream for stream in app.streams}
    # A group without an input has a clock nevertheless: that of a stream without events.
    fed = [stream for stream in case.fed if stream in schemas] or list(schemas)[:1]
    inputs = tuple(
        GroupInput(Channel(name, schemas[stream]), Strategy.ALL, records_errors=True)
        for stream in fed
    )
    outputs = tuple(
        Channel(name, schemas[stream], format=Format.ARROW)
        for stream in watched
        if stream in schemas
    )
    plain = GroupSpec(name, "default", 1, case.app, inputs, outputs, stateful=True)
    tree = parse_app(case.app)
    if find(tree.annotations, "app:name") is None:
        named = Annotation("App:name", ((None, name),))
        tree = replace(tree, annotations=(named, *tree.annotations))
    try:
        planned = plan(tree).spec.groups
    except MeshError:
        # A cluster refuses more than the operators do.
        return plain
    if len(planned) != 1 or planned[0].stateful or app.triggers or is_queried:
        return plain
    called = dict.fromkeys(q.target.name for q in app.queries if q.name in callbacks)
    more = tuple(
        Channel(name, schemas[stream], format=Format.ARROW)
        for stream in called
        if stream in schemas and stream not in watched
    )
    stateless = replace(plain, text=planned[0].text, outputs=outputs + more, stateful=False)
    # A query that no route has is run with the operators of a group with state.
    return stateless if queries_in(routes(_wiring(stateless))) >= set(callbacks) else plain


def _answer(one: _RunningCase) -> JsonObject:
    run = Replaying(one.case, one.app, one.results)
    try:
        run.all_steps()
    except Exception as error:  # One case's answer, not the end of the others.
        one.error = one.error or f"{type(error).__name__}: {error}"
    failed = {} if one.error is None else {"status": "error", "error": one.error}
    return one.head | failed | run.results()


def _wiring(group: GroupSpec) -> InstanceIO:
    assignment = Assignment(
        group.instances[0], group.app, group.name, 1, "cases", "", epoch=1, lease_revision=0
    )
    return InstanceIO(group, assignment)


def _collected(session: SparkSession, frame: DataFrame, directory: Path) -> list[JsonObject]:
    """The rows of a streaming query, once it has ended."""
    jvm = session._jvm
    assert jvm is not None, "the session has ended"
    # A source written in Python is looked up in the calling thread's active session.
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)
    name = f"cases_{next(_numbers)}"
    query = (
        frame.writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
    try:
        if not query.awaitTermination(_TIMEOUT_S):  # type: ignore[arg-type]
            raise TimeoutError(f"a query took over {_TIMEOUT_S:g} s")
        rows: list[JsonObject] = session.table(name).toArrow().to_pylist()
    finally:
        query.stop()
        session.catalog.dropTempView(name)
    return rows


_numbers = count()


# With state


def _run_hosted(session: SparkSession, cases: Mapping[int, _RunningCase], jobs: int) -> None:
    """Leg by leg: a query for the first legs of all, one for the second ones, and so on."""
    for number in range(max((len(one.legs) for one in cases.values()), default=0)):
        with scratch.directory("leg") as directory:
            at_work = {n: one for n, one in cases.items() if number < len(one.legs)}
            _run_leg(session, at_work, number, directory, jobs)


def _run_leg(
    session: SparkSession,
    cases: Mapping[int, _RunningCase],
    number: int,
    directory: Path,
    jobs: int,
) -> None:
    tasks: dict[int, CaseTask] = {}
    owners: dict[str, int] = {}
    turns: list[list[list[pa.RecordBatch]]] = []
    ends: dict[int, InputPosition] = {}
    for n, one in cases.items():
        io = _wiring(one.group)
        home = directory / str(n)
        inputs = io.input_streams(0)
        owners |= dict.fromkeys(inputs, n)
        leg = one.legs[number]
        start = _start(one, leg, tuple(inputs))
        start.restore(LocalState(home / "0"))
        restored = frozenset((0,) if start.manifest is not None else ())
        is_playback = one.case.mode is TimeMode.PLAYBACK
        ask_calls = {place: step for place, step in leg.steps if isinstance(step, AskCall)}
        tasks[n] = CaseTask(
            io, str(home), restored, one.queries, is_playback, one.is_log, ask_calls
        )
        position = start.position
        for turn, (place, step) in enumerate(leg.steps):
            rows, position = marked_rows(inputs, position, place, step)
            while len(turns) <= turn:
                turns.append([[] for _ in range(jobs)])
            turns[turn][n % jobs].append(rows)
        ends[n] = position
    for turn, parts in enumerate(turns):
        for part, batches in enumerate(parts):
            if batches:
                rows = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
                spark_rows.write(spark_rows.path_of(directory, turn, part), rows)
    reader = spark_rows.reader(session, directory, len(turns), jobs)
    frame = reader.schema(MARKED_DDL).load().mapInArrow(CasesTask(tasks, owners), SINK_SCHEMA)
    for row in _collected(session, frame, directory) if turns else ():
        owner, place = row["producer"].split("/")
        _take(cases[int(owner)], int(place), row)
    for n, one in cases.items():
        start = _start(one, one.legs[number], tuple(_wiring(one.group).input_streams(0)))
        is_done = bool(one.legs[number].steps) and one.error is None
        local = LocalState(directory / str(n) / "0")
        one.snapshots.append(_Snapshot.of(local, ends[n]) if is_done else start)


def _start(one: _RunningCase, leg: Leg, streams: tuple[str, ...]) -> _Snapshot:
    """The snapshot from which a leg starts."""
    if leg.origin is None:
        nothing = {stream: {"sequence": 0, "time_ms": 0} for stream in streams}
        return _Snapshot(InputPosition.of(nothing, streams))
    return one.snapshots[leg.origin]


def _take(one: _RunningCase, place: int, row: JsonMapping) -> None:
    """Record a row of the sink."""
    result = one.results.setdefault(place, StepResult())
    stream = row["stream"]
    if stream == ERROR:
        one.error = one.error or row["data"].decode()
        return
    if stream == names.error_js_stream(one.group.app):
        one.error = one.error or f"an event can't be read: {row['data'].decode()}"
        return
    if stream == REFUSAL:
        said = orjson.loads(row["data"])
        result.refusal = MeshError(said["code"], said["message"])
        return
    rows = _read(row["data"])
    if stream == ANSWER:
        result.answer = rows
    elif stream.startswith(CALLS):
        result.calls.append(call_run(stream, rows))
    else:
        result.outputs.append(_output(one, stream, rows))


def _read(data: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(data) as stored:
        batches = stored.read_all().combine_chunks().to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], stored.schema)


def _output(one: _RunningCase, js_stream: str, rows: pa.RecordBatch) -> OutputRun:
    channel = next(c for c in one.group.outputs if c.js_stream() == js_stream)
    position, time_ms = (rows.column(n).to_numpy() for n in (POSITION_COLUMN, TIME_COLUMN))
    stream_rows = rows.select(channel.stream.names).cast(channel.stream.arrow)
    return OutputRun(channel.stream.name, position, time_ms, stream_rows)


# Without state


def _run_stateless(session: SparkSession, one: _RunningCase) -> None:
    """A query for each leg; what is not sent to a stream has no effect."""
    io = _wiring(one.group)
    if not routes(io):
        return
    for leg in one.legs:
        steps = [(place, step) for place, step in leg.steps if isinstance(step, StepCall)]
        sent = [(place, chunk) for place, chunk in steps if chunk.stream is not None]
        if not sent:
            continue
        with scratch.directory("leg") as directory:
            try:
                rows = _stateless_rows(session, one, sent, io, directory)
            except Exception as error:  # One case's answer, not the end of the others.
                one.error = f"{type(error).__name__}: {error}"
                return
        _take_stateless(one, rows)


def _stateless_rows(
    session: SparkSession,
    one: _RunningCase,
    sent: Sequence[tuple[int, StepCall]],
    io: InstanceIO,
    directory: Path,
) -> list[JsonObject]:
    for group_input in one.group.inputs:
        schema = group_input.channel.stream
        home = directory / js_stream_of(group_input, 0)
        home.mkdir()
        for turn, (place, chunk) in enumerate(sent):
            if chunk.stream == schema.name:
                spark_rows.write(spark_rows.path_of(home, turn, 0), typed_rows(place, chunk))
    schemas = {js_stream_of(i, 0): i.channel.stream for i in one.group.inputs}
    read = partial(_typed, session, directory, len(sent), schemas)
    frame = stateless_rows(io, read, 1 << 20)
    for js_stream in schemas if one.queries else ():
        task = CallsTask(io, js_stream, frozenset(one.queries))
        frame = frame.unionAll(read(js_stream).mapInArrow(task, SINK_SCHEMA))
    return _collected(session, frame, directory)


def _typed(
    session: SparkSession,
    directory: Path,
    turns: int,
    schemas: Mapping[str, StreamSchema],
    js_stream: str,
) -> DataFrame:
    reader = spark_rows.reader(session, directory / js_stream, turns)
    frame: DataFrame = reader.schema(typed_schema(schemas[js_stream])).load()
    return frame


def _take_stateless(one: _RunningCase, rows: Sequence[JsonMapping]) -> None:
    """Record rows in the engine's order: one chunk passes through each query at once."""
    for row in rows:
        if row["stream"].startswith(CALLS):
            calls = one.results.setdefault(int(row["producer"]), StepResult()).calls
            calls.append(call_run(row["stream"], _read(row["data"])))
    for channel in one.group.outputs:
        if channel.stream.name not in one.streams:
            continue
        entries = []
        for row in rows:
            if row["stream"] != channel.js_stream():
                continue
            run = _output(one, row["stream"], _read(row["data"]))
            leg = int(row["producer"].rpartition("-")[2])
            for at, position in enumerate(run.position.tolist()):
                place, index = divmod(position, POSITIONS_PER_MESSAGE)
                entries.append((place, leg, index, run, at))
        entries.sort(key=lambda one: one[:3])
        for number, (place, _, _, run, at) in enumerate(entries):
            position = np.array([number], dtype=np.int64)
            chosen = OutputRun(
                run.stream, position, run.time_ms[at : at + 1], run.rows.slice(at, 1)
            )
            one.results.setdefault(place, StepResult()).outputs.append(chosen)
