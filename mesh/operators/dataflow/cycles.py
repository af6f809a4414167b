"""Cycles: queries with streams that feed each other become one node, which is stepwise inside.

The node reads the channels of all its queries. Its own output does not return to it from outside.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mesh.operators.dataflow.depth_first import StepwiseDataflow
from mesh.operators.dataflow.graph import DataflowNode, Outputs
from mesh.operators.dataflow.partition import NodeGroup
from mesh.operators.dataflow.topology import descendants, readers

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from mesh.operators.base import EventBatch, Timeline
    from mesh.operators.dataflow.graph import NodeOperator


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
