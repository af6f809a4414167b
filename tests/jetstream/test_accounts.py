"""The accounts of ``mesh nats-config``: each user may do its part, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import nats
import nats.errors
import orjson
import pytest

from mesh.jetstream import server
from mesh.manager.manager import running
from mesh.model import names
from mesh.settings import ManagerSettings, NatsSettings, Settings
from pyspark_nats.protocol import jetstream
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.protocol.connection_options import connection_options
from tests.support.agents import Cluster
from tests.support.permissions import PASSWORDS, SHOP, inbox_of, write_accounts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from nats.aio.client import Client

    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats

ORDERS, DEAR = "mesh.Shop.Orders", "mesh.Shop.DearOrders"
#: Subjects that no client may publish to.
FOREIGN = (
    "$KV.mesh_apps.app.Shop",
    "$KV.mesh_control.lease",
    "$JS.API.STREAM.DELETE.mesh-Shop-Orders",
    "$JS.API.STREAM.PURGE.mesh-Shop-DearOrders",
    "$JS.API.CONSUMER.CREATE.mesh-Shop-DearOrders",
    "mesh._marker.mesh-Shop-Orders.p",
    "mesh._errors.Shop",
    "mesh.Other.Orders",
    "mesh.Other._query",
    "mesh._ask.w1",
)


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[NatsServer]:
    """A server with these accounts."""
    made = server.start(tmp_path / "nats", arguments=write_accounts(tmp_path / "accounts.conf"))
    yield made
    made.stop()


class Violations:
    """Counts the errors that the server reports."""

    def __init__(self) -> None:
        self.count = 0
        self._changed = asyncio.Event()

    async def note(self, _: Exception) -> None:
        self.count += 1
        self._changed.set()

    async def grow(self, before: int) -> bool:
        """Whether there are more than before, at the latest after 20 s."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(20):
                while self.count <= before:
                    self._changed.clear()
                    await self._changed.wait()
        return self.count > before


class User:
    """A connection, with the violations that the server has reported for it."""

    def __init__(self, client: Client, violations: Violations) -> None:
        self.client, self.violations = client, violations

    async def is_refused(self, subject: str) -> bool:
        """Whether the server refuses a message on a subject."""
        before = self.violations.count
        await self.client.publish(subject, b"{}")
        return await self.violations.grow(before)


@contextlib.asynccontextmanager
async def user(nats_server: NatsServer, name: str) -> AsyncIterator[User]:
    violations = Violations()
    options: dict[str, Any] = {"user": name, "password": PASSWORDS[name]}
    options["inbox_prefix"] = inbox_of(name)
    options["error_cb"] = violations.note
    client = await nats.connect(nats_server.url, max_reconnect_attempts=1, **options)
    try:
        yield User(client, violations)
    finally:
        await client.close()


def manager_of(nats_server: NatsServer) -> Settings:
    return Settings(
        nats=NatsSettings(
            url=nats_server.url,
            user="manager",
            password=PASSWORDS["manager"],
            inbox_prefix=inbox_of("manager"),
        ),
        manager=ManagerSettings(id="m1"),
    )


@pytest.mark.slow
async def test_clients_may_publish_subscribe_and_read_what_they_are_for(
    guarded: NatsServer,
) -> None:
    event = orjson.dumps({"item": "lamp", "price": 120.0})

    def read() -> int:
        given = {"servers": guarded.url, "user": "board", "password": PASSWORDS["board"]}
        options = connection_options({**given, "timeoutS": "20", "jsApiPrefix": "MESH.API"})
        with Connection(options) as connection:
            name = "mesh-Shop-DearOrders"
            found = connection.retry_while_unavailable(
                "look", lambda: jetstream.stream_infos(connection, [name])
            )
            return int(found[name].last)

    async with (
        running(manager_of(guarded)) as (manager, service),
        user(guarded, "till") as till,
        user(guarded, "board") as board,
        user(guarded, "desk") as desk,
        user(guarded, "worker") as worker,
    ):
        await service.deploy(SHOP)
        ack = await till.client.jetstream().publish(ORDERS, event)
        assert (ack.stream, ack.seq) == ("mesh-Shop-Orders", 1)
        seen = await board.client.subscribe(DEAR)
        await board.client.flush()
        count = 0
        async with asyncio.timeout(20):
            # A subscription of another account may be in force only after its confirmation.
            while not seen.pending_msgs:
                await worker.client.jetstream().publish(DEAR, event)
                count += 1
        assert (await seen.next_msg(20)).data == event
        assert await asyncio.to_thread(read) == count
        inbox = board.client.new_inbox()
        stored = await board.client.subscribe(inbox)
        wanted = orjson.dumps({"seq": 1, "batch": 10})
        subject = "MESH.API.DIRECT.GET.mesh-Shop-DearOrders"
        await board.client.publish(subject, wanted, reply=inbox)
        assert (await stored.next_msg(20)).data == event
        # The app has no table; that a manager says so is an answer.
        answer = await desk.client.request("mesh.Shop._query", b"from Prices", timeout=30)
        assert orjson.loads(answer.data)["code"] == "MESH-L217"
        assert not any(one.violations.count for one in (till, board, desk, worker))

        assert await desk.is_refused(ORDERS)
        assert await till.is_refused("mesh.Shop._query")
        for one in (till, board, desk):
            for subject in (*FOREIGN, DEAR, *({ORDERS} if one is board else ())):
                assert await one.is_refused(subject), subject
        for one in (till, board):
            before = one.violations.count
            await one.client.subscribe("mesh.>")
            assert await one.violations.grow(before)
        assert (await service.app("Shop")).text == SHOP
        info = await manager.client.jetstream().stream_info("mesh-Shop-Orders")
        assert info.state.messages == 1


async def test_a_worker_changes_no_desired_state(guarded: NatsServer) -> None:
    async with running(manager_of(guarded)) as (_, service), user(guarded, "worker") as worker:
        await service.deploy(SHOP)
        for subject in (
            *FOREIGN[:2],
            "$KV.mesh_control.assignment.Shop-default-1",
            "$KV.mesh_control.form.Shop.default",
            "$KV.mesh_control.node.manager.m1",
            "$KV.mesh_backups.backup.Shop.r1",
            "$JS.API.STREAM.DELETE.KV_mesh_apps",
            "$JS.API.STREAM.PURGE.KV_mesh_control",
        ):
            assert await worker.is_refused(subject), subject
        assert (await service.app("Shop")).text == SHOP


@pytest.mark.parametrize(
    "subject",
    [
        names.connector_subject("Shop", "sink-T"),
        names.answer_subject("token", "1"),
        names.call_subject("Shop", "sink", 200),
        names.check_subject("w1"),
        names.question_subject("w1"),
    ],
)
async def test_a_worker_hears_what_it_is_asked(guarded: NatsServer, subject: str) -> None:
    async with user(guarded, "worker") as worker, user(guarded, "manager") as manager:

        async def answer(message: Any) -> None:
            await message.respond(b"here")

        await worker.client.subscribe(subject, cb=answer)
        await worker.client.flush()
        assert worker.violations.count == 0
        reply = b""
        async with asyncio.timeout(20):
            while not reply:
                # The server may know of the interest a little later.
                with contextlib.suppress(nats.errors.NoRespondersError):
                    reply = (await manager.client.request(subject, b"?", timeout=10)).data
        assert reply == b"here"


async def test_managers_and_agents_do_their_work(guarded: NatsServer, tmp_path: Path) -> None:
    """Agents are real processes; their sessions run nothing."""

    cluster = Cluster(guarded, tmp_path)
    try:
        async with running(manager_of(guarded)) as (manager, service):
            login = {"USER": "worker", "PASSWORD": PASSWORDS["worker"]}
            login["INBOX_PREFIX"] = inbox_of("worker")
            cluster.worker("w1", **{f"MESH_NATS_{name}": value for name, value in login.items()})
            await service.deploy(SHOP)
            status = await service.wait_running("Shop", 60)
            assert status.state == "running", cluster.logs()
            await service.order_node("w1", "draining")
            await service.undeploy("Shop")
            while service.record("Shop") is not None:
                await manager.view.changed(manager.view.version, 5.0)
            await manager.journal.stored()
            told = " ".join(entry.text for entry in await service.story("Shop"))
            assert "w1" in told
    finally:
        cluster.end()
    assert "Violation" not in guarded.log.read_text()
