"""Emission of complete matches: records the values that the query reads of them."""

from __future__ import annotations

from mesh.operators.native import inner
from mesh.operators.patterns.lists import (
    clear,
)
from mesh.operators.patterns.matches import (
    node_at,
)
from mesh.operators.patterns.memory_layout import (
    AFTER,
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
    PatternMemory,
)


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
