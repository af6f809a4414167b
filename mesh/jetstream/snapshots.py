"""Snapshots of groups: manifests in a key-value bucket, pieces where ``state.store`` says.

A snapshot belongs to a part of a group.  A part is a virtual partition, whichever instance owns it
now, so that its state survives scaling; or an instance's share of a group whose instances read
blocks in turn.

A manifest is replaced by compare-and-set.  A process that restores a part writes the manifest back
under its own epoch.  So a process with an older epoch that resumes later finds its next write
refused, and can't delete pieces that the new one needs.  The name of a piece includes the run that
wrote it, so its content never changes; another run that replays a batch may cut pieces otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

import orjson
from nats.js import api
from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError, NotFoundError

from mesh.clock import SystemClock
from mesh.errors import MeshError
from mesh.jetstream import kv
from mesh.jetstream.blob_store import BlobMissingError, together
from mesh.jetstream.mirror import file_name, stored_manifest
from mesh.model import names
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Mapping
    from datetime import datetime
    from pathlib import Path

    from nats.js import JetStreamContext
    from nats.js.kv import KeyValue

    from mesh.jetstream.blob_store import BlobStore
    from mesh.model.values import JsonMapping, JsonObject


log = logging.getLogger(__name__)

T = TypeVar("T")

#: Before the names of pieces that no piece has.
_FORGOTTEN = "\0"
#: Timeout of one call, longer than a change of the stream's leader.
CALL_S = 20.0
#: Time limit for an answer that is asked for again soon.
_SOON_S = 2.0
#: Pieces stored or deleted at once: each waits for several answers in turn.
_CALLS: Final = 8
#: Times of one message are at most this far apart, seconds: they are floats of microseconds.
_SAME_S = 1e-5
#: Timeout of storing or fetching one snapshot, whatever its size.
TRANSFER_S = 300.0


@dataclass(slots=True)
class _Part:
    """The stored snapshot of one part, as this process knows it."""

    #: Of the manifest's key; 0 when there is none.
    revision: int = 0
    #: Piece to object.
    objects: dict[str, str] = field(default_factory=dict)
    #: Stored pieces of tasks that were deleted; tasks name them for a while.
    discarded: set[str] = field(default_factory=set)
    #: When the store that has them was made.
    store_created_at: datetime | None = None
    #: Random, one for each run; part of the names of its pieces.
    run: str = field(default_factory=lambda: secrets.token_hex(3))


@dataclass(eq=False, repr=False)
class JetStreamSnapshots:
    """A ``mesh.spark.instance_context.SnapshotStore`` on the NATS connection of an event loop.

    The methods block and are called from threads other than the loop's.
    """

    _js: JetStreamContext
    #: That the connection lives in.
    _loop: asyncio.AbstractEventLoop
    _pieces: BlobStore
    _: KW_ONLY
    incarnation: str
    group: str
    epoch: int
    #: Directory of a ``Mirror``, whose copies are preferred.
    near: Path | None = None
    _clock: SystemClock = field(default_factory=SystemClock)
    _parts: dict[str, _Part] = field(default_factory=dict)
    #: The bucket; to open it takes a request.
    _manifests: KeyValue | None = None

    def __post_init__(self) -> None:
        self._prefix = f"{self.incarnation}/{self.group}"
        self._key = f"{self.incarnation}.{self.group}"

    def restore(self, part: str, piece_path: Callable[[str], Path]) -> bytes | None:
        """See ``SnapshotStore.restore``."""
        started_s = self._clock.monotonic_s()
        manifest = self._wait(self._claim(part))
        paths = {s: piece_path(p) for p, s in self._parts[part].objects.items()}
        if paths:
            fetched = self._wait(self._fetch(paths), TRANSFER_S)
            size = sum(path.stat().st_size for path in paths.values())
            took_s = round(self._clock.monotonic_s() - started_s, 3)
            log.info(
                "state fetched",
                extra=fields(
                    snapshot=f"{self._key}.{part}",
                    pieces=len(paths),
                    of_them_near=len(paths) - fetched,
                    bytes=size,
                    took_s=took_s,
                ),
            )
        return manifest

    def save(self, part: str, manifest: bytes, pieces: Mapping[str, Path | str]) -> None:
        """See ``SnapshotStore.save``."""
        # An instance without state has a position only.
        if pieces or self._parts[part].objects:
            self._wait(self._forget_lost(part))
        objects = self._parts[part].objects
        contents = {
            name: source.read_bytes()
            for name, source in pieces.items()
            if not isinstance(source, str) and name not in objects
        }
        stored = {
            name: source if isinstance(source, str) else objects[name]
            for name, source in pieces.items()
            if name not in contents
        }
        self._wait(self._save(part, manifest, stored, contents), TRANSFER_S)

    def stored(self, part: str) -> Mapping[str, str]:
        """See ``SnapshotStore.stored``."""
        return dict(self._parts[part].objects)

    def discard(self, part: str, names: Collection[str]) -> None:
        """See ``SnapshotStore.discard``."""
        record = self._parts[part]
        gone = set(names) - set(record.objects.values()) - record.discarded
        record.discarded = set(names)
        if gone:
            self._wait(self._delete(gone), TRANSFER_S)

    async def _delete(self, names: Collection[str]) -> None:
        await together((self._pieces.delete(name) for name in names), _CALLS)

    def forget(self, part: str) -> None:
        """See ``SnapshotStore.forget``."""
        record = self._parts[part]
        # Their objects are deleted once their successors are stored.
        record.objects = {f"{_FORGOTTEN}{name}": one for name, one in record.objects.items()}

    def bounds(self, streams: Collection[str]) -> dict[str, tuple[int, int]]:
        """See ``SnapshotStore.bounds``."""
        return self._wait(self._bounds(streams), _SOON_S)

    def ends(self, streams: Collection[str]) -> dict[str, int]:
        """See ``SnapshotStore.ends``."""
        return self._wait(self._ends(streams))

    def _wait(self, coroutine: Coroutine[object, object, T], timeout_s: float = CALL_S) -> T:
        return asyncio.run_coroutine_threadsafe(
            asyncio.wait_for(coroutine, timeout_s), self._loop
        ).result()

    async def _bucket(self) -> KeyValue:
        if self._manifests is None:
            self._manifests = await kv.open_bucket(self._js, names.SNAPSHOTS_BUCKET)
        return self._manifests

    async def _claim(self, part: str) -> bytes | None:
        """Make the newest snapshot this epoch's; its manifest, if there is one."""
        manifests = await self._bucket()
        while True:
            self._parts[part] = record = _Part()
            try:
                entry = await manifests.get(f"{self._key}.{part}")
            except KeyNotFoundError:
                return None
            values = stored_manifest(f"{self._key}.{part}", entry.value)
            if values["epoch"] > self.epoch:
                raise _taken_over(self._key, values["epoch"])
            record.objects = dict(values["objects"])
            record.store_created_at = await self._pieces.created_at()
            claimed = orjson.dumps({**values, "epoch": self.epoch})
            try:
                record.revision = await manifests.update(
                    f"{self._key}.{part}", claimed, entry.revision
                )
            except KeyWrongLastSequenceError:
                continue
            return orjson.dumps(values["manifest"])

    async def _forget_lost(self, part: str) -> None:
        """Treat no piece as stored if the store was deleted and made again since."""
        record, created_at = self._parts[part], await self._pieces.created_at()
        if created_at != record.store_created_at:
            # All pieces are stored again.
            record.objects, record.store_created_at = {}, created_at

    async def _fetch(self, paths: Mapping[str, Path]) -> int:
        """Fetch stored pieces to local paths; copies of a mirror are only moved there.

        Returns the number of pieces fetched from the store.
        """
        if self.near is not None:
            paths = await asyncio.to_thread(_take, self.near, paths)
        try:
            await self._pieces.fetch(paths)
        except BlobMissingError as missing:
            raise _incomplete(self._key, str(missing)) from missing
        return len(paths)

    async def _save(
        self, part: str, manifest: bytes, stored: Mapping[str, str], contents: Mapping[str, bytes]
    ) -> None:
        manifests = await self._bucket()
        record = self._parts[part]
        objects = dict(stored)
        added = {
            piece: f"{self._prefix}/{part}/{self.epoch}-{record.run}/{piece}" for piece in contents
        }
        objects |= added
        puts = (self._pieces.put(added[piece], data) for piece, data in contents.items())
        await together(puts, _CALLS)
        value = orjson.dumps(
            {"epoch": self.epoch, "objects": objects, "manifest": orjson.loads(manifest)}
        )
        try:
            if record.revision:
                record.revision = await manifests.update(
                    f"{self._key}.{part}", value, record.revision
                )
            else:
                record.revision = await self._first(manifests, part, value)
        except KeyWrongLastSequenceError as error:
            await self._again(manifests, part, record, value, added.values(), error)
        gone = set(record.objects.values()) - set(objects.values())
        record.objects = objects
        await self._delete(gone)

    async def _again(
        self,
        manifests: KeyValue,
        part: str,
        record: _Part,
        value: bytes,
        added: Collection[str],
        refusal: KeyWrongLastSequenceError,
    ) -> None:
        """Store a refused manifest unless its owner, or what it describes, has gone.

        The stored one is our own if the answer to an earlier attempt was lost, or an earlier one if
        NATS has lost writes of the bucket.

        Raises:
            MeshError: MESH-S110, it is of a newer epoch or run; MESH-S111, NATS has lost messages
                that the refused one includes.  Its pieces are deleted.
        """
        revision = 0
        stored: JsonObject = {"epoch": 0, "objects": {}}
        with contextlib.suppress(KeyNotFoundError):
            entry = await manifests.get(f"{self._key}.{part}")
            revision = entry.revision or 0
            # The state that this instance has replaces one that can't be read.
            with contextlib.suppress(MeshError):
                stored = stored_manifest(f"{self._key}.{part}", entry.value)
        epoch = int(stored["epoch"])
        # The instance may have begun again, from the stored snapshot.
        is_newer = epoch > self.epoch or record is not self._parts[part]
        lost = "" if is_newer else await self._lost(orjson.loads(value)["manifest"])
        if is_newer or lost:
            await self._delete(set(added) - set(stored["objects"].values()))
            raise (_unfounded(self._key, lost) if lost else _taken_over(self._key, epoch)) from (
                refusal
            )
        key = f"{self._key}.{part}"
        try:
            record.revision = (
                await manifests.update(key, value, revision)
                if revision
                else await manifests.create(key, value)
            )
        except KeyWrongLastSequenceError as error:
            raise _taken_over(self._key, epoch) from error

    async def _lost(self, manifest: JsonMapping) -> str:
        """A stream that does not hold the messages up to a manifest any more; empty without one."""
        newest = manifest.get("newest", {})
        for stream, sequence, _ in manifest.get("position", ()):
            last = (await self._js.stream_info(stream)).state.last_seq
            number, time_ns = newest.get(stream, (sequence, 0))
            if last < max(sequence, number):
                return str(stream)
            # A message that expired is no loss.
            with contextlib.suppress(NotFoundError):
                message = await self._js.get_msg(stream, number) if time_ns else None
                if message is not None and _is_other(message, time_ns):
                    return str(stream)
        return ""

    async def _first(self, manifests: KeyValue, part: str, value: bytes) -> int:
        """Store a manifest where there was none to claim; its revision.

        An earlier owner may have been about to store its first when this one looked: it is stale.
        """
        key = f"{self._key}.{part}"
        try:
            return await manifests.create(key, value)
        except KeyWrongLastSequenceError:
            entry = await manifests.get(key)
            if stored_manifest(key, entry.value)["epoch"] >= self.epoch:
                raise
            return await manifests.update(key, value, entry.revision)

    async def _bounds(self, streams: Collection[str]) -> dict[str, tuple[int, int]]:
        infos = await asyncio.gather(*map(self._js.stream_info, streams))
        bounds = ((info.state.first_seq, info.state.last_seq) for info in infos)
        return dict(zip(streams, bounds, strict=True))

    async def _ends(self, streams: Collection[str]) -> dict[str, int]:
        return {stream: (await self._js.stream_info(stream)).state.last_seq for stream in streams}


async def ensure_buckets(js: JetStreamContext, replicas: int) -> None:
    """Make the object store and the bucket of manifests, if they aren't there."""
    await kv.ensure_bucket(js, names.SNAPSHOTS_BUCKET, replicas)
    try:
        await js.object_store(names.STATE_BUCKET)
    except NotFoundError:
        await js.create_object_store(names.STATE_BUCKET, api.ObjectStoreConfig(replicas=replicas))


async def purge(js: JetStreamContext, pieces: BlobStore, incarnation: str, group: str = "") -> None:
    """Drop all snapshots of one incarnation of an app, or of one of its groups."""
    key, start = f"{incarnation}.", f"{incarnation}/"
    if group:
        key, start = f"{key}{group}.", f"{start}{group}/"
    of_others = (f"{one}.{key}>" for one in (names.TASK_RECORDS, names.ADOPTED_RECORDS))
    for subject in (f"{key}>", *of_others):
        await js.purge_stream(
            f"KV_{names.SNAPSHOTS_BUCKET}", subject=f"$KV.{names.SNAPSHOTS_BUCKET}.{subject}"
        )
    await pieces.drop(start)


def _is_other(message: api.RawStreamMsg, time_ns: int) -> bool:
    """Whether a message was not stored at ``time_ns``; the client gives microseconds."""
    if message.time is None:
        return False
    apart_s = message.time.timestamp() - time_ns / 1e9
    return abs(apart_s) > _SAME_S


def _unfounded(key: str, stream: str) -> MeshError:
    return MeshError(
        "MESH-S111",
        f"snapshot of {key} includes messages that NATS has lost",
        detail=f"Stream {stream} does not hold them any more.",
        hint="The instance restarts from the stored snapshot when it reads that stream.",
    )


def _taken_over(key: str, epoch: int) -> MeshError:
    return MeshError(
        "MESH-S110",
        f"snapshot of {key} belongs to a newer writer, of epoch {epoch}",
        detail="The instance was placed again while this worker was cut off. [MESH-S110]",
    )


def _take(near: Path, paths: Mapping[str, Path]) -> dict[str, Path]:
    """Move local copies to their paths; returns the pieces without one."""
    left = {}
    for stored, path in paths.items():
        try:
            (near / file_name(stored)).replace(path)
        except FileNotFoundError:
            left[stored] = path
    return left


def _incomplete(key: str, missing: str) -> MeshError:
    return MeshError(
        "MESH-S121",
        f"snapshot of {key} is incomplete",
        detail=f"Missing: {missing}.",
        hint="Is state.store the same for all workers?  A backup can be restored: 'mesh backups'.",
    )
