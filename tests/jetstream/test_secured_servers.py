"""Three servers as ``mesh nats-config`` writes them, and links with TLS between them and clients.

The end-to-end tests run on such servers with ``--secured``, and ``make chaos`` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import httpx
import pytest
from nats.js.errors import NoStreamResponseError

from mesh.errors import MeshError
from mesh.jetstream.connection import close, connect
from tests.support.secured import FEEDER, PUBLISHER, SecuredCluster, SecuredServers
from tools.links import Links, When

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from nats.js.api import PubAck
    from nats.js.client import JetStreamContext

    from mesh.settings import NatsSettings
    from tests.support.sockets import OpenSockets

pytestmark = [pytest.mark.nats, pytest.mark.slow]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServers]:
    made = SecuredServers(tmp_path_factory.mktemp("secured") / "nats", ("orders.>",))
    yield made
    made.stop()


def _of(servers: SecuredServers, user: str) -> NatsSettings:
    return servers.secured.settings(user, servers.urls())


async def _stored(js: JetStreamContext, subject: str) -> PubAck:
    """Publish as soon as the client's server knows of the stream that another one has created."""
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(NoStreamResponseError):
                return await js.publish(subject, b"1")


def test_a_key_without_a_certificate_and_a_certificate_without_a_key_are_refused(
    servers: SecuredServers,
) -> None:
    # The server announces the other two, which must not make attempts endless.
    url = servers.nodes["n1"].url
    worker = replace(servers.secured.settings("worker", url), connect_timeout_s=1.0)
    for less in (
        replace(worker, tls_cert="", tls_key=""),
        replace(worker, nkey_seed_file=""),
        replace(worker, tls_ca="", tls_cert="", url=url),
    ):
        with pytest.raises(MeshError, match="N110"):
            asyncio.run(connect(less, "test"))


async def test_a_client_knows_the_servers_that_the_first_one_announces(
    servers: SecuredServers,
) -> None:
    url = servers.nodes["n1"].url
    client = await connect(servers.secured.settings("worker", url), "test")
    try:
        assert len(client.servers) == 3
    finally:
        await close(client)


def test_servers_compress_what_they_encrypt_for_each_other(servers: SecuredServers) -> None:
    for node in servers.nodes.values():
        routes = httpx.get(f"http://127.0.0.1:{node.http_port}/routez", timeout=20).json()["routes"]
        assert {route["compression"] for route in routes} == {"s2_fast"}


async def test_each_has_its_subjects_and_a_link_with_tls_sees_them(servers: SecuredServers) -> None:
    with Links() as links:
        manager = await connect(_of(servers, "manager"), "manager")
        feeder = await connect(_of(servers, FEEDER), "feeder")
        addresses = [("127.0.0.1", node.port) for node in servers.nodes.values()]
        url = links.to("till", addresses, servers.secured.contexts("till"))
        till = await connect(servers.secured.settings(PUBLISHER, url, "till"), "till")
        try:
            js = manager.jetstream()
            for name, subject in (("mesh-Shop-Orders", "mesh.Shop.Orders"), ("O", "orders.>")):
                await js.add_stream(name=name, subjects=[subject], num_replicas=3)
            await _stored(feeder.jetstream(), "orders.a")
            acknowledged = await _stored(till.jetstream(), "mesh.Shop.Orders")
            assert acknowledged.stream == "mesh-Shop-Orders"
            with pytest.raises(TimeoutError):
                await till.request("$JS.API.STREAM.DELETE.mesh-Shop-Orders", timeout=0.3)
            trap = links.trap("till", b"mesh.Shop.Orders", When.BEFORE, lambda: None)
            await till.publish("mesh.Shop.Orders", b"2")
            assert await asyncio.to_thread(trap.closed.wait, 20)
        finally:
            for one in (till, feeder, manager):
                await close(one)


async def test_a_link_leaves_no_socket_open_to_a_server_that_hangs(
    servers: SecuredServers, sockets: OpenSockets
) -> None:
    server = servers.process("n1")

    try:
        with Links() as links:
            address = "127.0.0.1", servers.nodes["n1"].port
            url = links.to("till", [address], servers.secured.contexts("till"))
            client = await connect(servers.secured.settings(PUBLISHER, url, "till"), "till")
            # With TLS, the link says goodbye to the server and waits for its answer.
            server.send_signal(signal.SIGSTOP)
            await close(client)
        assert sockets.of_ended_loops() == []
    finally:
        server.send_signal(signal.SIGCONT)


@pytest.mark.extended
def test_at_its_end_a_cluster_tells_of_secrets_in_what_it_leaves(tmp_path: Path) -> None:
    cluster = SecuredCluster(tmp_path, workers=0)
    seed = cluster.servers.secured.secrets()["seed of worker"]
    assert seed.startswith("SU")
    (tmp_path / "w1.log").write_text(f"login {seed}")
    with pytest.raises(AssertionError, match=r"seed of worker in file w1\.log"):
        cluster.stop()
