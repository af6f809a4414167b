"""Dataflow graph: nodes joined by channels.

A channel carries the events of one stream, of one inner stream, or of one stream as a partition
sees it. A node consumes events of channels and emits events on channels: a query, a named window,
a trigger, the key router of a partition. Nodes are in the order in which the engine subscribes
them.

Topology of a group: paths from a cause through its nodes, numbered depth first.

The reference engine passes the output of a query to the readers of the target stream at once, in
the order of the app.  The next reader of the first stream receives the event only afterwards. A
path is a chain of nodes; of two paths, the one with the lower number is executed first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from mesh.errors import MeshError
from mesh.operators.base import CURRENT, RESET, EventBatch, Longs, Stateful

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from mesh.operators.base import Timeline


#: Events for channels, each channel any number of times, in order.
Outputs = list[tuple[str, EventBatch]]


@dataclass(frozen=True, slots=True)
class Emitted:
    """Events of a channel that leave the graph.

    ``rank``: int64[n], growing; over all channels of a run the numbers 0, 1 .. once each.
    """

    channel: str
    rank: Longs
    events: EventBatch


class Dataflow(Protocol):
    """A graph of nodes with a way to execute it: in bulk or stepwise, with the same result."""

    #: By node, the path of events that its timers cause.
    timers: Sequence[int]
    #: By channel that is read, the path of external events.
    roots: Mapping[str, int]

    @property
    def takes_few(self) -> bool:
        """Whether the rows of events may be ``FewRows``."""
        ...

    def begin(self, timeline: Timeline) -> list[Emitted]:
        """Start the app in all nodes."""
        ...

    def run(
        self, as_current: Sequence[tuple[str, EventBatch]], timeline: Timeline
    ) -> list[Emitted]:
        """Process external events, and let time pass; a run of a channel has any path."""
        ...


class NodeOperator(Stateful, Protocol):
    """Operator of a node, with several inputs and outputs; it is called in the order of time."""

    def process(self, inputs: Mapping[str, Sequence[EventBatch]], timeline: Timeline) -> Outputs:
        """Process events, by channel, each run in order; return all that they and timers cause."""
        ...

    def next_time(self) -> int | None:
        """Due time of the earliest timer; None without one."""
        ...


@dataclass(frozen=True, slots=True)
class StateAccess:
    """Read or write access of a node to a table or a named window.

    ``who``: the name of the node. ``by``: the channels whose events cause it; None: every event
    does, and timers. ``keys``: (attribute of the table, attribute of the causing event) that are
    equal in all rows which it reads or writes; empty: any rows. ``reorders``: whether a write at
    another time may change the order in which the rows of the table are listed.
    """

    thing: str
    who: str
    changes: bool
    by: tuple[str, ...] | None = None
    keys: tuple[tuple[str, str], ...] = ()
    reorders: bool = True

    def conflicts_with(self, other: StateAccess) -> bool:
        """Whether the sequence of the two accesses matters: one of them writes.

        A node applies its own writes to one table or window event by event, in order, in a batch as
        well.
        """
        if self.thing != other.thing:
            return False
        if self.who == other.who:
            return self.changes != other.changes
        return self.changes or other.changes


def has_conflicts(accesses: Collection[StateAccess]) -> bool:
    """Whether any two of ``accesses`` conflict."""
    return any(one.conflicts_with(other) for one in accesses for other in accesses)


@dataclass(slots=True)
class DataflowNode:
    """A node of the graph.

    ``name`` is unique, and the prefix of the names of its pieces of state. ``work`` is set when a
    dataflow has assigned the node its timer path.
    ``routes``: for routers, the channels to which the events of each input go. In other nodes an
    event of any input may cause events on all outputs.
    """

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    #: Makes ``work``, given the path of its timers.
    make: Callable[[int], NodeOperator]
    routes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: Its accesses to tables and named windows.
    accesses: tuple[StateAccess, ...] = ()
    #: Whether it has to be called with one chunk of events or one timer at a time.
    is_stepwise: bool = False
    #: Channels with chunks that are processed event by event in stepwise execution.
    singles: tuple[str, ...] = ()
    #: Whether its timers fire after all others of an instant: those of windows were set before.
    is_last: bool = False
    work: NodeOperator = field(init=False)

    def accesses_by(self, channel: str | None) -> list[StateAccess]:
        """The accesses that an event of ``channel``, or a timer (None), causes."""
        return [access for access in self.accesses if access.by is None or channel in access.by]

    def outlets(self, channel: str | None) -> tuple[str, ...]:
        """The channels that an event of ``channel`` (None: a timer) may cause events in."""
        return self.writes if channel is None else self.routes.get(channel, self.writes)


@dataclass(slots=True)
class CallbackRecorder:
    """Records the calls of one query's callback.

    ``is_enabled``: whether it records. ``runs``: the query's output, current and expired events.
    """

    query: str
    is_enabled: bool = False
    runs: list[EventBatch] = field(default_factory=list)

    def record(self, events: EventBatch) -> None:
        """Record output, if recording is on."""
        if self.is_enabled and len(events):
            self.runs.append(events)


def as_current(events: EventBatch) -> EventBatch:
    """Events as they enter a stream: all of them current."""
    if not events.kind.any():
        return events
    events = events.where(events.kind != RESET)
    return EventBatch(
        events.time_ms,
        events.clock_ms,
        events.order,
        events.path,
        events.chunk,
        np.full(len(events), CURRENT, dtype=np.int8),
        events.instance,
        events.rows,
    )


#: More paths than this arise only from queries that feed each other in very many ways.
PATHS_MAX = 100_000


class Topology:
    """All paths through ``nodes``, a graph without cycles.

    ``roots``: by channel, the path of an external event; ``timers``: by node, that of its timer.
    """

    def __init__(self, nodes: Sequence[DataflowNode]) -> None:
        self._nodes = nodes
        self._readers = readers(nodes)
        self._next: list[dict[int, int]] = [{} for _ in nodes]
        self._count = 0
        self.timers = [-1] * len(nodes)
        for number in sorted(range(len(nodes)), key=lambda number: nodes[number].is_last):
            self.timers[number] = self._new()
            for channel in nodes[number].outlets(None):
                self._walk(channel, self.timers[number], number)
        self.roots: dict[str, int] = {}
        for channel in self._readers:
            self.roots[channel] = self._new()
            self._walk(channel, self.roots[channel], None)
        self._tables = [self._table(number) for number in range(len(nodes))]

    def via(self, node: int, events: EventBatch) -> EventBatch:
        """Events that arrive at ``node``, with their paths through it."""
        return events.with_path(self._tables[node][events.path])

    def _new(self) -> int:
        self._count += 1
        if self._count > PATHS_MAX:
            raise MeshError(
                "MESH-O103",
                "the queries of a group feed each other in too many ways",
                detail=f"There are more than {PATHS_MAX} chains of queries.",
                hint="Put some of the queries into another execution group.",
            )
        return self._count - 1

    def _walk(self, channel: str, path: int, source: int | None) -> None:
        for reader in self._readers.get(channel, ()):
            if reader == source:
                continue
            next_path = self._next[reader][path] = self._new()
            for outlet in self._nodes[reader].outlets(channel):
                self._walk(outlet, next_path, reader)

    def _table(self, node: int) -> Longs:
        table = np.full(self._count, -1, dtype=np.int64)
        for path, next_path in self._next[node].items():
            table[path] = next_path
        return table


def readers(nodes: Sequence[DataflowNode]) -> dict[str, list[int]]:
    """By channel, the nodes that read it, in order, each once."""
    by_channel: dict[str, list[int]] = {}
    for number, node in enumerate(nodes):
        for channel in dict.fromkeys(node.reads):
            by_channel.setdefault(channel, []).append(number)
    return by_channel


def topological_order(nodes: Sequence[DataflowNode], *, loops: bool = False) -> list[int] | None:
    """The numbers of the nodes, each after those that feed it; None: there is a cycle.

    ``loops``: whether a node may feed itself.
    """
    by_channel = readers(nodes)
    order: list[int] = []
    # 1: being visited, 2: done.
    state = [0] * len(nodes)
    for root in reversed(range(len(nodes))):
        pending = [(root, False)]
        while pending:
            number, is_done = pending.pop()
            if is_done:
                state[number] = 2
                order.append(number)
                continue
            if state[number] == 2:
                continue
            state[number] = 1
            pending.append((number, True))
            for channel in nodes[number].writes:
                for reader in by_channel.get(channel, ()):
                    if reader == number and loops:
                        continue
                    if state[reader] == 1:
                        return None
                    if state[reader] == 0:
                        pending.append((reader, False))
    return order[::-1]


def stages_of(nodes: Sequence[DataflowNode], order: Sequence[int]) -> list[tuple[int, ...]]:
    """The nodes in stages that are executed one after the other, each stage in order.

    A stage is one node, or nodes of which one writes state that another accesses, with all nodes
    on a path from one of them to another.

    Args:
        nodes: a graph without cycles.
        order: their numbers as ``topological_order`` returns them.
    """
    follow = _follow(nodes)
    for one, node in enumerate(nodes):
        for other, beside in enumerate(nodes):
            if one != other and any(
                a.conflicts_with(b) for a in node.accesses for b in beside.accesses
            ):
                follow[one].add(other)
    after = [descendants(follow, number) for number in range(len(nodes))]
    place = {number: at for at, number in enumerate(order)}
    done: set[int] = set()
    groups: list[tuple[int, ...]] = []
    for number in order:
        if number in done:
            continue
        tied = [n for n in order if n == number or (n in after[number] and number in after[n])]
        done.update(tied)
        groups.append(tuple(tied))
    # A stage follows all nodes that lead to any of its nodes.
    needed = {
        stage: {n for n in order if n not in stage and after[n] & set(stage)} for stage in groups
    }
    result: list[tuple[int, ...]] = []
    gone: set[int] = set()
    while groups:
        stage = min(
            (stage for stage in groups if needed[stage] <= gone), key=lambda stage: place[stage[0]]
        )
        groups.remove(stage)
        result.append(stage)
        gone.update(stage)
    return result


def feeds_back_into(nodes: Sequence[DataflowNode], number: int) -> bool:
    """Whether the output of a node may reach one that writes state which the node accesses."""
    accesses = nodes[number].accesses
    reachable = descendants(_follow(nodes), number) - {number} if accesses else set()
    return any(
        a.conflicts_with(b) for other in reachable for a in accesses for b in nodes[other].accesses
    )


def _follow(nodes: Sequence[DataflowNode]) -> list[set[int]]:
    """By node, the readers of its output."""
    by_channel = readers(nodes)
    return [
        {reader for channel in node.writes for reader in by_channel.get(channel, ())}
        for node in nodes
    ]


def descendants(follow: Sequence[set[int]], start: int) -> set[int]:
    """All that ``start`` leads to, itself only if it is in a cycle."""
    reachable: set[int] = set()
    pending = list(follow[start])
    while pending:
        number = pending.pop()
        if number not in reachable:
            reachable.add(number)
            pending += follow[number]
    return reachable
