"""A group's operators over a part of its log, in this process: without Spark, sink and snapshots.

The result is that of an instance, because operators depend on nothing but events and times
(docs/design/dataflow.md), however the input was cut into runs.

A group can be run again from the states of backups, for what the log no longer tells.  The log
alone is better: an input that a state has taken in can't be left out of it any more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from mesh.errors import MeshError
from mesh.files import scratch
from mesh.jetstream import backups
from mesh.jetstream.blob_store import BlobMissingError
from mesh.model.app import Format
from mesh.model.values import Row
from mesh.operators.base import State, subset
from mesh.operators.executor import Executor, InputRun
from mesh.operators.failures import FAILED
from mesh.plan.bind.apps import bind_group
from mesh.spark.instance_io import decoder_of
from mesh.spark.live_partition import LivePartition, executor_of
from mesh.spark.local_state import LocalState, Manifest
from mesh.spark.stream_clock import IdleTime, StreamClock
from pyspark_nats import decode
from pyspark_nats.decode.limits import USUAL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    import numpy.typing as npt
    from nats.aio.client import Client

    from mesh.jetstream.blob_store import BlobStore
    from mesh.jetstream.channel_reader import LogMessage
    from mesh.model.app import Channel, GroupSpec
    from mesh.model.cluster import AppRecord
    from mesh.spark.instance_io import InstanceIO

    Bools = npt.NDArray[np.bool_]

    Longs = npt.NDArray[np.int64]


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


@dataclass(frozen=True, slots=True)
class ReplayedEvents:
    """The readable events of a range of one JetStream stream, n of them."""

    js_stream: str
    channel: Channel
    rows: pa.RecordBatch
    #: int64[n]: of its message; of the event in its message; milliseconds since 1970.
    sequence: Longs
    index: Longs
    time_ms: Longs
    #: bool[n], whether the time is the publisher's.
    has_event_time: Bools

    def __len__(self) -> int:
        return int(self.rows.num_rows)


def events_of(js_stream: str, channel: Channel, messages: Sequence[LogMessage]) -> ReplayedEvents:
    """Decode messages as the source does; what can't be read is left out."""
    data = pa.array([m.data for m in messages], pa.binary())
    kinds = pa.array([m.headers.get("Content-Type", "") for m in messages], pa.string())
    decoder = decoder_of(channel)
    parts = []
    at = 0
    while at < len(messages):
        some = messages[at:]
        header_ms = pa.array([m.event_time_ms for m in some], pa.int64())
        broker = np.array([m.time_ms for m in some], np.int64)
        batch = decoder(data.slice(at), kinds.slice(at), channel.stream.arrow, limits=USUAL)
        batch = decode.with_event_times(batch, header_ms, partial(_same, broker), USUAL)
        sequences = np.array([m.sequence for m in some], np.int64)
        has_event_time = batch.event_time_ms.is_valid().to_numpy(zero_copy_only=False)
        event_ms = batch.event_time_ms.fill_null(0).to_numpy(zero_copy_only=False)
        time_ms = np.where(has_event_time, event_ms, broker[batch.message])
        parts.append((batch.rows, sequences[batch.message], batch.index, time_ms, has_event_time))
        at += max(1, batch.taken)
    if not parts:
        none = np.empty(0, np.int64)
        rows = pa.RecordBatch.from_pylist([], channel.stream.arrow)
        return ReplayedEvents(js_stream, channel, rows, none, none, none, np.empty(0, np.bool_))
    table = pa.Table.from_batches([p[0] for p in parts]).combine_chunks()
    rows = table.to_batches()[0] if table.num_rows else parts[0][0]
    columns = [np.concatenate([p[n] for p in parts]) for n in range(1, 5)]
    return ReplayedEvents(js_stream, channel, rows, *columns)


def _same(times: Longs) -> Longs:
    return times


@dataclass(frozen=True, slots=True)
class EmittedRow:
    """An event that a group emitted, in one run."""

    stream: str
    position: int
    time_ms: int
    values: Row

    @property
    def shown(self) -> str:
        """Stream, time and values: two rows with the same are not told apart."""
        return repr((self.stream, self.time_ms, self.values))


@dataclass
class GroupReplay:
    """One virtual partition of a stateful group, which can be run again and again."""

    io: InstanceIO
    number: int
    inputs: Sequence[ReplayedEvents]
    #: Broker's time up to which each input is known.
    end_ms: int
    #: The state before the inputs; None for an empty one.
    base: Base | None = None
    _executor: Executor = field(init=False)
    _empty: Any = field(init=False)

    def __post_init__(self) -> None:
        group = self.io.group
        if IdleTime.of(bind_group(group)) is not None:
            raise MeshError(
                "MESH-C152",
                f'group "{group.name}" can\'t be recomputed',
                detail="Its clock advances by idle time (@App:playback).",
            )
        self._executor = executor_of(self.io, self.number)
        if self._executor.stores:
            raise MeshError(
                "MESH-C152",
                f'group "{group.name}" can\'t be recomputed',
                detail="It has tables in a database.",
            )
        if self.base is not None:
            self._executor.restore(self.base.state)
        self._empty = self._executor.snapshot()
        order = np.lexsort(
            (
                np.concatenate([e.index for e in self.inputs]),
                np.concatenate([e.sequence for e in self.inputs]),
                np.concatenate([np.full(len(e), n) for n, e in enumerate(self.inputs)]),
                np.concatenate([e.time_ms for e in self.inputs]),
            )
        )
        #: (number of the input, row in it) of each event, by time.
        starts = np.concatenate([[0], np.cumsum([len(e) for e in self.inputs])])
        which = np.searchsorted(starts, order, side="right") - 1
        self.places = np.stack([which, order - starts[which]], axis=1)

    def __len__(self) -> int:
        return len(self.places)

    def rows(self, mask: Bools | None = None) -> list[EmittedRow]:
        """The rows that the group emits for the events of a mask, bool[n] over ``places``."""
        self._executor.restore(self._empty)
        clocks = {e.channel.stream.name: StreamClock() for e in self.inputs}
        partition = LivePartition(self._executor, clocks)
        if self.base is not None:
            partition.restore_clocks(self.base.manifest.clocks)
        runs, has_event_times = [], False
        for number, events in enumerate(self.inputs):
            indices = self._indices(number, events, mask)
            if len(indices):
                times, has_time = events.time_ms[indices], events.has_event_time[indices]
                clocks[events.channel.stream.name].take(times, bool(has_time[-1]))
                has_event_times |= bool(has_time.any())
                at: Any = pa.array(indices)
                rows = events.rows.take(at)
                sequence = events.sequence[indices]
                chunk = sequence if events.channel.format is Format.JSON else None
                runs.append(InputRun(events.channel.stream.name, sequence, times, rows, chunk))
        for clock in clocks.values():
            clock.broker_reached(self.end_ms)
        by_events = has_event_times or self._executor.plays_back
        outputs = self._executor.run(runs, partition.times(), is_by_events=by_events)
        return [
            EmittedRow(run.stream, position, time_ms, tuple(values))
            for run in outputs
            if run.stream != FAILED
            for position, time_ms, values in zip(
                run.position.tolist(),
                run.time_ms.tolist(),
                zip(*(c.to_pylist() for c in run.rows.columns), strict=True),
                strict=True,
            )
        ]

    def _indices(self, number: int, events: ReplayedEvents, mask: Bools | None) -> Longs:
        if mask is None:
            return np.arange(len(events))
        chosen = self.places[mask & (self.places[:, 0] == number)]
        return np.sort(chosen[:, 1])

    def holds(self, row: EmittedRow, rows: Sequence[EmittedRow]) -> Mapping[str, int]:
        """The number of rows like ``row`` up to it, for ``is_held``."""
        same = [r for r in rows if r.shown == row.shown and r.position <= row.position]
        return {row.shown: len(same)}

    def is_held(self, expected: Mapping[str, int], mask: Bools) -> bool:
        """Whether the events of a mask give rows at least as often as ``expected``."""
        rows = [row.shown for row in self.rows(mask)]
        return all(rows.count(shown) >= times for shown, times in expected.items())
