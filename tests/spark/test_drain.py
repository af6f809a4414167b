"""Carried instances end where others can go on, with a real server and without Spark.

Offsets at which a query starts.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mesh.model import names
from mesh.model.cluster import InstanceState
from mesh.spark import producers
from mesh.spark.drain import start_offsets
from mesh.spark.instance_io import POSITIONS_PER_MESSAGE, InputPosition
from mesh.spark.shared_query.members import REMOVED, WORK
from pyspark_nats.errors import StaleWriterError
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.sink import fencing, markers, publish, sink_options
from tests.support.local_states import io
from tests.support.shared_query import Instances, begun

if TYPE_CHECKING:
    from mesh.spark.shared_query.members import Member
    from tests.support.shared_query import Hand


pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]

GROUPS = ["sums", "large", "late"]


def settle(hand: Hand, app: Instances, group: str) -> None:
    """Drain an instance, and run batches until it has ended."""
    one = app.by_group[group]
    one.stop(settle=True)
    for _ in range(20):
        hand.step(0.2)
        if app.told(group) is InstanceState.STOPPED:
            one.join()
            return
    raise AssertionError(f"{group} did not end")


@pytest.mark.parametrize("group", GROUPS)
def test_one_settles_where_it_is(hand: Hand, group: str) -> None:
    app = begun(hand, "A")
    hand.publish("A", 1, 2)
    hand.until(WORK, group)
    settle(hand, app, group)
    assert app.statuses[group].settled
    assert app.statuses[group].position == {"mesh-A-Numbers": 2}
    # A repeated request gets the same answer.
    app.statuses.clear()
    app.by_group[group].stop(settle=True)
    assert app.statuses[group].position == {"mesh-A-Numbers": 2}


@pytest.mark.parametrize(("group", "output"), [("sums", "Sums"), ("large", "Large")])
def test_one_that_stops_leaves_no_open_batch(hand: Hand, group: str, output: str) -> None:
    app = begun(hand, "A")
    (producer,) = producers.of_parts(_member(hand, group).io, ["0"])
    pair = f"mesh-A-{output}", producer

    def batch() -> object:
        return markers.read(hand.broker, names.MARKERS, [pair])[pair].ingest

    for n in range(1, 10):
        hand.publish("A", 100 + n)
        hand.until(WORK, group)
        if batch() is not None:
            break
    else:
        raise AssertionError("no batch begins")
    # Without a drain, no other step ends it.
    app.by_group[group].stop()
    hand.until(REMOVED, group)
    assert batch() is None


def _member(hand: Hand, group: str) -> Member:
    served = (one for parts in hand.serving.served.values() for one in parts.values())
    return next(one.member for one in served if one.member.io.group.name == group)


@pytest.mark.parametrize("group", GROUPS)
def test_one_that_nothing_came_for_settles_at_the_beginning(
    hand: Hand,
    group: str,
) -> None:
    app = begun(hand, "A")
    settle(hand, app, group)
    assert app.statuses[group].position == {"mesh-A-Numbers": 0}


@pytest.mark.parametrize("group", ["sums", "large"])
def test_one_goes_on_until_nothing_is_out_behind_it(hand: Hand, group: str) -> None:
    app = begun(hand, "A")
    hand.publish("A", 1, 2)
    hand.until(WORK, group)
    # As after a kill: nothing was shared, and what was put out is ahead of where it begins.
    app.by_group[group].on_query_failed("killed", is_suspect=False)
    hand.until_idle()
    # It reads one message before it is requested to end.
    key = "0" if group == "sums" else "mesh-A-Numbers"
    hand.rows_first = 1
    hand.until(WORK, group)
    assert app.by_group[group].snapshots.starts()[0][key]["mesh-A-Numbers"]["sequence"] == 1
    app.stores[group].last = 2
    settle(hand, app, group)
    assert app.statuses[group].position == {"mesh-A-Numbers": 2}
    assert hand.rows("A", "Large") == [[20]]
    again = Instances(hand, "A", app.stores, epoch=2)
    again.by_group[group].start()
    hand.publish("A", 3)
    hand.until(WORK, group)
    assert hand.rows("A", "Sums") == [[1], [3], [6]]
    assert hand.rows("A", "Large") == [[20], [30]]


@pytest.mark.parametrize("group", GROUPS)
def test_one_that_is_to_settle_at_a_place_ends_there(hand: Hand, group: str) -> None:
    app = Instances(hand, "A", until={"mesh-A-Numbers": 3})
    hand.make(app.spec)
    hand.publish("A", 1, 2, 3, 4, 5)
    one = app.by_group[group]
    one.start()
    hand.until(REMOVED, group)
    one.join()
    assert app.told(group) is InstanceState.STOPPED
    assert app.statuses[group].position == {"mesh-A-Numbers": 3}
    expected = {"sums": [[1], [3], [6]], "large": [], "late": []}[group]
    assert hand.rows("A", "Sums") == expected
    again = Instances(hand, "A", app.stores, epoch=2)
    again.by_group[group].start()
    hand.until(WORK, group)
    if group == "sums":
        assert hand.rows("A", "Sums") == [[1], [3], [6], [9], [12]]


def test_one_that_is_to_end_at_once_does_not_settle(hand: Hand) -> None:
    app = begun(hand, "A")
    hand.publish("A", 1)
    hand.until(WORK, "large")
    app.by_group["large"].stop(settle=True)
    app.by_group["large"].stop()
    hand.until(REMOVED, "large")
    app.by_group["large"].join()
    assert not app.statuses["large"].settled


def test_an_older_writer_that_wakes_is_refused_once_another_has_settled(hand: Hand) -> None:
    app = begun(hand, "A")
    one = app.by_group["large"]
    io = one.io
    producer = io.producer("1of1-1")
    pair = ("mesh-A-Large", producer)
    # There was no output: no marker shows a newer one.
    hand.publish("A", 1)
    hand.until(WORK, "large")
    assert fencing.positions(hand.nats, [pair])[pair].epoch == -1
    settle(hand, app, "large")
    assert fencing.positions(hand.nats, [pair])[pair].epoch == 1
    older = sink_options.sink_options({**hand.nats, "epoch": "0"})
    with Connection(hand.known) as connection, pytest.raises(StaleWriterError):
        publish.RowPublisher(connection, older).out(pair, 0)
    newer = sink_options.sink_options({**hand.nats, "epoch": "2"})
    with Connection(hand.known) as connection:
        assert publish.RowPublisher(connection, newer).out(pair, 0) == -1
    with pytest.raises(StaleWriterError):
        fencing.fenced(hand.nats, [pair], 0)


def test_a_fence_keeps_what_a_marker_says(hand: Hand) -> None:
    app = begun(hand, "A")
    hand.publish("A", 2)
    hand.until(WORK, "large")
    pair = ("mesh-A-Large", app.by_group["large"].io.producer("1of1-1"))
    before = fencing.positions(hand.nats, [pair])[pair]
    assert before.position == POSITIONS_PER_MESSAGE
    after = fencing.fenced(hand.nats, [pair], 7)[pair]
    assert (after.position, after.epoch, after.recent) == (before.position, 7, before.recent)
    assert after.sequence > before.sequence
    # A loss of input is told from output by its time.
    assert after.time_ms == before.time_ms > 0
    assert fencing.fenced(hand.nats, [pair], 7)[pair] == after
    assert json.loads(markers.payload(after))["epoch"] == 7


def test_one_that_can_not_settle_says_so(hand: Hand) -> None:
    app = begun(hand, "A")
    hand.publish("A", 2, 3)
    hand.until(WORK, "large")
    app.by_group["large"].on_query_failed("killed", is_suspect=False)
    hand.until_idle()
    hand.rows_first = 1
    hand.until(WORK, "large")
    # There is nothing more, according to the store.
    app.stores["large"].last = 1
    settle(hand, app, "large")
    assert not app.statuses["large"].settled
    assert "output exists beyond the last committed input position" in str(
        app.statuses["large"].error
    )


def reached(keyed: str, sequence: int, rates: int) -> InputPosition:
    places = {keyed: sequence, "mesh-Rates-Rates": rates}
    offsets = {name: {"sequence": n, "time_ms": n} for name, n in places.items()}
    return InputPosition.of(offsets, offsets)


def test_a_stream_that_several_partitions_read_begins_where_the_last_of_them_is() -> None:
    first, second = (f"mesh-Rates-Trades-by-symbol-{p}" for p in io(1).partitions)
    found = start_offsets(io(1), {0: reached(first, 9, 4), 2: reached(second, 5, 7)})
    assert {name: place["sequence"] for name, place in found.items()} == {
        first: 9,
        second: 5,
        "mesh-Rates-Rates": 4,
    }
    # One without a snapshot needs all of it.
    assert list(start_offsets(io(1), {0: reached(first, 9, 4)})) == [first]
