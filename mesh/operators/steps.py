"""One chunk of events or one timer at a time, handed on depth first, as the engine does."""

from __future__ import annotations

from dataclasses import replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from mesh.operators.base import OWN_TIMER
from mesh.operators.graph import chunk_starts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.operators.base import Events, Timeline
    from mesh.operators.graph import Node
    from mesh.operators.paths import Paths
    from mesh.operators.pieces import Cause, Gathered

_Task = tuple[int, str, "Events"]


class Steps:
    """The nodes that read channels as ``reads`` says, by number, in a graph without circles."""

    def __init__(
        self, nodes: Sequence[Node], reads: Mapping[str, Sequence[int]], paths: Paths
    ) -> None:
        self._nodes = nodes
        self._reads = reads
        self._paths = paths
        #: What nodes made that comes later than what is going on: (order, clock, path, tie).
        self._later: list[tuple[int, int, int, int, int, str, Events]] = []
        self._ties = 0

    def let_pass(self, number: int, then: Timeline, made: Gathered) -> None:
        """Let time pass for one node, and for others what it makes of that."""
        order = 2 * then.first
        tasks: list[_Task] = []
        for channel, events in self._nodes[number].work.process({}, then):
            for piece in self._pieces(number, channel, events, order, made):
                tasks[:0] = self._tasks(channel, piece, number)
        self._go(tasks, order, then, made)
        self._go_later(then, made)

    def deliver(self, cause: Cause, events: Events, here: Timeline, made: Gathered) -> None:
        """Hand a chunk, on its way through a node, to that node, and what it makes to others."""
        number, channel = cause
        assert channel is not None, "timers bring no events"
        self._go(self._singly(number, channel, events), int(events.order[0]), here, made)
        self._go_later(here, made)

    def _go(self, tasks: list[_Task], order: int, here: Timeline, made: Gathered) -> None:
        while tasks:
            number, channel, events = tasks.pop()
            below: list[_Task] = []
            for target, found in self._nodes[number].work.process({channel: [events]}, here):
                for piece in self._pieces(number, target, found, order, made):
                    below[:0] = self._tasks(target, piece, number)
            tasks += below

    def _go_later(self, here: Timeline, made: Gathered) -> None:
        while self._later:
            *_, number, channel, piece = heappop(self._later)
            self._go(self._tasks(channel, piece, number), int(piece.order[0]), here, made)

    def _tasks(self, channel: str, events: Events, source: int) -> list[_Task]:
        """A task for each reader of ``channel`` but the one that wrote it, the last one first."""
        tasks: list[_Task] = []
        for number in reversed(self._reads.get(channel, ())):
            if number == source:
                continue
            way = self._paths.through(number, events.path)
            tasks += self._singly(number, channel, replace(events, path=way))
        return tasks

    def _singly(self, number: int, channel: str, events: Events) -> list[_Task]:
        """The chunk as a task, or each of its events where the node takes them one by one."""
        if channel not in self._nodes[number].singles or len(events) < 2:
            return [(number, channel, events)]
        rows = reversed(range(len(events)))
        return [(number, channel, events.slice(at, at + 1)) for at in rows]

    def _pieces(
        self, number: int, channel: str, found: Events, order: int, made: Gathered
    ) -> list[Events]:
        """What a node made, chunk by chunk; what belongs behind all of this cause waits."""
        if not len(found):
            return []
        if bool((found.path == OWN_TIMER).any()):
            timer = self._paths.timers[number]
            found = replace(found, path=np.where(found.path == OWN_TIMER, timer, found.path))
        made.put(number, channel, found)
        if not self._reads.get(channel):
            return []
        now = []
        starts = chunk_starts(found).tolist()
        for start, stop in zip(starts, [*starts[1:], len(found)], strict=True):
            piece = found.slice(start, stop)
            if int(piece.order[0]) <= order:
                now.append(piece)
                continue
            self._ties += 1
            place = (int(piece.order[0]), int(piece.clock_ms[0]), int(piece.path[0]), self._ties)
            heappush(self._later, (*place, number, channel, piece))
        return now
