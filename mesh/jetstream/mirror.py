"""Mirror of a standby: local copies of an instance's shared snapshots, kept up to date.

The active instance is not involved.  Each poll reads the newest manifests, copies the pieces that
are missing and drops those that no manifest names.  A start on this worker takes the pieces from
here (``JetStreamSnapshots``) and fetches only those that were shared since.

Manifests of snapshots as they are stored: epoch, pieces, and the manifest of the state.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import shutil
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Final

import orjson
from nats.js.errors import KeyNotFoundError

from mesh.errors import MeshError
from mesh.jetstream import kv
from mesh.jetstream.blob_store import BlobMissingError
from mesh.model import names
from mesh.model.cluster import StandbyStatus
from mesh.processes.signals import end
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from nats.js import JetStreamContext
    from nats.js.kv import KeyValue

    from mesh.clock import Clock
    from mesh.jetstream.blob_store import BlobStore
    from mesh.model.cluster import Standby
    from mesh.model.values import JsonObject


def stored_manifest(key: str, data: bytes | None) -> JsonObject:
    """The values of a stored manifest: ``epoch``, ``objects``, ``manifest``.

    Raises:
        MeshError: MESH-S112, it is none: another client has written it, or a later version.
    """
    try:
        content = orjson.loads(data or b"")
        kinds = {"epoch": int, "objects": dict, "manifest": dict}
        missing = [name for name, kind in kinds.items() if not isinstance(content[name], kind)]
        reason = f"{missing[0]} has another type" if missing else ""
    except (ValueError, KeyError, TypeError, IndexError) as error:
        reason = f"{type(error).__name__}: {error}"
    if not reason:
        values: JsonObject = content
        return values
    raise MeshError(
        "MESH-S112",
        f'the snapshot manifest "{key}" can\'t be read',
        detail=f"It is a key of the bucket mesh_snapshots. {reason}.",
        hint="Restore a backup: 'mesh backups APP', 'mesh restore APP'; or undeploy and deploy the "
        "app, which begins without a state.",
    )


log = logging.getLogger(__name__)

#: Longest wait for copies under way, seconds.
_FINISH_S: Final = 10.0


def file_name(stored: str) -> str:
    """The name of the local copy of a stored piece, short enough for any file system."""
    return hashlib.sha256(stored.encode()).hexdigest()[:40]


@dataclass(eq=False, repr=False)
class Mirror:
    """A task that mirrors one instance's state until ``stop``."""

    _js: JetStreamContext
    _pieces: BlobStore
    standby: Standby
    #: The parts of the group's state that the instance owns.
    _parts: Sequence[str]
    #: Of the copies, used by the mirror alone.
    directory: Path
    #: Called when the copies have changed.
    report: Callable[[StandbyStatus], None]
    _clock: Clock
    _: KW_ONLY
    period_s: float
    #: Part to the revision of the manifest whose pieces are here, and to their stored names.
    _held: dict[str, tuple[int, frozenset[str]]] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None
    _is_over: asyncio.Event = field(default_factory=asyncio.Event)

    def __repr__(self) -> str:
        return f"Mirror({self.standby.instance}, {len(self._held)} of {len(self._parts)} parts)"

    def start(self) -> None:
        """Begin; returns at once."""
        self.task = asyncio.create_task(self._run(), name=f"standby {self.standby.instance}")

    async def finish(self) -> None:
        """End once the copies under way are made: the instance that starts here needs them now."""
        self._is_over.set()
        if self.task is not None:
            await asyncio.wait([self.task], timeout=_FINISH_S)
        await self.stop()

    async def stop(self) -> None:
        """End; the copies stay."""
        if self.task is not None:
            await end([self.task])
            self.task = None

    async def drop(self) -> None:
        """End, and delete the copies."""
        await self.stop()
        await asyncio.to_thread(shutil.rmtree, self.directory, ignore_errors=True)

    async def _run(self) -> None:
        is_reported = False
        while not self._is_over.is_set():
            try:
                self.directory.mkdir(parents=True, exist_ok=True)
                if not is_reported:
                    self._tell()
                    is_reported = True
                if await self.look():
                    self._tell()
            # Whatever it is, the next look may do better, and nothing rests on this one.
            except Exception as error:
                log.debug("standby could not check for snapshots", extra=fields(error=error))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.period_s):
                    await self._is_over.wait()

    async def look(self) -> bool:
        """Copy the pieces shared since the last poll; returns whether there were any."""
        manifests = await kv.open_bucket(self._js, names.SNAPSHOTS_BUCKET)
        before = dict(self._held)
        for part in self._parts:
            await self._follow(manifests, part)
        if self._held == before:
            return False
        live_files = {file_name(stored) for _, held in self._held.values() for stored in held}
        for path in self.directory.iterdir():
            if path.name not in live_files:
                path.unlink(missing_ok=True)
        return True

    async def _follow(self, manifests: KeyValue, part: str) -> None:
        standby = self.standby
        try:
            key = f"{standby.app_incarnation}.{standby.group}.{part}"
            entry = await manifests.get(key)
        except KeyNotFoundError:
            self._held.pop(part, None)
            return
        revision, _ = self._held.get(part, (0, None))
        if entry.revision == revision:
            return
        stored = frozenset(stored_manifest(key, entry.value)["objects"].values())
        paths = {name: self.directory / file_name(name) for name in stored}
        missing = {n: p.with_suffix(".tmp") for n, p in paths.items() if not p.exists()}
        try:
            await self._pieces.fetch(missing)
        except BlobMissingError:
            # A newer snapshot has replaced it meanwhile; the next look finds that one.
            return
        for name, temporary in missing.items():
            temporary.replace(paths[name])
        self._held[part] = (entry.revision or 0, stored)

    def _tell(self) -> None:
        sizes = (path.stat().st_size for path in self.directory.iterdir())
        self.report(
            StandbyStatus(
                self.standby.instance,
                self.standby.app,
                self.standby.worker,
                self._clock.wall_ms(),
                len(self._held),
                sum(sizes),
            )
        )
