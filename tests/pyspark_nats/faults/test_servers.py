"""Servers killed, restarted, paused and without a leader, while rows are read and written.

Every test compares the output stream with the input stream, row by row.
"""

from __future__ import annotations

import signal
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from mesh.jetstream import server
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.sink import exactly_once, messages_out, publish, sink_options
from pyspark_nats.source import fetch, messages
from pyspark_nats.source.ranges import Blocks, StreamRange
from tests.pyspark_nats.faults.relay import TIMEOUT_S, Relay, payloads
from tests.support.nats_cluster import create_replicated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_nats.errors import RefusedError
    from tests.support.broker import Broker
    from tests.support.nats_cluster import Cluster

pytestmark = [pytest.mark.nats, pytest.mark.restarts, pytest.mark.slow]


def numbered(first: int, count: int, size: int = 0) -> list[bytes]:
    """Payloads with their number, of ``size`` bytes at least."""
    return [(b"%d " % n).ljust(size, b".") for n in range(first, first + count)]


def has_more_than(broker: Broker, sequence: int) -> bool:
    """Whether stream OUT has gone beyond ``sequence``."""
    return broker.info("OUT").last > sequence


@pytest.fixture
def relays() -> Iterator[list[Relay]]:
    """Relays to end with the test, also when it fails."""
    started: list[Relay] = []
    yield started
    for relay in started:
        if relay.is_running:
            relay.finish()


def write(
    url: str, stream: str, rows: list[bytes], *, guarantee: str = "exactly-once", step: int = 1000
) -> None:
    """Publish ``rows`` with their number as position, as a task of the sink would.

    ``step`` is the size of an Arrow batch.
    """
    given = sink_options.sink_options(
        {"servers": url, "timeoutS": TIMEOUT_S, "deliveryGuarantee": guarantee}
    )
    with Connection(given.connection) as connection:
        publisher = publish.RowPublisher(connection, given)
        for at in range(0, len(rows), step):
            data = pa.array(rows[at : at + step], pa.binary())
            publisher.add(
                messages_out.with_schema_columns(
                    pa.record_batch({"data": data}),
                    stream=stream, subject=f"ev.{stream}", producer="p", first_position=at,
                )
            )  # fmt: skip
        publisher.finish()


def kill_and_restart(running: server.NatsServer) -> None:
    """Kill -9 a server and start it again with its files, on its port."""
    running.process.kill()
    running.process.wait()
    running.process = server.start(running.directory, port=running.port).process


# --- one server


@pytest.mark.extended
def test_a_standalone_server_killed_and_started_again(
    broker: Broker, nats_server: server.NatsServer, relays: list[Relay]
) -> None:
    broker.create("IN")
    broker.create("OUT")
    relays.append(relay := Relay(broker.url, batch_rows=10))
    for _ in range(3):
        broker.publish("ev.IN", *numbered(0, 3000))
        relay.wait_for(3, "three batches before the kill")
        kill_and_restart(nats_server)
        relay.wait_for(1, "a batch after the kill")
    relay.finish()
    assert payloads(broker, "OUT") == payloads(broker, "IN") == numbered(0, 3000) * 3


@pytest.mark.thorough
def test_a_server_that_stands_still_for_three_seconds(
    broker: Broker, nats_server: server.NatsServer, relays: list[Relay]
) -> None:
    broker.create("IN")
    broker.create("OUT")
    broker.publish("ev.IN", *numbered(0, 5000))
    relays.append(relay := Relay(broker.url, batch_rows=10))
    relay.wait_for(3, "three batches")
    nats_server.process.send_signal(signal.SIGSTOP)
    # The length of the pause is the fault itself: longer than the timeout of a request.
    threading.Event().wait(3)
    assert relay.batches < 400
    nats_server.process.send_signal(signal.SIGCONT)
    relay.finish()
    assert payloads(broker, "OUT") == payloads(broker, "IN") == numbered(0, 5000)


@pytest.mark.thorough
def test_two_writers_of_one_producer_and_a_server_killed_under_both(
    broker: Broker, nats_server: server.NatsServer
) -> None:
    expected = numbered(0, 60_000)
    broker.create("OUT")
    # Their atomic batches end at different rows, and both are several batches ahead of their acks.
    writers = [
        threading.Thread(target=write, args=(broker.url, "OUT", expected), kwargs={"step": step})
        for step in (3000, 4700)
    ]
    for writer in writers:
        writer.start()
    for stored in (5000, 30_000):
        has_more = partial(has_more_than, broker, stored)
        broker.wait_until("OUT", has_more, "a part of the rows")
        kill_and_restart(nats_server)
    for writer in writers:
        writer.join(60)
        assert not writer.is_alive()
    assert payloads(broker, "OUT") == expected


# --- three servers


@pytest.mark.thorough
@pytest.mark.parametrize("is_connected_to_leader", [True, False])
def test_the_leader_is_killed_during_a_long_read(
    cluster: Cluster, cluster_broker: Broker, is_connected_to_leader: bool
) -> None:
    # More than two requests of the reader deliver, so the rest is not under way at the kill.
    expected = numbered(0, 40_000, 700)
    create_replicated(cluster_broker, "IN")
    write(cluster_broker.url, "IN", expected, guarantee="at-least-once")
    cluster.wait_for_replicas(cluster_broker, "IN")
    leader = cluster.leader_of(cluster_broker, "IN")
    other = next(name for name in cluster.nodes if name != leader)
    given = sink_options.sink_options(
        {"servers": cluster.urls(first=leader if is_connected_to_leader else other),
         "timeoutS": TIMEOUT_S}
    )  # fmt: skip
    with Connection(given.connection) as connection:
        wanted = StreamRange("IN", 0, len(expected), 0, 0)
        parts = fetch.read_range(connection, wanted, Blocks())
        first = next(parts)
        assert len(first) < len(expected) / 2
        cluster.kill(leader)
        rest = list(parts)
    found = messages.concatenated([first, *rest])
    assert found.data.to_pylist() == expected
    assert found.sequence.tolist() == list(range(1, len(expected) + 1))


def test_the_leader_is_killed_while_rows_are_written_exactly_once(
    cluster: Cluster, cluster_broker: Broker
) -> None:
    expected = numbered(0, 20_000)
    create_replicated(cluster_broker, "OUT")
    leader = cluster.leader_of(cluster_broker, "OUT")
    writer = threading.Thread(target=write, args=(cluster_broker.url, "OUT", expected))
    writer.start()
    cluster_broker.wait_until(
        "OUT", lambda: has_more_than(cluster_broker, 3000), "a part of the rows"
    )
    cluster.kill(leader)
    writer.join(60)
    assert not writer.is_alive()
    assert payloads(cluster_broker, "OUT") == expected
    assert cluster_broker.marker("OUT", "p").position == len(expected) - 1


@pytest.mark.thorough
def test_a_replicated_stream_takes_rows_ahead_as_well(
    cluster: Cluster, cluster_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replicas refuse a marker while the one before it is on its way (10164); ours never is."""
    expected = numbered(0, 60_000)
    create_replicated(cluster_broker, "OUT")
    cluster.wait_for_replicas(cluster_broker, "OUT")
    codes: list[int | None] = []
    refused = exactly_once.ExactlyOncePublisher._refused

    def spied(self: Any, chunk: Any, error: RefusedError) -> None:
        codes.append(error.err_code)
        refused(self, chunk, error)

    monkeypatch.setattr(exactly_once.ExactlyOncePublisher, "_refused", spied)
    write(cluster_broker.url, "OUT", expected, step=10_000)
    assert codes == []
    assert payloads(cluster_broker, "OUT") == expected
    assert cluster_broker.marker("OUT", "p").position == len(expected) - 1


@pytest.mark.extended
def test_the_meta_leader_is_killed_then_every_server_restarted_in_turn(
    cluster: Cluster, cluster_broker: Broker, relays: list[Relay]
) -> None:
    for name in ("IN", "OUT"):
        create_replicated(cluster_broker, name)
    relays.append(relay := Relay(cluster_broker.url, batch_rows=50))

    def go_on(what: str) -> None:
        # Written through the fault as well: duplicates here are duplicates in the input.
        cluster_broker.publish("ev.IN", *numbered(0, 500))
        relay.wait_for(2, f"batches after {what}")

    go_on("the start")
    killed = cluster.meta_leader()
    cluster.kill(killed)
    go_on("the meta leader was killed")
    cluster.restart(killed)
    for name in cluster.nodes:
        cluster.wait_for_replicas(cluster_broker, "IN", "OUT")
        cluster.terminate(name)
        go_on(f"{name} was ended")
        cluster.restart(name)
    relay.finish()
    assert payloads(cluster_broker, "OUT") == payloads(cluster_broker, "IN")
