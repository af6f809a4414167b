"""A stream that lost its end with the power of its server, and numbers new messages again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pyspark_nats.arrow import arrow
from pyspark_nats.errors import DataLossError
from pyspark_nats.sink import messages_out, publish, sink_options
from pyspark_nats.source import offsets, ranges, source_options
from tests.support.power import Power

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.jetstream import server

pytestmark = [pytest.mark.nats, pytest.mark.restarts]


@pytest.fixture
def power(nats_server: server.NatsServer) -> Iterator[Power]:
    made = Power(nats_server)
    yield made
    made.end()


def watch(broker: Any, **given: str) -> offsets.StreamWatch:
    read = source_options.source_options({**broker.given, "stream": "S", **given})
    return offsets.StreamWatch(read, broker.connection)


def end(broker: Any) -> dict[str, dict[str, int]]:
    return watch(broker, startingOffsets="latest").initial()


@pytest.mark.parametrize("is_running", [True, False])
@pytest.mark.parametrize("again", [11, 15, 25])
def test_sequences_that_are_used_again_are_data_loss(
    broker: Any, power: Power, again: int, is_running: bool
) -> None:
    broker.create("S")
    broker.publish("ev.S", *["old"] * 10)
    power.save()
    broker.publish("ev.S", *["old"] * 10)
    start = end(broker)
    reader = watch(broker)
    if is_running:
        assert reader.latest(start, None)["S"]["sequence"] == 20
    power.fail()
    assert broker.info("S").last == 10
    broker.publish("ev.S", *["new"] * again)
    with pytest.raises(DataLossError, match="lost messages and used their sequences again"):
        reader.latest(start, None)
    accepting = watch(broker, failOnDataLoss="false")
    assert accepting.latest(start, None)["S"]["sequence"] == 10 + again


def test_a_backlog_is_no_exception(broker: Any, power: Power) -> None:
    broker.create("S")
    broker.publish("ev.S", *["old"] * 10)
    power.save()
    broker.publish("ev.S", *["old"] * 10)
    reader = watch(broker, maxOffsetsPerTrigger="15")
    start = reader.latest(reader.initial(), source_options.ReadLimits(offsets_max=15))
    assert start["S"]["sequence"] == 15
    power.fail()
    broker.publish("ev.S", *["new"] * 30)
    with pytest.raises(DataLossError):
        reader.latest(start, None)


def test_a_restart_purges_and_old_offsets_are_none(broker: Any, power: Power) -> None:
    broker.create("S")
    broker.publish("ev.S", *"abc")
    start = end(broker)
    power.restart()
    assert watch(broker).latest(start, None)["S"]["sequence"] == 3
    broker.publish("ev.S", *"de")
    assert watch(broker).latest(start, None)["S"]["sequence"] == 5
    broker.call("STREAM.MSG.DELETE.S", seq=3)
    power.restart()
    assert watch(broker).latest(start, None)["S"]["sequence"] == 5
    bare = {"S": {name: start["S"][name] for name in ("sequence", "time_ms")}}
    assert watch(broker).latest(bare, None)["S"]["sequence"] == 5


@pytest.mark.parametrize(
    ("at", "last", "stored_ns", "is_reused"),
    [
        ({"sequence": 20, "newest": 20, "newest_ns": 7}, 20, 7, False),
        ({"sequence": 20, "newest": 20, "newest_ns": 7}, 30, 7, False),
        ({"sequence": 20, "newest": 20, "newest_ns": 7}, 30, 8, True),
        ({"sequence": 20, "newest": 20, "newest_ns": 7}, 30, None, False),
        ({"sequence": 15, "newest": 20, "newest_ns": 7}, 18, None, True),
        # Found by the end of the range.
        ({"sequence": 20, "newest": 20, "newest_ns": 7}, 18, None, False),
        ({"sequence": 20}, 30, 8, False),
    ],
)  # fmt: skip
def test_the_newest_message_tells(
    at: dict[str, int], last: int, stored_ns: int | None, is_reused: bool
) -> None:
    assert ranges.is_reused(at, last, stored_ns) is is_reused


def rows(first: int, count: int, stream: str = "S") -> Any:
    """Rows of producer ``p``, at the positions from ``first``."""
    data = [str(n).encode() for n in range(first, first + count)]
    return messages_out.with_schema_columns(
        arrow.record_batch({"data": pa.array(data, pa.binary())}),
        stream=stream, subject=f"ev.{stream}", producer="p", first_position=first,
    )  # fmt: skip


@pytest.mark.parametrize("again", [0, 1, 40])
def test_a_writer_whose_rows_are_lost_says_so_and_writes_nothing_beyond(
    broker: Any, power: Power, again: int
) -> None:
    broker.create("S")
    options = sink_options.sink_options(broker.given)
    publisher = publish.RowPublisher(broker.connection, options)
    publisher.write(rows(0, 3))
    power.save()
    publisher.write(rows(3, 4))
    power.fail()
    broker.publish("ev.S", *["other"] * again)
    with pytest.raises(DataLossError, match=r"does not hold sequences .* to 9 any more"):
        publish.RowPublisher(broker.connection, options).write(rows(7, 2))
    # A replay from before completes what is stored.
    publish.RowPublisher(broker.connection, options).write(rows(0, 9))
    found = [int(data) for data in broker.payloads("S", "ev.S") if data != b"other"]
    assert found == list(range(9))


def test_a_writer_is_told_once_of_all_streams_that_lost_its_rows(broker: Any, power: Power) -> None:
    options = sink_options.sink_options(broker.given)

    def write(first: int, count: int, *streams: str) -> None:
        publisher = publish.RowPublisher(broker.connection, options)
        for name in streams:
            publisher.write(rows(first, count, name))

    names = ("S", "T", "U")
    for name in names:
        broker.create(name)
    write(0, 3, *names)
    power.save()
    write(3, 4, "S", "T")
    power.fail()
    with pytest.raises(DataLossError, match='stream "S" does not hold sequences') as raised:
        write(7, 2, "S")
    assert 'Nor does stream "T" hold' in str(raised.value.detail)
    assert '"U"' not in str(raised.value.detail)
    write(0, 9, *names)
    for name in names:
        assert [int(data) for data in broker.payloads(name, f"ev.{name}")] == list(range(9))


def test_markers_that_were_purged_are_no_loss(broker: Any) -> None:
    broker.create("S")
    options = sink_options.sink_options(broker.given)
    publish.RowPublisher(broker.connection, options).write(rows(0, 3))
    broker.call("STREAM.PURGE.S", filter="mesh._marker.S.p")
    broker.publish("ev.S", "other")
    publish.RowPublisher(broker.connection, options).write(rows(3, 3))
    assert broker.payloads("S", "ev.S")[-1] == b"5"
