"""Options that come from elsewhere: Spark's catalog, its other sources, and odd values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from pyspark_nats.errors import OptionError
from pyspark_nats.options import nearest
from pyspark_nats.sink.sink_options import sink_options
from pyspark_nats.source.source_options import source_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GIVEN = {"servers": "nats://h", "stream": "S"}


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("mode", '"corrupt"'), ("columnNameOfCorruptRecord", '"corrupt" to "column"'),
        ("subscribe", 'Set "stream"'), ("subscribePattern", 'Name the streams in "stream"'),
        ("kafka.bootstrap.servers", '"servers"'), ("topic", '"subject"'),
        ("sujbect", 'Did you mean "subject"'),
    ],
)  # fmt: skip
def test_words_of_other_sources_have_a_remedy(name: str, remedy: str) -> None:
    for read in (source_options, sink_options):
        with pytest.raises(OptionError, match=f'option "{name.lower()}" of the nats') as refused:
            read({**GIVEN, name: "x"})
        assert remedy in refused.value.hint


@pytest.mark.parametrize(
    "given", [{}, {**GIVEN, "option.servers": "nats://h"}, {**GIVEN, "provider": "n", "owner": "o"}]
)
def test_a_table_of_the_catalog_names_the_remedy(given: dict[str, str]) -> None:
    for read in (source_options, sink_options):
        with pytest.raises(OptionError) as refused:
            read(given)
        assert "Spark's catalog" in str(refused.value)
        assert "CREATE TEMPORARY VIEW" in refused.value.hint


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
