"""Fences: the last row is found, and the batch ended."""

from __future__ import annotations

from typing import Any

import pytest

from pyspark_nats.errors import DataLossError, StaleWriterError
from pyspark_nats.sink import fencing
from tests.support.exactly_once import numbers
from tests.support.ingest import expected, rows, writer

__all__ = ("writer",)

pytestmark = pytest.mark.nats


def test_fencing_finds_the_last_row_and_ends_the_batch(broker: Any, writer: Any) -> None:
    old = writer(1)
    at = old.begin()
    old.leave_unconfirmed(rows(at, 100))
    found = fencing.fenced(broker.given, [("S", "p")], 4)["S", "p"]
    assert (found.position, found.epoch, found.ingest) == (at + 99, 4, None)
    assert broker.marker("S", "p") == found
    with pytest.raises(StaleWriterError):
        old.write(rows(at + 100, 100))
    assert numbers(broker, "ev.S") == expected(at + 100)


def test_rows_that_a_server_lost_are_reported(broker: Any, writer: Any) -> None:
    """As after a power failure: the stream ends before rows that it had acknowledged."""
    one = writer()
    at = one.begin()
    last = broker.info("S").last
    for sequence in range(last - 9, last + 1):
        broker.call("STREAM.MSG.DELETE.S", seq=sequence, no_erase=True)
    batch = broker.marker("S", "p").ingest
    fencing.end(broker.connection, "S", "mesh._marker.S.p", batch)
    with pytest.raises(DataLossError, match="does not hold the last rows"):
        one.write(rows(at, 10))
