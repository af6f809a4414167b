"""States from which a group can be run again: those of backups, for what the log no longer tells.

The log alone is better: an input that a state has taken in can't be left out of it any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mesh.errors import MeshError
from mesh.files import scratch
from mesh.jetstream import backups
from mesh.jetstream.blob_store import BlobMissingError
from mesh.operators.base import State, subset
from mesh.spark.local_state import LocalState, Manifest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nats.aio.client import Client

    from mesh.jetstream.blob_store import BlobStore
    from mesh.model.app import GroupSpec
    from mesh.model.cluster import AppRecord

#: Backups that are looked at for one event, the newest that may serve first.
_EXAMINED_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Base:
    """The state of a part of a group in a backup."""

    revision: str
    manifest: Manifest
    state: State


@dataclass(frozen=True, slots=True)
class Bases:
    """The backups of an app.

    Args:
        client: the connection.
        pieces: the store of backups.
        record: the app.
    """

    client: Client
    pieces: BlobStore
    record: AppRecord

    async def before(self, group: GroupSpec, part: str, position: int) -> AsyncIterator[Base]:
        """States of a part in which a row of this position is still to come, the newest first."""
        left = _EXAMINED_MAX
        for one in reversed(await backups.list_backups(self.client, self.record.spec.name)):
            base = await self._of(one, group, part)
            if base is not None and outputs(base.manifest) < position:
                yield base
                left -= 1
            if not left:
                return

    async def _of(self, one: Any, group: GroupSpec, part: str) -> Base | None:
        """The state of a part in a backup; None for one of another text, or that is gone."""
        try:
            backup = await backups.read(self.pieces, one)
            stored = next(
                (p for p in backup.parts if (p.group, p.part) == (group.name, part)), None
            )
            if stored is None or backup.record.incarnation != self.record.incarnation:
                return None
            manifest = Manifest.from_bytes(stored.manifest.encode())
            if (manifest.text, manifest.resets) != (group.text, group.resets):
                return None
            with scratch.directory("lineage") as directory:
                local = LocalState(directory)
                paths = {name: local.piece_path(piece) for piece, name in stored.objects.items()}
                await self.pieces.fetch(paths)
                # Its files are mapped, and may be removed.
                return Base(one.revision, manifest, local.load(manifest))
        except (MeshError, BlobMissingError):
            return None


def reached(manifest: Manifest) -> dict[str, int]:
    """By JetStream stream: the last sequence that a state includes."""
    return {stream: sequence for stream, sequence, _ in manifest.position_of.streams}


def outputs(manifest: Manifest) -> int:
    """The number of rows that a part has emitted by then."""
    scalars = subset(State({}, dict(manifest.scalars)), "own").scalars
    return int(scalars.get("outputs", 0))
