"""The source in its typed form, in a real Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.nats, pytest.mark.slow]

METADATA = "_stream,_sequence,_index,_timestamp_ms,_event_time_ms,_error,_data"


def reading(spark: SparkSession, broker: Any, **given: str) -> DataFrameReader:
    return spark.read.format("nats").options(**broker.given, stream="S", **given)


def test_events_become_rows_and_the_unreadable_say_why(spark: SparkSession, broker: Any) -> None:
    broker.create("S")
    broker.publish("ev.S", '{"id":1,"name":"a"}', Mesh_Timestamp="5")
    broker.publish("ev.S", "{nonsense")
    broker.publish("ev.S", '[{"id":3,"name":null},{"id":4},{"id":5,"name":"e","more":1}]')
    reader = reading(
        spark, broker, format="json", schema="id int, name string", metadata=METADATA,
        eventTimeHeader="Mesh-Timestamp",
    )  # fmt: skip
    rows = reader.load().collect()
    assert [(r.id, r.name, r._sequence, r._index) for r in rows] == [
        (1, "a", 1, 0), (None, None, 2, 0), (3, None, 3, 0), (None, None, 3, 1), (5, "e", 3, 2),
    ]  # fmt: skip
    assert [r._event_time_ms for r in rows] == [5, None, None, None, None]
    assert [(r._error or "")[:8] for r in rows] == ["", "not JSON", "", "attribut", ""]
    assert [None if r._data is None else bytes(r._data)[:9] for r in rows][:2] == [
        None,
        b"{nonsense",
    ]


def test_without_a_place_for_errors_a_bad_event_fails_the_query_or_is_dropped(
    spark: SparkSession, broker: Any
) -> None:
    broker.create("S")
    broker.publish("ev.S", '{"id":1}', '{"id":"x"}')
    with pytest.raises(PySparkException, match='attribute "id" is "x", not an int'):
        reading(spark, broker, format="json").schema("id int").load().collect()
    dropped = reading(spark, broker, format="json", corrupt="drop").schema("id int").load()
    assert [r.id for r in dropped.collect()] == [1]


def test_metadata_columns_may_stand_in_the_schema_itself(spark: SparkSession, broker: Any) -> None:
    broker.create("S")
    broker.publish("ev.S", '{"id":7}')
    reader = reading(spark, broker, format="auto", metadata="_sequence")
    assert reader.schema("_sequence long, id long").load().collect() == [(1, 7)]
    with pytest.raises(PySparkException, match='"_sequence" is not in the schema as long'):
        reader.schema("id long").load().collect()
