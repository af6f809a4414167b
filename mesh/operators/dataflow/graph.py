"""Dataflow graph: nodes joined by channels.

A channel carries the events of one stream, of one inner stream, or of one stream as a partition
sees it. A node consumes events of channels and emits events on channels: a query, a named window,
a trigger, the key router of a partition. Nodes are in the order in which the engine subscribes
them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

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
