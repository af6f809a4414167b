"""Feeds and their files in a bucket that managers alone read.

    feed.{name}      {"configuration", "state", "run", "began_ms", "by", "reason"}
    sent.{name}      {"run", "sent"}: by source, the number of events that were published
    file.{name}      {"size"}

Names are in base64 in keys.  Any manager writes a feed; the one that publishes its events writes
their numbers.  The content of a file is a blob, as snapshots are: a message is too small for it.
"""

from __future__ import annotations

import asyncio
import base64
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

import orjson
from nats.js.errors import BucketNotFoundError, KeyNotFoundError, NotFoundError

from mesh.errors import MeshError
from mesh.files import scratch
from mesh.jetstream import kv
from mesh.jetstream.blob_store import BlobMissingError
from mesh.model import names
from mesh.model.simulation import FeedState
from mesh.model.values import JsonObject

if TYPE_CHECKING:
    from nats.js import JetStreamContext

    from mesh.jetstream.blob_store import BlobStore

_BUCKET: Final = names.SIMULATIONS_BUCKET
_GONE: Final = (BucketNotFoundError, KeyNotFoundError, NotFoundError)


@dataclass(frozen=True, slots=True)
class FeedRecord:
    """A feed: what was configured, and what it is to do."""

    configuration: JsonObject
    state: FeedState = FeedState.STOP
    #: Name of the run, in the ids of its events.
    run: str = ""
    began_ms: int = 0
    by: str = ""
    #: The failure that ended it; empty without one.
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SentEvents:
    """Numbers of the events of a run that were published."""

    run: str = ""
    sent: tuple[int, ...] = ()
    revision: int = 0


class FeedStore:
    """The bucket; it is made with the first feed or file."""

    def __init__(self, js: JetStreamContext, pieces: BlobStore, replicas: int) -> None:
        self._js = js
        self._pieces = pieces
        self._replicas = replicas

    async def version(self) -> int:
        """A number that grows with each write; 0 without a bucket."""
        try:
            return (await self._js.stream_info(f"KV_{_BUCKET}")).state.last_seq
        except _GONE:
            return 0

    async def feeds(self) -> dict[str, FeedRecord]:
        """All feeds by name, sorted."""
        entries = await kv.entries(self._js, _BUCKET, "feed.")
        records = {
            _name(key.removeprefix("feed.")): _record(orjson.loads(one.data or b"{}"))
            for key, one in entries.items()
        }
        return dict(sorted(records.items()))

    async def feed(self, name: str) -> tuple[FeedRecord | None, int]:
        """A feed and its revision; None if there is none."""
        values, revision = await self._get(_key("feed", name))
        return None if values is None else _record(values), revision

    async def put_feed(self, name: str, record: FeedRecord | None, revision: int) -> None:
        """Write or delete a feed; RevisionConflict if another was first."""
        await kv.ensure_bucket(self._js, _BUCKET, self._replicas)
        data = None if record is None else orjson.dumps(asdict(record))
        await kv.write(self._js, _BUCKET, _key("feed", name), data, revision=revision)

    async def sent(self, name: str) -> SentEvents:
        """The events of a feed that were published."""
        values, revision = await self._get(_key("sent", name))
        if values is None:
            return SentEvents(revision=revision)
        return SentEvents(values["run"], tuple(values["sent"]), revision)

    async def put_sent(self, name: str, sent: SentEvents) -> int:
        """Write it, in place of its revision; the new one.

        Raises:
            RevisionConflict: another manager publishes the events now.
        """
        data = orjson.dumps({"run": sent.run, "sent": sent.sent})
        return await kv.write(self._js, _BUCKET, _key("sent", name), data, revision=sent.revision)

    async def files(self) -> list[str]:
        """The names of files, sorted."""
        entries = await kv.entries(self._js, _BUCKET, "file.")
        return sorted(_name(key.removeprefix("file.")) for key in entries)

    async def put_file(self, name: str, data: bytes) -> None:
        """Store a file, or replace one."""
        await kv.ensure_bucket(self._js, _BUCKET, self._replicas)
        await self._pieces.put(_blob(name), data)
        await kv.put(self._js, _BUCKET, _key("file", name), orjson.dumps({"size": len(data)}))

    async def delete_file(self, name: str) -> None:
        """Delete a file."""
        await kv.put(self._js, _BUCKET, _key("file", name), None)
        await self._pieces.delete(_blob(name))

    async def file(self, name: str) -> bytes:
        """The content of a file; MESH-A404."""
        with scratch.directory("feed") as directory:
            path = directory / "file"
            try:
                await self._pieces.fetch({_blob(name): path})
            except BlobMissingError as error:
                raise MeshError("MESH-A404", f'file "{name}" does not exist') from error
            return await asyncio.to_thread(path.read_bytes)

    async def _get(self, key: str) -> tuple[JsonObject | None, int]:
        """Values and revision of a key; also the revision of a deletion."""
        try:
            message = await self._js.get_last_msg(f"KV_{_BUCKET}", kv.subject(_BUCKET, key))
        except _GONE:
            return None, 0
        revision = message.seq or 0
        if (message.headers or {}).get(kv.OPERATION):
            return None, revision
        values: JsonObject = orjson.loads(message.data or b"{}")
        return values, revision


def _record(values: JsonObject) -> FeedRecord:
    return FeedRecord(**{**values, "state": FeedState(values["state"])})


def _key(kind: str, name: str) -> str:
    return f"{kind}.{base64.urlsafe_b64encode(name.encode()).decode().rstrip('=')}"


def _name(text: str) -> str:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()


def _blob(name: str) -> str:
    return f"simulation/{name}"
