"""Checkpoints of histories, beside the snapshots of instances: one for each app.

The pieces of a checkpoint are stored before the record that names them, and those that it no longer
names are removed after it.  So an interruption anywhere leaves one that is whole.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson
from nats.js.errors import KeyNotFoundError, NotFoundError

from mesh.errors import MeshError
from mesh.jetstream import kv
from mesh.jetstream.blob_store import BlobMissingError
from mesh.model import codec, names
from mesh.model.history import HistoryCheckpoint

if TYPE_CHECKING:
    from nats.js import JetStreamContext
    from nats.js.kv import KeyValue

    from mesh.jetstream.blob_store import BlobStore

#: A history that no deploy has continued for so long begins again.
AGE_MS: Final = 7 * 86_400_000


@dataclass(slots=True)
class HistoryCheckpoints:
    """The checkpoints of the history of one app."""

    js: JetStreamContext
    pieces: BlobStore
    app: str
    #: In the names of its objects: another run of the same history has others.
    _run: str = field(default_factory=lambda: secrets.token_hex(4))
    #: Piece, by its path below the directory, to the stored object.
    _objects: dict[str, str] = field(default_factory=dict)

    async def load(self, directory: Path) -> HistoryCheckpoint | None:
        """The stored checkpoint, with its pieces in ``directory``; None without a whole one."""
        try:
            entry = await (await self._bucket()).get(_key(self.app))
            values = orjson.loads(entry.value or b"{}")
            checkpoint = codec.decode(HistoryCheckpoint, orjson.dumps(values["checkpoint"]))
            paths = {o: directory / place for place, o in values["objects"].items()}
            for path in paths.values():
                path.parent.mkdir(parents=True, exist_ok=True)
            await self.pieces.fetch(paths)
        except (KeyNotFoundError, BlobMissingError):
            return None
        except MeshError as error:
            if error.code == "MESH-C100":
                # Of another version.
                return None
            raise
        self._objects = dict(values["objects"])
        return _moved(checkpoint, directory)

    async def store(self, checkpoint: HistoryCheckpoint, directory: Path) -> None:
        """Store a checkpoint, whose files are in ``directory``, in the place of the one before."""
        paths = [p for state in checkpoint.states for p in state.pieces.values()]
        objects = {}
        for path in paths:
            place = str(Path(path).relative_to(directory))
            objects[place] = self._objects.get(place) or f"{_start(self.app)}{self._run}/{place}"
            if place not in self._objects:
                data = await asyncio.to_thread(Path(path).read_bytes)
                await self.pieces.put(objects[place], data)
        values = {"objects": objects, "checkpoint": codec.to_values(checkpoint)}
        await (await self._bucket()).put(_key(self.app), orjson.dumps(values))
        gone = set(self._objects.values()) - set(objects.values())
        self._objects = objects
        for name in gone:
            await self.pieces.delete(name)

    async def drop(self) -> None:
        """Remove all checkpoints of the app."""
        await (await self._bucket()).purge(_key(self.app))
        await self.pieces.drop(_start(self.app))

    async def _bucket(self) -> KeyValue:
        return await kv.open_bucket(self.js, names.SNAPSHOTS_BUCKET)


async def drop_old(js: JetStreamContext, pieces: BlobStore, now_ms: int) -> None:
    """Remove the checkpoints that are older than ``AGE_MS``."""
    prefix = kv.subject(names.SNAPSHOTS_BUCKET, f"{names.HISTORY_RECORDS}.")
    stream = f"KV_{names.SNAPSHOTS_BUCKET}"
    info = await js.stream_info(stream, subjects_filter=f"{prefix}>")
    for subject in info.state.subjects or {}:
        try:
            message = await js.get_last_msg(stream, subject)
        except NotFoundError:
            continue
        stored = message.time or datetime.fromtimestamp(0, UTC)
        if now_ms - stored.timestamp() * 1000 > AGE_MS:
            await HistoryCheckpoints(js, pieces, subject.removeprefix(prefix)).drop()


def _moved(checkpoint: HistoryCheckpoint, directory: Path) -> HistoryCheckpoint:
    """``checkpoint`` with the paths of its pieces in another directory."""

    def path(old: str) -> str:
        return str(directory.joinpath(*Path(old).parts[-3:]))

    states = tuple(
        replace(state, pieces={name: path(old) for name, old in state.pieces.items()})
        for state in checkpoint.states
    )
    return replace(checkpoint, states=states)


def _key(app: str) -> str:
    return f"{names.HISTORY_RECORDS}.{app}"


def _start(app: str) -> str:
    return f"{names.HISTORY_RECORDS}/{app}/"
