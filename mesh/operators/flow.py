"""Two ways to drive a graph of nodes through a run of external events; the outcome is the same.

``StepFlow`` takes one chunk of events or one timer at a time and hands on what each makes at once,
depth first, as the reference engine does: it says what is right, in whatever circles nodes feed
each other.  ``BulkFlow`` lets each node take its whole input at once, in an order in which nobody
feeds back, and finds the sequence afterwards by the total order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Protocol

import numpy as np

from mesh.errors import MeshError
from mesh.operators.base import Events, Longs, Timeline
from mesh.operators.graph import chunk_starts
from mesh.operators.knots import Knot, Pass, placed
from mesh.operators.paths import Paths, readers

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from mesh.operators.graph import Node

#: Queries that feed each other may do so this often because of one event.
DEPTH_MAX = 2_000
#: In the place of a reader's number: the world outside.
_OUT = -1
#: Timers of one node that fire at one instant without an end.
_REPEATS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Leaving:
    """Events of a channel that leave the group.

    ``place``: int64[n], growing; over all channels of a run the numbers 0, 1 .. once each.
    """

    channel: str
    place: Longs
    events: Events


class Flow(Protocol):
    """A way to drive a graph."""

    #: By node, where its timers stand among those of others at one instant.
    timers: Sequence[int]
    #: By channel that is read, the path of external events.
    roots: Mapping[str, int]

    def begin(self, timeline: Timeline) -> list[Leaving]:
        """Let all nodes know that it is the app's start."""
        ...

    def run(self, entering: Sequence[tuple[str, Events]], timeline: Timeline) -> list[Leaving]:
        """Let external events in and time pass; a run of a channel has any path."""
        ...


class BulkFlow:
    """Whole runs through one set of nodes after the other.

    ``stages``: the numbers of nodes, in sets to go one after the other; the sets are those of
    ``paths.stages``, and what is tied together goes through a ``Knot``.

    Raises:
        MeshError: MESH-O103, there are too many ways through the nodes.
    """

    def __init__(
        self, nodes: Sequence[Node], stages: Sequence[tuple[int, ...]], outputs: Collection[str]
    ) -> None:
        self._paths = Paths(nodes)
        self._stages = [
            Knot(nodes, stage, self._paths)
            if len(stage) > 1 or nodes[stage[0]].is_stepwise
            else Pass(nodes, stage, self._paths)
            for stage in stages
        ]
        self._outputs = outputs
        self.timers: Sequence[int] = self._paths.timers
        self.roots: Mapping[str, int] = self._paths.roots

    def begin(self, timeline: Timeline) -> list[Leaving]:
        """Let all nodes know that it is the app's start."""
        return self._go([], timeline, begins=True)

    def run(self, entering: Sequence[tuple[str, Events]], timeline: Timeline) -> list[Leaving]:
        """Let external events in and time pass."""
        return self._go(entering, timeline, begins=False)

    def _go(
        self, entering: Sequence[tuple[str, Events]], timeline: Timeline, *, begins: bool
    ) -> list[Leaving]:
        flowing: dict[str, list[Events]] = {}
        for channel, events in entering:
            root = np.full(len(events), self.roots[channel], dtype=np.int64)
            flowing.setdefault(channel, []).append(events.with_path(root))
        leaving: list[tuple[str, Events]] = []
        for stage in self._stages:
            for channel, events in (
                stage.begin(flowing, timeline) if begins else stage.run(flowing, timeline)
            ):
                flowing.setdefault(channel, []).append(events)
                if channel in self._outputs:
                    leaving.append((channel, events))
        return _in_sequence(leaving)


def _in_sequence(leaving: Sequence[tuple[str, Events]]) -> list[Leaving]:
    """Give places by cause, and then by way through the nodes."""
    if not leaving:
        return []
    if len(leaving) == 1:
        # What one node made for one channel is in order.
        channel, events = leaving[0]
        return [Leaving(channel, np.arange(len(events)), events)]
    order = np.concatenate([events.order for _, events in leaving])
    clock_ms = np.concatenate([events.clock_ms for _, events in leaving])
    path = np.concatenate([events.path for _, events in leaving])
    chunk = np.concatenate([events.chunk for _, events in leaving])
    place = np.empty(len(order), dtype=np.int64)
    place[np.lexsort((chunk, path, clock_ms, order))] = np.arange(len(order))
    found, at = [], 0
    for channel, events in leaving:
        found.append(Leaving(channel, place[at : at + len(events)], events))
        at += len(events)
    return found


class StepFlow:
    """One chunk or timer at a time, depth first.

    ``numbers``: whether each chunk that leaves gets a number of its own in its run.
    """

    def __init__(
        self, nodes: Sequence[Node], outputs: Collection[str], *, numbers: bool = False
    ) -> None:
        self._numbers = numbers
        self._nodes = nodes
        self._outputs = outputs
        self._readers = readers(nodes)
        self.roots: Mapping[str, int] = {
            channel: len(nodes) + number for number, channel in enumerate(self._readers)
        }
        self._leaving: list[Leaving] = []
        self._count = 0
        #: What nodes made that comes later than what is going on: (order, clock, path, tie).
        self._later: list[tuple[int, int, int, int, str, Events]] = []
        self._ties = 0
        self.timers: Sequence[int] = range(len(nodes))

    def begin(self, timeline: Timeline) -> list[Leaving]:
        """Let all nodes know that it is the app's start."""
        self._leaving, self._count = [], 0
        for number in range(len(self._nodes)):
            self._let_pass(number, timeline)
        return self._leaving

    def run(self, entering: Sequence[tuple[str, Events]], timeline: Timeline) -> list[Leaving]:
        """Let external events in and time pass."""
        self._leaving, self._count = [], 0
        at = timeline.first
        for channel, events in _chunks(entering):
            # What is sent at once has one order.
            number = (int(events.order[0]) - 1) // 2
            clock_ms = int(events.clock_ms[0])
            here = Timeline(number, np.array([clock_ms]), clock_ms, timeline.playback)
            self._fire(here)
            root = np.full(len(events), self.roots[channel], dtype=np.int64)
            self._deliver(channel, replace(events, path=root), here)
            self._deliver_later(here)
            at = number + 1
        end = Timeline(
            timeline.first + len(timeline.clocks_ms),
            timeline.clocks_ms[:0],
            timeline.now_ms,
            timeline.playback,
            timeline.stands,
        )
        assert at <= end.first
        if timeline.playback and at < end.first:
            clocks_ms = timeline.clocks_ms[-1:]
            self._fire(replace(end, first=end.first - 1, clocks_ms=clocks_ms))
        clocks_ms = timeline.clocks_ms
        # In playback what was set behind the last move of time waits for the next one.
        if not timeline.playback or not len(clocks_ms) or timeline.now_ms > clocks_ms[-1]:
            self._fire(end)
        return self._leaving

    def _fire(self, here: Timeline) -> None:
        """Let all timers fire that are due by now, each at its own time.

        In playback each node lets all of its timers fire at once, at the event's time.
        """
        jumps = here.playback and len(here.clocks_ms) > 0
        repeats = 0
        while True:
            due = [
                (time_ms, node.is_last, number)
                for number, node in enumerate(self._nodes)
                if (time_ms := node.work.next_time()) is not None and time_ms <= here.now_ms
            ]
            if not due:
                return
            time_ms, _, number = min(due, key=lambda one: one[1:]) if jumps else min(due)
            now_ms = here.now_ms if jumps else time_ms
            then = replace(here, now_ms=now_ms)
            node = self._nodes[number]
            self._let_pass(number, then)
            repeats += 1
            if repeats > _REPEATS_MAX and node.work.next_time() == time_ms:
                raise AssertionError(f"a timer of {node.name} fires without an end")

    def _let_pass(self, number: int, then: Timeline) -> None:
        """Let time pass for one node."""
        for channel, made in self._nodes[number].work.process({}, then):
            for piece in self._pieces(number, channel, made, 2 * then.first):
                self._deliver(channel, piece, then)
        self._deliver_later(then)

    def _deliver(self, channel: str, events: Events, here: Timeline) -> None:
        """Hand events to the readers of a channel, and what these make to theirs, depth first."""
        order = int(events.order[0])
        pending = self._expand(channel, events, 0)
        while pending:
            depth, number, channel, events = pending.pop()
            if number == _OUT:
                self._put_out(channel, events)
                continue
            if depth > DEPTH_MAX:
                raise MeshError(
                    "MESH-O104",
                    f'query "{self._nodes[number].name}" feeds itself without end',
                    detail=f"One event came back to it {DEPTH_MAX} times.",
                    hint="Add a filter that ends the circle.",
                )
            below: list[tuple[int, int, str, Events]] = []
            for target, made in self._nodes[number].work.process({channel: [events]}, here):
                for piece in self._pieces(number, target, made, order):
                    below[:0] = self._expand(target, piece, depth + 1)
            pending += below

    def _expand(
        self, channel: str, events: Events, depth: int
    ) -> list[tuple[int, int, str, Events]]:
        """A task for each reader of ``channel``, the last one first."""
        found = self._readers.get(channel, ())
        tasks: list[tuple[int, int, str, Events]] = []
        for number in reversed(found):
            if channel in self._nodes[number].singles:
                singles = [events.slice(at, at + 1) for at in range(len(events))]
                tasks += [(depth, number, channel, single) for single in reversed(singles)]
            else:
                tasks.append((depth, number, channel, events))
        if channel in self._outputs:
            tasks.append((depth, _OUT, channel, events))
        return tasks

    def _put_out(self, channel: str, events: Events) -> None:
        place = np.arange(self._count, self._count + len(events))
        if self._numbers:
            events = replace(events, chunk=np.full(len(events), self._count))
        self._leaving.append(Leaving(channel, place, events))
        self._count += len(events)

    def _pieces(self, number: int, channel: str, made: Events, order: int) -> list[Events]:
        """What was made, chunk by chunk; what belongs behind everything of this cause waits."""
        if not len(made):
            return []
        made = placed(made, number)
        now = []
        starts = chunk_starts(made).tolist()
        for start, stop in zip(starts, [*starts[1:], len(made)], strict=True):
            piece = made.slice(start, stop)
            if int(piece.order[0]) <= order:
                now.append(piece)
                continue
            self._ties += 1
            place = (int(piece.order[0]), int(piece.clock_ms[0]), int(piece.path[0]), self._ties)
            heappush(self._later, (*place, channel, piece))
        return now

    def _deliver_later(self, here: Timeline) -> None:
        while self._later:
            *_, channel, piece = heappop(self._later)
            self._deliver(channel, piece, here)


def _chunks(entering: Sequence[tuple[str, Events]]) -> list[tuple[str, Events]]:
    """The external events, chunk by chunk in order."""
    found = []
    for channel, events in entering:
        starts = chunk_starts(events).tolist()
        for start, stop in zip(starts, [*starts[1:], len(events)], strict=True):
            found.append((int(events.order[start]), channel, events.slice(start, stop)))
    found.sort(key=lambda part: part[0])
    return [(channel, events) for _, channel, events in found]
