"""Input of an ordered stage: chunks in the total order, and the time between them.

A position in the total order is (order, clock, path).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mesh.operators.base import Timeline, join
from mesh.operators.total_order import chunk_starts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mesh.operators.base import EventBatch, Longs
    from mesh.operators.dataflow.graph import Outputs

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
