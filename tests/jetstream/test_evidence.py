"""Planted faults of an app's streams, markers and states: each is found, and nothing else is.

Buckets of the mesh that are deleted while it runs: named, made again, and filled again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from mesh.clock import SystemClock
from mesh.control.verification import KINDS, findings
from mesh.jetstream import evidence, journal, kv
from mesh.jetstream.blob_store import JETSTREAM, open_blob_store
from mesh.jetstream.channels import BEFORE
from mesh.manager.manager import running
from mesh.model import names
from mesh.settings import ChannelSettings, ManagerSettings, NatsSettings, Settings
from mesh.spark.instance_io import POSITIONS_PER_MESSAGE
from tests.support.agents import APP, looking

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from nats.aio.client import Client

    from mesh.jetstream.server import NatsServer
    from mesh.manager.manager import Manager
    from mesh.manager.service import ManagerService
    from mesh.model.cluster import AppRecord
    from tests.support.agents import Cluster


pytestmark = pytest.mark.nats

TEXT = """@App:name('{name}')
define stream S (k string, a int);
@dist(execGroup='copy') from S select k, a insert into T;
@dist(execGroup='sums', partitions='2')
from T select k, sum(a) as total group by k insert into U;
"""
SETTINGS = ChannelSettings(partitions=2)
EVENTS = 10


@dataclass
class App:
    """A deployed app with ten events, their copies in partition 0, and the state of that."""

    client: Client
    record: AppRecord

    @property
    def name(self) -> str:
        return self.record.spec.name

    @property
    def copies(self) -> str:
        return f"mesh-{self.name}-T-by-k-0"

    async def marker(self, js_stream: str, producer: str, position: int, epoch: int = 0) -> None:
        subject = f"{names.marker_subject(js_stream)}.{self.record.incarnation}-{producer}"
        values = {"position": position, "epoch": epoch}
        await self.client.jetstream().publish(subject, orjson.dumps(values))

    async def snapshot(self, position: int, epoch: int = 0, piece: str = "piece") -> None:
        name = f"{self.record.incarnation}/sums/0/0-x/{piece}"
        manifest = {"position": [[self.copies, position, 0]]}
        values = {"epoch": epoch, "objects": {"p": name}, "manifest": manifest}
        bucket = await self.client.jetstream().key_value(names.SNAPSHOTS_BUCKET)
        await bucket.put(f"{self.record.incarnation}.sums.0", orjson.dumps(values))

    async def overwrite(self, manifest: bytes) -> None:
        bucket = await self.client.jetstream().key_value(names.SNAPSHOTS_BUCKET)
        await bucket.put(f"{self.record.incarnation}.sums.0", manifest)

    async def fill(self) -> None:
        js = self.client.jetstream()
        for n in range(EVENTS):
            await js.publish(f"mesh.{self.name}.S", b'{"k":"a","a":%d}' % n)
            await js.publish(f"mesh.{self.name}.T.by.k.0", b'{"k":"a","a":%d}' % n)
        last = (EVENTS + 1) * POSITIONS_PER_MESSAGE - 1
        await self.marker(self.copies, "copy-1of1-1", last)
        await self.marker(f"mesh-{self.name}-U", "sums-0", 3)
        pieces = open_blob_store(js, JETSTREAM, {})
        await pieces.put(f"{self.record.incarnation}/sums/0/0-x/piece", b"state")
        await self.snapshot(EVENTS)

    async def change(self, js_stream: str, **config: Any) -> None:
        """Change a stream as 'nats stream edit' would."""
        js = self.client.jetstream()
        call = f"$JS.API.STREAM.INFO.{js_stream}"
        old = orjson.loads((await self.client.request(call, timeout=10)).data)["config"]
        if "storage" in config:
            await js.delete_stream(js_stream)
        verb = "CREATE" if "storage" in config else "UPDATE"
        new = orjson.dumps({**old, **config})
        reply = await self.client.request(f"$JS.API.STREAM.{verb}.{js_stream}", new, timeout=10)
        assert "error" not in orjson.loads(reply.data), reply.data

    async def delete(self, js_stream: str, *sequences: int) -> None:
        for sequence in sequences:
            await self.client.jetstream().delete_msg(js_stream, sequence)

    async def purge(self, js_stream: str, below: int) -> None:
        await self.client.jetstream().purge_stream(js_stream, seq=below)

    async def more(self, count: int) -> None:
        """Copies that the state does not include."""
        for n in range(count):
            await self.client.jetstream().publish(f"mesh.{self.name}.T.by.k.0", b"{}%d" % n)


async def _lost_state(app: App) -> None:
    bucket = await app.client.jetstream().key_value(names.SNAPSHOTS_BUCKET)
    await bucket.purge(f"{app.record.incarnation}.sums.0")
    await app.purge(app.copies, 5)


async def _nothing_left(app: App) -> None:
    # Its writers' markers and the states that include it stay.
    await app.client.jetstream().purge_stream(f"mesh-{app.name}-S")
    await app.change(f"mesh-{app.name}-S", storage="memory")


async def _full(app: App) -> None:
    await app.more(200)
    info = await app.client.jetstream().stream_info(app.copies)
    await app.change(app.copies, max_bytes=info.state.bytes + 100)


PLANTED: Mapping[str, tuple[Callable[[App], Awaitable[None]], set[str]]] = {
    "stream deleted": (
        lambda app: _after(app.client.jetstream().delete_stream(f"mesh-{app.name}-T-by-k-1")),
        {"stream-missing"},
    ),
    "subject taken away": (
        lambda app: app.change(f"mesh-{app.name}-S", subjects=["other." + app.name]),
        {"subject-missing"},
    ),
    "rollups allowed": (
        lambda app: app.change(f"mesh-{app.name}-S", allow_rollup_hdrs=True),
        {"rollup-allowed"},
    ),
    "atomic batches off": (
        lambda app: app.change(f"mesh-{app.name}-U", allow_atomic=False),
        {"atomic-off"},
    ),
    "made anew in memory": (_nothing_left, {"in-memory", "marker-beyond-input"}),
    "retention of a minute": (
        lambda app: app.change(f"mesh-{app.name}-U", max_age=60 * 10**9, duplicate_window=10**9),
        {"retention-short"},
    ),
    "unread messages fill the stream": (_full, {"size-near"}),
    "a range purged before it was read": (
        lambda app: _after(app.more(5), app.purge(app.copies, EVENTS + 4)),
        {"messages-expired"},
    ),
    "a marker of another writer": (
        lambda app: app.marker(app.copies, "copy-7of9-1", 5),
        {"marker-unknown"},
    ),
    "a marker of a future epoch": (
        lambda app: app.marker(f"mesh-{app.name}-U", "sums-0", 3, epoch=99),
        {"marker-ahead"},
    ),
    "a marker beyond its input": (
        lambda app: app.marker(app.copies, "copy-1of1-1", 50 * POSITIONS_PER_MESSAGE),
        {"marker-beyond-input"},
    ),
    "a piece of a state deleted": (
        lambda app: app.snapshot(EVENTS, piece="gone"),
        {"state-incomplete"},
    ),
    "a manifest written over": (
        lambda app: app.overwrite(b'{"objects": {}}'),
        {"state-unreadable"},
    ),
    "a state of a future epoch": (lambda app: app.snapshot(EVENTS, epoch=99), {"state-ahead"}),
    "a state of messages that are not there": (lambda app: app.snapshot(50), {"input-lost"}),
    "a state deleted": (_lost_state, {"state-lost"}),
}


async def _after(*works: Awaitable[object]) -> None:
    for work in works:
        await work


async def found(app: App, view: Any, replicas: int = 1) -> set[str]:
    pieces = open_blob_store(app.client.jetstream(), JETSTREAM, {})
    made = await evidence.collect(app.client, pieces, app.record, view.snapshot(), replicas, 2e9)
    return {one.kind for one in findings(made)}


@pytest.mark.slow
def test_each_planted_fault_is_found_and_nothing_else(nats_server: NatsServer) -> None:
    settings = Settings(
        nats=NatsSettings(url=nats_server.url),
        manager=ManagerSettings(id="m1"),
        channels=SETTINGS,
    )
    seen: dict[str, tuple[set[str], set[str]]] = {}

    async def scene() -> None:
        async with running(settings) as (manager, service):
            for number, (what, (plant, _)) in enumerate(PLANTED.items()):
                await service.deploy(TEXT.format(name=f"A{number}"))
                record = service.record(f"A{number}")
                assert record is not None
                app = App(service.client, record)
                await app.fill()
                healthy = await found(app, manager.view)
                await plant(app)
                seen[what] = healthy, await found(app, manager.view)
            # Of a record that is as it was, but for the number of copies that settings name.
            assert await found(app, manager.view, replicas=3) >= {"copies-few"}

    asyncio.run(scene())
    assert seen == {what: (set(), kinds) for what, (_, kinds) in PLANTED.items()}


def test_kinds_without_a_plant_are_compared_with_made_evidence() -> None:
    planted = {kind for _, kinds in PLANTED.values() for kind in kinds} | {"copies-few"}
    # Replicas of other servers, ages, and readers that run: tests/control/test_verification.py.
    assert set(KINDS) - planted == {
        "copy-away",
        "copy-behind",
        "messages-deleted",
        "retention-near",
    }


@pytest.mark.slow
async def test_the_background_believes_what_it_sees_twice(nats_server: NatsServer) -> None:
    noted: list[Any] = []

    settings = Settings(nats=NatsSettings(url=nats_server.url), channels=SETTINGS)
    async with running(settings) as (_, service):
        await service.deploy(TEXT.format(name="Twice"))
        record = service.record("Twice")
        assert record is not None
        app, verification = App(service.client, record), service.verification
        await app.fill()
        await app.snapshot(50)
        await verification.round(noted.append)
        assert not verification.figures()
        for _ in range(2):
            await verification.round(noted.append)
            assert verification.figures() == {("Twice", "fault", "input-lost"): 1}
        (problem,) = [p for p in (await service.overview()).problems if p.name == "Twice"][-1:]
        assert (problem.state, problem.command) == ("fault", "mesh verify Twice")
        assert [one.kind for one in await verification.verify("Twice")] == ["input-lost"]
        await app.snapshot(EVENTS)
        await verification.round(noted.append)
        assert not verification.figures()
    (entry,) = noted
    assert (entry.app, entry.text) == ("Twice", "found input-lost in sums.0")


async def test_an_app_that_goes_during_a_round_is_passed_over(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    collect = evidence.collect

    settings = Settings(nats=NatsSettings(url=nats_server.url), channels=SETTINGS)
    async with running(settings) as (manager, service):

        async def undeploy_the_other(*args: Any) -> Any:
            looked.append(args[2].spec.name)
            if len(looked) == 1:
                (other,) = {"First", "Second"} - set(looked)
                await service.undeploy(other)
                while service.record(other) is not None:
                    await manager.view.changed(manager.view.version, 0.2)
            return await collect(*args)

        for name in ("First", "Second"):
            await service.deploy(TEXT.format(name=name))
        monkeypatch.setattr(evidence, "collect", undeploy_the_other)
        await service.verification.round(None)
    assert len(looked) == 1


class _Later(SystemClock):
    """Four days after the real time."""

    def wall_ms(self) -> int:
        return super().wall_ms() + 4 * 86_400_000


@pytest.mark.slow
async def test_a_stream_keeps_its_messages_until_their_reader_has_them(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[Any] = []
    ages: list[tuple[float, bool]] = []

    settings = Settings(nats=NatsSettings(url=nats_server.url), channels=SETTINGS)
    async with running(settings) as (_, service):
        await service.deploy(TEXT.format(name="Slow"))
        record = service.record("Slow")
        assert record is not None
        app, verification = App(service.client, record), service.verification
        monkeypatch.setattr(verification, "_clock", _Later())

        async def age() -> None:
            config = (await app.client.jetstream().stream_info(app.copies)).config
            ages.append(((config.max_age or 0) / 86_400, BEFORE in (config.metadata or {})))

        await app.fill()
        # Another manager than the leader changes nothing.
        await app.snapshot(0)
        await verification.round(None)
        await age()
        await verification.round(noted.append)
        await age()
        # With the marker behind the events.
        last = (await app.client.jetstream().stream_info(app.copies)).state.last_seq
        await app.snapshot(last)
        await verification.round(noted.append)
        await age()
    assert [(round(days), is_extended) for days, is_extended in ages] == [
        (7, False), (8, True), (7, False),
    ]  # fmt: skip
    assert [one.cause for one in noted if "keeps messages of mesh-Slow-T-by-k-0" in one.text] == [
        "group sums has not processed the oldest", "as before",
    ]  # fmt: skip


async def _named(service: ManagerService) -> tuple[set[str], tuple[str, ...]]:
    found = await service.verification.verify("Two")
    return {one.where for one in found if one.kind == "bucket-missing"}, service.unready_reasons()


async def _leading(manager: Manager) -> None:
    async with asyncio.timeout(20):
        while not manager.leads:
            await manager.view.changed(manager.view.version, 0.1)


@pytest.mark.nats
@pytest.mark.parametrize("stream", evidence.STREAMS)
async def test_a_deleted_bucket_is_named_and_made_again(
    nats_server: NatsServer, stream: str
) -> None:
    settings = Settings(nats=NatsSettings(url=nats_server.url), manager=ManagerSettings(id="m1"))
    async with running(settings) as (manager, service):
        await _leading(manager)
        await service.deploy(APP)
        kept = service.record("Two")
        look = service.custody
        assert kept is not None
        assert look is not None
        js = manager.client.jetstream()
        await js.delete_stream(stream)
        assert (await _named(service))[0] == {stream}
        look._leads = lambda: False
        await look.look()
        if stream != evidence.STREAMS[0]:
            assert any(stream in reason for reason in service.unready_reasons())
            look._leads = lambda: True
            await look.look()
        assert not await evidence.missing(js)
        assert not any(stream in reason for reason in service.unready_reasons())
        await _leading(manager)
        async with asyncio.timeout(20):
            while not (await kv.last(js, names.APPS_BUCKET, names.app_key("Two")))[0]:
                await manager.view.changed(manager.view.version, 0.1)
            # Of a journal that was deleted nothing else is left.
            while not any(e.text == f"made {stream} again" for e in await journal.read(js, "Two")):
                await manager.journal.stored()
        assert service.record("Two") == kept
        assert (await _named(service))[0] == set()


@pytest.mark.slow
@pytest.mark.nats
async def test_apps_and_reports_come_back_while_their_buckets_are_made_again(
    cluster: Cluster,
) -> None:
    cluster.manager("m1")
    cluster.worker("w1")
    async with looking(cluster) as eye:
        await eye.deploy_on("w1")
        before, js = eye.epochs(), eye.client.jetstream()
        for bucket in (names.APPS_BUCKET, names.STATUS_BUCKET):
            known = len(await kv.entries(js, bucket))
            await js.delete_stream(f"KV_{bucket}")
            # By somebody else than a manager: a worker that starts makes it as well.
            await kv.ensure_bucket(js, bucket, 1)
            async with asyncio.timeout(20):
                while len(await kv.entries(js, bucket)) < known:
                    await eye.view.changed(eye.view.version, 0.1)
        assert eye.epochs() == before
        assert (await eye.service.wait_running("Two", 20)).state == "running"
