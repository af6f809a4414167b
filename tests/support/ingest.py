"""Writers of ingest batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pyspark_nats.arrow import arrow
from pyspark_nats.protocol.connection import Connection, shared
from pyspark_nats.sink import marker_cache, messages_out, publish
from pyspark_nats.sink.sink_options import sink_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def rows(
    first: int, count: int, producer: str = "p", stream: str = "S", size: int = 0
) -> pa.RecordBatch:
    """Rows with growing numbers; ``size`` is the least octets of a payload."""
    payloads = [(b"%d" % n).ljust(size) for n in range(first, first + count)]
    data = pa.array(payloads, pa.binary())
    return messages_out.with_schema_columns(
        arrow.record_batch({"data": data}),
        stream=stream, subject=f"ev.{stream}", producer=producer, first_position=first,
    )  # fmt: skip


def leave_unconfirmed(publisher: publish.RowPublisher, run: pa.RecordBatch) -> None:
    """Store rows in an ingest batch, and end without the marker that would follow them."""
    publisher.add(run)
    assert not publisher.send()
    path = publisher.atomic.ingest
    assert path is not None
    path.ask()
    while any(one.ingest.taken < one.ingest.sent for one in path.sent.values()):
        path.receive()


class Writer:
    """A process that stays: publishes runs, one after the other."""

    def __init__(self, url: str, epoch: int, timeout_s: int, purpose: str = "") -> None:
        given = {"servers": url, "epoch": str(epoch), "timeoutS": str(timeout_s)}
        self.options = sink_options(given)
        known = self.options.connection
        #: The one that this thread has for a purpose, or one of its own.
        self.connection = shared(known, purpose) if purpose else Connection(known)
        self.cache = marker_cache.MarkerCache()

    def publisher(self) -> publish.RowPublisher:
        marker_cache.clear()
        key = (self.options.connection, self.options.marker_prefix, self.options.epoch)
        marker_cache.caches()[key] = self.cache
        return publish.RowPublisher(self.connection, self.options, is_long_lived=True)

    def write(self, *runs: pa.RecordBatch) -> None:
        for run in runs:
            self.publisher().write(run)

    def write_together(self, *runs: pa.RecordBatch) -> int:
        """Publish runs that are confirmed together at the end; how many had to wait for that."""
        made, kept = self.publisher(), 0
        for run in runs:
            made.begin_run(0)
            made.add(run)
            kept += not made.send()
        made.finish()
        return kept

    def begin(self, first: int = 0) -> int:
        """Have a batch open; the next position."""
        self.write(rows(first, 3), rows(first + 3, 1000))
        assert self.cache.ingests
        return first + 1003

    def leave_unconfirmed(self, run: pa.RecordBatch) -> None:
        """Store a run, and end before it is confirmed, as if killed."""
        leave_unconfirmed(self.publisher(), run)


@pytest.fixture
def writer(broker: Any) -> Iterator[Callable[..., Writer]]:
    broker.create("S", "ev.>", allow_batched=True)
    made: list[Writer] = []

    def make(epoch: int = 1, url: str = "", timeout_s: int = 20, purpose: str = "") -> Writer:
        made.append(Writer(url or broker.url, epoch, timeout_s, purpose))
        return made[-1]

    yield make
    for one in made:
        one.connection.close()


def expected(count: int) -> list[int]:
    return list(range(count))
