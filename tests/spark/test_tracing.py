"""Traces through queries of their own: links to messages, the header of rows, and none without."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from mesh.jetstream.channels import js_streams
from mesh.model.cluster import Assignment
from mesh.plan.build import plan
from mesh.processes import java
from mesh.settings import SparkSettings
from mesh.spark import session as spark_session
from mesh.spark.dedicated_query import query
from mesh.spark.instance_io import SINK_SCHEMA, InstanceIO
from mesh.telemetry import traces
from pyspark_nats.protocol import frames
from pyspark_nats.source.ranges import StreamRange
from pyspark_nats.source.rows import (
    HEADERS,
    MARKED,
    MESSAGE,
    RANGE_END,
    RANGE_START,
    marked_schema,
    range_markers,
)
from tests.spark.test_modes import Broker
from tests.support.collector import PARENT, TRACE, attributes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from tests.support.collector import Collector
    from tests.support.environment import Variables


#: A group without state, and one with.
APP: Final = """@App:name('Modes')
define stream S (n int);
@dist(execGroup='plain')
@info(name='each') from S select n * 2 as n insert into Each;
@dist(execGroup='sums')
@info(name='summed') from S select sum(n) as n insert into Sums;
"""
OTHER: Final = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"


def _ios() -> dict[str, InstanceIO]:
    spec = plan(APP).spec
    return {
        group.name: InstanceIO(
            group, Assignment(group.instances[0], spec.name, group.name, 1, "a1", "w", 1, 1)
        )
        for group in spec.groups
    }


class Echo:
    """A task that gives a row for each message that it gets."""

    def __init__(self) -> None:
        self.seen: list[list[str]] = []

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.seen.append(batch.schema.names)
            kinds = batch.column("kind").to_pylist()
            yield pa.RecordBatch.from_pydict({"data": [b"x"] * kinds.count(MESSAGE)})


def _marked(*parents: str | None) -> list[pa.RecordBatch]:
    """A batch of range markers and messages with these headers."""
    ranges = (StreamRange("S", 0, len(parents), 0, 0),)
    rows = [
        {"kind": 0, "stream": "S", "sequence": n, "headers": [("traceparent", [p])] if p else []}
        for n, p in enumerate(parents, 1)
    ]
    found = pa.RecordBatch.from_pylist(rows, marked_schema(True)) if rows else None
    edges = [range_markers(kind, ranges, include_headers=True) for kind in (RANGE_START, RANGE_END)]
    return [edges[0], *([found] if found else []), edges[1]]


def test_a_batch_is_a_span_with_links_and_its_rows_have_the_header(collector: Collector) -> None:
    echo = Echo()
    done, schema = query.traced(_ios()["sums"], echo, query.MARKED_COLUMN)
    made = list(done(_marked(PARENT, None, OTHER, PARENT, "no such thing")))
    assert echo.seen == [MARKED.names] * 3
    assert schema == f"{SINK_SCHEMA}, headers map<string,string>"
    traces.flush()
    (run,) = [s for s in collector.until(lambda s: len(s) == 2) if s.name == "process sums"]
    assert [link.trace_id.hex() for link in run.links] == [TRACE, "ab" * 16]
    assert (run.trace_id.hex(), run.parent_span_id.hex()) == (TRACE, "b7ad6b7169203331")
    assert attributes(run)["mesh.instance"] == "Modes-sums-1"
    assert 5 in [one.value.int_value for one in run.attributes]
    (publish,) = [s for s in collector.spans if s.parent_span_id == run.span_id]
    header = [("traceparent", f"00-{TRACE}-{publish.span_id.hex()}-01")]
    assert made[1].column("headers").to_pylist() == [header] * 5


def test_links_of_a_batch_are_bounded_and_a_batch_without_messages_is_no_span(
    collector: Collector,
) -> None:
    io = _ios()["sums"]

    def nothing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from (batch.slice(0, 0) for batch in batches)

    many = [f"00-{n + 1:032x}-{n + 1:016x}-01" for n in range(2 * traces.LINKS_MAX)]
    list(query.TracedTask(io, nothing, "headers")(_marked()))
    list(query.TracedTask(io, nothing, "headers")(_marked(*many)))
    traces.flush()
    (run,) = collector.until(bool)
    assert len(run.links) == traces.LINKS_MAX


def test_a_task_that_fails_is_a_failed_span(collector: Collector) -> None:
    def broken(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        list(query.TracedTask(_ios()["sums"], broken, "headers")(_marked(PARENT)))
    traces.flush()
    runs = collector.until(lambda spans: any(s.name == "process sums" for s in spans))
    assert [s.status.code for s in runs if s.name == "process sums"] == [2]


def test_without_traces_the_query_is_as_it_was(environment: Variables) -> None:
    environment.pop(traces.ENDPOINT_VARIABLE, None)
    echo = Echo()
    assert query.traced(_ios()["plain"], echo, query.TYPED_COLUMN) == (echo, SINK_SCHEMA)
    assert {**query.marked_options(), **query.typed_options()} == {}
    schema = StructType([])
    assert query.with_headers(schema) is schema


def test_headers_of_rows_that_have_none_are_null() -> None:
    rows = pa.RecordBatch.from_pydict({"data": [b"x", b"y"]})
    assert query.with_parent(rows, "").column("headers").to_pylist() == [None, None]
    none = pa.array([None, [], [("other", ["x"])], [("traceparent", [PARENT, "second"])]], HEADERS)
    assert [one for one in query.parents(none) if one] == [PARENT]


def span_of(collector: Collector, group: str) -> list[Any]:
    """The spans of a group's batches, once there is one."""
    name = f"process {group}"
    spans = collector.until(lambda found: any(one.name == name for one in found))
    return [one for one in spans if one.name == name]


@pytest.mark.extended
@pytest.mark.nats
@pytest.mark.spark
@pytest.mark.slow
def test_a_trace_goes_through_queries_of_spark(
    nats_server: NatsServer, tmp_path: Path, collector: Collector, environment: Variables
) -> None:
    broker = Broker(nats_server, plan(APP).spec)
    environment["JAVA_HOME"] = str(java.java_home())
    for name in ("SPARK_HOME", "TMPDIR", "SPARK_LAUNCHER_OPTS", "PYSPARK_PYTHON"):
        environment[name] = ""
    outputs = {"plain": "mesh-Modes-Each", "sums": "mesh-Modes-Sums"}
    assert set(outputs.values()) <= {name for name, _ in js_streams(plan(APP).spec)}
    header = frames.header_block({"traceparent": PARENT})
    frame = frames.publish("mesh.Modes.S", json.dumps({"n": 3}).encode(), header=header)
    broker.connection.send(frame)
    session = spark_session.start(SparkSettings(master="local[1]"), "traces", tmp_path / "spark")
    try:
        for group, output in outputs.items():
            io = _ios()[group]
            directory = tmp_path / group
            for partition in io.partitions:
                (directory / str(partition)).mkdir(parents=True)
            running, _, _ = query.start(
                session, io, directory, nats=broker.nats, batch_rows_max=1000, offsets=None,
                restored=frozenset(),
            )  # fmt: skip
            while not broker.events(output):
                assert not running.awaitTermination(0.1)  # type: ignore[arg-type]
            running.stop()
            (run,) = span_of(collector, group)
            assert [link.trace_id.hex() for link in run.links] == [TRACE]
            (publish,) = [s for s in collector.spans if s.parent_span_id == run.span_id]
            ((_, headers, _),) = broker.events(output)
            told = headers[traces.HEADER].strip()
            assert told == f"00-{TRACE}-{publish.span_id.hex()}-01"
    finally:
        spark_session.stop(session)
        broker.connection.close()
