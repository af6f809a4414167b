"""The sink in a real Spark: batch and streaming writes, typed rows, replays."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
        ("ev.x", "id", 'column "span" is of type duration'),
        ("", "span", 'neither a column nor an option "subject" says'),
    ):
        with pytest.raises(PySparkException, match=complaint):
            writer = rows.drop(drop).write.format("nats").mode("append")
            writer.options(**given, subject=subject).save()
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
        # The second one knows nothing of the first, and cuts elsewhere: the source's columns tell.
        query = start(source.where("id % 5 != 0"), "nats", checkpoint, **given)
        query.processAllAvailable()
        query.stop()
        source = source.hint("none") if False else source
    found = [
        json.loads(data) for site in range(3) for data in broker.payloads("OUT", f"out.s{site}")
    ]
    assert sorted(event["id"] for event in found) == [n for n in range(500) if n % 5]
    assert set(found[0]) == {"id", "site"}
