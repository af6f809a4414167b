"""Pieces that no snapshot names: those of a worker that was killed while it stored one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from mesh.jetstream import sweeping
from mesh.jetstream.blob_store import JETSTREAM
from tests.support.snapshots import FIRST, SECOND, on_disk, restore, save, store_of

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats


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
        assert await sweeping.sweep(have.js, have.pieces, now_ms) == 0
        assert set(await have.pieces.listed()) == kept | others
        later_ms = now_ms + sweeping.AGE_MS + 60_000
        assert await sweeping.sweep(have.js, have.pieces, later_ms) == 1
        assert set(await have.pieces.listed()) == (kept | others) - {"i1/g/0/1-aaaa/q/7:b"}
        assert await restore(have.snapshots(2), tmp_path / "d") == (
            {"number": 2}, on_disk(SECOND),
        )  # fmt: skip
