"""The bench of aggregations and on-demand queries runs, with little data."""

from __future__ import annotations

import orjson
import pytest

from bench.ask import publisher, reads, rows


@pytest.mark.slow
def test_on_demand_reads_are_measured() -> None:
    point, span, merge = reads.measure(quick=True)
    assert "2,000" in point.name
    assert point.target is not None
    assert min(point.value, span.value, merge.value) > 0


@pytest.mark.thorough
def test_both_writers_of_rows_are_measured() -> None:
    (figure,) = rows.measure(quick=True)
    assert figure.value > 0
    assert figure.limit is not None
    assert len(figure.note) > 0


def test_published_events_are_of_the_stream_that_is_asked() -> None:
    lines = [orjson.loads(line) for message in publisher.messages() for line in message.split()]
    assert {tuple(line) for line in lines} == {("k", "p", "q")}
    assert {line["q"] for line in lines} == {1}
