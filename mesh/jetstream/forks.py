"""States that groups of an app take over from its fork, beside the snapshots of the app.

A state of the fork is copied when the promotion begins: the fork runs on, and replaces its own.

Copies of ranges of an app's inner channels into those of its fork, with the same sequences.

The fork's groups begin with snapshots whose positions are sequences of the first app's channels.
So the copies keep them: the stream begins at the first sequence of the range, and a place without a
message gets a marker of no producer.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson
from nats.js.errors import KeyNotFoundError

from mesh.jetstream import channel_reader, channels, kv
from mesh.jetstream.blob_store import BlobMissingError
from mesh.jetstream.mirror import stored_manifest
from mesh.model import names

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from nats.aio.client import Client
    from nats.js import JetStreamContext

    from mesh.control.forking import Copy
    from mesh.jetstream.blob_store import BlobStore
    from mesh.settings import ChannelSettings


#: Reads of a snapshot that is replaced meanwhile.
_TRIES = 5

#: Producer of the markers in the places of messages that are gone; no group has the name.
_FILLER: Final = "_gap"


@dataclass(frozen=True, slots=True)
class StoredState:
    """A snapshot of a part, whose pieces are local files."""

    #: Of the key.
    revision: int
    epoch: int
    #: JSON, as an instance stores it.
    manifest: str
    #: Piece to its object.
    objects: Mapping[str, str]


@dataclass(slots=True)
class AdoptedStates:
    """The states of one group of an app and of its fork."""

    js: JetStreamContext
    pieces: BlobStore
    #: Of the app.
    incarnation: str
    group: str

    async def copy(self, fork: str, part: str, into: Path) -> None:
        """Keep the state of a part in the incarnation ``fork``; nothing where it has none."""
        state = await self._read(f"{fork}.{self.group}.{part}", into)
        if state is not None:
            await self.keep(part, state.manifest, into)

    async def keep(self, part: str, manifest: str, files: Path) -> None:
        """Keep a state of the fork, whose pieces are in ``files``."""
        stored = {n: f"{self._start(part)}base/{n}" for n in _pieces(manifest)}
        await self._put(stored, files)
        await self._write(f"{names.ADOPTED_RECORDS}.{self._key(part)}", 0, stored, manifest)

    async def base(self, part: str, into: Path) -> StoredState | None:
        """The kept state of the fork, with its pieces in ``into``; None without any."""
        return await self._read(f"{names.ADOPTED_RECORDS}.{self._key(part)}", into)

    async def stored(self, part: str) -> StoredState | None:
        """The stored snapshot of the app's part, without its pieces."""
        return await self._read(self._key(part), None)

    async def replace(self, was: StoredState, part: str, manifest: str, files: Path) -> None:
        """Store a state in the place of the app's own, of which no instance runs.

        Args:
            was: the app's own.
            part: of the group.
            manifest: of the new one.
            files: the directory with its pieces.
        """
        stored = {p: f"{self._start(part)}{was.revision}/{p}" for p in _pieces(manifest)}
        await self._put(stored, files)
        await self._write(self._key(part), was.epoch, stored, manifest)
        for name in set(was.objects.values()) - set(stored.values()):
            await self.pieces.delete(name)

    async def drop(self, part: str) -> None:
        """Remove the kept state of the fork."""
        bucket = await kv.open_bucket(self.js, names.SNAPSHOTS_BUCKET)
        await bucket.purge(f"{names.ADOPTED_RECORDS}.{self._key(part)}")
        await self.pieces.drop(f"{self._start(part)}base/")

    async def _read(self, key: str, into: Path | None) -> StoredState | None:
        bucket = await kv.open_bucket(self.js, names.SNAPSHOTS_BUCKET)
        for _ in range(_TRIES):
            try:
                entry = await bucket.get(key)
            except KeyNotFoundError:
                return None
            values = stored_manifest(key, entry.value)
            manifest = orjson.dumps(values["manifest"]).decode()
            try:
                if into is not None:
                    paths = {o: _file(into, n) for n, o in values["objects"].items()}
                    await self.pieces.fetch(paths)
            except BlobMissingError:
                # A newer snapshot has replaced this one.
                continue
            return StoredState(entry.revision or 0, values["epoch"], manifest, values["objects"])
        raise TimeoutError(f"snapshot {key} is replaced faster than it can be copied")

    async def _put(self, stored: Mapping[str, str], files: Path) -> None:
        for piece, name in stored.items():
            data = await asyncio.to_thread(_file(files, piece).read_bytes)
            await self.pieces.put(name, data)

    async def _write(self, key: str, epoch: int, objects: Mapping[str, str], manifest: str) -> None:
        bucket = await kv.open_bucket(self.js, names.SNAPSHOTS_BUCKET)
        values = {"epoch": epoch, "objects": objects, "manifest": orjson.loads(manifest)}
        await bucket.put(key, orjson.dumps(values))

    def _key(self, part: str) -> str:
        return f"{self.incarnation}.{self.group}.{part}"

    def _start(self, part: str) -> str:
        return f"{self.incarnation}/{self.group}/{part}/adopted/"


def _pieces(manifest: str) -> list[str]:
    pieces: list[str] = orjson.loads(manifest)["pieces"]
    return pieces


def _file(directory: Path, piece: str) -> Path:
    # Only here: it brings the operators along.
    from mesh.spark.instance_io import LocalState

    return LocalState(directory).piece_path(piece)


async def copy(client: Client, span: Copy, settings: ChannelSettings) -> int:
    """Make the stream of a copy and fill it; the number of messages.

    Events without a time of their own get that at which the first app's channel stored them.
    """
    await channels.ensure_stream(
        client, span.target, span.subject, settings, first_seq=span.after + 1
    )
    js = client.jetstream()
    prefix = names.marker_subject(span.source)
    filler = f"{names.marker_subject(span.target)}.{_FILLER}"
    next_, count = span.after + 1, 0
    async for one in channel_reader.read(client, span.source, span.after + 1, span.to):
        while next_ < one.sequence:
            next_ = (await js.publish(filler, b"{}")).seq + 1
        if one.subject.startswith(f"{prefix}."):
            # Markers of the first app say nothing about the fork's producers.
            next_ = (await js.publish(filler, b"{}")).seq + 1
            continue
        headers = {names.EVENT_TIME_HEADER: str(one.time_ms), **one.headers}
        clean_headers = {k: v for k, v in headers.items() if not k.startswith("Nats-")}
        next_ = (await js.publish(span.subject, one.data, headers=clean_headers)).seq + 1
        count += 1
    while next_ <= span.to:
        next_ = (await js.publish(filler, b"{}")).seq + 1
    return count
