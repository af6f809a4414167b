"""The machine's memory swept.

Swept memory holds the rows that lists refer to and no others, in the order of the lists.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mesh.operators.native import bare, helper
from mesh.operators.patterns import memory_layout
from mesh.operators.patterns.memory_layout import (
    AFTER,
    BACK,
    BEFORE,
    BITS,
    BITS_NULL,
    BUCKET,
    CELLS,
    END,
    EVENT,
    FORWARD,
    FREE_CELL,
    HEAD,
    HOLDS,
    LENGTH,
    MATCHES,
    NODE_COLUMNS,
    NODES,
    NONE,
    NOTHING,
    QUEUE,
    QUEUE_END,
    SCRATCH,
    SIZE,
    STEPS,
    TAIL,
    Array,
    PatternMemory,
)


class _Swept(NamedTuple):
    """New arrays of the kept rows, the old place of each, and by old number the new one.

    ``counts``: how many matches, nodes and cells are in the new arrays; ``events``: by slot, 1 for
    kept ones.
    """

    matches: Array
    nodes: Array
    cells: Array
    entries: Array
    match_origins: Array
    node_origins: Array
    cell_origins: Array
    number_of_match: Array
    number_of_node: Array
    events: Array
    counts: Array


@helper
def _copy_chain(w: PatternMemory, new: _Swept, first: int) -> None:
    """Copy a chain of nodes, if it has not been copied yet."""
    if new.number_of_node[first] != NONE:
        return
    head = new.counts[1]
    before = NONE
    at = first
    while at != NONE:
        node = new.counts[1]
        new.counts[1] += 1
        new.number_of_node[at] = node
        new.node_origins[node] = at
        for column in range(NODE_COLUMNS):
            new.nodes[node, column] = w.nodes[at, column]
        new.nodes[node, BACK] = before
        new.nodes[node, FORWARD] = NONE
        new.nodes[node, TAIL] = node
        new.nodes[node, LENGTH] = 1
        if before != NONE:
            new.nodes[before, FORWARD] = node
            new.nodes[head, LENGTH] += 1
        event = w.nodes[at, EVENT]
        if event != NOTHING:
            new.events[event] = 1
        before = node
        at = w.nodes[at, FORWARD]
    new.nodes[head, TAIL] = before


@helper
def _copy_match(w: PatternMemory, new: _Swept, match: int) -> int:
    """Copy a match and its chains, if it has not been copied yet; its new number."""
    if new.number_of_match[match] == NONE:
        copy = new.counts[0]
        new.counts[0] += 1
        new.number_of_match[match] = copy
        new.match_origins[copy] = match
        steps = w.scalars[STEPS]
        for column in range(steps + 2):
            new.matches[copy, column] = w.matches[match, column]
        for step in range(steps):
            node = w.matches[match, step]
            if node != NONE:
                _copy_chain(w, new, node)
                new.matches[copy, step] = new.number_of_node[node]
    return int(new.number_of_match[match])


@helper
def _copy_list(w: PatternMemory, new: _Swept, of: int) -> None:
    """Copy the cells of a list, and their content."""
    cell = w.lists[of, HEAD]
    if cell == NONE:
        return
    w.lists[of, HEAD] = new.counts[2]
    before = NONE
    while cell != NONE:
        copy = new.counts[2]
        new.counts[2] += 1
        after = w.cells[cell, AFTER]
        new.cell_origins[copy] = cell
        new.entries[copy] = w.entries[cell]
        new.cells[copy, HOLDS] = _copy_match(w, new, w.cells[cell, HOLDS])
        new.cells[copy, AFTER] = NONE if after == NONE else copy + 1
        new.cells[copy, BITS] = w.cells[cell, BITS]
        new.cells[copy, BITS_NULL] = w.cells[cell, BITS_NULL]
        new.cells[copy, BUCKET] = NONE
        new.cells[copy, BEFORE] = before
        before = copy
        w.lists[of, END] = copy
        cell = after


@helper
def _copy_queue(w: PatternMemory, new: _Swept, key: int) -> None:
    """Copy the cells of the queue of a step of an instance."""
    cell = w.local[key, QUEUE]
    if cell == NONE:
        w.local[key, QUEUE_END] = NONE
        return
    w.local[key, QUEUE] = new.counts[2]
    while cell != NONE:
        copy = new.counts[2]
        new.counts[2] += 1
        after = w.cells[cell, AFTER]
        new.cell_origins[copy] = cell
        new.cells[copy, HOLDS] = w.cells[cell, HOLDS]
        new.cells[copy, AFTER] = NONE if after == NONE else copy + 1
        w.local[key, QUEUE_END] = copy
        cell = after


@bare
def _sweep(w: PatternMemory, new: _Swept) -> None:
    """Copy the rows in use into new arrays, and renumber everything."""
    for of in range(len(w.lists)):
        _copy_list(w, new, of)
    for key in range(len(w.local)):
        _copy_queue(w, new, key)
    number = 0
    for event in range(len(new.events)):
        if new.events[event] == 1:
            new.events[event] = number
            number += 1
        else:
            new.events[event] = NONE
    for node in range(new.counts[1]):
        if new.nodes[node, EVENT] != NOTHING:
            new.nodes[node, EVENT] = new.events[new.nodes[node, EVENT]]
    w.scalars[MATCHES] = new.counts[0]
    w.scalars[NODES] = new.counts[1]
    w.scalars[CELLS] = new.counts[2]
    w.scalars[FREE_CELL] = NONE


class Origins(NamedTuple):
    """By new place of a match, a node and a cell, its old place."""

    matches: Array
    nodes: Array
    cells: Array


def compact(w: PatternMemory, events: int) -> tuple[Array, Origins]:
    """Keep only the rows that lists refer to.

    Returns:
        The slots of its events, of ``events``, rising, and the old places of all rows.
    """
    sizes = [int(w.scalars[size]) for size in (MATCHES, NODES, CELLS)]
    # Pages that are never written cost nothing.
    arrays = (w.matches, w.nodes, w.cells, w.entries)
    new = _Swept._make(
        [
            *map(np.empty_like, arrays),
            *(np.empty(size, dtype=np.int64) for size in sizes),
            *(np.full(size, NONE, dtype=np.int64) for size in sizes[:2]),
            np.zeros(events, dtype=np.int64),
            np.zeros(3, dtype=np.int64),
        ]
    )
    _sweep(w, new)
    matches, nodes, cells = new.counts.tolist()
    for mine, copy, count in zip(arrays, new, (matches, nodes, cells, cells), strict=False):
        mine[:count] = copy[:count]
    origins = Origins(
        new.match_origins[:matches], new.node_origins[:nodes], new.cell_origins[:cells]
    )
    return np.flatnonzero(new.events >= 0), origins


def keys_of(w: PatternMemory, instances: Array) -> Array:
    """The numbers of these instances' steps, as far as they have entries."""
    steps = int(w.scalars[STEPS])
    keys: Array = (instances[:, None] * steps + np.arange(steps)).ravel()
    return keys[keys < len(w.local)]


def lists_of(keys: Array) -> Array:
    """The numbers of the lists of steps of instances."""
    return (SCRATCH + 2 * keys[:, None] + np.arange(2)).ravel()


def forget(w: PatternMemory, instances: Array) -> None:
    """Empty all lists of these instances; their content is swept later.

    The matches in buckets must then be indexed again: see ``nfa.prepare_all``.
    """
    keys = keys_of(w, instances)
    lists = lists_of(keys)
    w.lists[lists, HEAD] = NONE
    w.lists[lists, END] = NONE
    w.lists[lists, SIZE] = 0
    w.local[keys] = 0
    w.local[keys, QUEUE] = NONE
    w.local[keys, QUEUE_END] = NONE
    tasks = int(w.scalars[memory_layout.TASKS])
    retained = ~np.isin(w.tasks[:tasks, memory_layout.TASK_KEY], keys)
    rows = w.tasks[:tasks][retained]
    order = np.lexsort((rows[:, memory_layout.TASK_NUMBER], rows[:, memory_layout.TASK_TIME]))
    # Sorted rows are a heap.
    w.tasks[: len(rows)] = rows[order]
    w.scalars[memory_layout.TASKS] = len(rows)


#: Scalars that are state; the others are counts of stored rows, or of one call.
STATE_SCALARS = (
    memory_layout.TASK_COUNT,
    memory_layout.CLOCK_MS,
    memory_layout.ORDER,
    memory_layout.FIRED,
)
