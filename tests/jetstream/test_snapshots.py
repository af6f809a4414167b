"""Snapshots of instances, on a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
import pytest

from mesh.errors import MeshError
from mesh.jetstream.blob_store import JETSTREAM, BlobMissingError
from mesh.jetstream.snapshots import purge
from mesh.model import names
from mesh.spark.instance_metrics import newer_epoch
from tests.support.snapshots import FIRST, SECOND, messages, on_disk, restore, save, store, store_of

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

__all__ = ("store",)


async def test_what_was_saved_last_is_restored(
    nats_server: NatsServer, store: str, tmp_path: Path
) -> None:
    async with store_of(nats_server, store) as have:
        first = have.snapshots(1)
        assert await restore(first, tmp_path / "a") is None
        await save(first, tmp_path / "b", 1, FIRST)
        assert await restore(have.snapshots(2), tmp_path / "c") == (
            {"number": 1}, on_disk(FIRST),
        )  # fmt: skip
        third = have.snapshots(3)
        await restore(third, tmp_path / "d")
        await save(third, tmp_path / "e", 2, SECOND)
        assert await restore(have.snapshots(4), tmp_path / "f") == (
            {"number": 2}, on_disk(SECOND),
        )  # fmt: skip


async def test_an_older_epoch_can_neither_save_nor_restore(
    nats_server: NatsServer, store: str, tmp_path: Path
) -> None:
    async with store_of(nats_server, store) as have:
        old, new = have.snapshots(1), have.snapshots(2)
        await restore(old, tmp_path / "a")
        await save(old, tmp_path / "b", 1, FIRST)
        await restore(new, tmp_path / "c")
        for refused in (
            save(old, tmp_path / "d", 2, SECOND),
            restore(have.snapshots(1), tmp_path / "e"),
        ):
            with pytest.raises(MeshError, match="S110") as caught:
                await refused
            assert newer_epoch(str(caught.value)) == 2
        # The pieces that the old one would have dropped still exist.
        assert await restore(have.snapshots(3), tmp_path / "f") == (
            {"number": 1}, on_disk(FIRST),
        )  # fmt: skip


async def test_purging_leaves_nothing_of_an_incarnation(
    nats_server: NatsServer, store: str, tmp_path: Path
) -> None:
    async with store_of(nats_server, store) as have:
        first = have.snapshots(1)
        await restore(first, tmp_path / "a")
        await save(first, tmp_path / "b", 1, FIRST)
        manifests = await have.js.key_value(names.SNAPSHOTS_BUCKET)
        entry = await manifests.get("i1.g.0")
        held = list(orjson.loads(entry.value or b"{}")["objects"].values())
        assert len(held) == len(FIRST)
        await purge(have.js, have.pieces, "i1")
        assert await restore(have.snapshots(2), tmp_path / "c") is None
        for stored in held:
            with pytest.raises(BlobMissingError):
                await have.pieces.fetch({stored: tmp_path / "x"})
        # Once more does no harm.
        await purge(have.js, have.pieces, "i1")


async def test_a_tombstone_of_an_earlier_version_is_removed_with_its_app(
    nats_server: NatsServer,
) -> None:
    async with store_of(nats_server, JETSTREAM) as have:
        await have.pieces.put("i1/g/0/1-a/p", b"x")
        await (await have.js.object_store(names.STATE_BUCKET)).delete("i1/g/0/1-a/p")
        assert await messages(have.js) == 1
        await have.pieces.drop("i1/")
        assert await messages(have.js) == 0


async def test_a_refused_snapshot_leaves_no_pieces(nats_server: NatsServer, tmp_path: Path) -> None:
    async with store_of(nats_server, JETSTREAM) as have:
        old, new = have.snapshots(1), have.snapshots(2)
        await restore(old, tmp_path / "a")
        await save(old, tmp_path / "b", 1, {"p": b"x"})
        await restore(new, tmp_path / "c")
        before = await messages(have.js)
        with pytest.raises(MeshError, match="S110"):
            await save(old, tmp_path / "d", 2, {"p": b"x", "q": b"y"})
        assert await messages(have.js) == before
