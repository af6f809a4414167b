"""Lineage of one event of an app, recomputed from the log.

    event ──header──▶ producer and position ──▶ group and part ──replay──▶ row, its inputs ──▶ ..

A row of an ingest batch has its producer and position; of an atomic batch the marker after it has
the producer, and the last row's position.  A group without state computes a row from one input, by
its position.  One with state is run again, and each of its inputs is left out once.

Search for the inputs without which a row changes.

An input contributes if the row is another one, or none, when that input alone is left out of an
otherwise equal log.  Up to ``EACH_MAX`` inputs are left out one by one, which is this definition.
Of more, sets are left out and halved.  A set counts as without a contributor if the row stays the
same without all of it, without the halves of several random divisions, and without each of a few
members.  So inputs that offset each other, as +5 and -5 in a sum, are rarely missed; an answer that
was found like this says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import orjson

from mesh.errors import MeshError
from mesh.lineage.replay import (
    REPLAYED_MAX,
    GroupReplay,
    RangeReader,
    events_of,
    position_of,
    reached,
    subject_of,
    too_many,
)
from mesh.model import names
from mesh.model.app import GroupKind
from mesh.model.cluster import Assignment
from mesh.model.lineage import RUN_COST, Budget, Cause
from mesh.spark.instance_io import POSITIONS_PER_MESSAGE, InstanceIO, js_stream_of
from mesh.spark.routes import positioned_routes
from mesh.spark.stateless_task import StatelessTask
from pyspark_nats.sink import messages_out

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt
    from nats.aio.client import Client

    from mesh.jetstream.channel_reader import LogMessage
    from mesh.lineage.replay import Base, Bases, EmittedRow, ReplayedEvents
    from mesh.model.app import Channel, GroupSpec
    from mesh.model.cluster import AppRecord
    from mesh.model.values import Row

    Bools = npt.NDArray[np.bool_]
    Longs = npt.NDArray[np.int64]

#: The number of an edit in a producer's name.
EDIT: Final = re.compile(r"~[0-9]+-")
#: Inputs of one event that are listed.
LISTED_MAX = 50
_BY_SETS = "Its inputs were searched for in sets; some that offset each other may be missing."
_EARLIER = "The group emitted it with an earlier text: it is not recomputed."
_IN_BASE = "Inputs before backup {} are in the state from which it is run, and are not listed."
_NONE = "No input is needed alone: without any one of them, others give an equal event."
_IN_PREFIX = "Not all later events were run: an input that one of them could replace is listed too."


@dataclass(frozen=True, slots=True)
class _Origin:
    """The producer of an event."""

    group: GroupSpec
    #: Suffix of the producer's name: a virtual partition, or a route.
    part: str
    #: Of the last row of the batch.
    last: int
    #: Of the event; -1 if unknown.
    position: int
    #: If unknown: a position before the batch, and the event's index among the batch's rows in its
    #: stream, as of a list: negative from the end.
    since: int = 0
    place: int = 0


class Lineage:
    """Answers for one app."""

    def __init__(
        self,
        client: Client,
        record: AppRecord,
        budget: Budget | None = None,
        bases: Bases | None = None,
    ) -> None:
        self._record, self._bases = record, bases
        self._spec = record.spec
        self._budget = budget or Budget()
        self._reader = RangeReader(client, self._budget)
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
        return await self._caused(*await self._effect(js_stream, sequence, index))

    async def _cause(self, js_stream: str, sequence: int, index: int) -> Cause:
        """The causes of an input of an event; where they can't be found, a note says why."""
        key = js_stream, sequence, index
        if key in self._budget.causes:
            return self._budget.causes[key]
        effect, message = await self._effect(js_stream, sequence, index)
        try:
            cause = await self._caused(effect, message)
        except MeshError as error:
            cause = replace(effect, note=f"Its inputs are not known: {error.message}.")
        self._budget.causes[key] = cause
        return cause

    async def _effect(self, js_stream: str, sequence: int, index: int) -> tuple[Cause, LogMessage]:
        """An event without its causes, and its message."""
        channel = self._channels[js_stream]
        self._budget.events -= 1
        messages = await self._reader.read(js_stream, sequence, sequence)
        events = events_of(js_stream, channel, messages)
        if index >= len(events) or messages[0].subject.startswith(names.marker_subject("")):
            raise MeshError(
                "MESH-A404",
                f'stream "{js_stream}" has no event {index} in message {sequence}',
                detail="Retention has taken it, or it is a marker.",
            )
        event = dict(zip(events.rows.schema.names, _values(events, index), strict=True))
        effect = Cause(
            channel.stream.name, js_stream, sequence, index, int(events.time_ms[index]), event
        )
        return effect, messages[0]

    async def _caused(self, effect: Cause, message: LogMessage) -> Cause:
        channel = self._channels[effect.js_stream]
        origin = await self._origin(effect.js_stream, channel, message, effect.index)
        if origin is None:
            return effect
        if not isinstance(origin, _Origin):
            return replace(effect, group=origin.name, note=_EARLIER)
        if origin.group.stateful:
            return await self._of_stateful(effect, origin, message.time_ms)
        return await self._of_stateless(effect, origin)

    # --- the producer

    async def _origin(
        self, js_stream: str, channel: Channel, message: LogMessage, index: int
    ) -> _Origin | GroupSpec | None:
        """The producer of an event; None for one that came from outside.

        Of one that the group emitted before an edit, the group.
        """
        writers = [g for g in self._spec.groups if any(c.id == channel.id for c in g.outputs)]
        if not writers:
            return None
        marker = producer = None
        if (row := messages_out.parse(message.headers.get(messages_out.HEADER))) is not None:
            producer, last = await self._reader.producer(js_stream, row), row.position
        elif (marker := await self._reader.marker_after(js_stream, message.sequence)) is not None:
            producer = marker.subject.removeprefix(f"{names.marker_subject(js_stream)}.")
            last = int(orjson.loads(marker.data)["position"])
        if producer is None:
            return None
        for group in writers:
            prefix = names.producer(self._record.incarnation, group.name, group.edit, "")
            part = producer.removeprefix(prefix)
            is_ours = group.kind in (GroupKind.QUERIES, GroupKind.PARTITIONER)
            if part != producer and is_ours and "-large-" not in part:
                position = position_of(message, index)
                if marker is None or position >= 0:
                    return _Origin(group, part, last, position if position >= 0 else last)
                since, place = await self._place(js_stream, channel, message, index, marker)
                return _Origin(group, part, last, position, since, place)
        # The number of an edit is left out: the group had another text then.
        plain = EDIT.sub("-", producer, count=1)
        for group in writers:
            if plain.startswith(names.producer(self._record.incarnation, group.name, 0, "")):
                return group
        return None

    async def _place(
        self, js_stream: str, channel: Channel, message: LogMessage, index: int, marker: LogMessage
    ) -> tuple[int, int]:
        """The position before an event's batch, if it matters, and its place among the rows."""
        before, behind, earlier = await self._reader.place(
            js_stream, channel, message.sequence, marker
        )
        if behind:
            return 0, index - len(events_of(js_stream, channel, behind))
        since = int(orjson.loads(earlier.data)["position"]) if earlier is not None else 0
        return since, len(events_of(js_stream, channel, before)) + index

    # --- a group without state

    async def _of_stateless(self, effect: Cause, origin: _Origin) -> Cause:
        """An event with its one input: the position has the sequence and the index of that."""
        io, js_input = self._route(origin)
        position = origin.position
        if position < 0:
            row_position = await self._position_of(effect, origin, io, js_input)
            if row_position is None:
                note = f"The input in {js_input} is gone, or was read with another text."
                return _noted(effect, origin, note)
            position = row_position
        sequence, index = divmod(position, POSITIONS_PER_MESSAGE)
        try:
            cause = await self._cause(js_input, sequence, index)
        except MeshError as error:
            if error.code != "MESH-A404":
                raise
            return _noted(effect, origin, f"Message {sequence} of {js_input} is gone.")
        return _with_inputs(effect, origin, (cause,))

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
        self, effect: Cause, origin: _Origin, io: InstanceIO, js_input: str
    ) -> int | None:
        """The position of a row from its place before the last row of its batch."""
        from mesh.lineage.stateless import positions

        channel = self._channels[js_input]
        begin, end = origin.since // POSITIONS_PER_MESSAGE, origin.last // POSITIONS_PER_MESSAGE
        rows = origin.place if origin.place >= 0 else -1 - origin.place
        width = 2 * rows + 16
        while True:
            if origin.place >= 0:
                first, last = max(1, begin), min(end, begin + width)
            else:
                first, last = max(1, end - width + 1), end
            messages = await self._reader.read(js_input, first, last, subject_of(channel))
            task = StatelessTask(io, js_input)
            producer = io.producer(origin.part)
            matches = positions(task, channel, messages, producer, effect.js_stream)
            matches = [p for p in matches if origin.since < p <= origin.last]
            if len(matches) > rows:
                return matches[origin.place]
            if (first == 1 and last == end) or width > REPLAYED_MAX:
                return None
            width *= 4

    # --- a group with state

    async def _of_stateful(self, effect: Cause, origin: _Origin, stored_ms: int) -> Cause:
        """An event with all inputs without which it would be another one."""
        self._budget.replays -= 1
        if self._budget.replays < 0 or self._budget.work <= 0:
            return _noted(effect, origin, "Not recomputed: the answer would take too much work.")
        failure: MeshError | None = None
        try:
            replay, row, note = await self._replayed(effect, origin, stored_ms)
        except MeshError as error:
            if error.code != "MESH-C153":
                raise
            replay, row, note, failure = None, None, "", error
        if row is None and self._bases is not None:
            part = str(int(origin.part))
            async for base in self._bases.before(origin.group, part, origin.last):
                replay, row, missing = await self._replayed(effect, origin, stored_ms, base)
                if row is not None:
                    note = f"{missing} {_IN_BASE.format(base.revision)}".strip()
                    break
        if replay is None or row is None:
            if failure is not None:
                raise failure
            why = note or "The group emits another row today: it had another text or state then."
            return _noted(effect, origin, f"It can't be recomputed. {why}")
        return await self._explain_row(effect, origin, replay, row, note)

    async def _replayed(
        self, effect: Cause, origin: _Origin, stored_ms: int, base: Base | None = None
    ) -> tuple[GroupReplay, EmittedRow | None, str]:
        """A group over its log, from its beginning or a state; the row of an event, and a note.

        Raises:
            MeshError: MESH-C153 where the log is too long.
        """
        number = int(origin.part)
        io = self._io_of_partition(origin.group, number)
        logs: list[tuple[str, Channel, list[LogMessage]]] = []
        note, end_ms = "", stored_ms
        taken = reached(base.manifest) if base is not None else origin.group.starts
        for js_stream, one in io.input_streams(number).items():
            begin = taken.get(js_stream, 0)
            first = await self._reader.first(js_stream)
            if first > begin + 1:
                note = f"Retention has taken messages {begin + 1} to {first - 1} of {js_stream}."
            messages, complete_ms = await self._reader.beginning(
                js_stream, one.channel, begin, stored_ms
            )
            end_ms = min(end_ms, complete_ms)
            logs.append((js_stream, one.channel, messages))
        # An instance may have stood there: what it had emitted then, later input does not change.
        inputs = [
            events_of(js_stream, channel, [
                m for m in messages if not _is_skipped(io, js_stream, m.sequence)
            ])
            for js_stream, channel, messages in logs
        ]  # fmt: skip
        replay = GroupReplay(io, number, inputs, end_ms, base)
        row = _row_of(replay.rows(), effect, origin)
        if row is None and end_ms < stored_ms:
            js_stream, _, messages = max(logs, key=lambda log: len(log[2]))
            raise too_many(origin.group.name, js_stream, len(messages))
        return replay, row, note

    async def _explain_row(
        self, effect: Cause, origin: _Origin, replay: GroupReplay, row: EmittedRow, note: str
    ) -> Cause:
        expected = replay.holds(row, replay.rows())

        def is_held(mask: Bools) -> bool:
            self._budget.work -= int(mask.sum()) + RUN_COST
            return replay.is_held(expected, mask)

        indices, by_sets, is_whole = inputs_of(len(replay), is_held)
        notes = [
            note, _BY_SETS if by_sets else "", "" if is_whole else _IN_PREFIX,
            "" if indices else _NONE,
        ]  # fmt: skip
        note = " ".join(one for one in notes if one)
        places = [replay.places[one].tolist() for one in indices]
        chosen = places if len(places) <= LISTED_MAX else places[-LISTED_MAX:]
        causes = []
        for which, at in chosen:
            events = replay.inputs[which]
            if self._budget.events <= 0:
                break
            sequence, index = int(events.sequence[at]), int(events.index[at])
            causes.append(await self._cause(events.js_stream, sequence, index))
        return _with_inputs(effect, origin, tuple(causes), len(places) - len(causes), note)

    # --- reading

    def _io(self, group: GroupSpec, number: int) -> InstanceIO:
        assignment = Assignment(
            group.instances[number - 1], group.app, group.name, number, self._record.incarnation,
            "", 0, 0, skips=self._record.skips,
        )  # fmt: skip
        return InstanceIO(group, assignment)

    def _io_of_partition(self, group: GroupSpec, partition: int) -> InstanceIO:
        numbers = range(1, group.parallel + 1)
        return self._io(group, next(n for n in numbers if partition in group.partitions_of(n)))


def _values(events: ReplayedEvents, row: int) -> list[object]:
    return [column[row].as_py() for column in events.rows.columns]


def _is_skipped(io: InstanceIO, js_stream: str, sequence: int) -> bool:
    return any(after < sequence <= to for after, to in io.skips(js_stream))


def _row_of(rows: list[EmittedRow], effect: Cause, origin: _Origin) -> EmittedRow | None:
    """The row that was published as an event; None if the group emits another one there."""
    candidates = [
        row for row in rows
        if row.stream == effect.stream and origin.since < row.position <= origin.last
    ]  # fmt: skip
    if origin.position >= 0:
        candidate = next((row for row in candidates if row.position == origin.position), None)
    else:
        place = origin.place
        candidate = candidates[place] if -len(candidates) <= place < len(candidates) else None
    if candidate is None or _shown(candidate.values) != _shown(tuple(effect.event.values())):
        return None
    return candidate


def _shown(values: Row) -> str:
    return repr(tuple(None if value != value else value for value in values))


def _with_inputs(
    effect: Cause, origin: _Origin, inputs: tuple[Cause, ...], more: int = 0, note: str = ""
) -> Cause:
    return replace(effect, group=origin.group.name, inputs=inputs, more=more, note=note)


def _noted(effect: Cause, origin: _Origin, note: str) -> Cause:
    return _with_inputs(effect, origin, (), note=note)


#: Inputs that are left out one by one.
EACH_MAX: Final = 1000
#: Events that are run to look at the inputs found in a longer log.
_CHECKED_MAX: Final = 5_000_000
#: Times that a set is divided at random.
_SPLITS: Final = 8
#: Members of a set that are left out alone.
_SINGLES: Final = 3


def inputs_of(whole: int, holds: Callable[[Bools], bool]) -> tuple[list[int], bool, bool]:
    """The inputs without which a row of a log changes, in order.

    They are searched for in the shortest prefix that gives the row, and then looked at in the whole
    log: what closes a batch or moves the clock there, a later event may do as well.  An input that
    the row can do without in a prefix is none in the whole log either.

    Args:
        whole: number of events of the log.
        holds: whether the row is the same for the events of a mask, bool[whole].

    Returns:
        The inputs; whether sets of them were left out; whether the log was looked at to its end.
    """
    count = shortest_prefix(whole, holds)

    def in_prefix(length: int) -> Callable[[Bools], bool]:
        return lambda mask: holds(np.pad(mask, (0, whole - length)))

    inputs = contributors(count, in_prefix(count))
    length = max(count, min(whole, _CHECKED_MAX // max(1, len(inputs))))
    if length > count:
        is_held = in_prefix(length)
        inputs = [one for one in inputs if not is_held(_without(length, np.array([one])))]
    return inputs, count > EACH_MAX, length == whole


def contributors(count: int, holds: Callable[[Bools], bool], each_max: int = EACH_MAX) -> list[int]:
    """The inputs without which the row changes, in order.

    Args:
        count: number of inputs.
        holds: whether the row is the same for the inputs of a mask, bool[count].
        each_max: the most inputs that are left out one by one.
    """
    if count <= each_max:
        return [one for one in range(count) if not holds(_without(count, np.array([one])))]
    # The same halves each time: the answer to a question doesn't change.
    random = np.random.default_rng(count)
    inputs: list[int] = []
    waiting = [np.arange(count)]
    while waiting:
        some = waiting.pop()
        if _is_free(count, some, holds, random):
            continue
        if len(some) == 1:
            inputs.append(int(some[0]))
            continue
        middle = len(some) // 2
        waiting += [some[:middle], some[middle:]]
    return sorted(inputs)


def shortest_prefix(count: int, holds: Callable[[Bools], bool]) -> int:
    """The length of a prefix of the inputs with which the row is the same; ``count`` if unsure."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if holds(np.arange(count) < middle):
            high = middle
        else:
            low = middle + 1
    return high if holds(np.arange(count) < high) else count


def _is_free(
    count: int,
    some: Longs,
    holds: Callable[[Bools], bool],
    random: np.random.Generator,
) -> bool:
    """Whether none of some inputs is taken to contribute."""
    if not holds(_without(count, some)):
        return False
    if len(some) == 1:
        return True
    middle = len(some) // 2
    for _ in range(_SPLITS):
        mixed = random.permutation(some)
        if not all(holds(_without(count, part)) for part in (mixed[:middle], mixed[middle:])):
            return False
    singles = random.permutation(some)[:_SINGLES]
    return all(holds(_without(count, one)) for one in singles[:, None])


def _without(count: int, some: Longs) -> Bools:
    mask = np.ones(count, np.bool_)
    mask[some] = False
    return mask
