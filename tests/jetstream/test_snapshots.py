"""Snapshots, their stores, and the copies of standbys, on a real server."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from mesh.clock import SystemClock
from mesh.errors import MeshError
from mesh.jetstream.blob_store import JETSTREAM, BlobMissingError, BlobStore, open_blob_store
from mesh.jetstream.connection import close, connect
from mesh.jetstream.mirror import Mirror
from mesh.jetstream.snapshots import JetStreamSnapshots, ensure_buckets, purge
from mesh.model import names
from mesh.model.cluster import Standby, StandbyStatus
from mesh.settings import NatsSettings
from mesh.spark.instance_metrics import newer_epoch
from tests.support.backups import Blind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from nats.js import JetStreamContext

    from mesh.jetstream.server import NatsServer


@dataclass
class Store:
    """A connection, and a store of pieces."""

    js: JetStreamContext
    pieces: BlobStore

    def snapshots(self, epoch: int, near: Path | None = None) -> JetStreamSnapshots:
        loop = asyncio.get_running_loop()
        return JetStreamSnapshots(
            self.js, loop, self.pieces, incarnation="i1", group="g", epoch=epoch, near=near
        )

    def mirror(self, directory: Path, told: list[StandbyStatus]) -> Mirror:
        standby = Standby("A-g-1", "A", "g", 1, 1, "i1", "w2", "w2-1", 5)
        directory.mkdir()
        return Mirror(
            self.js, self.pieces, standby, ["0", "1"], directory, told.append, SystemClock(),
            period_s=0.01,
        )  # fmt: skip


@asynccontextmanager
async def store_of(nats: NatsServer, store: str) -> AsyncIterator[Store]:
    client = await connect(NatsSettings(url=nats.url), "test")
    js = client.jetstream()
    await ensure_buckets(js, 1)
    try:
        yield Store(js, open_blob_store(js, store, {"servers": nats.url}))
    finally:
        await close(client)


@pytest.fixture(params=[JETSTREAM, "path", "uri"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Each kind of store that is available here."""
    paths = {"path": str(tmp_path / "shared"), "uri": (tmp_path / "shared").as_uri()}
    return paths.get(request.param, JETSTREAM)


def pieces_in(directory: Path, contents: Mapping[str, bytes]) -> dict[str, Path]:
    directory.mkdir(exist_ok=True)
    for name, data in contents.items():
        (directory / name.replace("/", "_")).write_bytes(data)
    return {name: directory / name.replace("/", "_") for name in contents}


async def save(
    snapshots: JetStreamSnapshots, directory: Path, number: int, contents: Mapping[str, bytes]
) -> None:
    manifest = orjson.dumps({"number": number})
    await asyncio.to_thread(snapshots.save, "0", manifest, pieces_in(directory, contents))


async def restore(
    snapshots: JetStreamSnapshots, directory: Path
) -> tuple[Any, dict[str, bytes]] | None:
    return await asyncio.to_thread(_restore, snapshots, directory)


def _restore(snapshots: JetStreamSnapshots, directory: Path) -> tuple[Any, dict[str, bytes]] | None:
    directory.mkdir(exist_ok=True)
    found = snapshots.restore("0", lambda piece: directory / piece.replace("/", "_"))
    if found is None:
        return None
    return orjson.loads(found), {p.name: p.read_bytes() for p in sorted(directory.iterdir())}


#: More than one chunk of an object, an empty one, and a name that no file could have.
FIRST = {"q/1:a": b"x" * 300_000, "q/2": b"", "kept": b"kept"}
SECOND = {"kept": b"kept", "q/3": b"new"}


def on_disk(contents: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name.replace("/", "_"): data for name, data in sorted(contents.items())}


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
        mirror._report = take
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
        assert mirror._task is None


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


async def test_a_tombstone_of_an_earlier_version_is_removed_with_its_app(
    nats_server: NatsServer,
) -> None:
    async with store_of(nats_server, JETSTREAM) as have:
        await have.pieces.put("i1/g/0/1-a/p", b"x")
        await (await have.js.object_store(names.STATE_BUCKET)).delete("i1/g/0/1-a/p")
        assert await messages(have.js) == 1
        await have.pieces.drop("i1/")
        assert await messages(have.js) == 0


async def messages(js: JetStreamContext) -> int:
    return (await js.stream_info(f"OBJ_{names.STATE_BUCKET}")).state.messages


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
