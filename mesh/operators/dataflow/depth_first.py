"""Stepwise execution: one chunk of events or one timer at a time, depth first.

A node's output goes to the readers of its channel at once, before the next reader of the first
channel receives the event. The reference engine does the same, so this order defines the semantics.
``DepthFirst`` walks any set of nodes. ``StepwiseDataflow`` drives a whole graph with it, cycles
included; ``OrderedStage`` uses it for chunks that conflict.

Cycles: queries with streams that feed each other become one node, which is stepwise inside.

The node reads the channels of all its queries. Its own output does not return to it from outside.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from mesh.errors import MeshError
from mesh.operators.base import Timeline, with_timer_path
from mesh.operators.dataflow.graph import DataflowNode, Emitted, Outputs, descendants, readers
from mesh.operators.dataflow.partition import NodeGroup
from mesh.operators.total_order import chunk_starts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from mesh.operators.base import EventBatch
    from mesh.operators.dataflow.graph import NodeOperator, Topology


#: Queries that feed each other may do so this often because of one event.
DEPTH_MAX = 2_000
#: Instead of a reader's number: the output of the graph.
_OUTPUT = -1
#: Timers of one node that fire at one instant without an end.
REPEATS_MAX = 100_000


class CyclicNode(NodeGroup):
    """Nodes that feed each other, as one node."""

    def process(self, inputs: Mapping[str, Sequence[EventBatch]], timeline: Timeline) -> Outputs:
        """Process the events, with all that their output causes in the cycle."""
        entering = [(c, run) for c, runs in inputs.items() for run in runs if len(run)]
        return self._run(entering, timeline)


def collapse_cycles(
    nodes: Sequence[DataflowNode], whole: Collection[str]
) -> list[DataflowNode] | None:
    """``nodes`` with each cycle as one node, in the position of its first.

    The readers of a channel that feeds a cycle belong to it: an event that goes through the
    cycle reaches them last.

    Args:
        nodes: the nodes of an app, in its order.
        whole: the names of partitions, which can't be part of a cycle.

    Returns:
        None if a cycle can't be one node: it has a partition in it, it shares a node with another,
        or a node between its first and its last reads a channel that one of its nodes reads.
    """
    cycles = _cycles_of(nodes)
    if sum(map(len, cycles)) > len(set().union(*cycles)):
        return None
    if not all(_can_collapse(nodes, cycle, whole) for cycle in cycles):
        return None
    result: list[DataflowNode] = []
    done: set[int] = set()
    for number, node in enumerate(nodes):
        if number in done:
            continue
        members = next((cycle for cycle in cycles if number in cycle), None)
        if members is None:
            result.append(node)
        else:
            done |= members
            result.append(_cyclic_node([nodes[n] for n in sorted(members)]))
    return result


def _cycles_of(nodes: Sequence[DataflowNode]) -> list[set[int]]:
    """The numbers of the nodes of each cycle, and of those that read a channel which feeds it."""
    by_channel = readers(nodes)
    follow = [{r for c in node.writes for r in by_channel.get(c, ())} for node in nodes]
    after = [descendants(follow, number) for number in range(len(nodes))]
    cycles: list[set[int]] = []
    for number in range(len(nodes)):
        if number not in after[number] or any(number in cycle for cycle in cycles):
            continue
        members = {n for n in after[number] if number in after[n]}
        written = {channel for n in members for channel in nodes[n].writes}
        read = {channel for n in members for channel in nodes[n].reads}
        cycles.append(members | {n for channel in written & read for n in by_channel[channel]})
    return cycles


def _can_collapse(nodes: Sequence[DataflowNode], members: set[int], whole: Collection[str]) -> bool:
    """Whether no member is a partition, and none of the nodes between them reads their input."""
    if any(nodes[n].name in whole for n in members):
        return False
    reads = {channel for n in members for channel in nodes[n].reads}
    between = set(range(min(members), max(members))) - members
    return not any(reads & set(nodes[n].reads) for n in between)


def _cyclic_node(nodes: Sequence[DataflowNode]) -> DataflowNode:
    writes = tuple(dict.fromkeys(channel for node in nodes for channel in node.writes))

    def make(timer: int) -> NodeOperator:
        flow = StepwiseDataflow(nodes, writes, numbers=True)
        for node, node_timer in zip(nodes, flow.timers, strict=True):
            node.work = node.make(node_timer)
        return CyclicNode(nodes, flow)

    return DataflowNode(
        f"ring-{nodes[0].name}",
        tuple(dict.fromkeys(channel for node in nodes for channel in node.reads)),
        writes,
        make,
        accesses=tuple(
            replace(access, by=None, keys=()) for node in nodes for access in node.accesses
        ),
    )


class OutputSink(Protocol):
    """Receives the output of nodes."""

    def put(self, number: int, channel: str, events: EventBatch) -> None:
        """Accept events that node ``number`` emitted on ``channel``."""
        ...


class _Task(NamedTuple):
    depth: int
    #: The node that is to process the events, or ``_OUTPUT``.
    number: int
    #: The node that emitted them.
    source: int
    channel: str
    events: EventBatch


@dataclass(order=True, slots=True)
class _Deferred:
    """A chunk that is later in the total order than the cause that is being processed."""

    order: int
    clock_ms: int
    path: int
    #: Chunks that are equal in all of these keep their sequence.
    tie: int
    source: int = field(compare=False)
    channel: str = field(compare=False)
    events: EventBatch = field(compare=False)


class DepthFirst:
    """A depth-first walk through those of ``nodes`` that read a channel.

    ``reads``: by channel, the numbers of the nodes that read it.
    ``timers``: by node, the path of events that its timers cause.
    ``topology``: the paths of a graph without cycles, in which no node reads its own output; None:
    events keep the path of their cause, and nodes may feed themselves.
    ``outputs``: the channels that the sink receives, in the sequence of the walk. None: it
    receives all output, as soon as a node returns it.
    """

    def __init__(
        self,
        nodes: Sequence[DataflowNode],
        reads: Mapping[str, Sequence[int]],
        timers: Sequence[int],
        *,
        topology: Topology | None = None,
        outputs: Collection[str] | None = None,
    ) -> None:
        self._nodes = nodes
        self._reads = reads
        self._timers = timers
        self._topology = topology
        self._collects_all = outputs is None
        self._outputs = outputs or ()
        #: A heap.
        self._deferred: list[_Deferred] = []
        self._ties = 0

    def advance_time(self, number: int, then: Timeline, sink: OutputSink) -> None:
        """Let time pass for one node, and process the output of its timers."""
        order = 2 * then.first
        for channel, events in self._nodes[number].work.process({}, then):
            tasks: list[_Task] = []
            for chunk in self._chunks(number, channel, events, order, sink):
                tasks[:0] = self._expand(number, channel, chunk, 0)
            self._walk(tasks, order, then, sink)
        self._walk_deferred(then, sink)

    def deliver(self, channel: str, events: EventBatch, here: Timeline, sink: OutputSink) -> None:
        """Process a chunk of a channel, which no node of the graph emitted."""
        tasks = self._expand(_OUTPUT, channel, events, 0)
        self._walk(tasks, int(events.order[0]), here, sink)
        self._walk_deferred(here, sink)

    def deliver_to(
        self, number: int, channel: str, events: EventBatch, here: Timeline, sink: OutputSink
    ) -> None:
        """Process a chunk, which has the path through node ``number`` already, in that node."""
        tasks = self._tasks_of(number, _OUTPUT, channel, events, 0)
        self._walk(tasks, int(events.order[0]), here, sink)
        self._walk_deferred(here, sink)

    def _walk(self, pending: list[_Task], order: int, here: Timeline, sink: OutputSink) -> None:
        while pending:
            depth, number, source, channel, events = pending.pop()
            if number == _OUTPUT:
                sink.put(source, channel, events)
                continue
            if depth > DEPTH_MAX:
                raise MeshError(
                    "MESH-O104",
                    f'query "{self._nodes[number].name}" feeds itself without end',
                    detail=f"One event came back to it {DEPTH_MAX} times.",
                    hint="Add a filter that ends the circle.",
                )
            below: list[_Task] = []
            for target, output in self._nodes[number].work.process({channel: [events]}, here):
                for chunk in self._chunks(number, target, output, order, sink):
                    below[:0] = self._expand(number, target, chunk, depth + 1)
            pending += below

    def _walk_deferred(self, here: Timeline, sink: OutputSink) -> None:
        while self._deferred:
            one = heappop(self._deferred)
            tasks = self._expand(one.source, one.channel, one.events, 0)
            self._walk(tasks, one.order, here, sink)

    def _expand(self, source: int, channel: str, events: EventBatch, depth: int) -> list[_Task]:
        """A task for each reader of ``channel``, the last one first."""
        tasks: list[_Task] = []
        for number in reversed(self._reads.get(channel, ())):
            if self._topology is None:
                tasks += self._tasks_of(number, source, channel, events, depth)
            elif number != source:
                via = self._topology.via(number, events)
                tasks += self._tasks_of(number, source, channel, via, depth)
        if channel in self._outputs:
            tasks.append(_Task(depth, _OUTPUT, source, channel, events))
        return tasks

    def _tasks_of(
        self, number: int, source: int, channel: str, events: EventBatch, depth: int
    ) -> list[_Task]:
        """One task, or for a node that processes single events one for each, the last first."""
        if channel not in self._nodes[number].singles or len(events) < 2:
            return [_Task(depth, number, source, channel, events)]
        return [
            _Task(depth, number, source, channel, events.slice(at, at + 1))
            for at in reversed(range(len(events)))
        ]

    def _chunks(
        self, number: int, channel: str, events: EventBatch, order: int, sink: OutputSink
    ) -> list[EventBatch]:
        """The chunks of a node's output that belong to ``order``; later ones are deferred."""
        if not len(events):
            return []
        events = with_timer_path(events, self._timers[number])
        if self._collects_all:
            sink.put(number, channel, events)
            if not self._reads.get(channel):
                return []
        now = []
        for chunk in _split(events):
            key = int(chunk.order[0])
            if key <= order:
                now.append(chunk)
                continue
            self._ties += 1
            clock_ms, path = int(chunk.clock_ms[0]), int(chunk.path[0])
            heappush(
                self._deferred,
                _Deferred(key, clock_ms, path, self._ties, number, channel, chunk),
            )
        return now


class _Sequence:
    """Collects output in the sequence in which it is emitted.

    ``numbers``: whether each chunk gets a number of its own in its run.
    """

    def __init__(self, numbers: bool) -> None:
        self._numbers = numbers
        self._count = 0
        self.emitted: list[Emitted] = []

    def put(self, number: int, channel: str, events: EventBatch) -> None:
        rank = np.arange(self._count, self._count + len(events))
        if self._numbers:
            events = replace(events, chunk=np.full(len(events), self._count))
        self.emitted.append(Emitted(channel, rank, events))
        self._count += len(events)


class StepwiseDataflow:
    """A whole graph, driven one chunk or timer at a time; its nodes may feed each other in cycles.

    ``numbers``: whether each chunk that leaves gets a number of its own in its run.
    """

    def __init__(
        self, nodes: Sequence[DataflowNode], outputs: Collection[str], *, numbers: bool = False
    ) -> None:
        self._numbers = numbers
        self._nodes = nodes
        reads = readers(nodes)
        self.roots: Mapping[str, int] = {
            channel: len(nodes) + number for number, channel in enumerate(reads)
        }
        self.timers: Sequence[int] = range(len(nodes))
        self._walker = DepthFirst(nodes, reads, self.timers, outputs=outputs)

    @property
    def takes_few(self) -> bool:
        """False: whatever a node accesses is a record batch."""
        return False

    def begin(self, timeline: Timeline) -> list[Emitted]:
        """Start the app in all nodes."""
        sink = _Sequence(self._numbers)
        for number in range(len(self._nodes)):
            self._walker.advance_time(number, timeline, sink)
        return sink.emitted

    def run(self, entering: Sequence[tuple[str, EventBatch]], timeline: Timeline) -> list[Emitted]:
        """Process external events, and let time pass."""
        sink = _Sequence(self._numbers)
        at = timeline.first
        for channel, events in _in_order(entering):
            # Events that are sent at once have one order.
            number = (int(events.order[0]) - 1) // 2
            clock_ms = int(events.clock_ms[0])
            here = Timeline(number, np.array([clock_ms]), clock_ms, timeline.playback)
            self._fire(here, sink)
            root = np.full(len(events), self.roots[channel], dtype=np.int64)
            self._walker.deliver(channel, replace(events, path=root), here, sink)
            at = number + 1
        end = Timeline(
            timeline.first + len(timeline.clocks_ms),
            timeline.clocks_ms[:0],
            timeline.now_ms,
            timeline.playback,
            timeline.is_idle_playback,
        )
        assert at <= end.first
        if timeline.playback and at < end.first:
            clocks_ms = timeline.clocks_ms[-1:]
            self._fire(replace(end, first=end.first - 1, clocks_ms=clocks_ms), sink)
        clocks_ms = timeline.clocks_ms
        # In playback, a timer set after the last move of time waits for the next one.
        if not timeline.playback or not len(clocks_ms) or timeline.now_ms > clocks_ms[-1]:
            self._fire(end, sink)
        return sink.emitted

    def _fire(self, here: Timeline, sink: OutputSink) -> None:
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
            node = self._nodes[number]
            self._walker.advance_time(number, replace(here, now_ms=now_ms), sink)
            repeats += 1
            if repeats > REPEATS_MAX and node.work.next_time() == time_ms:
                raise AssertionError(f"a timer of {node.name} fires without an end")


def _in_order(entering: Sequence[tuple[str, EventBatch]]) -> list[tuple[str, EventBatch]]:
    """The external events, chunk by chunk in order."""
    chunks = [(channel, chunk) for channel, events in entering for chunk in _split(events)]
    chunks.sort(key=lambda one: int(one[1].order[0]))
    return chunks


def _split(events: EventBatch) -> Iterator[EventBatch]:
    starts = chunk_starts(events).tolist()
    for start, stop in zip(starts, [*starts[1:], len(events)], strict=True):
        yield events.slice(start, stop)
