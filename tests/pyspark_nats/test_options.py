"""Options that come from elsewhere: Spark's catalog, its other sources, and odd values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from pyspark_nats.errors import OptionError
from pyspark_nats.options import nearest
from pyspark_nats.source.source_options import source_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GIVEN = {"servers": "nats://h", "stream": "S"}


def test_a_user_needs_a_password() -> None:
    with pytest.raises(OptionError, match='option "user" is given without "password"'):
        source_options({**GIVEN, "user": "x"})


def test_a_hint_lists_nothing_where_nothing_is() -> None:
    assert nearest("a", ()) == ""


@pytest.mark.spark
@pytest.mark.nats
@pytest.mark.slow
def test_a_catalog_table_is_refused(spark: SparkSession, broker: Any) -> None:
    broker.create("S")
    options = f"servers '{broker.url}', stream 'S', format 'json', schema 'id long'"
    with pytest.raises(PySparkException, match="CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE t USING nats OPTIONS ({options})")
    spark.sql(f"CREATE TABLE u (id long) USING nats OPTIONS ({options})")
    try:
        with pytest.raises(PySparkException, match="CREATE TEMPORARY VIEW"):
            spark.sql("SELECT * FROM u").collect()
    finally:
        spark.sql("DROP TABLE u")


@pytest.mark.spark
@pytest.mark.nats
@pytest.mark.slow
def test_a_start_after_the_end_names_the_option(spark: SparkSession, broker: Any) -> None:
    broker.create("S")
    broker.publish("ev.S", "{}")
    reader = spark.read.format("nats").options(**broker.given, stream="S")
    complaint = re.escape('option "startingOffsets" is after the end of stream "S"')
    with pytest.raises(PySparkException, match=complaint):
        reader.option("startingOffsets", '{"S": 100}').load().collect()
    # The next message.
    assert reader.option("startingOffsets", '{"S": 2}').load().collect() == []


@pytest.mark.spark
@pytest.mark.nats
@pytest.mark.slow
def test_metadata_columns_are_no_attributes(spark: SparkSession, broker: Any) -> None:
    broker.create("S")
    frame = spark.sql("SELECT 1 AS id, 'T' AS _stream, 5L AS _index")
    writer = frame.write.format("nats").mode("append").options(**broker.given, stream="S")
    writer.option("subject", "ev.S").option("format", "json").save()
    read = spark.read.format("nats").options(**broker.given, stream="S", subject="ev.S").load()
    assert [bytes(row.data) for row in read.collect()] == [b'{"id":1}']
    with pytest.raises(PySparkException, match='"_corrupt_record" is not filled'):
        spark.read.format("nats").options(**broker.given, stream="S", format="json").schema(
            "id int, _corrupt_record string"
        ).load().collect()
