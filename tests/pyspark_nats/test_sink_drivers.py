"""Two drivers of one producer with counted positions: no row twice, none left out unnoticed."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mesh.jetstream import server
from pyspark_nats.arrow import arrow
from pyspark_nats.encode import columns, row_mapping
from pyspark_nats.errors import DivergedError
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.sink import (
    marker_cache,
    messages_out,
    publish,
    sink_options,
    writer,
)
from pyspark_nats.sink.markers import Origin
from pyspark_nats.sink.producer_state import BatchDigest
from tests.support.broker import connect
from tests.support.examples import examples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.broker import Broker

pytestmark = pytest.mark.nats

#: Rows of an atomic batch here, so that few rows make several.
CHUNK = 4
TOTAL = 24
PAIR = ("S", "p-0")


def numbered(batch_id: int, within: int, first: int, count: int) -> pa.RecordBatch:
    """Rows of a batch with their numbers, from ``first`` on; the first is row ``within`` of it."""
    data = pa.array([b"%d" % n for n in range(first, first + count)], pa.binary())
    return messages_out.with_schema_columns(
        arrow.record_batch({"data": data}),
        stream="S", subject="ev.S", producer="p-0",
        first_position=(batch_id << messages_out.ROWS_BITS) + within,
    )  # fmt: skip


@dataclass
class Driver:
    """Writes the numbers below the sum of ``cuts`` in batches, and those in steps."""

    broker: Broker
    name: str
    cuts: list[int]
    opened: list[Connection] = field(default_factory=list)
    batch_id: int = 0
    #: Rows of the batch that were given to the publisher.
    given: int = 0
    is_refused: bool = False
    publisher: publish.RowPublisher | None = None

    @property
    def is_over(self) -> bool:
        """Whether all its rows are written."""
        return self.is_refused or self.batch_id == len(self.cuts)

    def step(self, rows: int) -> None:
        """Give up to ``rows`` rows, one at least; end the batch when it has no more."""
        try:
            self._step(rows)
        except DivergedError:
            self.is_refused = True

    def _step(self, rows: int) -> None:
        if self.publisher is None:
            options = sink_options.sink_options({"servers": self.broker.url})
            # Each task is in a process of its own here.
            marker_cache.clear()
            self.opened.append(Connection(options.connection))
            origin = Origin(f"{self.name}-{self.batch_id}", 0, self.batch_id)
            self.publisher, self.given = publish.RowPublisher(self.opened[-1], options, origin), 0
            self.publisher.atomic.rows_max = CHUNK
            self.publisher.expect(PAIR)
        size = self.cuts[self.batch_id]
        if self.given < size:
            count = min(max(rows, 1), size - self.given)
            first = sum(self.cuts[: self.batch_id]) + self.given
            self.publisher.add(numbered(self.batch_id, self.given, first, count))
            self.given += count
        else:
            self.publisher.finish()
            self.publisher = None
            self.batch_id += 1

    def crash(self) -> None:
        """Abandon the batch under way, and run it again."""
        self.publisher = None

    def run(self, until: int | None = None) -> None:
        """Write batches, up to batch ``until`` if given."""
        while not self.is_over and self.batch_id != until:
            self.step(TOTAL)

    def close(self) -> None:
        """Close all that it opened."""
        for connection in self.opened:
            connection.close()


def out(broker: Broker) -> list[int]:
    return [int(data) for data in broker.payloads("S", "ev.S")]


@pytest.fixture
def drivers(broker: Broker) -> Iterator[list[Driver]]:
    """Two drivers with cuts chosen by the test."""
    broker.create("S")
    made = [Driver(broker, name, []) for name in "ab"]
    yield made
    for driver in made:
        driver.close()


@pytest.mark.parametrize("cuts", [([12, 12], [18, 6]), ([18, 6], [12, 12]), ([0, 12], [12, 0])])
def test_a_whole_batch_is_not_taken_for_one_that_broke_off(
    broker: Broker, drivers: list[Driver], cuts: tuple[list[int], list[int]]
) -> None:
    one, other = drivers
    one.cuts, other.cuts = cuts
    one.run(until=1)
    other.run()
    assert other.is_refused
    assert out(broker) == list(range(cuts[0][0]))
    one.run()
    assert not one.is_refused
    assert out(broker) == list(range(sum(cuts[0])))


@pytest.mark.parametrize("size", [CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 1])
def test_a_batch_says_with_its_last_rows_that_it_is_whole(
    broker: Broker, drivers: list[Driver], size: int
) -> None:
    one = drivers[0]
    one.cuts = [size]
    one.step(size)
    # As many as may be, and the last chunk waits for the word that it is the last.
    assert one.publisher is not None
    one.publisher.atomic.settle()
    assert len(out(broker)) == (size - 1) // CHUNK * CHUNK
    one.step(0)
    assert out(broker) == list(range(size))
    (entry,) = broker.marker(*PAIR).recent
    assert (entry.rows, entry.is_whole) == (size, True)


def test_what_broke_off_just_where_another_cut_ends_is_made_whole_there(
    broker: Broker, drivers: list[Driver]
) -> None:
    one, other = drivers
    one.cuts, other.cuts = [2 * CHUNK + 1], [2 * CHUNK, 1]
    one.step(2 * CHUNK + 1)
    assert one.publisher is not None
    one.publisher.atomic.settle()
    assert not broker.marker(*PAIR).recent[-1].is_whole
    other.run(until=1)
    assert broker.marker(*PAIR).recent[-1].is_whole
    one.step(0)
    assert one.is_refused
    other.run()
    assert out(broker) == list(range(2 * CHUNK + 1))


def test_nobody_goes_on_behind_a_batch_that_is_out_in_part(
    broker: Broker, drivers: list[Driver]
) -> None:
    one, other = drivers
    one.cuts, other.cuts = [TOTAL], [0, TOTAL]
    one.step(TOTAL)
    assert one.publisher is not None
    one.publisher.atomic.settle()
    before = out(broker)
    # As if it had had no task for this producer in its first batch.
    other.batch_id = 1
    other.run()
    assert other.is_refused
    assert out(broker) == before
    one.run()
    assert out(broker) == list(range(TOTAL))


def test_a_batch_of_an_earlier_version_is_gone_on_with_and_made_whole(
    broker: Broker, drivers: list[Driver]
) -> None:
    one = drivers[0]
    rows = numbered(0, 0, 0, 5)
    broker.publish("ev.S", *[b"%d" % n for n in range(5)])
    checksum = BatchDigest().updated(rows).checksum
    broker.publish("mesh._marker.S.p-0", f'{{"position":4,"epoch":0,"recent":[[0,5,{checksum}]]}}')
    assert broker.marker(*PAIR).recent[-1].is_whole is None
    one.cuts = [5, 7]
    one.batch_id = 1
    one.run()
    one.batch_id = 0
    one.run(until=1)
    assert not one.is_refused
    assert out(broker) == list(range(12))


@pytest.mark.parametrize("given", [{"stream": "S"}, {}])
def test_a_task_without_rows_writes_down_that_it_has_none(
    broker: Broker, drivers: list[Driver], given: dict[str, str]
) -> None:
    options = sink_options.sink_options({"servers": broker.url, "subject": "ev.S", **given})
    what = columns.ColumnRoles((), {"data": "data"}, has_source=False)
    writer.write_rows(
        broker.connection, options, what, row_mapping.Task("p", 0, 3, "a-3"), iter(())
    )
    (entry,) = broker.marker(*PAIR).recent
    assert (entry.batch_id, entry.rows, entry.is_whole) == (3, 0, True)
    assert broker.marker(*PAIR).position == -1
    other = drivers[1]
    other.cuts, other.batch_id = [0, 0, 0, 1], 3
    other.run()
    assert other.is_refused


def cuts() -> st.SearchStrategy[list[int]]:
    """Divisions of ``TOTAL`` rows into batches, some of them empty."""
    ends = st.lists(st.integers(0, TOTAL), max_size=4).map(sorted)
    return ends.map(lambda inner: [b - a for a, b in pairwise([0, *inner, TOTAL])])


#: The driver that continues, and its number of rows; without any, it crashes and begins its batch
#: again.
STEPS = st.lists(st.tuples(st.booleans(), st.sampled_from([0, 1, 2, 3, 5, 9, TOTAL])), max_size=30)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A server for many streams after each other."""
    running = server.start(tmp_path_factory.mktemp("shared"))
    made = connect(running)
    # With its last stream the server removes a directory, in which it may be creating the next.
    made.create("kept")
    yield made
    made.connection.close()
    running.stop()


def race(
    broker: Broker, both: list[list[int]], steps: list[tuple[bool, int]]
) -> tuple[list[Driver], list[int]]:
    """Run two drivers with these cuts, interleaved by ``steps``, then each to its end."""
    broker.create("S")
    drivers = [Driver(broker, name, cut) for name, cut in zip("ab", both, strict=True)]
    try:
        for is_second, rows in steps:
            driver = drivers[is_second]
            if not driver.is_over:
                driver.step(rows) if rows else driver.crash()
        for driver in drivers:
            driver.run()
        return drivers, out(broker)
    finally:
        for driver in drivers:
            driver.close()
        broker.call("STREAM.DELETE.S")


few = settings(
    max_examples=examples(60), deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip


@few
@given(cuts(), cuts(), STEPS)
@example([12, 12], [18, 6], [(False, TOTAL)] * 2 + [(True, TOTAL)] * 2)
@example([0, 12, 12], [18, 6], [(False, 1)] * 3 + [(True, TOTAL)] * 2)
def test_other_cuts_are_exact_or_refused(
    shared: Broker, one: list[int], other: list[int],
    steps: list[tuple[bool, int]],
) -> None:  # fmt: skip
    drivers, found = race(shared, [one, other], steps)
    assert found == list(range(len(found)))
    if not all(driver.is_refused for driver in drivers):
        assert len(found) == TOTAL
    # Empty batches at the end are the only difference that may go unnoticed.
    if list(accumulate(one)) != list(accumulate(other)) and len(one) == len(other):
        assert any(driver.is_refused for driver in drivers)


@few
@given(cuts(), STEPS)
def test_the_same_cuts_are_exact_and_nobody_is_refused(
    shared: Broker, cut: list[int], steps: list[tuple[bool, int]]
) -> None:
    drivers, found = race(shared, [cut, cut], steps)
    assert not any(driver.is_refused for driver in drivers)
    assert found == list(range(TOTAL))
