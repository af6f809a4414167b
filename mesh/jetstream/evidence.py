"""Streams, markers and states of an app, read for ``mesh.control.verification``.

Custody of the mesh's buckets while managers run: those that were deleted are made again.

    missing ──▶ named by /health/ready and mesh verify ──▶ made again ──▶ records put back

Any manager makes the bucket of control, without which none leads; the leader makes the others.  A
bucket that comes back empty gets the records back that the managers know, see ``ClusterView``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import orjson
from nats.js.errors import KeyNotFoundError, NotFoundError

from mesh.control.journal import JournalEntry
from mesh.control.restoring import snapshot_positions
from mesh.control.verification import (
    Evidence,
    Finding,
    MarkerEvidence,
    Producer,
    Severity,
    SnapshotEvidence,
    StreamEvidence,
)
from mesh.errors import MeshError
from mesh.jetstream import channels, kv, stream_positions
from mesh.jetstream.connection import UNREACHABLE, api_call
from mesh.jetstream.mirror import stored_manifest
from mesh.model import codec, names
from mesh.model.cluster import InstanceState
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from nats.aio.client import Client
    from nats.js import JetStreamContext

    from mesh.control.snapshot import ClusterSnapshot
    from mesh.jetstream.blob_store import BlobStore
    from mesh.model.app import GroupSpec
    from mesh.model.cluster import AppRecord, Assignment, GroupForm
    from mesh.model.values import JsonMapping
    from mesh.settings import ChannelSettings


#: Calls at once.
_CALLS: Final = 8
#: Deleted sequences that are looked at.
_DELETED_MAX: Final = 10_000


async def collect(
    client: Client,
    pieces: BlobStore,
    record: AppRecord,
    snapshot: ClusterSnapshot,
    replicas: int,
    now_s: float,
) -> Evidence:
    """The evidence about an app, while it runs.

    Args:
        client: the connection.
        pieces: the store of ``state.store``.
        record: the app's desired state.
        snapshot: the cluster as a manager sees it.
        replicas: ``channels.replicas``.
        now_s: seconds since 1970.

    Raises:
        TimeoutError: NATS did not answer; others of NATS.
    """
    spec = record.spec
    groups = snapshot.groups_of(record)
    # Readers and states first: what they have processed is then in every later look at a stream.
    snapshots = await _snapshots(client, pieces, record)
    taken = _taken_by_state(groups, snapshots)
    behind = _behind(groups, record, snapshot)
    producers = await asyncio.to_thread(_producers, groups, record.incarnation)
    markers = await _markers(client, record, producers)
    app_streams = {name for name, _ in channels.js_streams(spec)} - {
        names.error_js_stream(spec.name)
    }
    gate = asyncio.Semaphore(_CALLS)

    async def look(name: str) -> tuple[str, StreamEvidence | None]:
        async with gate:
            return name, await stream(client, name, now_s)

    read = {name for group in groups for i in group.inputs for name in i.channel.js_streams}
    streams = dict(await asyncio.gather(*map(look, sorted(app_streams | read))))
    for (group, name), waiting in behind.items():
        state = streams.get(name)
        if state is not None and (group, name) not in taken:
            taken[group, name] = max(state.first - 1, state.last - waiting)
    return Evidence(
        record, streams, markers, snapshots, _epochs(record, snapshot), producers, taken, replicas
    )


def _epochs(record: AppRecord, snapshot: ClusterSnapshot) -> Mapping[str, int]:
    epochs: defaultdict[str, int] = defaultdict(int)
    placed: list[Assignment | GroupForm] = [seen.value for seen in snapshot.assignments]
    placed += [seen.value for seen in snapshot.forms]
    for one in placed:
        if one.app_incarnation == record.incarnation:
            epochs[one.group] = max(epochs[one.group], one.epoch)
    return dict(epochs)


def _producers(
    groups: Collection[GroupSpec], incarnation: str
) -> Mapping[tuple[str, str], Producer]:
    # Only here: it brings Spark's Python along.
    from mesh.spark.producers import producers

    return {pair: Producer(*of) for pair, of in producers(groups, incarnation).items()}


def _behind(
    groups: Collection[GroupSpec], record: AppRecord, snapshot: ClusterSnapshot
) -> Mapping[tuple[str, str], int]:
    """By group of one input stream that runs everywhere: messages that wait in it."""
    backlogs = {}
    placed = [a.value for a in snapshot.assignments if a.value.app == record.spec.name]
    for group in groups:
        streams = [name for i in group.inputs for name in i.channel.js_streams]
        ones = [snapshot.status(a) for a in placed if a.group == group.name and not a.stop]
        if len(streams) == 1 and len(ones) == group.parallel:
            reports = [one for one in ones if one and one.state is InstanceState.RUNNING]
            if len(reports) == len(ones):
                backlogs[group.name, streams[0]] = sum(one.behind for one in reports)
    return backlogs


def _taken_by_state(
    groups: Collection[GroupSpec], snapshots: Collection[SnapshotEvidence]
) -> dict[tuple[str, str], int]:
    """By group and stream: the last message that the stored states of all its parts include."""
    taken: dict[tuple[str, str], int] = {}
    stateful = {group.name for group in groups if group.stateful}
    for one in snapshots:
        for name, sequence in one.positions.items() if one.group in stateful else ():
            taken[one.group, name] = min(sequence, taken.get((one.group, name), sequence))
    return taken


async def stream(client: Client, name: str, now_s: float) -> StreamEvidence | None:
    """A stream as its leader has it; None where there is none."""
    info = await api_call(client, f"STREAM.INFO.{name}", {"deleted_details": True})
    return evidence_of(info, now_s) if "state" in info else None


def evidence_of(info: JsonMapping, now_s: float) -> StreamEvidence:
    """A stream's evidence from the server's answer."""
    config, state = info["config"], info["state"]
    replicas = (info.get("cluster") or {}).get("replicas") or []
    first_s = datetime.fromisoformat(state["first_ts"][:19] + "+00:00").timestamp()
    return StreamEvidence(
        name=config["name"],
        subjects=tuple(config.get("subjects") or ()),
        replicas=config.get("num_replicas", 1),
        is_on_disk=config.get("storage") == "file",
        allows_rollups=bool(config.get("allow_rollup_hdrs")),
        allows_atomic=bool(config.get("allow_atomic")),
        max_age_s=config.get("max_age", 0) / 1e9,
        max_age_before_s=float((config.get("metadata") or {}).get(channels.BEFORE, 0)),
        max_bytes=max(0, config.get("max_bytes", 0)),
        bytes=state["bytes"],
        messages=state["messages"],
        first=state["first_seq"],
        last=state["last_seq"],
        first_age_s=max(0.0, now_s - first_s) if state["messages"] else 0.0,
        deleted=tuple(sorted((state.get("deleted") or ())[:_DELETED_MAX])),
        deleted_count=state.get("num_deleted", 0),
        away=tuple(one["name"] for one in replicas if one.get("offline")),
        lag=max((one.get("lag", 0) for one in replicas), default=0),
    )


async def _markers(
    client: Client, record: AppRecord, producers: Mapping[tuple[str, str], Producer]
) -> list[MarkerEvidence]:
    # Only here: see ``_producers``.
    from mesh.spark.instance_io import POSITIONS_PER_MESSAGE

    prefix = f"{record.incarnation}-"
    evidence = []
    for name in sorted({stream for stream, _ in producers}):
        if await stream_positions.state(client, name) is None:
            continue
        markers = await stream_positions.markers(client, name)
        for producer, payload in (markers[1] if markers is not None else {}).items():
            if producer.startswith(prefix):
                values = orjson.loads(payload)
                position, epoch = values.get("position", -1), values.get("epoch", -1)
                writer = producers.get((name, producer))
                if writer is not None and writer.inputs:
                    position //= POSITIONS_PER_MESSAGE
                evidence.append(MarkerEvidence(name, producer, position, epoch))
    return evidence


async def _snapshots(
    client: Client, pieces: BlobStore, record: AppRecord
) -> list[SnapshotEvidence]:
    js = client.jetstream()
    prefix = kv.subject(names.SNAPSHOTS_BUCKET, f"{record.incarnation}.")
    info = await js.stream_info(f"KV_{names.SNAPSHOTS_BUCKET}", subjects_filter=f"{prefix}>")
    keys = sorted(subject.removeprefix(prefix) for subject in info.state.subjects or {})
    if not keys:
        return []
    bucket = await kv.open_bucket(js, names.SNAPSHOTS_BUCKET)
    snapshots = [one for key in keys if (one := await _snapshot(bucket, record, key)) is not None]
    if not any(one.missing for one in snapshots):
        return snapshots
    # Listed after the manifests were read: a newer one may have replaced pieces meanwhile.
    stored = set(await pieces.listed())
    checked = []
    for one in snapshots:
        missing = tuple(name for name in one.missing if name not in stored)
        if missing:
            again = await _snapshot(bucket, record, f"{one.group}.{one.part}")
            is_same = again is not None and again.missing == one.missing
            missing = missing if is_same else ()
        checked.append(replace(one, missing=missing))
    return checked


async def _snapshot(bucket: Any, record: AppRecord, key: str) -> SnapshotEvidence | None:
    """A snapshot, with all its pieces as missing; None for one that was deleted."""
    with contextlib.suppress(KeyNotFoundError):
        entry = await bucket.get(f"{record.incarnation}.{key}")
        group, _, part = key.rpartition(".")
        try:
            values = stored_manifest(key, entry.value)
        except MeshError as error:
            return SnapshotEvidence(group, part, 0, {}, unreadable=f"{error.detail}")
        positions = snapshot_positions(orjson.dumps(values["manifest"]).decode())
        missing = tuple(values["objects"].values())
        return SnapshotEvidence(group, part, values["epoch"], positions, missing)
    return None


log = logging.getLogger(__name__)

#: Time between two looks, seconds.
LOOK_S: Final = 10.0
#: The streams without which apps do not run, or have no story.
STREAMS: Final = (
    f"KV_{names.CONTROL_BUCKET}",
    f"KV_{names.APPS_BUCKET}",
    f"KV_{names.STATUS_BUCKET}",
    f"KV_{names.SNAPSHOTS_BUCKET}",
    f"OBJ_{names.STATE_BUCKET}",
    names.JOURNAL_STREAM,
)


async def missing(js: JetStreamContext) -> tuple[str, ...]:
    """The streams of the mesh that NATS does not have."""

    async def is_missing(stream: str) -> bool:
        try:
            await js.stream_info(stream)
        except NotFoundError:
            return True
        return False

    absences = await asyncio.gather(*map(is_missing, STREAMS))
    return tuple(stream for stream, gone in zip(STREAMS, absences, strict=True) if gone)


def reasons(streams: tuple[str, ...]) -> tuple[str, ...]:
    """Reasons against the readiness of a manager."""
    return tuple(
        f"NATS has no stream {one}: it was deleted, and a manager makes it again" for one in streams
    )


def findings(app: str, streams: tuple[str, ...]) -> list[Finding]:
    """The faults of an app of which nothing else can be said meanwhile."""
    text = "NATS does not have it: it was deleted while the cluster ran."
    remedy = f"The managers make it again within {LOOK_S:g} s; then verify the app again."
    return [Finding(Severity.FAULT, "bucket-missing", app, one, text, remedy) for one in streams]


@dataclass(eq=False, repr=False)
class Custody:
    """The looks of one manager after the mesh's buckets."""

    _js: JetStreamContext
    _settings: ChannelSettings
    _note: Callable[[JournalEntry], None]
    _leads: Callable[[], bool]
    #: As of the last look.
    missing: tuple[str, ...] = ()

    async def run(self) -> None:
        """Look again and again, without end."""
        while True:
            await asyncio.sleep(LOOK_S)
            with contextlib.suppress(*UNREACHABLE):
                await self.look()

    async def look(self) -> None:
        """Find what is missing, and make what this manager has to make."""
        self.missing = await missing(self._js)
        if not self.missing:
            return
        log.error("buckets are missing", extra=fields(streams=self.missing))
        if self._leads():
            await channels.ensure_buckets(self._js, self._settings)
        elif STREAMS[0] in self.missing:
            await kv.ensure_bucket(self._js, names.CONTROL_BUCKET, self._settings.replicas)
        left = await missing(self._js)
        for stream in self.missing:
            if stream not in left:
                self._note(JournalEntry(f"made {stream} again", "NATS did not have it any more"))
        self.missing = left

    async def put_back(self, bucket: str, records: Mapping[str, object]) -> None:
        """Write the records of a bucket that was made again, empty, unless others have."""
        written = 0
        for key, record in records.items():
            with contextlib.suppress(kv.RevisionConflict):
                await kv.write(self._js, bucket, key, codec.encode(record), revision=0)
                written += 1
        if written:
            message = f"wrote {written} records of {bucket} again"
            self._note(JournalEntry(message, "it was made again, empty"))
