"""The source in its raw form and the sink, in a real Spark."""

from __future__ import annotations

import json
import queue
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.nats, pytest.mark.slow]

#: A query's first batch on a busy machine, and then some; one that fails is not waited for.
DEADLINE_S = 120


def source(spark: SparkSession, broker: Any, **given: str) -> DataFrame:
    return spark.readStream.format("nats").options(**broker.given, **given).load()


def test_a_table_of_messages_has_their_subject_payload_headers_and_place(
    spark: SparkSession, broker: Any
) -> None:
    broker.create("S")
    broker.publish("ev.S", "one", X_Kind="a")
    broker.publish("ev.S", "two")
    rows = spark.read.format("nats").options(**broker.given, stream="S").load().collect()
    assert [(r.subject, bytes(r.data), r.headers, r.stream, r.sequence) for r in rows] == [
        ("ev.S", b"one", {"X-Kind": ["a"]}, "S", 1),
        ("ev.S", b"two", {}, "S", 2),
    ]


def wait_for_output(broker: Any, query: StreamingQuery, messages: int) -> None:
    """Wait until so many messages are out; the query must not fail."""

    def are_out() -> bool:
        assert query.isActive, query.exception()
        return len(broker.payloads("OUT", "ev.OUT")) >= messages

    broker.wait_until("OUT", are_out, f"{messages} messages", DEADLINE_S)


def test_a_stream_goes_through_to_another_one_exactly_once(
    spark: SparkSession, broker: Any, start: Callable[..., Any]
) -> None:
    broker.create("IN")
    broker.create("OUT")
    broker.publish("ev.IN", *[f"{i}" for i in range(2000)])
    df = source(spark, broker, stream="IN").select("data")
    query = start(df, "nats", **broker.given, stream="OUT", subject="ev.OUT")
    wait_for_output(broker, query, 2000)
    broker.publish("ev.IN", "more")
    wait_for_output(broker, query, 2001)
    query.stop()
    assert broker.payloads("OUT", "ev.OUT") == [*(b"%d" % i for i in range(2000)), b"more"]


@pytest.mark.thorough
def test_a_restarted_query_goes_on_where_it_was(
    spark: SparkSession, broker: Any, start: Callable[..., Any]
) -> None:
    broker.create("IN")
    broker.create("OUT")
    sink = {**broker.given, "stream": "OUT", "subject": "ev.OUT"}
    for part in range(2):
        broker.publish("ev.IN", *[f"{part}-{i}" for i in range(10)])
        query = start(source(spark, broker, stream="IN").select("data"), "nats", **sink)
        wait_for_output(broker, query, 10 * (part + 1))
        query.stop()
    assert len(broker.payloads("OUT", "ev.OUT")) == 20


def test_every_partition_gives_range_markers_around_its_messages(
    spark: SparkSession, broker: Any, start: Callable[..., Any]
) -> None:
    for name in ("A", "B", "C"):
        broker.create(name)
    broker.publish("ev.A", "a1", "a2", Mesh_Timestamp="77")
    broker.publish("ev.C", "c1", Content_Type="application/json")
    batches: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
    df = source(
        spark, broker, streams='[["A", "B"], ["C"]]', rangeMarkers="true",
        eventTimeHeader="Mesh-Timestamp", subject='{"A": "ev.A", "B": "ev.B"}',
    )  # fmt: skip

    def keep(batch: DataFrame, _: int) -> None:
        from pyspark.sql import functions

        batches.put(batch.withColumn("p", functions.spark_partition_id()).collect())

    query = df.writeStream.foreachBatch(keep).start()
    try:
        rows = batches.get(timeout=DEADLINE_S)
    finally:
        query.stop()
    first = [r for r in rows if r.p == 0]
    second = [r for r in rows if r.p == 1]
    assert [(r.kind, r.stream, r.sequence) for r in first] == [
        (1, "A", 0), (1, "B", 0), (0, "A", 1), (0, "A", 2), (2, "A", 2), (2, "B", 0),
    ]  # fmt: skip
    assert [(r.kind, r.stream, r.sequence) for r in second] == [
        (1, "C", 0),
        (0, "C", 1),
        (2, "C", 1),
    ]
    assert [r.event_time_ms for r in first] == [None, None, 77, 77, None, None]
    assert [r.content_type for r in second] == [None, "application/json", None]
    assert first[0].time_ms <= first[2].time_ms <= first[4].time_ms


def test_an_unknown_option_names_the_nearest(spark: SparkSession, broker: Any) -> None:
    with pytest.raises(PySparkException, match='Did you mean "startingOffsets"'):
        source(spark, broker, stream="A", startingOfsets="latest")


def test_missing_messages_fail_the_query_and_are_named(
    spark: SparkSession, broker: Any, tmp_path: Path
) -> None:
    broker.create("S")
    broker.publish("ev.S", *"abcdefgh")
    broker.call("STREAM.PURGE.S", seq=6)
    places = json.dumps({"S": {"sequence": 2, "time_ms": 0}})
    df = source(spark, broker, stream="S", startingOffsets=places)
    query = df.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    with pytest.raises(PySparkException, match="does not hold sequences 3 to 5"):
        query.awaitTermination(DEADLINE_S)


def test_a_table_is_cut_by_its_bounds_and_read_in_as_many_tasks_as_wanted(
    spark: SparkSession, broker: Any
) -> None:
    broker.create("S", "ev.>")
    for n in range(100):
        broker.publish(f"ev.{n % 4}", f"{n}")
    given = {**broker.given, "stream": "S", "startingOffsets": '{"S": 11}',
             "endingOffsets": '{"S": 91}', "subject": "ev.1,ev.3"}  # fmt: skip
    table = spark.read.format("nats").options(**given, minPartitions="7").load()
    assert table.rdd.getNumPartitions() == 7
    expected = [n + 1 for n in range(100) if n % 4 in (1, 3) and 11 <= n + 1 < 91]
    assert [r.sequence for r in table.collect()] == expected
    bare = spark.read.format("nats").options(**given, includeHeaders="false").load()
    assert bare.columns == ["subject", "data", "stream", "sequence", "timestamp"]
    by_subject = spark.read.format("nats").options(**given, parallelBy="subject").load()
    parts = by_subject.rdd.glom().collect()
    assert [{r.subject for r in part} for part in parts] == [{"ev.1"}, {"ev.3"}]
    assert sorted(r.sequence for part in parts for r in part) == expected


@pytest.mark.thorough
def test_filters_of_a_table_reach_the_server_where_the_session_allows_it(
    spark: SparkSession, broker: Any
) -> None:
    broker.create("S", "ev.>")
    for n in range(100):
        broker.publish(f"ev.{n % 4}", f"{n}")
    table = spark.read.format("nats").options(**broker.given, stream="S").load()
    moment = table.where("sequence = 60").first().timestamp  # type: ignore[union-attr]
    conditions = [
        "subject = 'ev.2' AND sequence > 10",
        "subject IN ('ev.1', 'ev.2') AND sequence <= 50",
        f"timestamp >= timestamp_micros({int(moment.timestamp() * 1_000_000)})",
        f"timestamp < timestamp_micros({int(moment.timestamp() * 1_000_000)}) AND sequence != 7",
        "stream = 'T'",
    ]
    plain = [[r.sequence for r in table.where(c).collect()] for c in conditions]
    assert [len(found) for found in plain] == [23, 25, 41, 58, 0]
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        again = spark.read.format("nats").options(**broker.given, stream="S").load()
        pushed = [again.where(c) for c in conditions]
        assert [[r.sequence for r in one.collect()] for one in pushed] == plain
        # Only matching rows were read: the range is a task's, and fifty sequences make five of ten.
        tasks = spark.read.format("nats").options(
            **broker.given, stream="S", maxRecordsPerPartition="10"
        )
        assert tasks.load().where("sequence > 90").rdd.getNumPartitions() == 1
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.thorough
@pytest.mark.parametrize("trigger", [{"availableNow": True}, {"once": True}])
def test_a_query_that_ends_has_read_what_was_there(
    spark: SparkSession, broker: Any, tmp_path: Path, trigger: dict[str, bool]
) -> None:
    broker.create("S")
    broker.publish("ev.S", *[f"{n}" for n in range(95)])
    seen: list[list[int]] = []
    df = source(spark, broker, stream="S", maxOffsetsPerTrigger="10")

    def run() -> Any:
        query = (
            df.writeStream.foreachBatch(
                lambda batch, _: seen.append([r.sequence for r in batch.collect()])
            )
            .trigger(**trigger)
            .option("checkpointLocation", str(tmp_path / "c"))
            .start()
        )
        assert query.awaitTermination(DEADLINE_S)
        return query

    query = run()
    assert [n for batch in seen for n in batch] == list(range(1, 96))
    assert len(seen) == (10 if "availableNow" in trigger else 1)
    progress = query.lastProgress["sources"][0]
    behind = json.loads(progress["latestOffset"])["S"]
    assert (behind["sequence"], behind["messages_behind"]) == (95, 0)
    broker.publish("ev.S", "more")
    run()
    assert seen[-1] == [96]


def test_progress_tells_what_is_behind_and_what_a_batch_fetched(
    spark: SparkSession, broker: Any, start: Callable[..., Any]
) -> None:
    broker.create("S")
    broker.publish("ev.S", *["x" * 100] * 50)
    query = start(source(spark, broker, stream="S", maxOffsetsPerTrigger="20"), "noop")
    query.processAllAvailable()
    reports = [
        json.loads(p["sources"][0]["latestOffset"])
        for p in query.recentProgress
        if p["numInputRows"]
    ]
    assert [r["S"]["messages_behind"] for r in reports] == [30, 10, 0]
    assert reports[0]["S"]["bytes_behind"] > 30 * 100
    # When a batch is planned, the tasks of the previous one have sent their reports.
    fetched = [r["_batch"] for r in reports[1:]]
    assert [one["messages"] for one in fetched] == [20, 20]
    assert all(one["bytes"] > 2000 and one["fetch_ms"] > 0 for one in fetched)
