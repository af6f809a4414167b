"""Bulk execution: each node processes a whole run of events; the sequence is restored afterwards.

The result is that of ``StepwiseDataflow``. Nodes go in an order in which none feeds an earlier one;
nodes that read state written by one another run as one ``OrderedStage``.

Stages of a bulk dataflow; an ordered stage runs queries that access state of one another.

Such queries read tables or named windows that others of them write. An ordered stage sorts its
input into the total order and splits it into chunks. Consecutive chunks without a read/write
conflict are processed as one batch: all read a table, one query adds all of them to it, or what
they read and write are rows of different keys.
Conflicting chunks and timers are processed one at a time, depth first, as in
``StepwiseDataflow``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mesh.operators.base import Timeline, with_timer_path
from mesh.operators.dataflow.conflicts import (
    CauseOrder,
    ChunkQueue,
    ConflictTable,
    OutputBuffer,
    TimeCursor,
)
from mesh.operators.dataflow.depth_first import REPEATS_MAX, DepthFirst
from mesh.operators.dataflow.graph import Emitted, Topology, has_conflicts, readers
from mesh.operators.dataflow.partition import PartitionNode
from mesh.operators.dataflow.query_node import QueryNode

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from mesh.operators.base import EventBatch, Longs
    from mesh.operators.dataflow.conflicts import Cause, Key
    from mesh.operators.dataflow.graph import DataflowNode, Outputs


class BulkStage:
    """Nodes that process a run one after the other; ``order``: their numbers, in that sequence."""

    def __init__(
        self, nodes: Sequence[DataflowNode], order: Sequence[int], topology: Topology
    ) -> None:
        self._nodes = nodes
        self._order = order
        self._topology = topology

    def begin(self, flowing: Mapping[str, Sequence[EventBatch]], timeline: Timeline) -> Outputs:
        """Start the app in the nodes, and return their output."""
        return self.run(flowing, timeline)

    def run(self, flowing: Mapping[str, Sequence[EventBatch]], timeline: Timeline) -> Outputs:
        """The output of the nodes for the events of channels and for their timers."""
        arrivals = dict(arriving(self._nodes, self._order, self._topology, flowing))
        return [(channel, events) for _, channel, events in self.go(arrivals, timeline)]

    def go(
        self,
        arrivals: Mapping[Cause, Sequence[EventBatch]],
        timeline: Timeline,
        *,
        quick: bool = False,
    ) -> list[tuple[int, str, EventBatch]]:
        """The output of the nodes for the input of each, with their numbers.

        ``quick``: nodes without events and without a timer that is due are not called.
        """
        flow: dict[str, list[EventBatch]] = {}
        outputs: list[tuple[int, str, EventBatch]] = []
        for number in self._order:
            node = self._nodes[number]
            inputs: dict[str, list[EventBatch]] = {}
            for channel in node.reads:
                runs = [*arrivals.get((number, channel), ())]
                runs += [self._topology.via(number, events) for events in flow.get(channel, ())]
                if runs:
                    inputs[channel] = runs
            if quick and not inputs:
                due = node.work.next_time()
                if due is None or due > timeline.now_ms:
                    continue
            for channel, events in node.work.process(inputs, timeline):
                if len(events):
                    events = with_timer_path(events, self._topology.timers[number])
                    flow.setdefault(channel, []).append(events)
                    outputs.append((number, channel, events))
        return outputs


def arriving(
    nodes: Sequence[DataflowNode],
    order: Sequence[int],
    topology: Topology,
    flowing: Mapping[str, Sequence[EventBatch]],
) -> list[tuple[Cause, list[EventBatch]]]:
    """The input of each node from outside, with the paths through it."""
    return [
        ((number, channel), [topology.via(number, events) for events in flowing[channel]])
        for number in order
        for channel in nodes[number].reads
        if channel in flowing
    ]


class OrderedStage:
    """Nodes with conflicting accesses; ``order``: their numbers, each after those that feed it."""

    def __init__(
        self, nodes: Sequence[DataflowNode], order: Sequence[int], topology: Topology
    ) -> None:
        self._nodes = nodes
        self._order = order
        self._numbers = sorted(order)
        self._topology = topology
        self._timers = topology.timers
        self._pass = BulkStage(nodes, order, topology)
        by_channel = readers(nodes)
        reads = {
            channel: tuple(number for number in by_channel[channel] if number in order)
            for channel in dict.fromkeys(c for number in order for c in nodes[number].reads)
        }
        self._walker = DepthFirst(nodes, reads, topology.timers, topology=topology)
        self._conflicts = ConflictTable(nodes, order, reads)
        #: Of the queue that is being processed, once it is needed.
        self._barriers: Longs | None = None

    def begin(self, flowing: Mapping[str, Sequence[EventBatch]], timeline: Timeline) -> Outputs:
        """Start the app in the nodes, and return their output."""
        buffer = OutputBuffer()
        for number in self._numbers:
            self._walker.advance_time(number, timeline, buffer)
        self._run(flowing, timeline, buffer)
        return buffer.all()

    def run(self, flowing: Mapping[str, Sequence[EventBatch]], timeline: Timeline) -> Outputs:
        """The output of the nodes for the events of channels and for their timers."""
        buffer = OutputBuffer()
        self._run(flowing, timeline, buffer)
        return buffer.all()

    def _run(
        self, flowing: Mapping[str, Sequence[EventBatch]], timeline: Timeline, buffer: OutputBuffer
    ) -> None:
        arrivals = arriving(self._nodes, self._order, self._topology, flowing)
        pieces = ChunkQueue([(cause, run) for cause, runs in arrivals for run in runs])
        times = TimeCursor(timeline)
        self._barriers = None
        at = 0
        while at < len(pieces):
            stop = self._together(pieces, at, times)
            if stop > at:
                last = None if stop == len(pieces) and not times.is_bound else pieces.key(stop - 1)
                chunks, until = pieces.take(at, stop), times.until(last)
                buffer.add(self._pass.go(chunks, until, quick=True))
                at = stop
                continue
            self._fire(times, pieces.key(at), buffer)
            (number, channel), events = pieces.one(at)
            assert channel is not None, "timers bring no events"
            here = times.here(*pieces.key(at)[:2])
            self._walker.deliver_to(number, channel, events, here, buffer)
            times.passed(pieces.key(at))
            at += 1
        self._finish(times, buffer)

    def _together(self, pieces: ChunkQueue, at: int, times: TimeCursor) -> int:
        """The end of the chunks from ``at`` on that may go together; ``at`` if none may."""
        group: set[Cause] = set()
        stop, limit = at, len(pieces)
        for cause, end in pieces.runs(at):
            if cause not in group:
                order = self._conflicts.order(cause, group)
                if order is CauseOrder.WHOLE:
                    break
                if order is CauseOrder.BY_KEY:
                    limit = self._until_repeat(pieces, at)
                group.add(cause)
            stop = min(end, limit)
            if stop == limit:
                break
        times.is_bound = stop < len(pieces)
        if stop == at:
            return at
        last = pieces.key(stop - 1) if times.is_bound else None
        bound = None
        for key, number in self._due(times):
            if last is not None and key > last:
                break
            if (number, None) not in group:
                if not self._conflicts.commutes_with((number, None), group):
                    bound, times.is_bound = key, True
                    stop = pieces.before(key, at, stop)
                    break
                group.add((number, None))
        return pieces.clean(at, stop, bound, times) if times.is_bound else stop

    def _until_repeat(self, pieces: ChunkQueue, at: int) -> int:
        """The end of the chunks from ``at`` on without one that has to follow another of them."""
        if self._barriers is None:
            self._barriers = self._conflicts.barriers(pieces)
        return int(np.searchsorted(self._barriers, at))

    def _due(self, times: TimeCursor) -> list[tuple[Key, int]]:
        """The timers that fire in this run, by their positions."""
        timers = []
        for number in self._numbers:
            due = self._nodes[number].work.next_time()
            place = None if due is None else times.place(due)
            if place is not None:
                timers.append(((*place, self._timers[number]), number))
        return sorted(timers)

    def _fire(self, times: TimeCursor, before: Key | None, buffer: OutputBuffer) -> None:
        """Let timers fire one after the other, up to the position ``before``."""
        repeats, last = 0, None
        waiting: set[int] = set()
        while due := [one for one in self._due(times) if one[1] not in waiting]:
            key, number = due[0]
            if before is not None and key > before:
                return
            work = self._nodes[number].work
            due_ms = work.next_time()
            self._walker.advance_time(number, times.here(*key[:2]), buffer)
            if times.jumps and work.next_time() == due_ms:
                # It was set after the last move of time, and waits for the next one.
                waiting.add(number)
            repeats = repeats + 1 if key == last else 0
            last = key
            if repeats > REPEATS_MAX:
                raise AssertionError(f"a timer of {self._nodes[number].name} fires without an end")

    def _finish(self, times: TimeCursor, buffer: OutputBuffer) -> None:
        """Let the rest of the time pass."""
        due = [number for _, number in self._due(times)]
        if not due:
            return
        group: set[Cause] = set()
        for number in due:
            if not self._conflicts.commutes_with((number, None), group):
                self._fire(times, None, buffer)
                return
            group.add((number, None))
        buffer.add(self._pass.go({}, times.until(None), quick=True))


class BulkDataflow:
    """Processing of whole runs through one set of nodes after the other.

    ``stages``: the numbers of nodes, in sets to be called one after the other, as
    ``topology.stages_of`` returns them; nodes that share state form an ``OrderedStage``.

    Raises:
        MeshError: MESH-O103, there are too many ways through the nodes.
    """

    def __init__(
        self,
        nodes: Sequence[DataflowNode],
        stages: Sequence[tuple[int, ...]],
        outputs: Collection[str],
    ) -> None:
        self._nodes = nodes
        self._topology = Topology(nodes)
        self._stages = [
            OrderedStage(nodes, stage, self._topology)
            if len(stage) > 1 or _is_ordered(nodes[stage[0]])
            else BulkStage(nodes, stage, self._topology)
            for stage in stages
        ]
        self._outputs = outputs
        self.timers: Sequence[int] = self._topology.timers
        self.roots: Mapping[str, int] = self._topology.roots

    @property
    def is_ordered(self) -> bool:
        """Whether nodes share state, so that their input is divided into chunks."""
        return any(isinstance(stage, OrderedStage) for stage in self._stages)

    @property
    def takes_few(self) -> bool:
        """Whether the rows of events may be ``FewRows``: of queries that share no state."""
        works = [node.work for node in self._nodes]
        return not self.is_ordered and all(
            isinstance(work, QueryNode | PartitionNode) and work.takes_few for work in works
        )

    def begin(self, timeline: Timeline) -> list[Emitted]:
        """Notify all nodes of the app's start."""
        return self._go([], timeline, begins=True)

    def run(self, entering: Sequence[tuple[str, EventBatch]], timeline: Timeline) -> list[Emitted]:
        """Let external events in and time pass."""
        return self._go(entering, timeline, begins=False)

    def _go(
        self, entering: Sequence[tuple[str, EventBatch]], timeline: Timeline, *, begins: bool
    ) -> list[Emitted]:
        flowing: dict[str, list[EventBatch]] = {}
        for channel, events in entering:
            root = np.full(len(events), self.roots[channel], dtype=np.int64)
            flowing.setdefault(channel, []).append(events.with_path(root))
        leaving: list[tuple[str, EventBatch]] = []
        for stage in self._stages:
            for channel, events in (
                stage.begin(flowing, timeline) if begins else stage.run(flowing, timeline)
            ):
                flowing.setdefault(channel, []).append(events)
                if channel in self._outputs:
                    leaving.append((channel, events))
        return _in_sequence(leaving)


def _is_ordered(node: DataflowNode) -> bool:
    """Whether the order of a node's own events and timers matters beyond its input's."""
    return node.is_stepwise or has_conflicts(node.accesses)


def _in_sequence(leaving: Sequence[tuple[str, EventBatch]]) -> list[Emitted]:
    """Give places by cause, and then by way through the nodes."""
    if not leaving:
        return []
    if len(leaving) == 1:
        # The output of one node for one channel is in order.
        channel, events = leaving[0]
        return [Emitted(channel, np.arange(len(events)), events)]
    order = np.concatenate([events.order for _, events in leaving])
    clock_ms = np.concatenate([events.clock_ms for _, events in leaving])
    path = np.concatenate([events.path for _, events in leaving])
    chunk = np.concatenate([events.chunk for _, events in leaving])
    rank = np.empty(len(order), dtype=np.int64)
    rank[np.lexsort((chunk, path, clock_ms, order))] = np.arange(len(order))
    emitted, at = [], 0
    for channel, events in leaving:
        emitted.append(Emitted(channel, rank[at : at + len(events)], events))
        at += len(events)
    return emitted
