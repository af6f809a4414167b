"""Queries whose streams feed each other in a circle, as one node that goes step by step inside.

The node reads what any of its queries reads, and what it puts out itself does not come back to it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mesh.operators.base import State, part, prefixed, restore_part
from mesh.operators.dataflow.depth_first import StepwiseDataflow
from mesh.operators.dataflow.graph import DataflowNode, Outputs
from mesh.operators.dataflow.partition import run_chunkwise
from mesh.operators.dataflow.topology import descendants, readers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from mesh.operators.base import Events, Timeline
    from mesh.operators.dataflow.graph import NodeOperator


class CyclicNode:
    """Nodes that feed each other, driven by ``flow``."""

    def __init__(self, nodes: Sequence[DataflowNode], flow: StepwiseDataflow) -> None:
        self._nodes = nodes
        self._flow = flow
        #: Chunks that have come so far.
        self._causes = 0

    def process(self, inputs: Mapping[str, Sequence[Events]], timeline: Timeline) -> Outputs:
        """What the nodes make of the events, however often it goes round."""
        entering = [(c, run) for c, runs in inputs.items() for run in runs if len(run)]
        made, count = run_chunkwise(self._flow, entering, self._causes, timeline)
        self._causes += count
        return made

    def next_time(self) -> int | None:
        """When the next timer of any of the nodes is due."""
        times = (node.work.next_time() for node in self._nodes)
        return min((time for time in times if time is not None), default=None)

    def snapshot(self) -> State:
        """The state of each node."""
        states = {node.name: node.work.snapshot() for node in self._nodes}
        return prefixed({"own": State({}, {"causes": self._causes}), **states})

    def restore(self, state: State) -> None:
        """Take over the states."""
        causes: Any = part(state, "own").scalars["causes"]
        self._causes = causes
        for node in self._nodes:
            restore_part(node.work, state, node.name)

    @property
    def places(self) -> dict[str, str]:
        """By name of what is in it, under which name its snapshot has the state of that."""
        return {node.name: node.name for node in self._nodes}


def collapse_cycles(
    nodes: Sequence[DataflowNode], whole: Collection[str]
) -> list[DataflowNode] | None:
    """``nodes`` with each circle as one node, in the place of the first in it.

    Who reads a stream that feeds a circle goes with it: what comes round first gets there last.
    None where that can't be: a partition (``whole`` has their names) is in a circle, or a node that
    is no part of it stands between nodes of a circle and reads what one of them reads.
    """
    by_channel = readers(nodes)
    follow = [{r for c in node.writes for r in by_channel.get(c, ())} for node in nodes]
    behind = [descendants(follow, number) for number in range(len(nodes))]
    circles: list[set[int]] = []
    for number in range(len(nodes)):
        if number in behind[number] and not any(number in circle for circle in circles):
            own = {n for n in behind[number] if number in behind[n]}
            fed = {c for n in own for c in nodes[n].writes} & {
                c for n in own for c in nodes[n].reads
            }
            circles.append(own | {n for channel in fed for n in by_channel[channel]})
    if sum(map(len, circles)) > len(set().union(*circles)):
        return None
    found: list[DataflowNode] = []
    done: set[int] = set()
    for number, node in enumerate(nodes):
        if number in done:
            continue
        members = next((circle for circle in circles if number in circle), None)
        if members is None:
            found.append(node)
            continue
        done.update(members)
        reads = {channel for n in members for channel in nodes[n].reads}
        between = set(range(min(members), max(members))) - members
        if any(nodes[n].name in whole for n in members):
            return None
        if any(reads & set(nodes[n].reads) for n in between):
            return None
        found.append(_cyclic_node([nodes[n] for n in sorted(members)]))
    return found


def _cyclic_node(nodes: Sequence[DataflowNode]) -> DataflowNode:
    writes = tuple(dict.fromkeys(channel for node in nodes for channel in node.writes))

    def make(timer: int) -> NodeOperator:
        flow = StepwiseDataflow(nodes, writes, numbers=True)
        for node, own in zip(nodes, flow.timers, strict=True):
            node.work = node.make(own)
        return CyclicNode(nodes, flow)

    maker: Callable[[int], NodeOperator] = make
    return DataflowNode(
        f"ring-{nodes[0].name}",
        tuple(dict.fromkeys(channel for node in nodes for channel in node.reads)),
        writes,
        maker,
        accesses=tuple(replace(access, by=None) for node in nodes for access in node.accesses),
    )
