"""Stores of pieces: in JetStream, in a directory, and at an address."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from mesh.errors import MeshError
from mesh.jetstream.blob_store import JETSTREAM, open_blob_store
from tests.support.snapshots import messages, restore, save, store_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mesh.jetstream.server import NatsServer


async def test_the_bucket_is_opened_once(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with store_of(nats_server, JETSTREAM) as store:
        snapshots = store.snapshots(1)
        assert await restore(snapshots, tmp_path / "1") is None
        await save(snapshots, tmp_path, 1, {})
        monkeypatch.setattr(store.js, "key_value", None)
        await save(snapshots, tmp_path, 2, {})


async def test_nothing_is_left_of_deleted_pieces(nats_server: NatsServer, tmp_path: Path) -> None:
    async with store_of(nats_server, JETSTREAM) as have:
        snapshots = have.snapshots(1)
        await restore(snapshots, tmp_path / "a")
        for number in range(5):
            await save(snapshots, tmp_path / "b", number, {f"p/{number}": b"x" * 200_000})
        # A description and two chunks of the last one.
        assert await messages(have.js) == 3
        await have.pieces.put("i2/g/0/1-a/p", b"of another app")
        await have.pieces.drop("i1/")
        assert await messages(have.js) == 2
        await have.pieces.delete("i2/g/0/1-a/p")
        await have.pieces.delete("i2/g/0/1-a/p")
        assert await messages(have.js) == 0


@pytest.mark.parametrize(
    "damage",
    [
        lambda b: b[:-1],
        lambda b: b"",
        lambda _: b"\0" * 300,
        lambda b: b[:-1] + b"y",
        lambda b: b[:9],
    ],
    ids=["cut off", "empty", "zeros", "changed", "no checksum"],
)
async def test_a_damaged_file_is_refused(
    nats_server: NatsServer, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    async with store_of(nats_server, str(tmp_path / "shared")) as have:
        await have.pieces.put("a/b", b"content" * 40)
        (file,) = (tmp_path / "shared" / "a").iterdir()
        file.write_bytes(damage(file.read_bytes()))
        with pytest.raises(MeshError, match="S103"):
            await have.pieces.fetch({"a/b": tmp_path / "piece"})


@pytest.mark.parametrize("is_local", [False, True])
async def test_a_full_disk_of_the_reader_is_no_fault_of_the_store(
    nats_server: NatsServer, tmp_path: Path, is_local: bool
) -> None:
    where = str(tmp_path / "shared") if is_local else JETSTREAM
    async with store_of(nats_server, where) as have:
        if not is_local:
            await restore(have.snapshots(1), tmp_path / "a")
        await have.pieces.put("a/b", b"content" * 40)
        full = tmp_path / "full"
        full.symlink_to("/dev/full")
        with pytest.raises(OSError, match=r"No space left on device: '.*/full'"):
            await have.pieces.fetch({"a/b": full})
        await have.pieces.fetch({"a/b": tmp_path / "again"})
        assert (tmp_path / "again").read_bytes() == b"content" * 40


async def test_a_file_is_on_disk_before_its_manifest_is_written(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []

    def sync(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)

    # A power failure can't be had here.
    monkeypatch.setattr(os, "fsync", sync)

    async with store_of(nats_server, str(tmp_path / "shared")) as have:
        await have.pieces.put("a/b", b"content")
    shared = tmp_path / "shared"
    stored = (shared / "a" / "b", shared / "a", shared, tmp_path)
    assert synced == [path.stat().st_ino for path in stored]


async def test_a_store_that_can_not_be_used_is_named(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")

    async with store_of(nats_server, JETSTREAM) as have:
        with pytest.raises(MeshError, match="S120"):
            open_blob_store(have.js, "nosuch://place/x", {})
        bad = open_blob_store(have.js, str(tmp_path / "file"), {})
        with pytest.raises(MeshError, match="S120"):
            await bad.put("a/b", b"x")
