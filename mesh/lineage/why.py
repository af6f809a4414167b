"""Lineage of one event of an app, recomputed from the log.

    event ──marker──▶ producer and position ──▶ group and part ──replay──▶ row, its inputs ──▶ ..

The marker after a message names its producer and the position of the batch's last row.  A group
without state computes a row from one input, which the position names.  A group with state is run
again over its input, and each of its inputs is left out once (``contributors``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa

from mesh.errors import MeshError
from mesh.jetstream import log_reader
from mesh.lineage.contributors import EACH_MAX, contributors, shortest_prefix
from mesh.lineage.replay import GroupReplay, events_of
from mesh.model import names
from mesh.model.app import GroupKind
from mesh.model.cluster import Assignment
from mesh.model.lineage import Budget, Cause
from mesh.spark.instance_io import POSITIONS_PER_MESSAGE, InstanceIO, js_stream_of
from mesh.spark.routes import positioned_routes
from mesh.spark.sink_rows import ARROW_TYPE, POSITION_COLUMN
from mesh.spark.stateless_task import StatelessTask

if TYPE_CHECKING:
    from nats.aio.client import Client

    from mesh.jetstream.log_reader import LogMessage
    from mesh.lineage.contributors import Bools
    from mesh.lineage.replay import Events, Row
    from mesh.model.app import Channel, GroupSpec
    from mesh.model.cluster import AppRecord

#: Inputs of one event that are listed.
LISTED_MAX = 50
#: Messages of one input that a group with state is run over.
REPLAYED_MAX = 20_000
_BY_SETS = "Its inputs were searched for in sets; some that offset each other may be missing."
#: Messages in which the marker of a batch is looked for.
_BATCH_MAX = 100_000


@dataclass(frozen=True, slots=True)
class _Origin:
    """The producer of an event."""

    group: GroupSpec
    #: Suffix of the producer's name: a virtual partition, or a route.
    part: str
    #: Of the last row of the batch.
    last: int
    #: Rows of the batch after the event's, in its stream; -1 if ``position`` is known.
    after: int
    position: int


class Lineage:
    """Answers for one app."""

    def __init__(self, client: Client, record: AppRecord, budget: Budget | None = None) -> None:
        self._client = client
        self._record = record
        self._spec = record.spec
        self._budget = budget or Budget()
        channels = [*self._spec.channels, *(i.channel for g in self._spec.groups for i in g.inputs)]
        self._channels: dict[str, Channel] = {
            c.js_stream(p): c for c in channels for p in range(c.partitions)
        }

    async def why(self, stream: str, sequence: int, index: int = 0) -> Cause:
        """The causes of an event of a stream of the app, or of one of its JetStream streams.

        Raises:
            MeshError: MESH-A404 for a stream or message that isn't there.
        """
        js_stream = stream
        if stream not in self._channels:
            channel = self._spec.whole_channel(stream) or next(
                (c for c in self._channels.values() if c.stream.name == stream), None
            )
            if channel is None:
                raise MeshError(
                    "MESH-A404",
                    f'app "{self._spec.name}" has no stream "{stream}" on the wire',
                    detail=f"Its streams: {', '.join(sorted(self._channels))}.",
                )
            js_stream = channel.js_stream()
        return await self._cause(js_stream, sequence, index)

    async def _cause(self, js_stream: str, sequence: int, index: int) -> Cause:
        key = js_stream, sequence, index
        if key in self._budget.known:
            return self._budget.known[key]
        found = await self._explained(js_stream, sequence, index)
        self._budget.known[key] = found
        return found

    async def _explained(self, js_stream: str, sequence: int, index: int) -> Cause:
        channel = self._channels[js_stream]
        self._budget.events -= 1
        messages = await self._read(js_stream, sequence, sequence)
        events = events_of(js_stream, channel, messages)
        if index >= len(events) or messages[0].subject.startswith(names.marker_subject("")):
            raise MeshError(
                "MESH-A404",
                f'stream "{js_stream}" has no event {index} in message {sequence}',
                detail="Retention has taken it, or it is a marker.",
            )
        event = dict(zip(events.rows.schema.names, _values(events, index), strict=True))
        made = Cause(
            channel.stream.name, js_stream, sequence, index, int(events.time_ms[index]), event
        )
        origin = await self._origin(js_stream, channel, messages[0], index)
        if origin is None:
            return made
        if origin.group.stateful:
            return await self._of_stateful(made, origin, messages[0].time_ms)
        return await self._of_stateless(made, origin)

    # --- the producer

    async def _origin(
        self, js_stream: str, channel: Channel, message: LogMessage, index: int
    ) -> _Origin | None:
        """The producer of an event; None for one that came from outside."""
        writers = [g for g in self._spec.groups if any(c.id == channel.id for c in g.outputs)]
        marker = await self._marker(js_stream, message.sequence) if writers else None
        if marker is None:
            return None
        producer = marker.subject.removeprefix(f"{names.marker_subject(js_stream)}.")
        values = orjson.loads(marker.data)
        for group in writers:
            prefix = names.producer(self._record.incarnation, group.name, group.edit, "")
            part = producer.removeprefix(prefix)
            is_ours = group.kind in (GroupKind.QUERIES, GroupKind.PARTITIONER)
            if part != producer and is_ours and "-large-" not in part:
                last = int(values["position"])
                position = _position(message, index)
                after = -1
                if position < 0:
                    after = await self._rows_after(js_stream, channel, message, index, marker)
                return _Origin(group, part, last, after, position)
        return None

    async def _marker(self, js_stream: str, sequence: int) -> LogMessage | None:
        subject = f"{names.marker_subject(js_stream)}.>"
        last = sequence + _BATCH_MAX
        async for one in log_reader.read(self._client, js_stream, sequence + 1, last, subject):
            return one
        return None

    async def _rows_after(
        self, js_stream: str, channel: Channel, message: LogMessage, index: int, marker: LogMessage
    ) -> int:
        """Rows of the batch after an event."""
        messages = await self._read(
            js_stream, message.sequence, marker.sequence - 1, channel.subject()
            if not channel.is_keyed else ">"
        )  # fmt: skip
        return len(events_of(js_stream, channel, messages)) - index - 1

    # --- a group without state

    async def _of_stateless(self, made: Cause, origin: _Origin) -> Cause:
        """An event with its one input: the position has the sequence and the index of that."""
        io, js_input = self._route(origin)
        position = origin.position
        if position < 0:
            found = await self._position_of(made, origin, io, js_input)
            if found is None:
                note = f"The input in {js_input} is gone, or was read with another text."
                return _noted(made, origin, note)
            position = found
        sequence, index = divmod(position, POSITIONS_PER_MESSAGE)
        try:
            cause = await self._cause(js_input, sequence, index)
        except MeshError:
            return _noted(made, origin, f"Message {sequence} of {js_input} is gone.")
        return _with_inputs(made, origin, (cause,))

    def _route(self, origin: _Origin) -> tuple[InstanceIO, str]:
        """The instance and the input of a producer of a group without state."""
        for number in range(1, origin.group.parallel + 1):
            io = self._io(origin.group, number)
            for one in positioned_routes(io):
                if one.salt(io) == origin.part:
                    return io, js_stream_of(one.route.input, 0)
        raise MeshError(
            "MESH-C152",
            f'group "{origin.group.name}" can\'t be recomputed',
            detail=f"It had another number of instances: its producer is {origin.part}.",
        )

    async def _position_of(
        self, made: Cause, origin: _Origin, io: InstanceIO, js_input: str
    ) -> int | None:
        """The position of a row from its place before the last row of its batch."""
        from mesh.lineage.stateless import positions

        channel = self._channels[js_input]
        last = origin.last // POSITIONS_PER_MESSAGE
        width = 2 * origin.after + 16
        while True:
            first = max(1, last - width + 1)
            messages = await self._read(js_input, first, last, _subject(channel))
            task = StatelessTask(io, js_input)
            producer = io.producer(origin.part)
            found = positions(task, channel, messages, producer, made.js_stream)
            found = [p for p in found if p <= origin.last]
            if len(found) > origin.after:
                return found[-1 - origin.after]
            if first == 1 or width > REPLAYED_MAX:
                return None
            width *= 4

    # --- a group with state

    async def _of_stateful(self, made: Cause, origin: _Origin, stored_ms: int) -> Cause:
        """An event with all inputs without which it would be another one."""
        self._budget.replays -= 1
        if self._budget.replays < 0:
            return _noted(made, origin, "Not recomputed: the answer would take too much work.")
        number = int(origin.part)
        io = self._io_of_partition(origin.group, number)
        inputs, note = [], ""
        for js_stream, one in io.input_streams(number).items():
            messages = [
                m
                for m in await self._read(js_stream, 1, 2**62, _subject(one.channel))
                if m.time_ms <= stored_ms and not _is_skipped(io, js_stream, m.sequence)
            ]
            if len(messages) > REPLAYED_MAX:
                raise _too_many(origin.group.name, js_stream, len(messages))
            begin = origin.group.starts.get(js_stream, 0)
            first = await self._first(js_stream)
            if first > begin + 1:
                note = f"Retention has taken messages {begin + 1} to {first - 1} of {js_stream}."
            kept = [m for m in messages if m.sequence > begin]
            inputs.append(events_of(js_stream, one.channel, kept))
        replay = GroupReplay(io, number, inputs, stored_ms)
        row = _row_of(replay.rows(), made, origin)
        if row is None:
            why = note or "The group emits another row today: it had another text or state then."
            return _noted(made, origin, f"It can't be recomputed. {why}")
        return await self._explain_row(made, origin, replay, row, note)

    async def _explain_row(
        self, made: Cause, origin: _Origin, replay: GroupReplay, row: Row, note: str
    ) -> Cause:
        wanted = replay.holds(row, replay.rows())
        count = shortest_prefix(len(replay), lambda mask: replay.is_held(wanted, mask))
        whole = len(replay)

        def holds(mask: Bools) -> bool:
            return replay.is_held(wanted, np.pad(mask, (0, whole - count)))

        if count > EACH_MAX:
            note = f"{note} {_BY_SETS}".strip()

        places = [replay.places[one].tolist() for one in contributors(count, holds)]
        chosen = places if len(places) <= LISTED_MAX else places[-LISTED_MAX:]
        causes = []
        for which, at in chosen:
            events = replay.inputs[which]
            if self._budget.events <= 0:
                break
            sequence, index = int(events.sequence[at]), int(events.index[at])
            causes.append(await self._cause(events.js_stream, sequence, index))
        return _with_inputs(made, origin, tuple(causes), len(places) - len(causes), note)

    # --- reading

    def _io(self, group: GroupSpec, number: int) -> InstanceIO:
        made = Assignment(
            group.instances[number - 1], group.app, group.name, number, self._record.incarnation,
            "", 0, 0, skips=self._record.skips,
        )  # fmt: skip
        return InstanceIO(group, made)

    def _io_of_partition(self, group: GroupSpec, partition: int) -> InstanceIO:
        numbers = range(1, group.parallel + 1)
        return self._io(group, next(n for n in numbers if partition in group.partitions_of(n)))

    async def _first(self, js_stream: str) -> int:
        state = (await self._client.jetstream().stream_info(js_stream)).state
        return state.first_seq

    async def _read(
        self, js_stream: str, first: int, last: int, subject: str = ">"
    ) -> list[LogMessage]:
        found = []
        async for one in log_reader.read(self._client, js_stream, first, last, subject):
            found.append(one)
            self._budget.messages -= 1
            if self._budget.messages < 0 or len(found) > _BATCH_MAX:
                raise _too_many("", js_stream, len(found))
        return found


def _position(message: LogMessage, index: int) -> int:
    """The position of an event of an Arrow message of ours; -1 in other messages."""
    if message.headers.get("Content-Type") != ARROW_TYPE:
        return -1
    with pa.ipc.open_stream(message.data) as reader:
        table = reader.read_all()
    if POSITION_COLUMN not in table.column_names:
        return -1
    return int(table.column(POSITION_COLUMN)[index].as_py())


def _subject(channel: Channel) -> str:
    """The subjects of a channel's events among those of its stream."""
    return channel.subject() if not channel.is_keyed else f"{names.ROOT}.{channel.app}.>"


def _values(events: Events, row: int) -> list[Any]:
    return [column[row].as_py() for column in events.rows.columns]


def _is_skipped(io: InstanceIO, js_stream: str, sequence: int) -> bool:
    return any(after < sequence <= to for after, to in io.skips(js_stream))


def _row_of(rows: list[Row], made: Cause, origin: _Origin) -> Row | None:
    """The row that was published as an event; None if the group emits another one there."""
    own = [row for row in rows if row.stream == made.stream and row.position <= origin.last]
    if origin.position >= 0:
        found = next((row for row in own if row.position == origin.position), None)
    else:
        found = own[-1 - origin.after] if len(own) > origin.after else None
    if found is None or _shown(found.values) != _shown(tuple(made.event.values())):
        return None
    return found


def _shown(values: tuple[Any, ...]) -> str:
    return repr(tuple(None if value != value else value for value in values))


def _with_inputs(
    made: Cause, origin: _Origin, inputs: tuple[Cause, ...], more: int = 0, note: str = ""
) -> Cause:
    return Cause(
        made.stream, made.js_stream, made.sequence, made.index, made.time_ms, made.event,
        origin.group.name, inputs, more, note,
    )  # fmt: skip


def _noted(made: Cause, origin: _Origin, note: str) -> Cause:
    return _with_inputs(made, origin, (), note=note)


def _too_many(group: str, js_stream: str, count: int) -> MeshError:
    what = f'group "{group}"' if group else "the event"
    return MeshError(
        "MESH-C153",
        f"{what} can't be explained: there is too much to recompute",
        detail=f"Stream {js_stream} holds {count} messages or more up to it; at most "
        f"{REPLAYED_MAX} are run again.",
        hint="Fork the app from a place shortly before the event, and ask about the fork's.",
    )
