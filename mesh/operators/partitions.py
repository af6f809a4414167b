"""A partition as one node: its entrance and its queries, with an order of events of their own.

Each chunk that the entrance hands to an instance is a cause of its own for the queries behind it:
all of them are done with it before the next one comes.  So inside the partition chunks are numbered
as external events are outside, and what comes out is put back into the order outside.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mesh.operators.base import (
    BEFORE_ALL,
    OWN_TIMER,
    Longs,
    State,
    Timeline,
    part,
    prefixed,
    restore_part,
)
from mesh.operators.graph import Made, chunk_starts
from mesh.operators.total_order import run_begins

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.operators.base import Events
    from mesh.operators.entrance import Entrance
    from mesh.operators.flow import Flow, Leaving
    from mesh.operators.graph import Node


class PartitionWork:
    """The entrance and the nodes behind it, driven in bulk."""

    def __init__(self, name: str, entrance: Entrance, nodes: Sequence[Node], flow: Flow) -> None:
        self._name = name
        self._entrance = entrance
        self._nodes = nodes
        self._flow = flow
        #: Chunks that have gone into the queries so far: what they remember of the order inside.
        self._causes = 0

    def process(self, inputs: Mapping[str, Sequence[Events]], timeline: Timeline) -> Made:
        """What the queries make of the events; in parts where instances are forgotten between."""
        made: Made = []
        due = self._entrance.next_purge(self._entrance.first_keyed(inputs))
        while due is not None and due <= timeline.now_ms:
            before, inputs = _cut(inputs, due)
            count = int(np.searchsorted(timeline.clocks_ms, due, side="left"))
            until = replace(timeline, clocks_ms=timeline.clocks_ms[:count], now_ms=due - 1)
            made += self._part(before, until)
            timeline = replace(
                timeline, first=timeline.first + count, clocks_ms=timeline.clocks_ms[count:]
            )
            then = replace(timeline, clocks_ms=timeline.clocks_ms[:0], now_ms=due)
            self._entrance.process({}, then)
            due = self._entrance.next_purge(self._entrance.first_keyed(inputs))
        return made + self._part(inputs, timeline)

    def _part(self, inputs: Mapping[str, Sequence[Events]], timeline: Timeline) -> Made:
        quiet = replace(timeline, now_ms=BEFORE_ALL)
        inside_channels = set(self._entrance.channels.values())
        entered = [one for one in self._entrance.process(inputs, quiet) if len(one[1])]
        failed = [one for one in entered if one[0] not in inside_channels]
        divided = [one for one in entered if one[0] in inside_channels]
        made, count = through(self._flow, divided, self._causes, timeline)
        self._causes += count
        return failed + made

    def next_time(self) -> int | None:
        """When the next timer of a query in it is due, or instances are forgotten."""
        times = [self._entrance.next_time(), *(node.work.next_time() for node in self._nodes)]
        return min((time for time in times if time is not None), default=None)

    def snapshot(self) -> State:
        """The keys, and the state of each query."""
        states = {node.name: node.work.snapshot() for node in self._nodes}
        own = State({}, {"causes": self._causes})
        return prefixed({"own": own, "entrance": self._entrance.snapshot(), **states})

    def restore(self, state: State) -> None:
        """Take over keys and states."""
        own: Any = part(state, "own").scalars
        self._causes = own.get("causes", 0)
        self._entrance.restore(part(state, "entrance"))
        for node in self._nodes:
            restore_part(node.work, state, node.name)

    @property
    def places(self) -> dict[str, str]:
        """By name of what is in it, under which name its snapshot has the state of that."""
        return {f"{self._name}.entrance": "entrance", **{n.name: n.name for n in self._nodes}}


def through(
    flow: Flow, runs: Sequence[tuple[str, Events]], first: int, timeline: Timeline
) -> tuple[Made, int]:
    """Let each chunk through ``flow`` as a cause of its own, and time pass in it.

    Args:
        flow: the nodes inside.
        runs: events by channel inside, none empty, with their places in the order outside.
        first: how many chunks have gone through before.
        timeline: of the order outside.

    Returns:
        What comes out, in the order outside, and how many chunks went through.
    """
    causes = _Causes([events for _, events in runs])
    entering = [
        (channel, replace(events, order=2 * (first + number) + 1))
        for (channel, events), number in zip(runs, causes.numbers, strict=True)
    ]
    inside = Timeline(first, causes.clock_ms, timeline.now_ms, timeline.playback, timeline.stands)
    leaving = flow.run(entering, inside)
    return _outside(leaving, causes, first, timeline), len(causes.clock_ms)


class _Causes:
    """The chunks that go into the queries, numbered in order, with their places outside.

    ``numbers``: for each run int64[n], the number of each event's chunk.  ``order``, ``clock_ms``,
    ``path``: int64[m], of each chunk.
    """

    def __init__(self, runs: Sequence[Events]) -> None:
        starts = [chunk_starts(run) for run in runs]
        columns = [
            np.concatenate([getattr(run, name)[at] for run, at in zip(runs, starts, strict=True)])
            if runs
            else np.empty(0, dtype=np.int64)
            for name in ("order", "clock_ms", "path", "chunk")
        ]
        rank = np.arange(len(columns[0]))
        if len(runs) > 1:
            place = np.lexsort(tuple(reversed(columns)))
            columns = [column[place] for column in columns]
            rank[place] = np.arange(len(place))
        self.order, self.clock_ms, self.path, _ = columns
        self.numbers: list[Longs] = []
        at = 0
        for run, start in zip(runs, starts, strict=True):
            own = rank[at : at + len(start)]
            lengths = np.diff(np.append(start, len(run)))
            self.numbers.append(np.repeat(own, lengths) if len(own) < len(run) else own)
            at += len(start)


def _outside(leaving: Sequence[Leaving], causes: _Causes, first: int, timeline: Timeline) -> Made:
    """Put what came out into the order outside, in the sequence in which it came out."""
    if not leaving:
        return []
    inner = np.concatenate([one.events.order for one in leaving]) - 2 * first
    columns = [
        np.concatenate([getattr(one.events, name) for one in leaving])
        for name in ("clock_ms", "path", "chunk")
    ]
    # What one node made for one channel is in order.
    back = np.argsort(np.concatenate([one.place for one in leaving])) if len(leaving) > 1 else None
    if back is not None:
        inner, columns = inner[back], [column[back] for column in columns]
    order, path = _causes_of(inner, columns[0], causes, timeline)
    chunk: Longs = np.cumsum(run_begins(inner, *columns))
    if back is not None:
        where = np.empty_like(back)
        where[back] = np.arange(len(back))
        order, path, chunk = order[where], path[where], chunk[where]

    made: Made = []
    at = 0
    for one in leaving:
        cut = slice(at, at + len(one.place))
        events = replace(one.events, order=order[cut], path=path[cut], chunk=chunk[cut])
        made.append((one.channel, events))
        at += len(one.place)
    return made


def _causes_of(
    inner: Longs, clock_ms: Longs, causes: _Causes, timeline: Timeline
) -> tuple[Longs, Longs]:
    """Order and path outside of what has the order ``inner`` and was made at ``clock_ms``."""
    if not len(causes.order):
        return timeline.timer_order(clock_ms), np.full(len(inner), OWN_TIMER, dtype=np.int64)
    # The chunk that caused it or, of a timer, the last one before it.
    cause = np.clip((inner - 1) >> 1, 0, len(causes.order) - 1)
    order, path = causes.order[cause], causes.path[cause]
    timers = np.flatnonzero(inner & 1 == 0)
    if len(timers):
        due = timeline.timer_order(clock_ms[timers])
        # A timer that an event sets off at once belongs to that event.
        free = (inner[timers] < 2) | (due >= order[timers])
        order[timers[free]], path[timers[free]] = due[free], OWN_TIMER
    return order, path


def _cut(
    inputs: Mapping[str, Sequence[Events]], due_ms: int
) -> tuple[dict[str, list[Events]], dict[str, list[Events]]]:
    """The events before ``due_ms`` and the others."""
    before: dict[str, list[Events]] = {}
    after: dict[str, list[Events]] = {}
    for channel, runs in inputs.items():
        for run in runs:
            at = int(np.searchsorted(run.clock_ms, due_ms, side="left"))
            before.setdefault(channel, []).append(run.slice(0, at))
            after.setdefault(channel, []).append(run.slice(at, len(run)))
    return before, after
