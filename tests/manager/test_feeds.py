"""Simulations at real managers: exactly once, paused, continued by the next leader."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from mesh.errors import MeshError
from mesh.manager.feeds import FeedStatus
from mesh.manager.manager import running
from mesh.model import names
from mesh.model.simulation import FeedState
from mesh.settings import ManagerSettings, NatsSettings, Settings
from tests.support.api_feeds import feed
from tests.support.load import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from nats.js import JetStreamContext

    from mesh.jetstream.server import NatsServer
    from mesh.manager.manager import Manager
    from mesh.manager.service import ManagerService

    Scene = Callable[[Manager, ManagerService, JetStreamContext], Awaitable[None]]

pytestmark = pytest.mark.nats

TEXT = """@App:name('Shop')
define stream Orders (n int);
define stream Lines (k string, n long);
from Orders[n > 1] select n insert into Big;
from Lines[n > 1] select n insert into Large;
"""
LINES = {
    "siddhiAppName": "Shop", "streamName": "Lines", "simulationType": "CSV_SIMULATION",
    "fileName": "lines.csv", "timestampAttribute": "0", "indices": "2,1",
}  # fmt: skip


def settings(server: NatsServer, manager: str) -> Settings:
    return Settings(nats=NatsSettings(url=server.url), manager=ManagerSettings(id=manager))


@asynccontextmanager
async def managed(
    server: NatsServer,
) -> AsyncIterator[tuple[Manager, ManagerService, JetStreamContext]]:
    async with running(settings(server, "m1")) as (manager, service):
        await service.deploy(TEXT)
        yield manager, service, manager.client.jetstream()


async def events(js: JetStreamContext, stream: str) -> list[tuple[Any, int, str]]:
    """The values of the events of a stream, with their times and ids."""
    last = (await js.stream_info(f"mesh-Shop-{stream}")).state.last_seq
    found = [await js.get_msg(f"mesh-Shop-{stream}", n) for n in range(1, last + 1)]
    return [
        (orjson.loads(m.data or b""), int(heads[names.EVENT_TIME_HEADER]), heads["Nats-Msg-Id"])
        for m in found
        if (heads := m.headers or {})
    ]


def ended(service: ManagerService, name: str) -> Callable[[], Awaitable[bool]]:
    async def is_over() -> bool:
        return (await service.feeds.status(name)).state == "STOP"

    return is_over


async def test_a_simulation_runs_to_its_end_and_again(nats_server: NatsServer) -> None:
    async with managed(nats_server) as (manager, service, js):
        feeds = service.feeds
        values = feed("f", noOfEvents="5", startTimestamp="7000", timeInterval="0")
        await feeds.put_file("lines.csv", b"7500,1,a\n8500,2,b\n", is_new=True)
        values["sources"].append(LINES)
        assert await feeds.create(values, by="ada") == "f"
        assert await feeds.list_all() == [(values, "")]
        assert (await feeds.status("f")).state == "STOP"
        assert await feeds.operate("f", "run", by="ada") == (200, "started")
        await until(ended(service, "f"))
        assert await feeds.status("f") == FeedStatus(FeedState.STOP, 5)
        orders, lines = await events(js, "Orders"), await events(js, "Lines")
        assert [time for _, time, _ in orders] == [7000, 8000, 9000]
        assert [(one, time) for one, time, _ in lines] == [
            ({"k": "a", "n": 1}, 7500), ({"k": "b", "n": 2}, 8500),
        ]  # fmt: skip
        # Another run has events of its own.
        await feeds.operate("f", "run")
        await until(ended(service, "f"))
        assert len({id_ for *_, id_ in await events(js, "Orders")}) == 6
        await manager.journal.stored()
        story = [(one.by, one.text) for one in await service.story("Shop")]
        assert ("user ada", "started simulation f") in story


@pytest.mark.slow
async def test_a_pause_ends_the_events_and_a_resume_continues_them(nats_server: NatsServer) -> None:
    async with managed(nats_server) as (_, service, js):
        feeds = service.feeds
        await feeds.create(feed("f", noOfEvents="400", timeInterval="5"))
        await feeds.operate("f", "run")

        async def count() -> int:
            return (await js.stream_info("mesh-Shop-Orders")).state.messages

        async def has_begun() -> bool:
            return await count() > 0

        await until(has_begun)
        assert await feeds.operate("f", "pause") == (200, "paused")

        tasks = [task for task in asyncio.all_tasks() if task.get_name() == "simulation f"]
        await asyncio.wait(tasks)
        held = await count()
        assert (await feeds.status("f")).events == held < 400
        assert (await feeds.operate("f", "run"))[0] == 403
        await feeds.operate("f", "resume")
        await until(ended(service, "f"))
        found = await events(js, "Orders")
        assert [id_.rsplit("-", 1)[1] for *_, id_ in found] == [str(n) for n in range(400)]


@pytest.mark.slow
async def test_the_next_leader_continues_without_loss_or_repeat(nats_server: NatsServer) -> None:
    leads, ends = asyncio.Event(), asyncio.Event()

    async def lead() -> None:
        async with running(settings(nats_server, "m1")) as (leader, _):
            await until(lambda: _is(leader.leads))
            leads.set()
            await ends.wait()

    first = asyncio.create_task(lead())
    await leads.wait()
    async with running(settings(nats_server, "m2")) as (second, service):
        js = second.client.jetstream()

        async def has(least: int) -> bool:
            return (await js.stream_info("mesh-Shop-Orders")).state.messages >= least

        # Any manager answers; the leader publishes.
        await service.deploy(TEXT)
        await service.feeds.create(feed("f", noOfEvents="600", timeInterval="5"))
        await service.feeds.operate("f", "run")
        await until(lambda: has(50))
        # Some of them are in no note yet, and are published again.
        ends.set()
        await first
        noted = sum((await service.feeds._store.sent("f")).sent)
        assert await has(noted + 1)
        assert not await has(600)
        await until(ended(service, "f"))
        assert second.leads
        found = await events(js, "Orders")
        assert [id_.rsplit("-", 1)[1] for *_, id_ in found] == list(map(str, range(600)))


async def _is(value: bool) -> bool:
    return value


async def test_a_simulation_ends_with_its_app_and_says_so(nats_server: NatsServer) -> None:
    async with managed(nats_server) as (_, service, _):
        feeds = service.feeds
        await feeds.create(feed("f", timeInterval="5"))
        await feeds.operate("f", "run")
        await service.undeploy("Shop")
        await until(ended(service, "f"))
        assert 'app "Shop"' in (await feeds.status("f")).reason
        ((_, reason),) = await feeds.list_all()
        assert 'app "Shop"' in reason
        with pytest.raises(MeshError, match="Shop"):
            await feeds.operate("f", "run")


async def test_names_files_and_contents_are_looked_at_first(nats_server: NatsServer) -> None:
    async def refused(call: Awaitable[Any]) -> str:
        with pytest.raises(MeshError) as error:
            await call
        return error.value.code

    async with managed(nats_server) as (_, service, _):
        feeds = service.feeds
        assert (await feeds.list_all(), await feeds.files()) == ([], [])
        for call in (
            feeds.configuration("f"), feeds.status("f"), feeds.delete("f"),
            feeds.operate("f", "run"), feeds.update("f", feed("f")),
            feeds.delete_file("a.csv"), feeds.put_file("a.csv", b"", is_new=False),
        ):  # fmt: skip
            assert await refused(call) == "MESH-A404"
        large = feed("f", description="x" * 300_000)
        assert await refused(feeds.create(large)) == "MESH-A413"
        await feeds.create(feed("f"))
        await feeds.create(feed("g"))
        assert await refused(feeds.create(feed("f"))) == "MESH-A409"
        assert await refused(feeds.update("f", feed("g"))) == "MESH-A409"
        await feeds.update("f", feed("h"))
        assert await refused(feeds.status("f")) == "MESH-A404"
        await feeds.delete("h")
        await feeds.create(feed("h"))
        # Files: of a stream with other attributes, missing, and not of text.
        lines = {**feed("l"), "sources": [LINES]}
        await feeds.create(lines)
        assert await refused(feeds.operate("l", "run")) == "MESH-A404"
        await feeds.put_file("lines.csv", b"7,x,a\n", is_new=True)
        assert await refused(feeds.put_file("lines.csv", b"", is_new=True)) == "MESH-A409"
        assert await refused(feeds.put_file("b.csv", b"\xff", is_new=True)) == "MESH-A400"
        assert await refused(feeds.operate("l", "run")) == "MESH-A400"
        await feeds.put_file("lines.csv", b"7,1,a\n", is_new=False)
        assert await feeds.operate("l", "run") == (200, "started")
        await until(ended(service, "l"))
        assert await feeds.files() == ["lines.csv"]
        await feeds.delete_file("lines.csv")
        assert await feeds.files() == []
