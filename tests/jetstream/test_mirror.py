"""Copies of standbys, on a real server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mesh.jetstream.blob_store import JETSTREAM
from tests.support.backups import Blind
from tests.support.snapshots import FIRST, SECOND, Store, on_disk, restore, save, store, store_of

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from mesh.model.cluster import StandbyStatus

__all__ = ("store",)


async def test_a_standby_holds_what_was_shared_last_and_a_start_takes_it_from_there(
    nats_server: NatsServer, store: str, tmp_path: Path
) -> None:
    async with store_of(nats_server, store) as have:
        told: list[StandbyStatus] = []
        mirror = have.mirror(tmp_path / "held", told)
        assert not await mirror.look()
        active = have.snapshots(1)
        await restore(active, tmp_path / "a")
        await save(active, tmp_path / "b", 1, FIRST)
        assert await mirror.look()
        assert not await mirror.look()
        await save(active, tmp_path / "b", 2, SECOND)
        assert await mirror.look()
        assert sorted(p.read_bytes() for p in mirror.directory.iterdir()) == [b"kept", b"new"]
        # It has local copies: the store is not read.
        blind = Store(have.js, Blind())
        taken = await restore(blind.snapshots(2, mirror.directory), tmp_path / "c")
        assert taken == ({"number": 2}, on_disk(SECOND))
        # Moved, not copied; missing pieces are fetched.
        assert not list(mirror.directory.iterdir())
        taken = await restore(have.snapshots(3, mirror.directory), tmp_path / "d")
        assert taken == ({"number": 2}, on_disk(SECOND))


async def test_a_standby_tells_what_it_holds_and_drops_it(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with store_of(nats_server, JETSTREAM) as have:
        active = have.snapshots(1)
        await restore(active, tmp_path / "a")
        await save(active, tmp_path / "b", 1, {"kept": b"kept"})
        arrived = asyncio.Event()
        told: list[StandbyStatus] = []

        def take(status: StandbyStatus) -> None:
            told.append(status)
            if status.snapshots:
                arrived.set()

        mirror = have.mirror(tmp_path / "held", told)
        mirror.report = take
        mirror.start()
        async with asyncio.timeout(20):
            await arrived.wait()
        assert (told[-1].instance, told[-1].worker) == ("A-g-1", "w2")
        assert (told[-1].snapshots, told[-1].bytes) == (1, 4)
        await mirror.drop()
        assert not mirror.directory.exists()


async def test_a_start_waits_for_the_copies_under_way(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with store_of(nats_server, JETSTREAM) as have:
        active = have.snapshots(1)
        await restore(active, tmp_path / "a")
        await save(active, tmp_path / "b", 1, FIRST)
        mirror = have.mirror(tmp_path / "held", [])
        mirror.start()
        await asyncio.sleep(0)
        await mirror.finish()
        assert len(list(mirror.directory.iterdir())) == len(FIRST)
        assert mirror.task is None
