"""Filters reduce the data that is read, and never remove a matching row."""

from __future__ import annotations

from datetime import UTC, datetime

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

from pyspark_nats.source.pushdown import ReadBounds, bounds

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
