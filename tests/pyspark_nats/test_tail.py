"""Readers to which messages come as they are stored, against a real server."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pyspark_nats.errors import RefusedError
from pyspark_nats.protocol import connection_options
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.protocol.subscriptions import wait_any
from pyspark_nats.source.tail import TailOptions, Tails

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.jetstream.server import NatsServer

pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]


@pytest.fixture
def tails(broker: Any) -> Iterator[Tails[str]]:
    known = connection_options.connection_options(broker.given)
    made: Tails[str] = Tails(Connection(known), Connection(known))
    yield made
    made.connection.close()
    made.asks.close()


def come(
    tails: Tails[str], key: str, count: int, at: int = 0, most: int = 10**9
) -> tuple[list[tuple[int, bytes]], int]:
    """The next messages of a reader, as (sequence, payload), and how many wait after them."""
    found: list[tuple[int, bytes]] = []
    left = 0
    while len(found) < count:
        assert tails.receive() == set()
        taken = tails.take(key, at, min(most, count - len(found)))
        if taken is None:
            wait_any([tails.connection], (), 1.0)
            continue
        got, left = taken
        found += zip(got.sequence.tolist(), got.data.to_pylist(), strict=True)
    return found, left


def arrive(tails: Tails[str], key: str, last: int) -> None:
    """Wait until the messages of a reader up to ``last`` are here, and none is taken.

    The server may write each of them on its own, so the first says nothing about the others.
    """
    while not (waiting := tails.by_key[key].waiting) or waiting[-1].sequence[-1] < last:
        assert tails.receive() == set()
        wait_any([tails.connection], (), 1.0)


def broken(tails: Tails[str]) -> set[str]:
    """Wait until readers are broken."""
    while not (found := tails.receive()):
        wait_any([tails.connection], (), 0.1)
    return found


def test_messages_come_as_they_are_stored(broker: Any, tails: Tails[str]) -> None:
    for name in ("A", "B"):
        broker.create(name)
    broker.publish("ev.A", b"0", b"1")
    tails.follow("a", "A", 1)
    tails.follow("b", "B", 0)
    assert come(tails, "a", 1) == ([(2, b"1")], 0)
    broker.publish("ev.B", b"x")
    broker.publish("ev.A", b"2", b"3", b"4")
    assert come(tails, "b", 1) == ([(1, b"x")], 0)
    arrive(tails, "a", 5)
    assert come(tails, "a", 2) == ([(3, b"2"), (4, b"3")], 1)
    assert list(tails.ready()) == ["a"]
    # One that the caller has read otherwise is left out.
    assert tails.take("a", 5, 10) is None
    assert list(tails.ready()) == []


def test_much_comes_in_order_and_whole(broker: Any, tails: Tails[str]) -> None:
    tails.options = TailOptions(messages_first=100, bytes_first=2000)
    broker.create("A")
    payloads = [b"%d" % n * (1 + n % 50) for n in range(5000)]
    # Larger than the first request may bring.
    payloads[7] = b"x" * 10_000
    broker.publish("ev.A", *payloads)
    tails.follow("a", "A", 0)
    found, left = come(tails, "a", 5000, most=37)
    assert [payload for _, payload in found] == payloads
    assert [sequence for sequence, _ in found] == list(range(1, 5001))
    assert left == 0


@pytest.mark.slow
def test_a_consumer_has_another_request_before_one_ends(broker: Any, tails: Tails[str]) -> None:
    """The server deletes a consumer without one, and a reader may be busy when it ends."""
    tails.options = TailOptions(expires_s=4.0, beat_s=1.0)
    broker.create("A")
    tails.follow("a", "A", 0)
    reader = tails.by_key["a"]
    while reader.requests < 2:
        assert tails.receive() == set()
        wait_any([tails.connection], (), 0.1)
    # It may be on its way yet.
    call = f"CONSUMER.INFO.A.{reader.consumer}"
    assert any(broker.call(call)["num_waiting"] == 2 for _ in range(50))
    broker.publish("ev.A", b"0")
    assert come(tails, "a", 1) == ([(1, b"0")], 0)


def test_what_waits_is_bounded(broker: Any, tails: Tails[str]) -> None:
    broker.create("A")
    broker.publish("ev.A", *[b"%d" % n for n in range(5000)])
    tails.follow("a", "A", 0)
    while tails.by_key["a"].expected > 0:
        wait_any([tails.connection], (), 1.0)
        tails.receive()
    waiting = sum(len(part) for part in tails.by_key["a"].waiting)
    assert waiting <= 1000


def test_times_and_subjects_are_the_servers(broker: Any, tails: Tails[str]) -> None:
    broker.create("A")
    broker.publish(
        "ev.A", b"0", Nats_Sequence="99", Nats_Subject="ev.B", Nats_Time_Stamp="2001-01-01"
    )
    tails.follow("a", "A", 0)
    while tails.receive() or not tails.ready():
        wait_any([tails.connection], (), 1.0)
    taken = tails.take("a", 0, 10)
    assert taken is not None
    assert taken[0].sequence.tolist() == [1]
    assert taken[0].subject.to_pylist() == ["ev.A"]
    # Later than 2023.
    assert int(taken[0].time_ns[0]) > 1_700_000_000 * 10**9


def test_a_reader_without_its_stream_is_broken_and_others_are_not(
    broker: Any, tails: Tails[str]
) -> None:
    for name in ("A", "B"):
        broker.create(name)
        tails.follow(name, name, 0)
    tails.receive()
    broker.call("STREAM.DELETE.A")
    assert broken(tails) == {"A"}
    broker.publish("ev.B", b"x")
    assert come(tails, "B", 1) == ([(1, b"x")], 0)
    with pytest.raises(RefusedError):
        tails.follow("A", "A", 0)


def test_a_lost_connection_breaks_all_and_they_can_be_followed_again(
    broker: Any, tails: Tails[str]
) -> None:
    broker.create("A")
    tails.follow("a", "A", 0)
    broker.publish("ev.A", b"0")
    assert come(tails, "a", 1)[0] == [(1, b"0")]
    tails.connection.close()
    assert tails.receive() == {"a"}
    assert "a" not in tails
    broker.publish("ev.A", b"1")
    tails.follow("a", "A", 1)
    assert come(tails, "a", 1)[0] == [(2, b"1")]


def test_a_server_that_stands_still_is_noticed(
    broker: Any, tails: Tails[str], nats_server: NatsServer
) -> None:
    tails.options = TailOptions(quiet_s=0.1, answers_s=0.1)
    broker.create("A")
    tails.follow("a", "A", 0)
    tails.receive()
    os.kill(nats_server.process.pid, signal.SIGSTOP)
    try:
        assert broken(tails) == {"a"}
    finally:
        os.kill(nats_server.process.pid, signal.SIGCONT)


def test_signs_of_life_of_an_idle_reader_are_recorded(broker: Any, tails: Tails[str]) -> None:
    tails.options = TailOptions(beat_s=0.1, silent_beats=300)
    broker.create("A")
    tails.follow("a", "A", 0)
    last_activity_s = {tails.by_key["a"].last_activity_s}
    while len(last_activity_s) < 4:
        wait_any([tails.connection], (), 1.0)
        assert tails.receive() == set()
        assert tails.ready() == []
        last_activity_s.add(tails.by_key["a"].last_activity_s)
    broker.publish("ev.A", b"0")
    assert come(tails, "a", 1)[0] == [(1, b"0")]


def test_a_message_that_was_lost_on_the_way_breaks_its_reader(
    broker: Any, tails: Tails[str]
) -> None:
    broker.create("A")
    tails.follow("a", "A", 0)
    broker.publish("ev.A", b"0")
    assert come(tails, "a", 1)[0] == [(1, b"0")]
    tails.by_key["a"].delivered += 1
    broker.publish("ev.A", b"1")
    assert broken(tails) == {"a"}


def test_without_readers_nothing_wakes_a_wait(broker: Any, tails: Tails[str]) -> None:
    broker.create("A")
    tails.follow("a", "A", 0)
    broker.publish("ev.A", b"0")
    while not tails.connection.is_readable(1.0):
        pass
    tails.forget("a")
    assert tails.receive() == set()
    assert not tails.connection.is_readable()
    tails.follow("a", "A", 0)
    assert come(tails, "a", 1)[0] == [(1, b"0")]


@pytest.mark.slow
def test_a_slice_has_all_columns(broker: Any, tails: Tails[str]) -> None:
    broker.create("A")
    broker.publish("ev.A", b"0", b"1", b"2", K="v")
    tails.follow("a", "A", 0)
    arrive(tails, "a", 3)
    assert come(tails, "a", 1) == ([(1, b"0")], 2)
    taken = tails.take("a", 1, 1)
    assert taken is not None
    middle = taken[0]
    assert len(middle) == 1
    assert middle.data.to_pylist() == [b"1"]
    assert b"K: v" in middle.header[0].as_py()
    assert middle.subject.to_pylist() == ["ev.A"]
    assert np.diff(middle.time_ns).size == 0
