"""Backups of apps: create, list, read, restore, delete.

The contents are blobs named ``backups/{app}/{revision}/..`` beside the pieces of snapshots.  The
description is a key of the bucket ``mesh_backups``, written last, so that no backup is partial.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from mesh.control.restoring import snapshot_positions
from mesh.errors import MeshError
from mesh.files import scratch
from mesh.jetstream import channels, kv, stream_positions
from mesh.jetstream.blob_store import BlobMissingError
from mesh.jetstream.mirror import stored_manifest
from mesh.model import codec, names
from mesh.model.backup import Backup, BackupRecord, PartBackup, StreamCut
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nats.aio.client import Client

    from mesh.jetstream.blob_store import BlobStore
    from mesh.model.cluster import AppRecord

log = logging.getLogger(__name__)

_WHOLE: Final = "backup.json"
#: Format of the time in a revision, before its milliseconds.
_REVISION: Final = "%Y%m%dT%H%M%S"
#: Most reads of a snapshot that a newer one replaces meanwhile.
_TRIES: Final = 20


async def make(
    client: Client,
    pieces: BlobStore,
    record: AppRecord,
    at_ms: int,
    by: str,
    is_unchanged: Callable[[], bool],
) -> BackupRecord:
    """Back up an app while it runs.

    Raises:
        MeshError: MESH-A409 when a snapshot is replaced again and again while it is read, or the
            app's record has changed when all of them have been read.
    """
    app = record.spec.name
    revision = _revision(at_ms)
    parts: list[PartBackup] = []
    size = 0
    with scratch.directory("backup") as directory:
        for group, part in await _parts(client, record.incarnation):
            part_backup, size_of = await _copy_part(
                client, pieces, record, group, part, f"{_prefix(app, revision)}{group}/{part}/",
                directory,
            )  # fmt: skip
            parts.append(part_backup)
            size += size_of
    # After the snapshots: every event that they have consumed or emitted is before the cut.
    taken: list[StreamCut] = []
    for js_stream, _ in channels.js_streams(record.spec):
        cut = await stream_positions.cut(client, js_stream, record.incarnation)
        if cut is not None:
            taken.append(cut)
    # Streams of others, which the app only reads.
    others = {s for part in parts for s in snapshot_positions(part.manifest)} - {
        c.js_stream for c in taken
    }
    for js_stream, state in (await stream_positions.states(client, sorted(others))).items():
        taken.append(StreamCut(js_stream, state.created_ms, state.last, {}))
    if not is_unchanged():
        await pieces.drop(_prefix(app, revision))
        raise MeshError(
            "MESH-A409",
            f'app "{app}" was changed while it was backed up',
            hint="Back it up again.",
        )
    backup = Backup(revision, record, tuple(parts), tuple(taken))
    await pieces.put(f"{_prefix(app, revision)}{_WHOLE}", codec.encode(backup))
    summary = BackupRecord(app, revision, at_ms, by, len(parts), size)
    js = client.jetstream()
    key = names.backup_key(app, revision)
    await kv.write(js, names.BACKUPS_BUCKET, key, codec.encode(summary), revision=0)
    return summary


async def list_backups(client: Client, app: str) -> list[BackupRecord]:
    """Descriptions of an app's backups, oldest first; none for what is no name of an app."""
    if not names.is_app_name(app):
        # It would be a part of a filter: a wildcard would list the backups of every app.
        return []
    # The first backup makes the bucket.
    js, prefix = client.jetstream(), names.backup_key(app, "")
    entries = await kv.entries(js, names.BACKUPS_BUCKET, prefix)
    found = []
    for key, one in entries.items():
        try:
            found.append(codec.decode(BackupRecord, one.data or b""))
        except MeshError as error:
            extra = fields(key=key, error=error)
            log.warning("description of a backup can't be read", extra=extra)
            found += _of_key(app, key.removeprefix(prefix))
    return found


def _of_key(app: str, revision: str) -> list[BackupRecord]:
    """The description of a backup by its key alone, whose contents may be whole; none for others.

    Otherwise the newest backup would be an older one, or no backup could be listed or deleted.
    """
    try:
        at = datetime.strptime(f"{revision}000+0000", f"{_REVISION}-%f%z")
    except ValueError:
        return []
    return [BackupRecord(app, revision, round(at.timestamp() * 1000), "", 0, 0)]


async def read(pieces: BlobStore, of: BackupRecord) -> Backup:
    """The whole of a backup but for its pieces; MESH-S121 when it is not there."""
    with scratch.directory("backup") as directory:
        path = directory / _WHOLE
        name = f"{_prefix(of.app, of.revision)}{_WHOLE}"
        try:
            await pieces.fetch({name: path})
        except BlobMissingError as error:
            raise _incomplete(of, name) from error
        return codec.decode(Backup, await asyncio.to_thread(path.read_bytes))


async def restore_snapshots(
    client: Client, pieces: BlobStore, backup: Backup, incarnation: str, manifests: Sequence[str]
) -> None:
    """Store the snapshots of a backup as those of a new incarnation of an app.

    Args:
        client: the connection.
        pieces: the store.
        backup: the source.
        incarnation: the new one, of which no instance runs yet.
        manifests: of its parts, JSON.
    """
    bucket = await kv.open_bucket(client.jetstream(), names.SNAPSHOTS_BUCKET)
    with scratch.directory("restore") as directory:
        for part, manifest in zip(backup.parts, manifests, strict=True):
            stored: dict[str, str] = {}
            for at, (piece, name) in enumerate(part.objects.items()):
                path = directory / str(at)
                try:
                    await pieces.fetch({name: path})
                except BlobMissingError as error:
                    raise _incomplete(None, name) from error
                stored[piece] = f"{incarnation}/{part.group}/{part.part}/0/{piece}"
                await pieces.put(stored[piece], await asyncio.to_thread(path.read_bytes))
            values = {"epoch": 0, "objects": stored, "manifest": orjson.loads(manifest)}
            value = orjson.dumps(values)
            await bucket.put(f"{incarnation}.{part.group}.{part.part}", value)


async def delete(client: Client, pieces: BlobStore, of: BackupRecord) -> None:
    """Drop a backup."""
    key = names.backup_key(of.app, of.revision)
    # A deleted key would leave its message behind without end.
    await client.jetstream().purge_stream(
        f"KV_{names.BACKUPS_BUCKET}", subject=kv.subject(names.BACKUPS_BUCKET, key)
    )
    await pieces.drop(_prefix(of.app, of.revision))


async def _parts(client: Client, incarnation: str) -> list[tuple[str, str]]:
    """(group, part) of each snapshot that an incarnation has."""
    prefix = kv.subject(names.SNAPSHOTS_BUCKET, f"{incarnation}.")
    info = await client.jetstream().stream_info(
        f"KV_{names.SNAPSHOTS_BUCKET}", subjects_filter=f"{prefix}>"
    )
    keys = (subject.removeprefix(prefix) for subject in info.state.subjects or {})
    return sorted((group, part) for group, _, part in (key.rpartition(".") for key in keys))


async def _copy_part(
    client: Client, pieces: BlobStore, record: AppRecord, group: str, part: str, prefix: str,
    directory: Path,
) -> tuple[PartBackup, int]:  # fmt: skip
    """Copy the newest snapshot of a part; its pieces' size as well."""
    bucket = await kv.open_bucket(client.jetstream(), names.SNAPSHOTS_BUCKET)
    for _ in range(_TRIES):
        key = f"{record.incarnation}.{group}.{part}"
        entry = await bucket.get(key)
        values = stored_manifest(key, entry.value)
        copies: dict[str, str] = {}
        size = 0
        try:
            for at, (piece, stored) in enumerate(values["objects"].items()):
                path = directory / "piece"
                await pieces.fetch({stored: path})
                data = await asyncio.to_thread(path.read_bytes)
                copies[piece] = f"{prefix}{at}"
                await pieces.put(copies[piece], data)
                size += len(data)
        except BlobMissingError:
            # A newer snapshot has replaced this one.
            continue
        manifest = orjson.dumps(values["manifest"]).decode()
        return PartBackup(group, part, manifest, copies), size
    raise MeshError(
        "MESH-A409",
        f'snapshot of part {part} of group "{group}" is replaced faster than it can be copied',
        hint="Raise worker.snapshot_interval_s, or try again under less load.",
    )


def _revision(at_ms: int) -> str:
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return f"{at:{_REVISION}}-{at_ms % 1000:03d}"


def _prefix(app: str, revision: str) -> str:
    return f"backups/{app}/{revision}/"


def _incomplete(of: BackupRecord | None, name: str) -> MeshError:
    what = f"{of.revision} " if of is not None else ""
    return MeshError(
        "MESH-S121",
        f"backup {what}is incomplete",
        detail=f"Missing: {name}.",
        hint="Is state.store the same as when the backup was made?",
    )
