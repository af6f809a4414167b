"""Filters reduce the data that is read, and never remove a matching row."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from pyspark.sql.pandas.types import from_arrow_schema

from pyspark_nats.protocol.connection import Connection
from pyspark_nats.source import reader, rows, source_options
from pyspark_nats.source.planning import NatsPartition
from pyspark_nats.source.pushdown import ReadBounds, bounds

if TYPE_CHECKING:
    from tests.support.broker import Broker

COLUMNS = ("subject", "stream", "sequence", "timestamp")
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ([], ReadBounds()),
        ([IsNotNull(("sequence",)), GreaterThan(("sequence",), 5)], ReadBounds(first=6)),
        ([GreaterThanOrEqual(("sequence",), 5), LessThan(("sequence",), 9)], ReadBounds(5, 8)),
        ([LessThanOrEqual(("sequence",), 9), EqualTo(("sequence",), 7)], ReadBounds(7, 7)),
        # A millisecond holds many messages: strictly after its start may still be in it.
        ([GreaterThan(("timestamp",), NOON)], ReadBounds(first_ms=NOON_MS)),
        ([LessThan(("timestamp",), NOON)], ReadBounds(last_ms=NOON_MS)),
        ([EqualTo(("subject",), "a.b")], ReadBounds(subjects=("a.b",))),
        ([In(("subject",), ("a.b", "c"))], ReadBounds(subjects=("a.b", "c"))),
        ([StringStartsWith(("subject",), "a.b.c")], ReadBounds(subjects=("a.b.>",))),
        ([StringStartsWith(("subject",), "ab")], ReadBounds()),
        ([EqualTo(("subject",), "a.*")], ReadBounds()),
        ([EqualTo(("stream",), "S")], ReadBounds(streams=("S",))),
        ([Not(EqualTo(("sequence",), 5))], ReadBounds()),
        ([EqualTo(("price",), 5), EqualTo(("sequence", "x"), 5)], ReadBounds()),
    ],
)
def test_a_filter_becomes_a_bound(filters: list[Filter], found: ReadBounds) -> None:
    assert bounds(filters, COLUMNS) == found


def test_a_column_of_the_events_may_be_named_as_ours() -> None:
    assert bounds([EqualTo(("sequence",), 5)], ("_sequence",)) == ReadBounds()
    assert bounds([EqualTo(("_sequence",), 5)], ("_sequence",)) == ReadBounds(5, 5)


@pytest.mark.nats
@pytest.mark.parametrize(
    ("filters", "count"),
    [
        ([GreaterThan(("sequence",), 2)], 1),
        # A program asks for what has come since, and nothing has.
        ([GreaterThan(("sequence",), 3)], 0),
        ([GreaterThan(("sequence",), 1000)], 0),
        ([EqualTo(("sequence",), 2**63 - 1)], 0),
    ],
)
def test_a_filter_after_the_end_of_a_stream_finds_nothing(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, filters: list[Filter], count: int
) -> None:
    broker.create("S")
    broker.publish("ev.S", *"abc")
    options = source_options.source_options({**broker.given, "stream": "S", "subject": "ev.S"})
    with Connection(options.connection) as connection:
        monkeypatch.setattr(reader, "shared", lambda _: connection)
        schema = from_arrow_schema(rows.raw_schema(include_headers=True))
        reading = reader.NatsFilteringReader(options, schema)
        list(reading.pushFilters(filters))
        parts = [part for part in reading.partitions() if isinstance(part, NatsPartition)]
    assert sum(span.end - span.start for part in parts for span in part.ranges) == count
