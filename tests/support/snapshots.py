"""A store of pieces, and snapshots that are saved and restored."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from mesh.clock import SystemClock
from mesh.jetstream.blob_store import JETSTREAM, BlobStore, open_blob_store
from mesh.jetstream.connection import close, connect
from mesh.jetstream.mirror import Mirror
from mesh.jetstream.snapshots import JetStreamSnapshots, ensure_buckets
from mesh.model import names
from mesh.model.cluster import Standby, StandbyStatus
from mesh.settings import NatsSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
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


async def messages(js: JetStreamContext) -> int:
    return (await js.stream_info(f"OBJ_{names.STATE_BUCKET}")).state.messages
