"""Connections that the server ends with an error: processes come back by themselves, or end."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import httpx
import pytest

from mesh.errors import MeshError
from mesh.jetstream import server
from mesh.jetstream.connection import close, connect, listen, while_open
from mesh.jetstream.server import free_port
from mesh.manager.manager import running
from mesh.settings import ManagerSettings, NatsSettings, Settings, WorkerSettings
from mesh.worker.metrics import serving
from tests.support.agents import MANAGER, Cluster, looking

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats

#: Two users of one account: one looks while the other is refused.
ACCOUNTS = """
max_payload: {payload}
accounts {{
  M {{
    jetstream: enabled
    users = [{{user: mesh, password: {password}}}, {{user: eye, password: eye}}]
  }}
}}
"""
_RELOADED = b"Reloaded server configuration"


class Reloaded:
    """A server whose configuration is changed while it runs."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "accounts.conf"
        self.write()
        self.server = server.start(directory / "nats", arguments=["-c", str(self.path)])

    def write(self, password: str = "first", payload: int = 1_048_576) -> None:
        self.path.write_text(ACCOUNTS.format(password=password, payload=payload), "utf-8")

    def settings(self) -> NatsSettings:
        return NatsSettings(url=self.server.url, user="mesh", password="first")

    def said(self, text: bytes) -> int:
        """Number of lines of the server's log with a text."""
        return self.server.log.read_bytes().count(text)

    async def reload(self, password: str = "first", payload: int = 1_048_576) -> None:
        """Reload, and return once the server has."""
        said = self.said(_RELOADED)
        self.write(password, payload)
        self.server.process.send_signal(signal.SIGHUP)
        for _ in range(400):
            if self.said(_RELOADED) > said:
                return
            await asyncio.sleep(0.05)
        raise AssertionError(self.server.log.read_text("utf-8"))


@pytest.fixture
def reloaded(tmp_path: Path) -> Iterator[Reloaded]:
    made = Reloaded(tmp_path)
    yield made
    made.server.stop()


async def test_a_client_whose_login_is_refused_for_a_while_comes_back(reloaded: Reloaded) -> None:
    client = await connect(reloaded.settings(), "test")
    changes: asyncio.Queue[bool] = asyncio.Queue()
    listen(client, changes.put_nowait)
    received = await client.subscribe("a")
    await reloaded.reload(password="other")
    assert not await asyncio.wait_for(changes.get(), 20)
    await reloaded.reload()
    assert await asyncio.wait_for(changes.get(), 20)
    await client.publish("a", b"1")
    assert (await received.next_msg(10)).data == b"1"
    await close(client)


async def test_a_message_above_a_lowered_limit_ends_no_client(reloaded: Reloaded) -> None:
    client = await connect(reloaded.settings(), "test")
    changes: asyncio.Queue[bool] = asyncio.Queue()
    listen(client, changes.put_nowait)
    await reloaded.reload(payload=100)
    # The client learns of the limit only by its next connection.
    client._max_payload = 1_048_576
    await client.publish("a", b"0" * 200)
    assert not await asyncio.wait_for(changes.get(), 20)
    assert await asyncio.wait_for(changes.get(), 20)
    assert client.max_payload == 100
    await close(client)


@pytest.fixture
def cluster(reloaded: Reloaded, tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(reloaded.server, tmp_path)
    yield made
    made.end()


@pytest.mark.slow
async def test_manager_and_worker_come_back_after_their_login_was_refused(
    reloaded: Reloaded, cluster: Cluster
) -> None:
    login = {"MESH_NATS_USER": "mesh", "MESH_NATS_PASSWORD": "first"}
    port = free_port()
    cluster.start("m1", MANAGER, MESH_MANAGER_ID="m1", **login)
    cluster.worker("w1", MESH_WORKER_PROBE_PORT=str(port), **login)
    seen_by = NatsSettings(url=reloaded.server.url, user="eye", password="eye")
    async with looking(cluster, seen_by) as eye:

        def beats() -> dict[str, int]:
            return {node.value.id: node.value.beat for node in eye.view.snapshot().nodes}

        await eye.deploy_on("w1")
        await reloaded.reload(password="other")
        # Two connections of the manager, those of the worker and its connectors, several times.
        await eye.until("refused", lambda: reloaded.said(b"authentication error") > 20)
        before = beats()
        assert set(before) == {"m1", "w1"}
        await reloaded.reload()
        await eye.until("back", lambda: all(beats()[name] > before[name] + 2 for name in before))
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            assert (await client.get("/health/live")).status_code == 200


async def test_a_client_that_is_closed_for_good_ends_its_work(nats_server: NatsServer) -> None:
    client = await connect(NatsSettings(url=nats_server.url), "test")
    waiting = asyncio.create_task(while_open(client, asyncio.Event().wait()))
    await client.close()
    with pytest.raises(MeshError) as refused:
        await waiting
    assert refused.value.code == "MESH-N114"


async def test_a_fault_of_connecting_again_closes_for_good(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await connect(NatsSettings(url=nats_server.url), "test")

    def fail() -> bytes:
        raise ValueError("no such key")

    monkeypatch.setattr(client, "_connect_command", fail)
    work = asyncio.create_task(while_open(client, asyncio.Event().wait()))
    await client.force_reconnect()
    with pytest.raises(MeshError) as refused:
        await asyncio.wait_for(work, 20)
    assert refused.value.detail == "no such key."


@pytest.mark.slow
async def test_a_manager_ends_when_a_client_is_closed_for_good(nats_server: NatsServer) -> None:
    settings = Settings(nats=NatsSettings(url=nats_server.url), manager=ManagerSettings(id="m1"))

    async def work() -> None:
        async with running(settings) as (manager, service):
            assert service.is_live()
            await manager.client.close()
            assert not service.is_live()
            await asyncio.Event().wait()

    with pytest.raises(MeshError) as ended:
        await work()
    assert ended.value.code == "MESH-N114"


async def test_a_worker_whose_client_is_closed_is_not_live(nats_server: NatsServer) -> None:
    client = await connect(NatsSettings(url=nats_server.url), "test")
    port = free_port()
    async with (
        serving(WorkerSettings(probe_port=port)) as probes,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as asking,
    ):
        probes.client = client
        assert (await asking.get("/health/live")).status_code == 200
        await client.close()
        assert (await asking.get("/health/live")).status_code == 503
