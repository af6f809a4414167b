"""Groups without state give the same messages in the shared query and in a dedicated one."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pytest

from mesh.clock import SystemClock
from mesh.functions.objects import from_binary
from mesh.jetstream.channels import js_streams
from mesh.model import names
from mesh.model.cluster import Assignment
from mesh.plan.build import plan
from mesh.processes import java
from mesh.settings import SparkSettings
from mesh.spark import session as spark_session
from mesh.spark.dedicated_query import query
from mesh.spark.dedicated_query.observing import end_ms, take_counts
from mesh.spark.instance_io import METADATA, BatchLimits, InstanceIO, source_options, typed_schema
from mesh.spark.shared_query import members
from mesh.spark.shared_query.members import WORK, WorkItem
from mesh.spark.shared_query.task import run
from mesh.spark.stateless_task import input_tasks
from pyspark_nats.protocol import frames
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.protocol.connection import _local as connections
from pyspark_nats.protocol.connection_options import connection_options
from pyspark_nats.source import batches
from pyspark_nats.source.messages import Messages
from pyspark_nats.source.ranges import StreamRange
from pyspark_nats.source.source_options import source_options as parsed_options

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from mesh.model.app import AppSpec
    from tests.support.environment import Variables


#: Three groups: to a client's channel, to an internal channel, and by key.
APP: Final = """@App:name('Modes')
define stream S (k string, i int, l long, f float, d double, b bool);
define function part[python] return double {
    return 12 / data[0]
};
@dist(execGroup='one')
@info(name='every') from S select k, i, l, f, d, b insert into Every;
@dist(execGroup='one')
@info(name='sums') from S[d > 0 or d is null]
select k, i + 1 as n, l * 3 as l, f / 3 as f, d * 1e10 as d, not b as b, i % 3 == 0 as third
insert into Sums;
@dist(execGroup='one')
@info(name='called') from S[i is null or i < 100]
select str:upper(k) as u, part(i) as p, math:parseInt(k) as n, coalesce(d, 0.1) as c,
    ifThenElse(b, l, 5L) as q, maximum(i, 7) as m, UUID() as id
insert into Called;
@dist(execGroup='one')
@info(name='again') from Called[p > 1.0] select u, part(n) as p insert into Last;
@dist(execGroup='one')
@info(name='twice') from S select str:concat(k, k) as kk insert into Twice;
@dist(execGroup='sets')
@info(name='made') from S select k, createSet(k) as o, d insert into Made;
@dist(execGroup='unmade')
@info(name='sizes') from Made select k, sizeOfSet(o) as n, d insert into Sizes;
@dist(execGroup='keyed', parallel='2')
partition with (k of S) begin
  @info(name='counted') from S select k, count() as n insert into Counted;
end;
"""
NUMBERS: Final = (0.0, -0.0, 0.1, 1e10, 1e-7, 123456789.125, 1.7976931348623157e308, 5e-324, -2.5)
HEAD: Final = b'{"k":"5","i":1,"l":9223372036854775807,"f":16777216.0,"d":'


ERRORS: Final = names.error_js_stream("Modes")
#: Nobody connects there.
NATS: Final = {"servers": "nats://127.0.0.1:4222"}


def payloads() -> list[bytes]:
    """Messages of every kind, readable or not."""
    events: list[Any] = [
        {
            "k": str(n),
            "i": n,
            "l": n * 10**15,
            "f": d if abs(d) < 1e38 else 1e-5,
            "d": d,
            "b": n > 2,
        }
        for n, d in enumerate(NUMBERS)
    ]
    nothing = dict.fromkeys(events[0])
    text = {**events[1], "k": 'Ä "quoted" \\ \n\u2028'}
    limits = {**events[1], "i": -(2**31), "l": -(2**63), "f": 3.4028235e38}
    many = json.dumps([events[2], {"k": "x"}, {**events[3], "i": 0}, events[4]]).encode()
    whole = [json.dumps(event).encode() for event in (*events, nothing, text, limits)]
    return [*whole, HEAD + b'1e10,"b":true}', many, b"{nonsense", b"\xff\xfe", b"[]"]


def wirings(spec: AppSpec) -> dict[str, InstanceIO]:
    """By group, of those without state."""
    return {
        group.name: InstanceIO(
            group, Assignment(group.instances[0], spec.name, group.name, 1, "a1", "w", 1, 1)
        )
        for group in spec.groups
        if not group.stateful
    }


def typed_rows(io: InstanceIO, js_stream: str, directory: Path) -> pa.RecordBatch:
    """Rows as the source of the shared query decodes them; those of the other one are the same."""
    member = members.member(io, 1, directory, nats=NATS, starts={}, restored=frozenset())
    (part,) = (one for one in member.parts if one.key == js_stream)
    options = source_options(io, (js_stream,), NATS, BatchLimits(1000, query.BATCH_BYTES))
    schema = typed_schema(io.input_streams(0)[js_stream].channel.stream)
    assert batches.row_layout(parsed_options(options), schema) == part.form
    messages = _messages(js_stream, payloads())
    (batch,) = part.form.to_batches(messages)
    return batch


def _messages(stream: str, data: list[bytes]) -> Messages:
    """Messages as the source reads them; of three, two have a time of their own."""
    own = frames.header_block({names.EVENT_TIME_HEADER: "1570442400000"})
    sequence = np.arange(1, len(data) + 1)
    return Messages(
        stream,
        sequence,
        lambda: pa.array(data, pa.binary()),
        lambda: pa.array([own if n % 3 else b"" for n in range(len(data))], pa.binary()),
        lambda: pa.nulls(len(data), pa.string()),
        lambda: sequence * 1_000_000_000,
    )


def by_producer(made: Iterator[pa.RecordBatch]) -> dict[str, list[dict[str, Any]]]:
    """Rows for the sink, as the sink puts them together."""
    found: dict[str, list[dict[str, Any]]] = {}
    for batch in made:
        for row in batch.to_pylist():
            found.setdefault(f"{row['stream']} {row['producer']}", []).append(row)
    return found


def test_rows_for_the_sink_are_the_same_however_batches_are_cut(tmp_path: Path) -> None:
    io = wirings(plan(APP).spec)["one"]
    ((js_stream, task),) = input_tasks(io).items()
    rows = typed_rows(io, js_stream, tmp_path)
    assert {"_error", *METADATA} <= set(rows.schema.names)
    whole = by_producer(task([rows]))
    pieces = by_producer(task([rows.slice(n, 1) for n in range(rows.num_rows)]))
    assert pieces == whole
    for told in whole.values():
        positions = [row["position"] for row in told]
        assert positions == sorted(set(positions))


def test_numbers_and_errors_are_spelled_as_documented(tmp_path: Path) -> None:
    io = wirings(plan(APP).spec)["one"]
    ((js_stream, task),) = input_tasks(io).items()
    rows = typed_rows(io, js_stream, tmp_path)
    made = [row for told in by_producer(task([rows])).values() for row in told]
    every = [row["data"] for row in made if row["stream"] == "mesh-Modes-Every"]
    spelled = [data.partition(b'"d":')[2].partition(b",")[0] for data in every[: len(NUMBERS)]]
    assert spelled == [
        b"0.0", b"-0.0", b"0.1", b"1e+10", b"1e-7", b"123456789.125", b"1.7976931348623157e+308",
        b"5e-324", b"-2.5",
    ]  # fmt: skip
    assert HEAD + b'1e+10,"b":true}' in every
    assert b'{"k":null,"i":null,"l":null,"f":null,"d":null,"b":null}' in every
    entries = [json.loads(row["data"]) for row in made if row["stream"] == io.errors[0]]
    reasons = {entry["reason"]: entry for entry in entries}
    assert any("ZeroDivisionError" in reason for reason in reasons)
    assert any("is no whole number" in reason for reason in reasons)
    assert [e["data_base64"] for e in entries if "data_base64" in e] == ["//4="]
    assert all(
        {"stream", "sequence", "index", "time_ms", "group"} <= entry.keys() for entry in entries
    )


def test_a_batch_of_which_nothing_is_left_gives_nothing(tmp_path: Path) -> None:
    io = wirings(plan(APP).spec)["one"]
    ((js_stream, task),) = input_tasks(io).items()
    rows = typed_rows(io, js_stream, tmp_path)
    assert list(task([rows.slice(0, 0)])) == []


class Broker:
    """A server with the app's channels."""

    def __init__(self, server: NatsServer, spec: AppSpec) -> None:
        self.nats = {"servers": server.url}
        self.connection = Connection(connection_options(self.nats))
        self.streams = [name for name, _ in js_streams(spec)]
        for name, subject in js_streams(spec):
            subjects = [subject, f"{names.marker_subject(name)}.>"]
            self.ask(
                f"STREAM.CREATE.{name}", name=name, subjects=subjects, allow_direct=True,
                allow_atomic=True,
            )  # fmt: skip

    def ask(self, subject: str, **query: Any) -> dict[str, Any]:
        """A call of JetStream's API."""
        call = (f"$JS.API.{subject}", json.dumps(query).encode() if query else b"")
        answer = self.connection.retry_while_unavailable(
            subject, lambda: self.connection.requests([call])
        )[0]
        found: dict[str, Any] = json.loads(answer.data)
        return found

    def publish(self, subject: str, data: list[bytes]) -> None:
        """Store messages, every third one without a time of its own."""
        own = frames.header_block({names.EVENT_TIME_HEADER: "1570442400000"})
        replies = self.connection.reply_subjects(len(data))
        for n, (payload, reply) in enumerate(zip(data, replies, strict=True)):
            header = own if n % 3 else b""
            self.connection.send(frames.publish(subject, payload, reply=reply, header=header))
        self.connection.replies(replies)

    def last(self, stream: str) -> int:
        """The last sequence of a stream."""
        sequence: int = self.ask(f"STREAM.INFO.{stream}")["state"]["last_seq"]
        return sequence

    def events(self, stream: str, after: int = 0) -> list[tuple[str, dict[str, str], bytes]]:
        """Subject, headers and payload of what was published to a stream, without markers."""
        found = []
        for sequence in range(after + 1, self.last(stream) + 1):
            answer = self.ask(f"STREAM.MSG.GET.{stream}", seq=sequence)
            if "message" not in answer:
                continue
            message = answer["message"]
            if message["subject"].startswith(names.marker_subject(stream)):
                continue
            block = base64.b64decode(message.get("hdrs", "")).decode()
            lines = (line.split(":", 1) for line in block.splitlines()[1:] if line)
            # What a publish in batches adds says nothing of the event.
            headers = {k: v for k, v in lines if not k.startswith("Nats-Batch-")}
            found.append((message["subject"], headers, base64.b64decode(message.get("data", ""))))
        return found

    def run_shared(self, io: InstanceIO, directory: Path) -> None:
        """Run an instance's input as a task of the shared query does."""
        directory.mkdir()
        member = members.member(
            io, 1, directory / "run", nats=self.nats, starts={}, restored=frozenset()
        )
        (directory / "run").mkdir()
        for part in member.parts:
            for subject in part.subjects[part.key][:1]:
                whole = StreamRange(part.key, 0, self.last(part.key), 0, 0, subjects=(subject,))
                run(WorkItem(WORK, member, part, (whole,)))


@pytest.fixture
def broker(nats_server: NatsServer) -> Iterator[Broker]:
    made = Broker(nats_server, plan(APP).spec)
    yield made
    made.connection.close()
    for connection in getattr(connections, "connections", {}).values():
        connection.close()


def each_event_counts_once(sampled: list[Any], began_ms: int) -> None:
    """Latencies of queries are between the storing of events and the end of the batch.

    Args:
        sampled: for each query itself, what its tasks sample, and the number of its events.
        began_ms: before the first event was stored.
    """
    for started, samples, count in sampled:
        while not (any(found for _, _, found, _ in samples.value) and started.lastProgress):
            assert not started.awaitTermination(0.1)
        last = max(number for number, *_ in samples.value)
        while started.lastProgress["batchId"] < last:
            assert not started.awaitTermination(0.1)
        ended_ms = end_ms(started.lastProgress)
        counted, (counts, sum_s) = take_counts(samples, last, ended_ms)
        assert counted.events_in == count
        assert sum(counts) == count
        assert 0 < sum_s < count * (SystemClock().wall_ms() - began_ms) / 1000


@pytest.mark.extended
@pytest.mark.nats
@pytest.mark.spark
@pytest.mark.slow
def test_a_dedicated_query_publishes_what_the_shared_one_does(
    broker: Broker, tmp_path: Path, environment: Variables
) -> None:
    spec = plan(APP).spec
    of_group = wirings(spec)
    sampled: list[Any] = []
    began_ms = SystemClock().wall_ms()
    assert {"one", "sets", "unmade"} < of_group.keys()
    # Its output is too large for a message of one group.
    large = json.dumps({**dict.fromkeys("kilfdb"), "k": "x" * 600_000}).encode()
    broker.publish("mesh.Modes.S", [*payloads(), large])
    shared: dict[str, list[tuple[str, dict[str, str], bytes]]] = {}
    for name, io in of_group.items():
        broker.run_shared(io, tmp_path / name)
    inputs = {"mesh-Modes-S"}
    outputs = [stream for stream in broker.streams if stream not in inputs]
    for stream in outputs:
        shared[stream] = broker.events(stream)
    filled = {stream for stream, events in shared.items() if events}
    assert {f"mesh-Modes-{name}" for name in ("Every", "Sums", "Last", "Made", "Sizes")} < filled
    assert any(b"the event is a message of " in data for _, _, data in shared[ERRORS])
    # The markers go too, so that nothing is known of what was published.
    after = {stream: broker.last(stream) for stream in outputs}
    for stream in outputs:
        broker.ask(f"STREAM.PURGE.{stream}")

    environment["JAVA_HOME"] = str(java.java_home())
    # What ``start`` sets is restored with these.
    for name in ("SPARK_HOME", "TMPDIR", "SPARK_LAUNCHER_OPTS", "PYSPARK_PYTHON"):
        environment[name] = ""
    session = spark_session.start(SparkSettings(master="local[1]"), "modes", tmp_path / "spark")
    try:
        running = []
        for name, io in of_group.items():
            directory = tmp_path / f"{name}-dedicated"
            directory.mkdir()
            started, _, samples = query.start(
                session, io, directory, nats=broker.nats, batch_rows_max=1000, offsets=None,
                restored=frozenset(),
            )  # fmt: skip
            running.append(started)
            if name != "unmade":
                rows = typed_rows(io, "mesh-Modes-S", tmp_path).num_rows + len([large])
                sampled.append((started, samples, rows))
        for stream in filled:
            while len(broker.events(stream, after[stream])) < len(shared[stream]):
                assert not any(one.awaitTermination(0.1) for one in running)  # type: ignore[arg-type]
        each_event_counts_once(sampled, began_ms)
        for one in running:
            one.stop()
    finally:
        spark_session.stop(session)
    for stream in outputs:
        found = broker.events(stream, after[stream])
        # Groups record their errors in no order.
        key = repr if stream == ERRORS else lambda _: 0
        assert sorted(found, key=key) == sorted(shared[stream], key=key), stream


def test_objects_leave_and_enter_a_group_as_they_are(tmp_path: Path) -> None:
    io = wirings(plan(APP).spec)["sets"]
    ((js_stream, task),) = input_tasks(io).items()
    made = list(task([typed_rows(io, js_stream, tmp_path)]))
    (events,) = [b for b in made if b.column("stream")[0].as_py() == "mesh-Modes-Made"]
    with pa.ipc.open_stream(events.column("data")[0].as_py()) as stored:
        rows = stored.read_all().combine_chunks()
    first = from_binary(rows.column("o").combine_chunks())[0]
    assert list(first) == [rows.column("k")[0].as_py()]
