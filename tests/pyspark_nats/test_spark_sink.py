"""The sink in a real Spark: batch and streaming writes, typed rows, replays."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from pyspark_nats import tuning

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.nats, pytest.mark.slow]


def test_typed_rows_are_written_and_read_back(spark: SparkSession, broker: Any) -> None:
    broker.create("S", "ev.>")
    rows = spark.range(2500).selectExpr(
        "id", "concat('d', id % 3) AS device", "id / 2 AS value", "id % 2 = 0 AS even"
    )
    given = dict(broker.given, stream="S", subject="ev.{device}")
    for form, rows_per_message in (("json", 1), ("json", 100), ("msgpack", 10), ("arrow", 1000)):
        broker.call("STREAM.PURGE.S")
        (
            rows.repartition(2).write.format("nats").mode("append")
            .options(**given, format=form, rowsPerMessage=str(rows_per_message))
            .save()
        )  # fmt: skip
        read = (
            spark.read.format("nats").options(**broker.given, stream="S", format="auto")
            .option("subject", "ev.>").schema(rows.schema).load()
        )  # fmt: skip
        assert sorted(read.collect()) == sorted(rows.collect()), form
        # Markers of a write are taken away.
        assert (
            broker.call("STREAM.INFO.S", subjects_filter="mesh.>")["state"].get("subjects") is None
        )


def test_wrong_columns_are_named_when_the_write_starts(spark: SparkSession, broker: Any) -> None:
    broker.create("S", "ev.>")
    rows = spark.range(3).selectExpr("id", "'a' AS device", "INTERVAL '1' DAY AS span")
    given = dict(broker.given, stream="S", format="json")
    for subject, drop, complaint in (
        ("ev.{devise}", "span", 'column "devise" of the subject "ev.{devise}" is missing'),
        ("ev.x", "id", 'column "span" is of type interval day'),
        ("", "span", 'neither a column nor an option "subject" says'),
    ):
        writer = rows.drop(drop).write.format("nats").mode("append")
        writer.options(**given, subject=subject)
        with pytest.raises(PySparkException, match=complaint):
            writer.save()
    with pytest.raises(PySparkException, match="only appends, and was asked to overwrite"):
        rows.drop("span").write.format("nats").mode("overwrite").options(
            **given, subject="ev.x"
        ).save()
    assert broker.info("S").last == 0


def test_a_stream_of_typed_rows_passes_through_once(
    spark: SparkSession, broker: Any, start: Any
) -> None:
    broker.create("IN")
    broker.create("OUT", "out.>")
    broker.publish("ev.IN", *[json.dumps({"id": n, "site": f"s{n % 3}"}) for n in range(500)])
    source = (
        spark.readStream.format("nats")
        .options(**broker.given, stream="IN", subject="ev.IN", format="json")
        .options(maxOffsetsPerTrigger="70", metadata="_stream,_sequence,_index")
        .option("schema", "id long, site string")
        .load()
    )
    given = dict(broker.given, stream="OUT", subject="out.{site}", format="json", producer="p")
    for checkpoint in ("one", "another"):
        # The second one shares nothing with the first: the source's columns show the stored rows.
        query = start(source.where("id % 5 != 0"), "nats", checkpoint, **given)
        query.processAllAvailable()
        query.stop()
    found = [
        json.loads(data) for site in range(3) for data in broker.payloads("OUT", f"out.s{site}")
    ]
    assert sorted(event["id"] for event in found) == [n for n in range(500) if n % 5]
    assert set(found[0]) == {"id", "site"}


def numbers(spark: SparkSession, broker: Any, limit: int, **given: str) -> DataFrame:
    """The numbers in IN, ``limit`` of them in a batch."""
    return (
        spark.readStream.format("nats")
        .options(**broker.given, stream="IN", subject="ev.IN", format="json", schema="id long")
        .options(maxOffsetsPerTrigger=str(limit), **given)
        .load()
    )


def pass_through(broker: Any, start: Any, rows: DataFrame, **given: str) -> None:
    """Write the present rows to OUT."""
    sink = dict(broker.given, stream="OUT", subject="out.all", format="json")
    query = start(rows, "nats", **sink, **given)
    try:
        query.processAllAvailable()
    finally:
        query.stop()


@pytest.mark.thorough
def test_rows_with_positions_pass_through_once_when_progress_is_tracked_asynchronously(
    spark: SparkSession, broker: Any, start: Any, tmp_path: Path
) -> None:
    broker.create("IN")
    broker.create("OUT", "out.>")
    broker.publish("ev.IN", *[f'{{"id":{n}}}' for n in range(500)])

    def run(limit: int) -> None:
        source = numbers(spark, broker, limit, metadata="_stream,_sequence")
        pass_through(broker, start, source, **tuning.asynchronous_progress(interval_s=3600))

    run(70)
    # The log of the first batch alone: a restart reads the others again, in other cuts.
    assert [p.name for p in (tmp_path / "checkpoint" / "offsets").glob("[0-9]*")] == ["0"]
    run(150)
    out = [json.loads(data)["id"] for data in broker.payloads("OUT", "out.all")]
    assert out == list(range(500))


@pytest.mark.thorough
def test_an_older_checkpoint_skips_the_same_batches_and_refuses_others(
    spark: SparkSession, broker: Any, start: Any, tmp_path: Path
) -> None:
    broker.create("IN")
    broker.create("OUT", "out.>")
    broker.publish("ev.IN", *[f'{{"id":{n}}}' for n in range(300)])

    def run(limit: int) -> None:
        pass_through(broker, start, numbers(spark, broker, limit))

    run(100)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "old")
    broker.publish("ev.IN", *[f'{{"id":{n}}}' for n in range(300, 600)])
    run(100)
    expected = [f'{{"id":{n}}}'.encode() for n in range(600)]
    assert broker.payloads("OUT", "out.all") == expected

    def restore() -> None:
        shutil.rmtree(tmp_path / "checkpoint")
        shutil.copytree(tmp_path / "old", tmp_path / "checkpoint")

    restore()
    run(100)
    assert broker.payloads("OUT", "out.all") == expected
    restore()
    with pytest.raises(PySparkException, match="PYSPARK-NATS-DIVERGED"):
        run(150)
    assert broker.payloads("OUT", "out.all") == expected


@pytest.mark.thorough
def test_a_batch_that_failed_half_way_is_completed_and_a_stale_writer_is_refused(
    spark: SparkSession, broker: Any, start: Any
) -> None:
    broker.create("IN")
    broker.create("OUT", "out.>")
    broker.publish("ev.IN", *[f'{{"id":{n}}}' for n in range(3000)])
    source = (
        spark.readStream.format("nats")
        .options(**broker.given, stream="IN", subject="ev.IN", format="json")
        .option("schema", "id long").load()
    )  # fmt: skip
    given = dict(broker.given, stream="OUT", subject="out.all", format="json", producer="p")
    failing = source.selectExpr("IF(id = 2500, CAST(raise_error('stop') AS LONG), id) AS id")
    query = start(failing, "nats", epoch="1", **given)
    with pytest.raises(PySparkException, match="stop"):
        query.processAllAvailable()
    query = start(source, "nats", epoch="2", **given)
    query.processAllAvailable()
    query.stop()
    expected = [f'{{"id":{n}}}'.encode() for n in range(3000)]
    assert broker.payloads("OUT", "out.all") == expected
    broker.publish("ev.IN", '{"id":3000}')
    query = start(source, "nats", epoch="1", **given)
    with pytest.raises(PySparkException, match="PYSPARK-NATS-FENCED"):
        query.processAllAvailable()
    assert broker.payloads("OUT", "out.all") == expected
