"""A stream that is purged while its writer runs: each row is stored once, whenever that happens."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_nats.protocol.connection import Connection
from pyspark_nats.sink import fencing, markers, publish, sink_options
from tests.support.ingest import Writer, rows

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.nats

#: Sends of a round, more or less.
POINTS = 14


class Purges:
    """Purges stream S before a certain send of a writer, and keeps what it held."""

    def __init__(self, broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broker = broker
        #: Rows that the stream held at each purge, and those that the writer knew to be stored.
        self.found: list[list[int]] = []
        self.confirmed: list[int] = [0]
        self.at = self.left = 0
        send = Connection.send

        def sending(connection: Connection, octets: bytes) -> None:
            if self.left and (b"ev.S" in octets or b"_marker" in octets):
                self.left -= 1
                if not self.left:
                    self.purge()
            send(connection, octets)

        monkeypatch.setattr(Connection, "send", sending)

    @property
    def count(self) -> int:
        return len(self.found)

    def purge(self, kept: int = 0) -> None:
        """Purge all messages but the last ``kept``."""
        # A writer may be at work: what is purged is what has been read.
        last = self.broker.info("S").last
        stored = [int(data) for data in self.broker.payloads("S", "ev.S", last)]
        self.broker.call("STREAM.PURGE.S", seq=last + 1 - kept)
        self.found.append(stored)
        self.confirmed.append(self.at)

    def doubled(self) -> tuple[list[int], list[int]]:
        """Rows that were stored several times, and those that never were."""
        self.purge()
        doubled = [
            row
            for rows, confirmed in zip(self.found, self.confirmed, strict=False)
            for row, count in Counter(rows).items()
            if count > 1 or row < confirmed
        ]
        return doubled, sorted(set(range(self.at)).difference(*self.found))


@pytest.fixture
def purges(broker: Any, monkeypatch: pytest.MonkeyPatch) -> Purges:
    broker.create("S", "ev.>", allow_batched=True)
    return Purges(broker, monkeypatch)


@pytest.fixture
def writer(broker: Any) -> Iterator[Writer]:
    made = Writer(broker.url, 1, 20)
    yield made
    made.connection.close()


@pytest.mark.slow
def test_a_purge_before_each_send_doubles_and_loses_no_row(purges: Purges, writer: Writer) -> None:
    for point in range(1, POINTS):
        writer.cache.paused_s.clear()
        purges.left = point
        for count in (3, 600, 1, 40, 2):
            writer.write(rows(purges.at, count))
            purges.at += count
    assert purges.count > POINTS // 2
    assert purges.doubled() == ([], [])


def test_the_same_for_runs_that_are_confirmed_together(purges: Purges, writer: Writer) -> None:
    for point in range(1, POINTS):
        writer.cache.paused_s.clear()
        writer.write(rows(purges.at, 3), rows(purges.at + 3, 2))
        purges.at += 5
        purges.left = point
        counts = (3, 1, 40, 2, 1)
        starts = [purges.at + sum(counts[:n]) for n in range(len(counts))]
        writer.write_together(*map(rows, starts, counts))
        purges.at += sum(counts)
    assert purges.count > POINTS // 2
    assert purges.doubled() == ([], [])


@pytest.mark.slow
def test_the_same_for_atomic_batches(purges: Purges, broker: Any) -> None:
    options = sink_options.sink_options(broker.given)
    for point in range(1, 6):
        purges.left = point
        publisher = publish.RowPublisher(broker.connection, options)
        publisher.write(rows(purges.at, 2500))
        purges.at += 2500
    assert purges.doubled() == ([], [])


@pytest.mark.parametrize("kept", [0, 1, 25])
def test_rows_that_a_purge_has_left_without_their_marker_are_not_stored_again(
    purges: Purges, writer: Writer, kept: int
) -> None:
    at = writer.begin()
    writer.leave_unconfirmed(rows(at, 40))
    purges.purge(kept)
    writer.write(rows(at, 60))
    stored = [int(data) for data in purges.broker.payloads("S", "ev.S")]
    # Rows that the stream does not hold, and of which the writer does not know, are written.
    assert stored == [*range(at + 40 - kept if kept else at, at + 60)]


def test_a_purge_between_the_look_at_a_batch_and_its_fence_is_no_beginning(
    purges: Purges, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = writer.begin()
    writer.leave_unconfirmed(rows(at, 40))
    purges.at, put = at, markers.put

    def late(*given: Any) -> Any:
        if not purges.count:
            purges.purge()
        return put(*given)

    monkeypatch.setattr(markers, "put", late)
    found = fencing.fenced(purges.broker.given, [("S", "p")], 4)["S", "p"]
    assert purges.count == 1
    assert (found.epoch, found.position) >= (4, at - 1)
