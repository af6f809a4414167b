"""A leader is killed: its readers and writers continue as soon as there is another."""

from __future__ import annotations

import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

from pyspark_nats.protocol import connection_options
from pyspark_nats.protocol.connection import Connection, DisconnectedError
from pyspark_nats.protocol.subscriptions import wait_any
from pyspark_nats.sink import leader_watch
from pyspark_nats.source.tail import Tails
from tests.pyspark_nats.faults.relay import payloads
from tests.pyspark_nats.faults.test_servers import numbered, write
from tests.support.nats_cluster import create_replicated

if TYPE_CHECKING:
    from tests.support.broker import Broker
    from tests.support.nats_cluster import Cluster

pytestmark = [pytest.mark.nats, pytest.mark.restarts, pytest.mark.slow, pytest.mark.timeout(120)]


def connect(url: str) -> Connection:
    """A connection to one server, and to no other."""
    given = {"servers": url, "timeoutS": "60"}
    return Connection(connection_options.connection_options(given))


@pytest.fixture
def led(cluster: Cluster, cluster_broker: Broker) -> tuple[str, str]:
    """The leader of the stream OUT, and the URL of another server."""
    create_replicated(cluster_broker, "OUT")
    cluster.wait_for_replicas(cluster_broker, "OUT")
    leader = cluster.leader_of(cluster_broker, "OUT")
    return leader, another(cluster, leader)


def another(cluster: Cluster, name: str) -> str:
    """The URL of another server."""
    return next(node.url for node in cluster.nodes.values() if node.name != name)


def test_a_request_without_a_leader_reaches_the_next_one(
    cluster: Cluster, led: tuple[str, str]
) -> None:
    leader, url = led
    with connect(url) as connection:
        connection.retry_while_unavailable("connecting", lambda: None)
        cluster.kill(leader)
        # A request that was sent once would have no answer, however long it waited.
        call = (connection.api("STREAM.INFO.OUT"), b"")
        (reply,) = connection.requests([call], timeout_s=60.0)
    assert reply.json()["cluster"]["leader"] not in ("", leader)


def test_a_batch_that_was_lost_with_its_leader_is_sent_to_the_next_one(
    cluster: Cluster,
    cluster_broker: Broker,
    led: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Only the news of another leader ends the wait for the ack.
    monkeypatch.setattr(leader_watch, "_ACK_S", 600.0)
    leader, url = led
    rows = numbered(0, 200)
    write(url, "OUT", rows[:100])
    cluster.process(leader).send_signal(signal.SIGSTOP)
    writer = threading.Thread(target=write, args=(url, "OUT", rows), daemon=True)
    writer.start()
    cluster.kill(leader)
    writer.join(60)
    assert not writer.is_alive()
    assert payloads(cluster_broker, "OUT") == rows


def test_the_readers_of_a_killed_server_are_broken_soon_and_no_others(
    cluster: Cluster, cluster_broker: Broker, led: tuple[str, str]
) -> None:
    _, url = led
    with connect(url) as connection, connect(url) as asks:
        tails: Tails[int] = Tails(connection, asks)
        lost: set[int] = set()
        count = 0
        while not lost:
            assert count < 60, "no reader is elsewhere"
            tails.follow(count, "OUT", 0)
            count += 1
            elsewhere = {cluster.nodes[t.server].url: t.server for t in tails.by_key.values()}
            elsewhere.pop(url, None)
            victim = next(iter(elsewhere.values()), "")
            lost = {key for key, t in tails.by_key.items() if t.server == victim and victim}
        assert tails.receive() == set()
        cluster.kill(victim)
        began_s, found = time.monotonic(), set[int]()
        while found < lost:
            wait_any([connection], (), max(0.0, tails.check_s - time.monotonic()))
            found |= tails.receive()
            # Signs of life would be missed after 5 s.
            assert time.monotonic() - began_s < 3.0
        assert found == lost


def test_a_cluster_without_a_leader_makes_no_reader_and_says_so(
    cluster: Cluster, cluster_broker: Broker, led: tuple[str, str]
) -> None:
    del led
    leader = cluster.meta_leader()
    with connect(another(cluster, leader)) as connection:
        tails: Tails[str] = Tails(connection, connection)
        cluster.kill(leader)
        with pytest.raises(DisconnectedError, match="no consumer was made"):
            tails.follow("a", "OUT", 0)
        assert "a" not in tails
