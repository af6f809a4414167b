"""Conflicts in an ordered stage: which chunks may be processed together although they touch state.

Two causes conflict if one writes state that the other reads or writes.  Where both name the rows
by the same attributes of a table, only chunks of the same key conflict: the look-up of one user
may go before or after the update of another.

Input of an ordered stage: chunks in the total order, and the time between them.

A position in the total order is (order, clock, path).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mesh.operators.base import Timeline, join
from mesh.operators.total_order import chunk_starts
from pyspark_nats.arrow import ArrowArray

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from mesh.operators.base import Bools, EventBatch, Longs
    from mesh.operators.dataflow.graph import DataflowNode, Outputs, StateAccess


class CauseOrder(Enum):
    """The part of the order of two causes that matters."""

    FREE = auto()
    #: Of chunks with the same key.
    BY_KEY = auto()
    WHOLE = auto()


class ConflictTable:
    """The causes of a stage that conflict.

    ``order``: the nodes of the stage, in the sequence in which they process a batch; ``reads``: by
    channel, the nodes that read it.
    """

    def __init__(
        self,
        nodes: Sequence[DataflowNode],
        order: Sequence[int],
        reads: Mapping[str, Sequence[int]],
    ) -> None:
        self._nodes = nodes
        self._reads = reads
        self._rank = {number: rank for rank, number in enumerate(order)}
        self._cache: dict[Cause, tuple[frozenset[StateAccess], bool]] = {}
        causes: dict[Cause, tuple[frozenset[StateAccess], bool]] = {
            (number, channel): self._of(number, channel)
            for number in order
            for channel in (None, *nodes[number].reads)
        }
        self._keys = _common_keys([a for accesses, _ in causes.values() for a in accesses])
        self._orders = {
            (one, other): CauseOrder.WHOLE
            if causes[one][1] or causes[other][1]
            else self._order(causes[one][0], causes[other][0])
            for one in causes
            for other in causes
        }
        #: By table, the accesses to rows by key, with their causes.
        self._keyed: dict[str, list[tuple[Cause, StateAccess]]] = {}
        for cause, (accesses, _) in causes.items():
            for access in accesses:
                if access.keys and self._keys[access.thing]:
                    self._keyed.setdefault(access.thing, []).append((cause, access))

    def _of(self, number: int, channel: str | None) -> tuple[frozenset[StateAccess], bool]:
        """All accesses that an event of ``channel`` at a node causes; whether one is stepwise."""
        entry = self._cache.get((number, channel))
        if entry is None:
            node = self._nodes[number]
            accesses, steps = set(node.accesses_by(channel)), node.is_stepwise
            if channel is None:
                accesses = _without_keys(accesses)
            for outlet in node.outlets(channel):
                for reader in self._reads.get(outlet, ()):
                    if reader == number:
                        continue
                    further, also = self._of(reader, outlet)
                    # Their keys are attributes of other events.
                    accesses |= _without_keys(further)
                    steps = steps or also
            entry = self._cache[number, channel] = frozenset(accesses), steps
        return entry

    def _order(self, one: Collection[StateAccess], other: Collection[StateAccess]) -> CauseOrder:
        order = CauseOrder.FREE
        accesses = {*one, *other}
        for a in accesses:
            for b in accesses:
                if not a.conflicts_with(b):
                    continue
                by_key = a.keys and b.keys and self._keys.get(a.thing)
                if not by_key or (a.changes and b.changes and a.reorders and b.reorders):
                    return CauseOrder.WHOLE
                order = CauseOrder.BY_KEY
        return order

    def order(self, cause: Cause, group: Collection[Cause]) -> CauseOrder:
        """The part that matters of the order of ``cause``, any number of times, and ``group``."""
        orders = {self._orders[cause, other] for other in (cause, *group)}
        if CauseOrder.WHOLE in orders:
            return CauseOrder.WHOLE
        return CauseOrder.BY_KEY if CauseOrder.BY_KEY in orders else CauseOrder.FREE

    def commutes_with(self, cause: Cause, group: Collection[Cause]) -> bool:
        """Whether ``cause``, any number of times, may be reordered with all of ``group``."""
        return self.order(cause, group) is CauseOrder.FREE

    def barriers(self, queue: ChunkQueue) -> Longs:
        """int64[n], growing: the latest chunk that some chunk, up to this one, has to follow.

        Chunks ``a`` to ``b`` may be processed together, node by node, if ``barriers[b] < a``.
        """
        latest = np.full(len(queue), -1, dtype=np.int64)
        inputs = list(queue.inputs())
        for accesses in self._keyed.values():
            runs = [
                _KeyedRun(
                    self._rank[cause[0]], access.changes, chunks, self._key_of(access, events)
                )
                for cause, events, chunks in inputs
                for other, access in accesses
                if other == cause
            ]
            if runs:
                _raise_barriers(latest, runs)
        return np.maximum.accumulate(latest)

    def _key_of(self, access: StateAccess, events: EventBatch) -> list[ArrowArray]:
        attributes = dict(access.keys)
        return [events.rows.column(attributes[name]) for name in self._keys[access.thing]]


@dataclass(frozen=True, slots=True)
class _KeyedRun:
    """The accesses of a run's events to one table, by key."""

    #: Place of the node among those of the stage.
    rank: int
    writes: bool
    #: int64[n], the chunk of each event.
    chunks: Longs
    #: The parts of the key.
    columns: Sequence[ArrowArray]

    def must_follow(self, earlier: _KeyedRun) -> bool:
        """Whether its accesses must not be processed with earlier ones of the same key.

        They may if the other node comes first in a batch, too; a node applies its own writes in
        order.
        """
        if self.writes and earlier.writes:
            return earlier.rank > self.rank
        return (self.writes or earlier.writes) and earlier.rank >= self.rank


def _raise_barriers(barriers: Longs, runs: Sequence[_KeyedRun]) -> None:
    """Enter for each chunk the last one before it that it must follow."""
    codes = _codes([run.columns for run in runs])
    chunks = np.concatenate([run.chunks for run in runs])
    owner = np.repeat(np.arange(len(runs)), [len(run.chunks) for run in runs])
    place = np.lexsort((chunks, codes))
    codes, chunks, owner = codes[place], chunks[place], owner[place]
    is_new = np.r_[True, codes[1:] != codes[:-1]]
    #: The first row with the code of each, and the first with its code and chunk.
    of_code = _first(is_new)
    of_chunk = _first(is_new | np.r_[True, chunks[1:] != chunks[:-1]])
    for number, run in enumerate(runs):
        earlier = [n for n, other in enumerate(runs) if run.must_follow(other)]
        rows = np.flatnonzero((owner == number) & (of_chunk > of_code))
        if earlier and len(rows):
            last = np.where(np.isin(owner, earlier), np.arange(len(owner)), -1)
            before = np.maximum.accumulate(last)[of_chunk[rows] - 1]
            is_same_key = before >= of_code[rows]
            np.maximum.at(barriers, chunks[rows[is_same_key]], chunks[before[is_same_key]])


def _first(is_new: Bools) -> Longs:
    """int64[n], the first row of the group of each; ``is_new``: whether a group begins."""
    starts = np.flatnonzero(is_new)
    return np.repeat(starts, np.diff(np.r_[starts, len(is_new)]))


def _codes(keys: Sequence[Sequence[ArrowArray]]) -> Longs:
    """int64[n], equal for equal keys; nulls are equal to each other."""
    codes: Longs = np.zeros(sum(len(columns[0]) for columns in keys), dtype=np.int64)
    for parts in zip(*keys, strict=True):
        encoded: Any = pc.dictionary_encode(pa.chunked_array(parts).combine_chunks())
        indices = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
        codes = codes * (len(encoded.dictionary) + 1) + indices + 1
        codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
    return codes


def _common_keys(accesses: Collection[StateAccess]) -> dict[str, tuple[str, ...]]:
    """By table, the attributes by which all of its keyed accesses name rows."""
    common: dict[str, set[str]] = {}
    for access in accesses:
        if access.keys:
            keys = {name for name, _ in access.keys}
            common[access.thing] = common.get(access.thing, keys) & keys
    return {thing: tuple(sorted(names)) for thing, names in common.items()}


def _without_keys(accesses: Collection[StateAccess]) -> set[StateAccess]:
    return {replace(access, keys=()) if access.keys else access for access in accesses}


#: A position in the total order: order, clock and path.
Key = tuple[int, int, int]
#: A cause: the number of a node with the channel of its input, or with None for its timers.
Cause = tuple[int, str | None]


class ChunkQueue:
    """Queue of the chunks of ``runs``: each run in order, each channel in order for one node."""

    def __init__(self, runs: Sequence[tuple[Cause, EventBatch]]) -> None:
        runs = [(cause, events) for cause, events in runs if len(events)]
        self._runs = runs
        starts = [chunk_starts(events) for _, events in runs]
        sizes = [len(rows) for rows in starts]
        names = ("order", "clock_ms", "path", "chunk")
        parts = [
            (*(getattr(run, name)[rows] for name in names), rows, np.append(rows[1:], len(run)))
            for (_, run), rows in zip(runs, starts, strict=True)
        ] or [(np.empty(0, dtype=np.int64),) * 6]
        *columns, start, stop = (np.concatenate(column) for column in zip(*parts, strict=True))
        source = np.repeat(np.arange(len(runs)), np.array(sizes, dtype=np.int64))
        if len(runs) > 1:
            place = np.lexsort(tuple(reversed(columns)))
            columns = [column[place] for column in columns]
            source, start, stop = source[place], start[place], stop[place]
        self.order, self.clock_ms, self.path = columns[:3]
        self._source, self._start, self._stop = source, start, stop
        changes = np.flatnonzero(source[1:] != source[:-1]) + 1
        #: Borders between the pieces of two sources.
        self._ends = [*changes.tolist(), len(source)] if len(source) else []

    def __len__(self) -> int:
        return len(self.order)

    def key(self, at: int) -> Key:
        """The position of a chunk."""
        return int(self.order[at]), int(self.clock_ms[at]), int(self.path[at])

    def one(self, at: int) -> tuple[Cause, EventBatch]:
        """The cause and the events of a chunk."""
        cause, events = self._runs[self._source[at]]
        return cause, events.slice(int(self._start[at]), int(self._stop[at]))

    def runs(self, at: int) -> Iterator[tuple[Cause, int]]:
        """From a chunk on, the causes in order, each with the end of its consecutive chunks."""
        for number in range(bisect_left(self._ends, at + 1), len(self._ends)):
            end = self._ends[number]
            yield self._runs[self._source[end - 1]][0], end

    def inputs(self) -> Iterator[tuple[Cause, EventBatch, Longs]]:
        """Each run with its cause; int64[n], of each of its events the number of the chunk."""
        for number, (cause, events) in enumerate(self._runs):
            chunks = np.flatnonzero(self._source == number)
            yield cause, events, np.repeat(chunks, self._stop[chunks] - self._start[chunks])

    def take(self, at: int, stop: int) -> dict[Cause, list[EventBatch]]:
        """The events of consecutive chunks, by cause."""
        batches: dict[Cause, list[EventBatch]] = {}
        source = self._source[at:stop]
        for number, (cause, events) in enumerate(self._runs):
            chunks = np.flatnonzero(source == number)
            if len(chunks):
                first, last = self._start[at + chunks[0]], self._stop[at + chunks[-1]]
                batches.setdefault(cause, []).append(events.slice(int(first), int(last)))
        return batches

    def before(self, key: Key, at: int, stop: int) -> int:
        """The end of those of the chunks from ``at`` to ``stop`` that are earlier than ``key``."""
        while stop > at:
            middle = (at + stop) // 2
            if self.key(middle) < key:
                at = middle + 1
            else:
                stop = middle
        return at

    def clean(self, at: int, stop: int, bound: Key | None, times: TimeCursor) -> int:
        """``stop``, or less, so that no instant is split by it.

        An external event ends all that is due by its time. A chunk that a timer caused may be
        followed by other timers of that instant.
        """
        while stop > at:
            order, clock, _ = self.key(stop - 1)
            if order & 1:
                return stop
            instant = (order, clock)
            behind = stop == len(self) or self.key(stop)[:2] > instant
            if behind and (bound is None or bound[:2] > instant) and not times.jumps:
                return stop
            stop -= 1
        return stop


class TimeCursor:
    """The progress of time in a run; ``is_bound``: whether the next batch ends before the run."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        #: The number of the first external event that has not been passed.
        self._next = timeline.first
        self.is_bound = False

    @property
    def jumps(self) -> bool:
        """Whether time jumps from event to event."""
        return self._timeline.playback

    def place(self, due_ms: int) -> tuple[int, int] | None:
        """Order and clock of a timer that fires from now on in this run; None: it does not."""
        timeline = self._timeline
        clocks = timeline.clocks_ms[self._next - timeline.first :]
        before = int(np.searchsorted(clocks, due_ms, side="left"))
        order = 2 * (self._next + before)
        if not timeline.playback:
            return (order, due_ms) if due_ms <= timeline.now_ms else None
        if before < len(clocks):
            return order, int(clocks[before])
        # A timer set after the last move of time waits for the next one.
        all_ms = timeline.clocks_ms
        moves = not len(all_ms) or timeline.now_ms > all_ms[-1]
        return (order, timeline.now_ms) if moves and due_ms <= timeline.now_ms else None

    def here(self, order: int, clock_ms: int) -> Timeline:
        """Time at one position of the order alone."""
        timeline = self._timeline
        number = order >> 1
        at = number - timeline.first
        return replace(
            timeline, first=number, clocks_ms=timeline.clocks_ms[at : at + 1], now_ms=clock_ms
        )

    def passed(self, key: Key) -> None:
        """Record that everything up to the position ``key`` is processed."""
        self._next = max(self._next, (key[0] + 1) >> 1)

    def until(self, last: Key | None) -> Timeline:
        """Advance to the position ``last``, or to the end, and return the time that passes."""
        timeline = self._timeline
        if last is None:
            first, stop, now_ms = self._next, len(timeline.clocks_ms), timeline.now_ms
            self._next = timeline.first + stop
        else:
            stop = ((last[0] + 1) >> 1) - timeline.first
            first, now_ms = min(self._next, last[0] >> 1), last[1]
            self.passed(last)
        clocks_ms = timeline.clocks_ms[first - timeline.first : stop]
        return replace(timeline, first=first, clocks_ms=clocks_ms, now_ms=now_ms)


class OutputBuffer:
    """The output of nodes, in the sequence in which they returned it."""

    def __init__(self) -> None:
        self._outputs: dict[tuple[int, str], list[EventBatch]] = {}

    def add(self, outputs: Sequence[tuple[int, str, EventBatch]]) -> None:
        """Add the output of nodes, each for a channel."""
        for number, channel, events in outputs:
            self.put(number, channel, events)

    def put(self, number: int, channel: str, events: EventBatch) -> None:
        """Add the output of one node for one channel."""
        self._outputs.setdefault((number, channel), []).append(events)

    def all(self) -> Outputs:
        """All output, one run in order for each node and channel."""
        return [
            (channel, _in_order(join(runs, runs[0].rows.schema)))
            for (_, channel), runs in self._outputs.items()
        ]


def _in_order(events: EventBatch) -> EventBatch:
    """Sorted: depth first is not the order of paths where one query emits several chunks."""
    columns = (events.chunk, events.path, events.clock_ms, events.order)
    place = np.lexsort(columns)
    return events if (place[1:] > place[:-1]).all() else events.take(place)
