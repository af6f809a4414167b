"""Layers for a graph that is drawn from left to right, and the order of nodes in each.

Loops are cut where a walk from the first node finds them; an edge that leads back counts the other
way round.  Each node is one layer after the last of its predecessors, or, without any, right before
its first successor.  Edges over several layers get waypoints.  Nodes of a layer are sorted by their
neighbours' middles, in alternating directions, and the order with the fewest crossings is kept.

Source: Sugiyama, Tagawa and Toda, "Methods for visual understanding of hierarchical system
structures" (1981); the barycentre heuristic.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_SWEEPS: Final = 24


@dataclass(frozen=True, slots=True)
class Layers:
    """Nodes and waypoints by layer, in order; the waypoints of each edge from start to end."""

    layers: tuple[tuple[str, ...], ...]
    #: (source, target) to all that it passes, both ends included, in layers that only grow.
    paths: Mapping[tuple[str, str], tuple[str, ...]]
    #: Edges whose path runs from target to source.
    backward: frozenset[tuple[str, str]]


def layered(nodes: Sequence[str], edges: Iterable[tuple[str, str]]) -> Layers:
    """Layers of a graph without edges from a node to itself; ``nodes`` are all of them."""
    unique = list(dict.fromkeys(edges))
    backward = _backward(nodes, unique)
    forward = [(b, a) if (a, b) in backward else (a, b) for a, b in unique]
    layer = _layers(nodes, forward)
    rows: list[list[str]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for node in nodes:
        rows[layer[node]].append(node)
    paths = {}
    for original, (a, b) in zip(unique, forward, strict=True):
        between = [f"{a} > {b} @{at}" for at in range(layer[a] + 1, layer[b])]
        for at, waypoint in enumerate(between, layer[a] + 1):
            # Two edges between the same nodes, in opposite directions, share their waypoints.
            if waypoint not in rows[at]:
                rows[at].append(waypoint)
        paths[original] = (a, *between, b)
    links = sorted({pair for path in paths.values() for pair in pairwise(path)})
    return Layers(_ordered(rows, links), paths, frozenset(backward))


def _backward(nodes: Sequence[str], edges: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
    """Edges whose removal cuts all loops."""
    after: dict[str, list[str]] = {node: [] for node in nodes}
    for a, b in edges:
        after[a].append(b)
    back_edges: set[tuple[str, str]] = set()
    done: set[str] = set()
    for start in nodes:
        path: list[str] = []
        on_path: set[str] = set()
        pending: list[tuple[str, bool]] = [(start, True)]
        while pending:
            node, enters = pending.pop()
            if not enters:
                on_path.discard(path.pop())
                done.add(node)
                continue
            if node in done or node in on_path:
                continue
            path.append(node)
            on_path.add(node)
            pending.append((node, False))
            for target in reversed(after[node]):
                if target in on_path:
                    back_edges.add((node, target))
                elif target not in done:
                    pending.append((target, True))
    return back_edges


def _layers(nodes: Sequence[str], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    before: dict[str, list[str]] = {node: [] for node in nodes}
    after: dict[str, list[str]] = {node: [] for node in nodes}
    for a, b in edges:
        before[b].append(a)
        after[a].append(b)
    layer: dict[str, int] = {}
    waits = {node: len(before[node]) for node in nodes}
    ready = [node for node in nodes if not waits[node]]
    for node in ready:
        layer[node] = max((layer[one] + 1 for one in before[node]), default=0)
        for target in after[node]:
            waits[target] -= 1
            if not waits[target]:
                ready.append(target)
    for node in nodes:
        if not before[node] and after[node]:
            layer[node] = min(layer[target] for target in after[node]) - 1
    return layer


def _ordered(
    rows: Sequence[Sequence[str]], links: Sequence[tuple[str, str]]
) -> tuple[tuple[str, ...], ...]:
    left: dict[str, list[str]] = {node: [] for row in rows for node in row}
    right: dict[str, list[str]] = {node: [] for row in rows for node in row}
    for a, b in links:
        right[a].append(b)
        left[b].append(a)
    best = now = [list(row) for row in rows]
    fewest = _crossings(now, right)
    for sweep in range(_SWEEPS):
        forward = sweep % 2 == 0
        now = [list(row) for row in now]
        for at in range(1, len(now)) if forward else range(len(now) - 2, -1, -1):
            beside = {node: n for n, node in enumerate(now[at - 1 if forward else at + 1])}
            neighbours = left if forward else right
            place = {node: n for n, node in enumerate(now[at])}
            now[at].sort(key=lambda node: _middle(neighbours[node], beside, place[node]))
        count = _crossings(now, right)
        if count < fewest:
            best, fewest = now, count
    return tuple(tuple(row) for row in best)


def _middle(neighbours: Sequence[str], beside: Mapping[str, int], place: int) -> float:
    positions = [beside[node] for node in neighbours]
    return sum(positions) / len(positions) if positions else place


def _crossings(rows: Sequence[Sequence[str]], right: Mapping[str, Sequence[str]]) -> int:
    total = 0
    for row, following in pairwise(rows):
        place = {node: n for n, node in enumerate(following)}
        ends = [sorted(place[b] for b in right[a]) for a in row]
        for n, targets in enumerate(ends):
            for others in ends[n + 1 :]:
                total += sum(one > other for one in targets for other in others)
    return total
