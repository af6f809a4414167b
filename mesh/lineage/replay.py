"""A group's operators over a part of its log, in this process: without Spark, sink and snapshots.

The result is that of an instance, because operators depend on nothing but events and times
(docs/design/dataflow.md), however the input was cut into runs.

A group can be run again from the states of backups, for what the log no longer tells.  The log
alone is better: an input that a state has taken in can't be left out of it any more.

Ranges of the log that lineage reads, within a budget.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from mesh.errors import MeshError
from mesh.files import scratch
from mesh.jetstream import backups, channel_reader, stream_positions
from mesh.jetstream.blob_store import BlobMissingError
from mesh.model import names
from mesh.model.app import Format
from mesh.model.values import Row
from mesh.operators.base import State, subset
from mesh.operators.executor import Executor, InputRun
from mesh.operators.failures import FAILED
from mesh.plan.bind.apps import bind_group
from mesh.spark.instance_io import LocalState, Manifest, decoder_of
from mesh.spark.live_partition import IdleTime, LivePartition, StreamClock, executor_of
from mesh.spark.sink_rows import ARROW_TYPE, POSITION_COLUMN
from pyspark_nats import decode
from pyspark_nats.decode.result import USUAL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    import numpy.typing as npt
    from nats.aio.client import Client

    from mesh.jetstream.blob_store import BlobStore
    from mesh.jetstream.channel_reader import LogMessage
    from mesh.model.app import Channel, GroupSpec
    from mesh.model.cluster import AppRecord
    from mesh.model.lineage import Budget
    from mesh.spark.instance_io import InstanceIO
    from pyspark_nats.sink.messages_out import RowHeader

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


#: Messages of one input that a group with state is run over.
REPLAYED_MAX = 20_000
#: Messages of one range.
_RANGE_MAX = 100_000
#: Messages after an event among which those of its batch are counted from the batch's end.
_NEAR = 1000
#: Most by which a broker's times go back when another server leads the stream, milliseconds.
_SLACK_MS = 10_000


class RangeReader:
    """Reads ranges of an app's JetStream streams."""

    def __init__(self, client: Client, budget: Budget) -> None:
        self._client = client
        self._budget = budget

    async def read(
        self, js_stream: str, first: int, last: int, subject: str = ">"
    ) -> list[LogMessage]:
        """The messages of a range; MESH-C153 for too many."""
        messages = []
        async for one in channel_reader.read(self._client, js_stream, first, last, subject):
            messages.append(one)
            self._budget.messages -= 1
            if self._budget.messages < 0 or len(messages) > _RANGE_MAX:
                raise too_many("", js_stream, len(messages))
        return messages

    async def beginning(
        self, js_stream: str, channel: Channel, after: int, end_ms: int
    ) -> tuple[list[LogMessage], int]:
        """The first messages after a sequence that were stored up to a time.

        Returns:
            At most ``REPLAYED_MAX`` messages, and the time up to which they are all: ``end_ms``,
            or an earlier one if there are more.
        """
        messages: list[LogMessage] = []
        subject = subject_of(channel)
        async for one in channel_reader.read(self._client, js_stream, after + 1, 2**62, subject):
            self._budget.messages -= 1
            if self._budget.messages < 0:
                raise too_many("", js_stream, len(messages))
            if one.time_ms > end_ms + _SLACK_MS:
                break
            if one.time_ms > end_ms:
                continue
            if len(messages) == REPLAYED_MAX:
                end_ms = one.time_ms - 1
                break
            messages.append(one)
        return messages, end_ms

    async def marker_after(self, js_stream: str, sequence: int) -> LogMessage | None:
        """The marker of the batch that has a message; it is behind all of the batch's."""
        subject = f"{names.marker_subject(js_stream)}.>"
        # However many messages the batch has: without its marker an event would seem to be
        # one from outside.
        async for one in channel_reader.read(self._client, js_stream, sequence + 1, 2**62, subject):
            return one
        return None

    async def place(
        self, js_stream: str, channel: Channel, sequence: int, marker: LogMessage
    ) -> tuple[list[LogMessage], list[LogMessage], LogMessage | None]:
        """Messages of a batch on one side of one of them, whichever side has few.

        Returns:
            The messages before it, or from it on: one of both is empty.  With those before it, the
            marker of its producer's earlier batch.
        """
        subject = channel.subject() if not channel.is_keyed else ">"
        if marker.sequence - sequence > _NEAR:
            earlier = await channel_reader.last_of_each(
                self._client, js_stream, f"{names.marker_subject(js_stream)}.>", sequence
            )
            start = max((one.sequence for one in earlier), default=0)
            if sequence - start < marker.sequence - sequence:
                previous = next((one for one in earlier if one.subject == marker.subject), None)
                return await self.read(js_stream, start + 1, sequence - 1, subject), [], previous
        return [], await self.read(js_stream, sequence, marker.sequence - 1, subject), None

    async def producer(self, js_stream: str, row: RowHeader) -> str | None:
        """The producer of a row that tells it; None for one that the stream does not know."""
        return (await stream_positions.producers(self._client, js_stream)).get(row.producer)

    async def first(self, js_stream: str) -> int:
        """The lowest sequence that retention has left."""
        return (await self._client.jetstream().stream_info(js_stream)).state.first_seq


def subject_of(channel: Channel) -> str:
    """The subjects of a channel's events among those of its stream."""
    return channel.subject() if not channel.is_keyed else f"{names.ROOT}.{channel.app}.>"


def too_many(group: str, js_stream: str, count: int) -> MeshError:
    """MESH-C153 for a group, or for an event."""
    what = f'group "{group}"' if group else "the event"
    return MeshError(
        "MESH-C153",
        f"{what} can't be explained: there is too much to recompute",
        detail=f"Stream {js_stream} holds {count} messages or more up to it; at most "
        f"{REPLAYED_MAX} are run again.",
        hint="Fork the app from a place shortly before the event, and ask about the fork's.",
    )


def position_of(message: LogMessage, index: int) -> int:
    """The position of an event of an Arrow message of ours; -1 in other messages."""
    if message.headers.get("Content-Type") != ARROW_TYPE:
        return -1
    with pa.ipc.open_stream(message.data) as reader:
        table = reader.read_all()
    if POSITION_COLUMN not in table.column_names:
        return -1
    return int(table.column(POSITION_COLUMN)[index].as_py())
