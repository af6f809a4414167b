"""Servers of a connection: their order, and what a learned one is checked for."""

from __future__ import annotations

from pyspark_nats.protocol import servers
from pyspark_nats.protocol.servers import ServerPool


def test_servers_are_tried_in_order_and_each_address_once() -> None:
    given = (servers.parse("tls://ann:pw@first.example", ""), servers.parse("second:1", ""))
    pool = ServerPool(given)
    pool.learn(
        {"connect_urls": ["10.0.0.1:4222", "first.example:4222", "[::1]:5", "10.0.0.1:4222"]}
    )
    assert [str(one) for one in pool.servers] == [
        "tls://first.example:4222", "nats://second:1", "tls://10.0.0.1:4222", "tls://[::1]:5",
    ]  # fmt: skip
    learned = pool.servers[2]
    assert learned.credentials.user == "ann"
    assert learned.tls_name == "first.example"
    for turn in (1, 2, 3, 0):
        pool.advance()
        assert pool.current == pool.servers[turn]
    # A server that left the cluster is not tried again; one without announcements changes nothing.
    pool.learn({"connect_urls": ["10.0.0.2:4222"]})
    pool.learn({})
    assert [one.host for one in pool.servers] == ["first.example", "second", "10.0.0.2"]
    # The names of certificates outlast a second hop.
    pool.advance()
    pool.advance()
    pool.learn({"connect_urls": ["10.0.0.3:4222", "10.0.0.2:4222"]})
    assert pool.servers[2].host == "10.0.0.3"


def test_what_a_learned_server_is_checked_for_outlasts_a_second_hop() -> None:
    pool = ServerPool((servers.parse("tls://name.example", ""),))
    pool.learn({"connect_urls": ["10.0.0.1:4222", "10.0.0.2:4222"]})
    pool.advance()
    pool.learn({"connect_urls": ["10.0.0.2:4222", "other.example:4222"]})
    assert [one.tls_name for one in pool.servers] == ["", "name.example", ""]
