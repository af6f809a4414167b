"""Bulk execution: each node processes a whole run of events; the sequence is restored afterwards.

The result is that of ``StepwiseDataflow``. Nodes go in an order in which none feeds an earlier one;
nodes that read state written by one another run as one ``OrderedStage``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mesh.operators.dataflow.graph import Emitted, has_conflicts
from mesh.operators.dataflow.ordered import BulkStage, OrderedStage
from mesh.operators.dataflow.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from mesh.operators.base import EventBatch, Timeline
    from mesh.operators.dataflow.graph import DataflowNode


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
