"""Partial matches, and the chains of their steps' events.  Native code."""

from __future__ import annotations

from mesh.operators.native import inner
from mesh.operators.patterns.memory_layout import (
    BACK,
    EVENT,
    FORWARD,
    LENGTH,
    MATCHES,
    NEVER,
    NODES,
    NONE,
    STEPS,
    TAIL,
    TIME,
    PatternMemory,
)


@inner
def new_match(w: PatternMemory) -> int:
    """A partial match without events."""
    match = w.scalars[MATCHES]
    w.scalars[MATCHES] += 1
    steps = w.scalars[STEPS]
    for step in range(steps):
        w.matches[match, step] = NONE
    w.matches[match, steps] = NEVER
    w.matches[match, steps + 1] = 0
    return int(match)


@inner
def copy_match(w: PatternMemory, match: int) -> int:
    """A partial match with the same events, not dropped."""
    copy = w.scalars[MATCHES]
    w.scalars[MATCHES] += 1
    steps = w.scalars[STEPS]
    for column in range(steps + 1):
        w.matches[copy, column] = w.matches[match, column]
    w.matches[copy, steps + 1] = 0
    return int(copy)


@inner
def new_node(w: PatternMemory, event: int, time_ms: int) -> int:
    """A chain of one event."""
    node = w.scalars[NODES]
    w.scalars[NODES] += 1
    w.nodes[node, EVENT] = event
    w.nodes[node, TIME] = time_ms
    w.nodes[node, FORWARD] = NONE
    w.nodes[node, BACK] = NONE
    w.nodes[node, TAIL] = node
    w.nodes[node, LENGTH] = 1
    return int(node)


@inner
def add_event(w: PatternMemory, match: int, step: int, event: int, time_ms: int) -> None:
    """Put an event at the end of a step's chain."""
    node = new_node(w, event, time_ms)
    head = w.matches[match, step]
    if head == NONE:
        w.matches[match, step] = node
        return
    tail = w.nodes[head, TAIL]
    w.nodes[tail, FORWARD] = node
    w.nodes[node, BACK] = tail
    w.nodes[head, TAIL] = node
    w.nodes[head, LENGTH] += 1


@inner
def remove_last_event(w: PatternMemory, match: int, step: int) -> None:
    """Remove the last event of a step's chain."""
    head = w.matches[match, step]
    if head == NONE:
        return
    if w.nodes[head, LENGTH] == 1:
        w.matches[match, step] = NONE
        if head == w.scalars[NODES] - 1:
            w.scalars[NODES] -= 1
        return
    if w.nodes[head, TAIL] == w.scalars[NODES] - 1:
        w.scalars[NODES] -= 1
    tail = w.nodes[w.nodes[head, TAIL], BACK]
    w.nodes[tail, FORWARD] = NONE
    w.nodes[head, TAIL] = tail
    w.nodes[head, LENGTH] -= 1


@inner
def node_at(w: PatternMemory, match: int, step: int, index: int) -> int:
    """The node of a step's event number ``index``; negative ones count from the last, -1."""
    node = w.matches[match, step]
    if node == NONE:
        return NONE
    if index < 0:
        node = w.nodes[node, TAIL]
        for _ in range(-1 - index):
            node = w.nodes[node, BACK]
            if node == NONE:
                return NONE
        return int(node)
    for _ in range(index):
        node = w.nodes[node, FORWARD]
        if node == NONE:
            return NONE
    return int(node)
