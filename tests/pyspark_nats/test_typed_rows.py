"""The source in its typed form, in a real Spark."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgpack  # type: ignore[import-untyped]  # it has no stubs
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
        eventTimeHeader="Mesh-Timestamp", missing="error",
    )  # fmt: skip
    rows = reader.load().collect()
    assert [(r.id, r.name, r["_sequence"], r["_index"]) for r in rows] == [
        (1, "a", 1, 0), (None, None, 2, 0), (3, None, 3, 0), (None, None, 3, 1), (5, "e", 3, 2),
    ]  # fmt: skip
    assert [r["_event_time_ms"] for r in rows] == [5, None, None, None, None]
    assert [(r["_error"] or "")[:8] for r in rows] == ["", "not JSON", "", "attribut", ""]
    assert [None if r["_data"] is None else bytes(r["_data"])[:9] for r in rows][:2] == [
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


def test_a_null_of_a_column_that_is_not_null_is_a_bad_event(
    spark: SparkSession, broker: Any
) -> None:
    broker.create("S")
    broker.publish("ev.S", '{"id":1}', '[{"id":null,"n":1},{"id":2}]', "{}")
    reason = 'attribute "id" is null, and the schema has it as not null'
    with pytest.raises(PySparkException, match=reason):
        reading(spark, broker, format="json", schema="id int not null").load().collect()
    dropped = reading(spark, broker, format="json", corrupt="drop")
    assert dropped.schema("id int not null, n int").load().collect() == [(1, None), (2, None)]
    with pytest.raises(PySparkException, match="rows of unreadable events have nulls"):
        reading(
            spark, broker, format="json", corrupt="column",
            schema="id int not null, _error string, _data binary",
        ).load().collect()  # fmt: skip


def test_metadata_columns_may_stand_in_the_schema_itself(spark: SparkSession, broker: Any) -> None:
    broker.create("S")
    broker.publish("ev.S", '{"id":7}')
    reader = reading(spark, broker, format="auto", metadata="_sequence")
    assert reader.schema("_sequence long, id long").load().collect() == [(1, 7)]
    with pytest.raises(PySparkException, match='"_sequence" is not in the schema as long'):
        reader.schema("id long").load().collect()


TYPES = (
    "at timestamp, local timestamp_ntz, day date, raw binary, price decimal(10,2), "
    "tags array<string>, address struct<zip:int,since:date>, prices map<string,double>, "
    "lines array<struct<id:long,at:timestamp>>"
)
EVENT = {
    "at": "2026-11-21T09:30:00.5+01:00", "local": "2026-11-21T09:30:00", "day": "2026-11-21",
    "raw": "AP8=", "price": "19.90", "tags": ["a", None], "address": {"zip": 1, "since": None},
    "prices": {"IBM": 1.5}, "lines": [{"id": 7, "at": "2026-11-21T00:00:00Z"}],
}  # fmt: skip


def test_every_type_of_json_and_messagepack_arrives_in_spark(
    spark: SparkSession, broker: Any
) -> None:
    broker.create("S")
    broker.publish("ev.S", json.dumps(EVENT), json.dumps({**EVENT, "address": {"zip": 1}}))
    packed = {**EVENT, "raw": b"\0\xff", "price": 19.9}
    broker.publish("ev.S", msgpack.packb(packed), Content_Type="application/msgpack")
    reader = reading(spark, broker, format="auto", schema=TYPES, corrupt="column", missing="error")
    frame = reader.load()
    assert frame.columns[-2:] == ["_error", "_data"]
    rows = frame.collect()
    assert [row["_error"] for row in rows] == [
        None, 'attribute "address.since" is missing', None,
    ]  # fmt: skip
    assert json.loads(rows[1]["_data"])["tags"] == ["a", None]
    assert rows[1].at is None
    for row in (rows[0], rows[2]):
        assert row.at.astimezone(UTC) == datetime(2026, 11, 21, 8, 30, 0, 500000, tzinfo=UTC)
        assert row.local == datetime(2026, 11, 21, 9, 30)  # noqa: DTZ001
        assert row.day == date(2026, 11, 21)
        assert bytes(row.raw) == b"\0\xff"
        assert row.price == Decimal("19.90")
        assert row.tags == ["a", None]
        assert row.address == (1, None)
        assert row.prices == {"IBM": 1.5}
        assert row.lines[0].id == 7
        assert row.lines[0].at.astimezone(UTC) == datetime(2026, 11, 21, tzinfo=UTC)


def test_metadata_tells_where_a_message_came_from(spark: SparkSession, broker: Any) -> None:
    broker.create("S", "ev.>")
    broker.publish("ev.a", '[{"id":1},{"id":2}]', Trace="t1")
    broker.publish("ev.b", '{"id":3}')
    rows = (
        reading(
            spark, broker, format="json", schema="id int",
            metadata="_subject,_headers,_timestamp,_timestamp_ms",
        )
        .load()
        .collect()
    )  # fmt: skip
    assert [row["_subject"] for row in rows] == ["ev.a", "ev.a", "ev.b"]
    assert [row["_headers"] for row in rows] == [{"Trace": ["t1"]}, {"Trace": ["t1"]}, {}]
    for row in rows:
        at = row["_timestamp"].astimezone(UTC)
        assert int(at.timestamp() * 1_000_000) // 1000 == row["_timestamp_ms"]


def test_a_missing_attribute_is_null_as_in_from_json(spark: SparkSession, broker: Any) -> None:
    broker.create("S")
    broker.publish("ev.S", "{}", '{"id":1}')
    reader = reading(spark, broker, format="json", schema="id int")
    assert [row.id for row in reader.load().collect()] == [None, 1]


def test_a_place_for_errors_must_stand_in_the_schema(spark: SparkSession, broker: Any) -> None:
    broker.create("S")
    broker.publish("ev.S", '{"id":1}', "[")
    reader = reading(spark, broker, format="json", corrupt="column")
    with pytest.raises(PySparkException, match='Add "_error string, _data binary"'):
        reader.schema("id int").load().collect()
    rows = reader.schema("id int, _error string").load().collect()
    assert [row.id for row in rows] == [1, None]
    assert rows[1]["_error"].startswith("not JSON")


def test_a_type_that_events_do_not_have_is_refused(spark: SparkSession, broker: Any) -> None:
    broker.create("S")
    with pytest.raises(PySparkException, match="which events do not have"):
        reading(spark, broker, format="json").schema("m map<int,int>").load().collect()
