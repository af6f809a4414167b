"""The machine's memory swept, and read as an earlier release stored it.

Swept memory holds what lists hold on to and nothing else, in the order in which they do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from mesh.operators.native import njit
from mesh.operators.patterns import world
from mesh.operators.patterns.world import (
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
    World,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


@njit
def _sweep(
    w: World,
    matches: Array,
    nodes: Array,
    cells: Array,
    entries: Array,
    kept: Array,
    match_origins: Array,
    node_origins: Array,
    cell_origins: Array,
) -> None:
    """Copy what is held into new arrays, and give everything its new number."""
    steps = w.scalars[STEPS]
    number_of_match = np.full(w.scalars[MATCHES], NONE, dtype=np.int64)
    number_of_node = np.full(w.scalars[NODES], NONE, dtype=np.int64)
    next_match = 0
    next_node = 0
    next_cell = 0
    for of in range(len(w.lists)):
        cell = w.lists[of, HEAD]
        if cell == NONE:
            continue
        w.lists[of, HEAD] = next_cell
        cell_before = NONE
        while cell != NONE:
            match = w.cells[cell, HOLDS]
            if number_of_match[match] == NONE:
                number_of_match[match] = next_match
                match_origins[next_match] = match
                for column in range(steps + 2):
                    matches[next_match, column] = w.matches[match, column]
                for step in range(steps):
                    node = w.matches[match, step]
                    if node == NONE:
                        continue
                    if number_of_node[node] == NONE:
                        head = next_node
                        before = NONE
                        at = node
                        while at != NONE:
                            number_of_node[at] = next_node
                            node_origins[next_node] = at
                            for column in range(NODE_COLUMNS):
                                nodes[next_node, column] = w.nodes[at, column]
                            nodes[next_node, BACK] = before
                            nodes[next_node, FORWARD] = NONE
                            nodes[next_node, TAIL] = next_node
                            nodes[next_node, LENGTH] = 1
                            if before != NONE:
                                nodes[before, FORWARD] = next_node
                                nodes[head, LENGTH] += 1
                            event = w.nodes[at, EVENT]
                            if event != NOTHING:
                                kept[event] = 1
                            before = next_node
                            next_node += 1
                            at = w.nodes[at, FORWARD]
                        nodes[head, TAIL] = before
                    matches[next_match, step] = number_of_node[node]
                next_match += 1
            after = w.cells[cell, AFTER]
            cell_origins[next_cell] = cell
            entries[next_cell] = w.entries[cell]
            cells[next_cell, HOLDS] = number_of_match[match]
            cells[next_cell, AFTER] = NONE if after == NONE else next_cell + 1
            cells[next_cell, BITS] = w.cells[cell, BITS]
            cells[next_cell, BITS_NULL] = w.cells[cell, BITS_NULL]
            cells[next_cell, BUCKET] = NONE
            cells[next_cell, BEFORE] = cell_before
            cell_before = next_cell
            w.lists[of, END] = next_cell
            next_cell += 1
            cell = after
    for key in range(len(w.local)):
        cell = w.local[key, QUEUE]
        if cell == NONE:
            w.local[key, QUEUE_END] = NONE
            continue
        w.local[key, QUEUE] = next_cell
        while cell != NONE:
            after = w.cells[cell, AFTER]
            cell_origins[next_cell] = cell
            cells[next_cell, HOLDS] = w.cells[cell, HOLDS]
            cells[next_cell, AFTER] = NONE if after == NONE else next_cell + 1
            w.local[key, QUEUE_END] = next_cell
            next_cell += 1
            cell = after
    number = 0
    for event in range(len(kept)):
        if kept[event] == 1:
            kept[event] = number
            number += 1
        else:
            kept[event] = NONE
    for node in range(next_node):
        if nodes[node, EVENT] != NOTHING:
            nodes[node, EVENT] = kept[nodes[node, EVENT]]
    w.scalars[MATCHES] = next_match
    w.scalars[NODES] = next_node
    w.scalars[CELLS] = next_cell
    w.scalars[FREE_CELL] = NONE


class Origins(NamedTuple):
    """By new place of a match, a node and a cell, where it was."""

    matches: Array
    nodes: Array
    cells: Array


def compact(w: World, events: int) -> tuple[Array, Origins]:
    """Leave only what lists hold on to.

    Returns:
        The slots of its events, of ``events``, rising, and where everything was.
    """
    kept = np.zeros(events, dtype=np.int64)
    # What isn't written to costs nothing.
    matches, nodes, cells, entries = map(np.empty_like, (w.matches, w.nodes, w.cells, w.entries))
    origins = [np.empty(w.scalars[size], dtype=np.int64) for size in (MATCHES, NODES, CELLS)]
    _sweep(w, matches, nodes, cells, entries, kept, *origins)
    swept = (
        (w.matches, matches, MATCHES),
        (w.nodes, nodes, NODES),
        (w.cells, cells, CELLS),
        (w.entries, entries, CELLS),
    )
    for mine, found, size in swept:
        count = w.scalars[size]
        mine[:count] = found[:count]
    places = (
        origin[: w.scalars[size]]
        for origin, size in zip(origins, (MATCHES, NODES, CELLS), strict=True)
    )
    return np.flatnonzero(kept >= 0), Origins(*places)


def keys_of(w: World, instances: Array) -> Array:
    """The numbers of the steps of these instances, as far as there is anything of them."""
    steps = int(w.scalars[STEPS])
    keys: Array = (instances[:, None] * steps + np.arange(steps)).ravel()
    return keys[keys < len(w.local)]


def lists_of(keys: Array) -> Array:
    """The numbers of the lists of steps of instances."""
    lists: Array = (SCRATCH + 2 * keys[:, None] + np.arange(2)).ravel()
    return lists


def forget(w: World, instances: Array) -> None:
    """Empty everything of these instances; what they held is swept later.

    What waits in buckets is then to be found anew: see ``machine.prepare_all``.
    """
    keys = keys_of(w, instances)
    lists = lists_of(keys)
    w.lists[lists, HEAD] = NONE
    w.lists[lists, END] = NONE
    w.lists[lists, SIZE] = 0
    w.local[keys] = 0
    w.local[keys, QUEUE] = NONE
    w.local[keys, QUEUE_END] = NONE
    tasks = int(w.scalars[world.TASKS])
    stays = ~np.isin(w.tasks[:tasks, world.TASK_KEY], keys)
    kept = w.tasks[:tasks][stays]
    order = np.lexsort((kept[:, world.TASK_NUMBER], kept[:, world.TASK_TIME]))
    # Sorted rows are a heap.
    w.tasks[: len(kept)] = kept[order]
    w.scalars[world.TASKS] = len(kept)


#: Scalars that are state; the others are counts of what is stored, or of one call.
STATE_SCALARS = (world.TASK_COUNT, world.CLOCK_MS, world.ORDER, world.FIRED)


def _array(table: pa.RecordBatch) -> Array:
    columns = [column.to_numpy() for column in table.columns]
    return np.ascontiguousarray(np.stack(columns, axis=1)).astype(np.int64)


def restored(empty: World, stored: Mapping[str, pa.RecordBatch]) -> World:
    """The world that an earlier release stored as it was; an empty one has what isn't state.

    What conditions look for first is still to be computed: see ``machine.prepare_all``.
    """
    found = {name: _array(stored[name]) for name in stored if name in _TABLES}
    scalars = empty.scalars
    scalars[list(STATE_SCALARS)] = stored["scalars"].column("value").to_numpy()
    lists = np.full((len(found["lists"]), world.LIST_COLUMNS), NONE, dtype=np.int64)
    lists[:, : SIZE + 1] = found["lists"]
    # Bounds that tell nothing: whatever is in the lists is looked at.
    lists[:, world.LOW], lists[:, world.HIGH] = -world.FAR, world.FAR
    cells = np.zeros((len(found["cells"]), world.CELL_COLUMNS), dtype=np.int64)
    cells[:, : AFTER + 1] = found["cells"]
    cells[:, [BEFORE, world.BUCKET]] = NONE
    followed = np.flatnonzero(cells[:, AFTER] != NONE)
    cells[cells[followed, AFTER], BEFORE] = followed
    nodes = np.concatenate([found["nodes"], found["chains"]], axis=1)
    scalars[[MATCHES, NODES, CELLS, world.TASKS]] = [
        len(found["matches"]),
        len(nodes),
        len(found["cells"]),
        len(found["tasks"]),
    ]
    # A bucket for each cell, and a power of two for the hashes.
    room = 1 << (len(cells) + len(empty.buckets)).bit_length()
    return empty._replace(
        flags=found["flags"],
        matches=_with_room(found["matches"], empty.matches),
        nodes=_with_room(nodes, empty.nodes),
        cells=_with_room(cells, empty.cells),
        entries=np.zeros(len(cells) + len(empty.cells), dtype=np.int64),
        ready=np.zeros(len(found["local"]), dtype=np.int64),
        buckets=np.zeros((room, world.BUCKET_COLUMNS), dtype=np.int64),
        hashes=np.full(2 * room, NONE, dtype=np.int64),
        tasks=_with_room(found["tasks"], empty.tasks),
        lists=lists,
        local=found["local"],
    )


_TABLES = ("flags", "matches", "nodes", "chains", "cells", "lists", "local", "tasks")


def _with_room(rows: Array, room: Array) -> Array:
    more: Array = np.concatenate([rows, np.zeros_like(room)])
    return more
