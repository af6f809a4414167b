"""Writers of one thread that share a connection while acks of their rows are outstanding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pyspark_nats.errors import StaleWriterError
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.sink import marker_cache, messages_out, publish, sink_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Make = Callable[..., publish.Publisher]

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]

PRODUCERS = ("a", "b", "c")


def rows(producer: str, first: int, count: int) -> pa.RecordBatch:
    data = pa.array([b"%s%d" % (producer.encode(), first + n) for n in range(count)], pa.binary())
    return messages_out.with_schema_columns(
        pa.record_batch({"data": data}),
        stream="S", subject="ev.S", producer=producer, first_position=first,
    )  # fmt: skip


def expected(counts: dict[str, int]) -> list[bytes]:
    return sorted(b"%s%d" % (p.encode(), n) for p, count in counts.items() for n in range(count))


@pytest.fixture
def connection(broker: Any) -> Iterator[Connection]:
    broker.create("S")
    marker_cache.clear()
    made = Connection(sink_options.sink_options({"servers": broker.url}).connection)
    yield made
    made.close()


@pytest.fixture
def make(broker: Any, connection: Connection) -> Make:
    def publisher(epoch: int = 1) -> publish.Publisher:
        options = sink_options.sink_options({"servers": broker.url, "epoch": str(epoch)})
        return publish.Publisher(connection, options)

    return publisher


def flushed(make: Make, first: int, count: int) -> dict[str, publish.Publisher]:
    found = {}
    for producer in PRODUCERS:
        found[producer] = make()
        found[producer].add(rows(producer, first, count))
        found[producer].flush()
    return found


def test_acks_of_all_are_found_whoever_receives_them(
    broker: Any, make: Make, connection: Connection
) -> None:
    # Markers are read in the first round, and known in the second; in the third there are many
    # batches, whose markers need acks of earlier ones.
    done = 0
    for count in (3, 2, 2500):
        writers = flushed(make, done, count)
        for producer in reversed(PRODUCERS):
            writers[producer].finish()
        done += count
    assert sorted(broker.payloads("S", "ev.S")) == expected(dict.fromkeys(PRODUCERS, done))
    assert connection.made == 1
    assert not connection.expected


def test_a_connection_that_breaks_loses_and_doubles_nothing(
    broker: Any, make: Make, connection: Connection
) -> None:
    for first in (0, 1500):
        writers = flushed(make, first, 1500)
        connection.close()
        for writer in writers.values():
            writer.finish()
    assert sorted(broker.payloads("S", "ev.S")) == expected(dict.fromkeys(PRODUCERS, 3000))
    # Each break is noticed once, not by each writer.
    assert connection.made == 3


def test_a_writer_that_is_replaced_fails_alone(
    broker: Any, make: Make, connection: Connection
) -> None:
    for writer in flushed(make, 0, 2).values():
        writer.finish()
    newer = sink_options.sink_options({"servers": broker.url, "epoch": "2"})
    with Connection(newer.connection) as another:
        publish.Publisher(another, newer).write(rows("b", 2, 1))
    writers = flushed(make, 2, 4)
    with pytest.raises(StaleWriterError):
        writers["b"].finish()
    writers["a"].finish()
    writers["c"].finish()
    assert sorted(broker.payloads("S", "ev.S")) == expected({"a": 6, "b": 3, "c": 6})
    assert not connection.expected


def test_one_that_is_given_up_leaves_nothing_behind(
    broker: Any, make: Make, connection: Connection
) -> None:
    writers = flushed(make, 0, 5)
    writers["b"].drop()
    writers["a"].finish()
    writers["c"].finish()
    assert not connection.expected
    # Whether its rows are published is unknown: the next writer looks.
    again = make()
    again.write(rows("b", 0, 7))
    assert sorted(broker.payloads("S", "ev.S")) == expected({"a": 5, "b": 7, "c": 5})
