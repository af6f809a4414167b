"""Partial matches, and the chains of their steps' events.  Native code.

Emission of complete matches: records the values that the query reads of them.
"""

from __future__ import annotations

from mesh.operators.native import inner
from mesh.operators.patterns.lists import clear
from mesh.operators.patterns.memory_layout import (
    AFTER,
    BACK,
    CAUSE,
    CHUNK,
    CLOCK_MS,
    EVENT,
    FORWARD,
    HEAD,
    HOLDS,
    ITEMS,
    LAST_CLOCK,
    LAST_ORDER,
    LENGTH,
    MATCHES,
    NEVER,
    NODES,
    NONE,
    NOTHING,
    ORDER,
    OUT_CAUSE,
    OUT_CHUNK,
    OUT_CLOCK,
    OUT_COLUMNS,
    OUT_DROPPED,
    OUT_INSTANCE,
    OUT_MATCH,
    OUT_ORDER,
    OUT_TIME,
    OUTPUTS,
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


@inner
def next_chunk(w: PatternMemory) -> None:
    """Begin another chunk of outputs."""
    s = w.scalars
    is_same = s[LAST_ORDER] == s[ORDER] and s[LAST_CLOCK] == s[CLOCK_MS]
    s[CHUNK] = s[CHUNK] + 1 if is_same else 0
    s[LAST_ORDER] = s[ORDER]
    s[LAST_CLOCK] = s[CLOCK_MS]


@inner
def emit_match(w: PatternMemory, instance: int, match: int) -> None:
    """Write down a whole match, as it is now."""
    s = w.scalars
    at = s[OUTPUTS]
    s[OUTPUTS] += 1
    w.outputs[at, OUT_TIME] = w.matches[match, s[STEPS]]
    w.outputs[at, OUT_CLOCK] = s[CLOCK_MS]
    w.outputs[at, OUT_ORDER] = s[ORDER]
    w.outputs[at, OUT_CAUSE] = s[CAUSE]
    w.outputs[at, OUT_CHUNK] = s[CHUNK]
    w.outputs[at, OUT_DROPPED] = w.matches[match, s[STEPS] + 1]
    w.outputs[at, OUT_INSTANCE] = instance
    w.outputs[at, OUT_MATCH] = match
    for number in range(len(w.reads)):
        step, index, is_list = w.reads[number, 0], w.reads[number, 1], w.reads[number, 2]
        column = OUT_COLUMNS + 2 * number
        if is_list:
            w.outputs[at, column] = s[ITEMS]
            node = w.matches[match, step]
            while node != NONE:
                w.items[s[ITEMS]] = w.nodes[node, EVENT]
                s[ITEMS] += 1
                node = w.nodes[node, FORWARD]
            w.outputs[at, column + 1] = s[ITEMS]
        else:
            node = node_at(w, match, step, index)
            w.outputs[at, column] = NOTHING if node == NONE else w.nodes[node, EVENT]
            w.outputs[at, column + 1] = 1 if node == NONE else 0


@inner
def emit_all(w: PatternMemory, instance: int, is_each: bool) -> None:
    """Record the matches in the first list, in their state after the event."""
    cell = w.lists[0, HEAD]
    if cell == NONE:
        return
    is_new = True
    while cell != NONE:
        if is_new or is_each:
            next_chunk(w)
        is_new = False
        emit_match(w, instance, w.cells[cell, HOLDS])
        cell = w.cells[cell, AFTER]
    clear(w, 0)
