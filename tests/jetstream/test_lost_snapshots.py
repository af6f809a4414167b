"""Snapshots whose bucket, or whose channels, have lost writes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from mesh.errors import MeshError
from mesh.jetstream import kv
from mesh.jetstream.blob_store import JETSTREAM
from mesh.jetstream.snapshots import ensure_buckets
from mesh.model import names
from tests.support.snapshots import FIRST, SECOND, messages, on_disk, restore, save, store_of

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from tests.support.snapshots import Store

pytestmark = pytest.mark.nats


async def set_back(have: Store, entry: Any) -> None:
    """Have the bucket hold an earlier manifest again, as when NATS has lost the later ones."""
    manifests = await have.js.key_value(names.SNAPSHOTS_BUCKET)
    await manifests.put("i1.g.0", entry.value)


async def test_a_bucket_that_was_set_back_takes_the_next_snapshot(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with store_of(nats_server, JETSTREAM) as have:
        first = have.snapshots(1)
        await restore(first, tmp_path / "a")
        await save(first, tmp_path / "b", 1, FIRST)
        manifests = await have.js.key_value(names.SNAPSHOTS_BUCKET)
        earlier = await manifests.get("i1.g.0")
        await save(first, tmp_path / "c", 2, SECOND)
        await set_back(have, earlier)
        await save(first, tmp_path / "d", 3, SECOND)
        await manifests.purge("i1.g.0")
        await save(first, tmp_path / "e", 4, SECOND)
        assert await restore(have.snapshots(2), tmp_path / "f") == (
            {"number": 4}, on_disk(SECOND),
        )  # fmt: skip


@pytest.mark.parametrize("value", [b"", b"{}", b"null", b"no JSON", b"[1]", b'{"epoch": "1"}'])
async def test_a_manifest_that_can_not_be_read_is_named_and_replaced_by_a_running_instance(
    nats_server: NatsServer, tmp_path: Path, value: bytes
) -> None:
    async with store_of(nats_server, JETSTREAM) as have:
        first = have.snapshots(1)
        await restore(first, tmp_path / "a")
        await save(first, tmp_path / "b", 1, FIRST)
        manifests = await have.js.key_value(names.SNAPSHOTS_BUCKET)
        await manifests.put("i1.g.0", value)
        with pytest.raises(MeshError, match="MESH-S112") as raised:
            await restore(have.snapshots(2), tmp_path / "c")
        assert "i1.g.0" in raised.value.message
        assert "mesh restore" in (raised.value.hint or "")
        await save(first, tmp_path / "d", 3, SECOND)
        assert await restore(have.snapshots(2), tmp_path / "e") == (
            {"number": 3}, on_disk(SECOND),
        )  # fmt: skip


async def test_all_pieces_are_stored_again_in_a_store_that_was_made_again(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with store_of(nats_server, JETSTREAM) as have:
        first = have.snapshots(1)
        await restore(first, tmp_path / "a")
        await save(first, tmp_path / "b", 1, FIRST)
        await have.js.delete_object_store(names.STATE_BUCKET)
        with pytest.raises(kv.BucketMissingError, match="no bucket mesh_state; the managers"):
            await save(first, tmp_path / "c", 2, SECOND)
        await ensure_buckets(have.js, 1)
        # Of these pieces some were stored before, and are no more.
        await save(first, tmp_path / "d", 3, FIRST)
        assert await restore(have.snapshots(2), tmp_path / "e") == (
            {"number": 3}, on_disk(FIRST),
        )  # fmt: skip


@pytest.mark.parametrize("is_reused", [False, True])
async def test_a_snapshot_of_lost_messages_replaces_none(
    nats_server: NatsServer, tmp_path: Path, is_reused: bool
) -> None:
    async with store_of(nats_server, JETSTREAM) as have:
        await have.js.add_stream(name="S", subjects=["s"])
        for _ in range(4 if is_reused else 1):
            await have.js.publish("s", b"")
        first = have.snapshots(1)
        await restore(first, tmp_path / "a")
        await save(first, tmp_path / "b", 1, FIRST)
        manifests = await have.js.key_value(names.SNAPSHOTS_BUCKET)
        await set_back(have, await manifests.get("i1.g.0"))
        manifest = {"position": [["S", 2, 7]], "newest": {"S": [3, 10**18]}}
        before = await messages(have.js)
        with pytest.raises(MeshError, match="MESH-S111"):
            await asyncio.to_thread(first.save, "0", orjson.dumps(manifest), {})
        assert await messages(have.js) == before
        assert await restore(have.snapshots(2), tmp_path / "c") == (
            {"number": 1}, on_disk(FIRST),
        )  # fmt: skip


async def test_a_run_that_was_restored_meanwhile_replaces_no_snapshot(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with store_of(nats_server, JETSTREAM) as have:
        first = have.snapshots(1)
        await restore(first, tmp_path / "a")
        await save(first, tmp_path / "b", 1, FIRST)
        put = have.pieces.put

        async def put_late(name: str, data: bytes) -> None:
            monkeypatch.undo()
            await first._claim("0")
            await put(name, data)

        monkeypatch.setattr(have.pieces, "put", put_late)
        with pytest.raises(MeshError, match="MESH-S110"):
            await save(first, tmp_path / "d", 2, SECOND)
        await restore(first, tmp_path / "c")
        await save(first, tmp_path / "e", 3, SECOND)
        assert await restore(have.snapshots(2), tmp_path / "f") == (
            {"number": 3}, on_disk(SECOND),
        )  # fmt: skip
