"""Sweep of pieces that no manifest names: their worker was killed while it stored a snapshot."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import orjson
from nats.js.errors import KeyNotFoundError

from mesh.jetstream import history_checkpoints, kv
from mesh.model import names
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from nats.js import JetStreamContext

    from mesh.jetstream.blob_store import BlobStore

log = logging.getLogger(__name__)

#: Younger pieces are left: the manifest that names them may be about to be stored.
AGE_MS: Final = 86_400_000
#: Interval of the leader's sweeps, seconds.
INTERVAL_S: Final = 6 * 3600.0


async def sweep(js: JetStreamContext, pieces: BlobStore, now_ms: int) -> int:
    """Delete the pieces that no snapshot of a present app names; returns their number.

    Pieces of apps without any snapshot, and of backups, are left to their own removal.  Old
    checkpoints of histories are deleted as well.

    Args:
        js: the connection.
        pieces: the store of ``state.store``.
        now_ms: the present time; the store's clock may differ by hours.
    """
    await history_checkpoints.drop_old(js, pieces, now_ms)
    # Listed before the manifests are read: a manifest names only pieces that were stored before.
    stored = await pieces.listed()
    named, incarnations = await _named(js)
    gone = 0
    for name in stored:
        if name.partition("/")[0] not in incarnations or name in named:
            continue
        stored_ms = await pieces.stored_ms(name)
        if stored_ms is not None and now_ms - stored_ms > AGE_MS:
            await pieces.delete(name)
            gone += 1
    if gone:
        log.info("pieces without a snapshot deleted", extra=fields(pieces=gone))
    return gone


async def _named(js: JetStreamContext) -> tuple[set[str], set[str]]:
    """The pieces that snapshots name, and the incarnations of the apps that have snapshots."""
    prefix = kv.subject(names.SNAPSHOTS_BUCKET, "")
    info = await js.stream_info(f"KV_{names.SNAPSHOTS_BUCKET}", subjects_filter=f"{prefix}>")
    bucket = await kv.open_bucket(js, names.SNAPSHOTS_BUCKET)
    named: set[str] = set()
    incarnations: set[str] = set()
    for subject in info.state.subjects or {}:
        key = subject.removeprefix(prefix)
        try:
            entry = await bucket.get(key)
        except KeyNotFoundError:
            continue
        incarnations.add(key.partition(".")[0])
        named.update(orjson.loads(entry.value or b"{}").get("objects", {}).values())
    return named, incarnations
