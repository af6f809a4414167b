"""Partition as one node: its key router and its queries, with an order of events of their own.

Each chunk that the key router sends to an instance is a cause of its own: all queries finish it
before the next one. So chunks inside the partition are numbered as external events are outside,
and the output is put back into the order outside.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mesh.operators.base import (
    BEFORE_ALL,
    LOCAL_TIMER,
    Longs,
    State,
    Timeline,
    namespaced,
    restore_subset,
    subset,
)
from mesh.operators.total_order import chunk_starts, run_begins

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.operators.base import EventBatch
    from mesh.operators.dataflow.graph import Dataflow, DataflowNode, Emitted, Outputs
    from mesh.operators.dataflow.key_router import KeyRouter


class NodeGroup:
    """Nodes as one node; ``flow`` drives them, with an order of events of their own."""

    def __init__(self, nodes: Sequence[DataflowNode], flow: Dataflow) -> None:
        #: All that has a state, by its name in the snapshot.
        self._parts = [(node.name, node.work) for node in nodes]
        self._flow = flow
        #: Chunks sent to the nodes so far: the position in the order inside.
        self._causes = 0

    def _run(self, runs: Sequence[tuple[str, EventBatch]], timeline: Timeline) -> Outputs:
        outputs, count = run_chunkwise(self._flow, runs, self._causes, timeline)
        self._causes += count
        return outputs

    def next_time(self) -> int | None:
        """Due time of the next timer of any part."""
        times = (part.next_time() for _, part in self._parts)
        return min((time for time in times if time is not None), default=None)

    def snapshot(self) -> State:
        """The state of each part."""
        states = {name: part.snapshot() for name, part in self._parts}
        return namespaced({"own": State({}, {"causes": self._causes}), **states})

    def restore(self, state: State) -> None:
        """Restore the states."""
        scalars = subset(state, "own").scalars
        self._causes = scalars.get("causes", 0)
        for name, part in self._parts:
            restore_subset(part, state, name)

    @property
    def places(self) -> dict[str, str]:
        """By node, the name of its state in the snapshot."""
        return {name: name for name, _ in self._parts}


class PartitionNode(NodeGroup):
    """The key router and the queries that it feeds, as one node."""

    def __init__(
        self, name: str, entrance: KeyRouter, nodes: Sequence[DataflowNode], flow: Dataflow
    ) -> None:
        super().__init__(nodes, flow)
        self._parts.insert(0, ("entrance", entrance))
        self._name = name
        self._entrance = entrance

    @property
    def takes_few(self) -> bool:
        """Whether the rows of events may be ``FewRows``."""
        return self._flow.takes_few

    def process(self, inputs: Mapping[str, Sequence[EventBatch]], timeline: Timeline) -> Outputs:
        """The output of the queries; input is split where instances are purged in between."""
        outputs: Outputs = []
        due = self._entrance.next_purge(self._entrance.first_keyed(inputs))
        while due is not None and due <= timeline.now_ms:
            before, inputs = _cut(inputs, due)
            count = int(np.searchsorted(timeline.clocks_ms, due, side="left"))
            until = replace(timeline, clocks_ms=timeline.clocks_ms[:count], now_ms=due - 1)
            outputs += self._part(before, until)
            timeline = replace(
                timeline, first=timeline.first + count, clocks_ms=timeline.clocks_ms[count:]
            )
            then = replace(timeline, clocks_ms=timeline.clocks_ms[:0], now_ms=due)
            self._entrance.process({}, then)
            due = self._entrance.next_purge(self._entrance.first_keyed(inputs))
        return outputs + self._part(inputs, timeline)

    def _part(self, inputs: Mapping[str, Sequence[EventBatch]], timeline: Timeline) -> Outputs:
        quiet = replace(timeline, now_ms=BEFORE_ALL)
        inside_channels = set(self._entrance.channels.values())
        entered = [one for one in self._entrance.process(inputs, quiet) if len(one[1])]
        failed = [one for one in entered if one[0] not in inside_channels]
        divided = [one for one in entered if one[0] in inside_channels]
        return failed + self._run(divided, timeline)

    @property
    def places(self) -> dict[str, str]:
        """By node, the name of its state in the snapshot."""
        by_name = super().places
        return {f"{self._name}.entrance": by_name.pop("entrance"), **by_name}


def run_chunkwise(
    flow: Dataflow, runs: Sequence[tuple[str, EventBatch]], first: int, timeline: Timeline
) -> tuple[Outputs, int]:
    """Run each chunk through ``flow`` as a cause of its own, and let time pass in it.

    Args:
        flow: the nodes inside.
        runs: events by channel inside, none empty, with their positions in the order outside.
        first: the number of chunks processed before.
        timeline: of the order outside.

    Returns:
        The output in the order outside, and the number of chunks processed.
    """
    causes = _Causes([events for _, events in runs])
    entering = [
        (channel, replace(events, order=2 * (first + number) + 1))
        for (channel, events), number in zip(runs, causes.numbers, strict=True)
    ]
    inside = Timeline(
        first, causes.clock_ms, timeline.now_ms, timeline.playback, timeline.is_idle_playback
    )
    leaving = flow.run(entering, inside)
    return _outside(leaving, causes, first, timeline), len(causes.clock_ms)


class _Causes:
    """The chunks that go into the queries, numbered in order, with their positions outside.

    ``numbers``: for each run int64[n], the number of each event's chunk.  ``order``, ``clock_ms``,
    ``path``: int64[m], of each chunk.
    """

    def __init__(self, runs: Sequence[EventBatch]) -> None:
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
            ranks = rank[at : at + len(start)]
            lengths = np.diff(np.append(start, len(run)))
            self.numbers.append(np.repeat(ranks, lengths) if len(ranks) < len(run) else ranks)
            at += len(start)


def _outside(
    leaving: Sequence[Emitted], causes: _Causes, first: int, timeline: Timeline
) -> Outputs:
    """Put output into the order outside, in the sequence in which it was emitted."""
    if not leaving:
        return []
    inner = np.concatenate([one.events.order for one in leaving]) - 2 * first
    columns = [
        np.concatenate([getattr(one.events, name) for one in leaving])
        for name in ("clock_ms", "path", "chunk")
    ]
    # The output of one node for one channel is in order.
    back = np.argsort(np.concatenate([one.rank for one in leaving])) if len(leaving) > 1 else None
    if back is not None:
        inner, columns = inner[back], [column[back] for column in columns]
    order, path = _causes_of(inner, columns[0], causes, timeline)
    chunk: Longs = np.cumsum(run_begins(inner, *columns))
    if back is not None:
        where = np.empty_like(back)
        where[back] = np.arange(len(back))
        order, path, chunk = order[where], path[where], chunk[where]

    outputs: Outputs = []
    at = 0
    for one in leaving:
        cut = slice(at, at + len(one.rank))
        events = replace(one.events, order=order[cut], path=path[cut], chunk=chunk[cut])
        outputs.append((one.channel, events))
        at += len(one.rank)
    return outputs


def _causes_of(
    inner: Longs, clock_ms: Longs, causes: _Causes, timeline: Timeline
) -> tuple[Longs, Longs]:
    """Order and path outside for events of the order ``inner``, emitted at ``clock_ms``."""
    if not len(causes.order):
        return timeline.timer_order(clock_ms), np.full(len(inner), LOCAL_TIMER, dtype=np.int64)
    # The chunk that caused it or, of a timer, the last one before it.
    cause = np.clip((inner - 1) >> 1, 0, len(causes.order) - 1)
    order, path = causes.order[cause], causes.path[cause]
    timers = np.flatnonzero(inner & 1 == 0)
    if len(timers):
        due = timeline.timer_order(clock_ms[timers])
        # A timer that is due at the event that sets it belongs to that event.
        free = (inner[timers] < 2) | (due >= order[timers])
        order[timers[free]], path[timers[free]] = due[free], LOCAL_TIMER
    return order, path


def _cut(
    inputs: Mapping[str, Sequence[EventBatch]], due_ms: int
) -> tuple[dict[str, list[EventBatch]], dict[str, list[EventBatch]]]:
    """The events before ``due_ms`` and the others."""
    before: dict[str, list[EventBatch]] = {}
    after: dict[str, list[EventBatch]] = {}
    for channel, runs in inputs.items():
        for run in runs:
            at = int(np.searchsorted(run.clock_ms, due_ms, side="left"))
            before.setdefault(channel, []).append(run.slice(0, at))
            after.setdefault(channel, []).append(run.slice(at, len(run)))
    return before, after
