"""A manager's service on a real server, of an app whose groups the test plays."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import orjson

from mesh.clock import SystemClock
from mesh.jetstream.blob_store import BlobStore, open_blob_store
from mesh.jetstream.snapshots import JetStreamSnapshots
from mesh.jetstream.watch import ClusterView
from mesh.manager.service import ManagerService
from mesh.model import names
from mesh.settings import NatsSettings, Settings, StateSettings
from tools.cluster import watching

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from datetime import datetime
    from pathlib import Path

    from nats.aio.client import Client

    from mesh.jetstream.server import NatsServer
    from mesh.model.cluster import AppRecord

#: Two groups with a channel between them, and one after them.
TEXT = """@App:name('Pair')
define stream Ins (a int);
@dist(execGroup='one') from Ins#window.length(2) select a insert into Mid;
@dist(execGroup='two') from Mid#window.length(2) select a insert into Outs;
"""


IN, MID, OUT = "mesh-Pair-Ins", "mesh-Pair-Mid", "mesh-Pair-Outs"


def manifest(stream: str, sequence: int) -> str:
    position = [[stream, sequence, 5]]
    values = {"version": 1, "position": position, "clocks": {}, "scalars": {}, "pieces": ["p"]}
    return orjson.dumps({**values, "text": "t"}).decode()


@dataclass
class Mesh:
    """A manager's service on a server, and the groups played by the test."""

    client: Client
    view: ClusterView
    service: ManagerService
    pieces: BlobStore
    directory: Path

    @property
    def record(self) -> AppRecord:
        found = self.view.snapshot().app("Pair")
        assert found is not None
        return found.value

    async def publish(self, subject: str, count: int) -> None:
        for number in range(count):
            await self.client.jetstream().publish(subject, orjson.dumps({"a": number}))

    async def write(self, js_stream: str, group: str, count: int, position: int) -> None:
        """Rows and a marker, as the sink of a group writes them."""
        stream = js_stream.rpartition("-")[2]
        await self.publish(f"mesh.Pair.{stream}", count)
        await self.mark(js_stream, f"{self.record.incarnation}-{group}-0", position, epoch=5)

    async def mark(self, js_stream: str, producer: str, position: int, epoch: int) -> None:
        subject = f"{names.marker_subject(js_stream)}.{producer}"
        payload = orjson.dumps({"position": position, "epoch": epoch})
        await self.client.jetstream().publish(subject, payload)

    async def marker(self, js_stream: str, producer: str) -> dict[str, Any]:
        subject = f"{names.marker_subject(js_stream)}.{producer}"
        found = await self.client.jetstream().get_last_msg(js_stream, subject)
        values: dict[str, Any] = orjson.loads(found.data or b"{}")
        return values

    async def share(self, group: str, stream: str, sequence: int) -> None:
        """A snapshot, as an instance shares it."""
        loop = asyncio.get_running_loop()
        store = JetStreamSnapshots(
            self.client.jetstream(), loop, self.pieces,
            incarnation=self.record.incarnation, group=group, epoch=5,
        )  # fmt: skip
        path = self.directory / group
        await asyncio.to_thread(path.write_bytes, f"{group} at {sequence}".encode())
        await asyncio.to_thread(store.restore, "0", lambda piece: path)
        await asyncio.to_thread(path.write_bytes, f"{group} at {sequence}".encode())
        await asyncio.to_thread(store.save, "0", manifest(stream, sequence).encode(), {"p": path})

    async def state(self, incarnation: str, group: str) -> tuple[dict[str, Any], bytes]:
        """The state that a start of a group would find."""
        loop = asyncio.get_running_loop()
        store = JetStreamSnapshots(
            self.client.jetstream(), loop, self.pieces,
            incarnation=incarnation, group=group, epoch=9,
        )  # fmt: skip
        path = self.directory / "found"
        found = await asyncio.to_thread(store.restore, "0", lambda piece: path)
        assert found is not None
        return orjson.loads(found), await asyncio.to_thread(path.read_bytes)


@asynccontextmanager
async def mesh(nats: NatsServer, directory: Path, store: str) -> AsyncIterator[Mesh]:
    settings = replace(
        Settings(), nats=NatsSettings(url=nats.url), state=StateSettings(store, backups_kept=2)
    )
    async with watching(settings.nats, settings.channels) as (client, view):
        service = ManagerService(client, view, settings, SystemClock())
        pieces = open_blob_store(client.jetstream(), store, {"servers": nats.url})
        yield Mesh(client, view, service, pieces, directory)


class Blind:
    """A store that gives nothing."""

    async def put(self, name: str, data: bytes) -> None:
        raise AssertionError(name)

    async def fetch(self, paths: Mapping[str, Path]) -> None:
        assert not paths

    async def delete(self, name: str) -> None:
        raise AssertionError(name)

    async def drop(self, prefix: str) -> None:
        raise AssertionError(prefix)

    async def listed(self) -> list[str]:
        return []

    async def stored_ms(self, name: str) -> int | None:
        raise AssertionError(name)

    async def created_at(self) -> datetime | None:
        return None
