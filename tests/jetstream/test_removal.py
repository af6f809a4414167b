"""Removal of an app's streams by a leader that another one has overtaken.

Actions of a decision, written one by one.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from nats.errors import OutboundBufferLimitError
from nats.js.errors import NotFoundError

from mesh.control.actions import RemoveApp
from mesh.jetstream import channels, kv, removal
from mesh.jetstream.blob_store import JETSTREAM, open_blob_store
from mesh.jetstream.connection import close, connect, listen
from mesh.manager.manager import running
from mesh.model import codec, names
from mesh.model.cluster import AppRecord
from mesh.plan.build import plan
from mesh.settings import ChannelSettings, NatsSettings
from tests.support.faulty import settings_of, text, until
from tests.support.snapshots import FIRST, SECOND, on_disk, restore, save, store_of
from tools.cluster import watching

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from nats.js import JetStreamContext

    from mesh.jetstream.server import NatsServer
    from mesh.jetstream.watch import ClusterView


pytestmark = pytest.mark.nats

TEXT = "@App:name('A') define stream S (a int); from S[a > 1] select a insert into T;"
#: The streams of the app's channels, and of its errors.
STREAMS = {"mesh-A-S", "mesh-A-T", "mesh-A-errors-"}


class Scene:
    """An app that is to be removed."""

    def __init__(self, js: JetStreamContext, view: ClusterView, url: str) -> None:
        self.js = js
        self.view = view
        self.pieces = open_blob_store(js, "jetstream", {"servers": url})
        self.record = AppRecord(plan(TEXT).spec, "i1", 0, deleting=True)

    async def store(self, record: AppRecord) -> int:
        data = codec.encode(record)
        return await kv.put(self.js, names.APPS_BUCKET, names.app_key("A"), data)

    async def remove(self, revision: int, may_remove: Callable[[], bool]) -> None:
        action = RemoveApp(self.record, revision, "undeployed")
        await removal.remove(action, self.js, self.view, self.pieces, may_remove)

    async def is_recorded(self) -> bool:
        """Whether the app's record is stored; the view has it a moment later."""
        subject = f"$KV.{names.APPS_BUCKET}.{names.app_key('A')}"
        try:
            last = await self.js.get_last_msg(f"KV_{names.APPS_BUCKET}", subject)
        except NotFoundError:
            return False
        return bool(last.data)

    async def streams(self) -> set[str]:
        return {i.config.name or "" for i in await self.js.streams_info()} & STREAMS


@asynccontextmanager
async def an_app(nats: NatsServer) -> AsyncIterator[Scene]:
    async with watching(NatsSettings(url=nats.url), ChannelSettings()) as (client, view):
        scene = Scene(client.jetstream(), view, nats.url)
        await channels.ensure_channels(client, scene.record.spec, ChannelSettings())
        yield scene


async def test_a_leader_removes_the_app(nats_server: NatsServer) -> None:
    async with an_app(nats_server) as scene:
        await scene.remove(await scene.store(scene.record), lambda: True)
        assert await scene.streams() == set()
        assert not await scene.is_recorded()
        assert scene.view.snapshot().apps == ()


async def test_streams_of_an_app_that_has_the_name_now_are_left(nats_server: NatsServer) -> None:
    async with an_app(nats_server) as scene:
        old = await scene.store(scene.record)
        await scene.store(replace(scene.record, incarnation="i2", deleting=False))
        with pytest.raises(kv.RevisionConflict):
            await scene.remove(old, lambda: True)
        assert await scene.streams() == STREAMS


async def test_a_leader_that_was_paused_between_two_deletions_deletes_no_more(
    nats_server: NatsServer,
) -> None:
    async with an_app(nats_server) as scene:
        answers = iter([True, False])
        with pytest.raises(removal.DeposedError):
            await scene.remove(await scene.store(scene.record), lambda: next(answers))
        assert len(await scene.streams()) == len(STREAMS) - 1
        assert await scene.is_recorded()


async def test_nothing_is_kept_for_a_server_that_is_away(nats_server: NatsServer) -> None:
    lost = asyncio.Event()
    client = await connect(NatsSettings(url=nats_server.url), "test", keeps_requests=False)
    listen(client, lambda is_connected: lost.set())
    nats_server.stop()
    await lost.wait()
    with pytest.raises(OutboundBufferLimitError):
        await client.jetstream().delete_stream("mesh-A-S")
    await close(client)


async def test_a_clock_that_is_ahead_makes_no_piece_old(nats_server: NatsServer) -> None:
    async with store_of(nats_server, JETSTREAM) as have:
        before_ms = time.time_ns() // 1_000_000
        client = await connect(NatsSettings(url=nats_server.url), "test")
        try:
            ahead_ms = before_ms + 10 * removal.AGE_MS
            present_ms = await removal.present_ms(client, ahead_ms)
            assert before_ms - 1 <= present_ms <= time.time_ns() // 1_000_000 + 1
            # One that is behind leaves more: what is left costs space only.
            assert await removal.present_ms(client, before_ms - removal.AGE_MS) == (
                before_ms - removal.AGE_MS
            )
            await have.pieces.put("i1/g/0/1-aaaa/q/7:b", b"x")
            assert await removal.sweep(have.js, have.pieces, present_ms) == 0
        finally:
            await close(client)


@pytest.mark.parametrize("kind", [JETSTREAM, "path", "uri"])
async def test_orphans_go_when_they_are_old_and_nothing_else_does(
    nats_server: NatsServer, tmp_path: Path, kind: str
) -> None:
    shared = tmp_path / "shared"
    store = {"path": str(shared), "uri": shared.as_uri()}.get(kind, JETSTREAM)

    async with store_of(nats_server, store) as have:
        first = have.snapshots(1)
        await restore(first, tmp_path / "a")
        await save(first, tmp_path / "b", 1, FIRST)
        await save(first, tmp_path / "c", 2, SECOND)
        kept = set(await have.pieces.listed())
        # Of a killed save; of a backup; of an app without a snapshot.
        others = {"i1/g/0/1-aaaa/q/7:b", "backups/A/r/g/0/0", "i2/g/0/1-bbbb/p"}
        for name in others:
            await have.pieces.put(name, b"x")
        now_ms = time.time_ns() // 1_000_000
        assert await removal.sweep(have.js, have.pieces, now_ms) == 0
        assert set(await have.pieces.listed()) == kept | others
        later_ms = now_ms + removal.AGE_MS + 60_000
        assert await removal.sweep(have.js, have.pieces, later_ms) == 1
        assert set(await have.pieces.listed()) == (kept | others) - {"i1/g/0/1-aaaa/q/7:b"}
        assert await restore(have.snapshots(2), tmp_path / "d") == (
            {"number": 2}, on_disk(SECOND),
        )  # fmt: skip


@pytest.mark.nats
async def test_a_write_that_fails_keeps_no_other_from_being_done(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = removal.LeaderWriter.write

    async def write(self: Any, key: str, record: Any) -> None:
        if key.startswith(names.form_key("First", "")):
            raise ValueError("not this one")
        await real(self, key, record)

    monkeypatch.setattr(removal.LeaderWriter, "write", write)

    async with running(settings_of(nats_server)) as (manager, service):
        await service.deploy(text("First"))
        await service.deploy(text("Second"))

        def forms() -> set[str]:
            return {form.value.app for form in manager.view.snapshot().forms}

        await until(manager, lambda: forms() == {"Second"})
