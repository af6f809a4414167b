"""The machine's memory as rows with stable numbers, so that a batch writes only its changes.

Where counts, ``and``, ``or`` or absence are among the steps, matches change while they wait, and
several may share events.  So the memory itself is stored: matches, the nodes of their chains, the
cells of lists.  A row gets its number with the first snapshot that finds it, and keeps it when
sweeping moves it; rows refer to each other by number.  The cells of a list are in the order of
their numbers: a cell before another one with a smaller number gets a new number, and so do all
cells of the list after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from mesh.operators.native import njit
from mesh.operators.patterns import memory_layout
from mesh.operators.patterns.memory_layout import NONE, SCRATCH, PatternMemory
from mesh.operators.patterns.state_codec import STATE_SCALARS
from mesh.operators.state.range_pieces import NUMBER, cut, stored

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.model.values import JsonMapping
    from mesh.operators.base import Longs
    from mesh.operators.patterns.events import EventStore
    from mesh.operators.patterns.memory_layout import Array
    from mesh.operators.patterns.state_codec import Origins

#: Columns of ``local`` that can't be derived from the cells.
_LOCAL: Final = tuple(
    n
    for n in range(memory_layout.LOCAL_COLUMNS)
    if n not in (memory_layout.QUEUE, memory_layout.QUEUE_END)
)
#: A cell of the queue of a step, rather than of a list; that of step 0 is the last.
_QUEUES: Final = -2


class _Numbers:
    """By row its number, ``NONE`` for a row without one; rows beyond have none."""

    def __init__(self) -> None:
        self.of: Longs = np.empty(0, dtype=np.int64)
        self.next = 0

    def follow(self, origins: Longs) -> None:
        """Record that rows have moved: ``origins`` are their former places."""
        has_number = origins < len(self.of)
        moved = np.full(len(origins), NONE, dtype=np.int64)
        moved[has_number] = self.of[origins[has_number]]
        self.of = moved

    def complete(self) -> None:
        """Number each row without a number."""
        new = np.flatnonzero(self.of == NONE)
        self.of[new] = np.arange(self.next, self.next + len(new))
        self.next += len(new)

    def numbers_of(self, places: Array) -> Longs:
        """The numbers of the rows at ``places``, ``NONE`` for none."""
        if not len(self.of):
            return np.full(places.shape, NONE, dtype=np.int64)
        return np.where(places == NONE, NONE, self.of[places])

    def restore(self, numbers: Longs, following: int) -> None:
        """Rows have these, and the next one gets ``following``."""
        self.of, self.next = numbers.copy(), following


class RangeState:
    """The memory of one pattern; ``schemas``: by stream, the stored attributes of its events."""

    def __init__(self, steps: int, schemas: Sequence[pa.Schema]) -> None:
        self._steps = steps
        self._schemas = schemas
        self._matches, self._nodes, self._cells = _Numbers(), _Numbers(), _Numbers()

    def follow(self, origins: Origins) -> None:
        """The memory has been swept."""
        self._matches.follow(origins.matches)
        self._nodes.follow(origins.nodes)
        self._cells.follow(origins.cells)

    def snapshot(
        self, w: PatternMemory, events: EventStore
    ) -> tuple[dict[str, pa.RecordBatch], dict[str, object]]:
        """Pieces and scalars of memory that has just been swept."""
        s = w.scalars
        self._matches.complete()
        self._nodes.complete()
        of = _lists_of_cells(w)
        self._cells.next = _put_in_order(of, self._cells.of, self._cells.next)
        matches, nodes = w.matches[: s[memory_layout.MATCHES]], w.nodes[: s[memory_layout.NODES]]
        holds = w.cells[: s[memory_layout.CELLS], memory_layout.HOLDS].copy()
        in_list = of >= 0
        holds[in_list] = self._matches.numbers_of(holds[in_list])
        slots = nodes[:, memory_layout.EVENT]
        numbers = np.where(slots < 0, slots, events.number[slots] if len(events.number) else slots)
        started = np.flatnonzero(w.local[:, memory_layout.STARTED])
        used = (int(started[-1]) + 1) if len(started) else 0
        tasks = w.tasks[: s[memory_layout.TASKS]]
        steps = self._steps
        tables = {
            "matches": _rows(
                self._matches.of,
                *(self._nodes.numbers_of(matches[:, step]) for step in range(steps)),
                matches[:, steps],
                matches[:, steps + 1],
            ),
            "nodes": _rows(
                self._nodes.of,
                numbers,
                nodes[:, memory_layout.TIME],
                self._nodes.numbers_of(nodes[:, memory_layout.FORWARD]),
            ),
            "cells": _rows(self._cells.of, of, holds),
            "local": _rows(np.arange(used), *(w.local[:used, n] for n in _LOCAL)),
            "tasks": _rows(tasks[:, memory_layout.TASK_NUMBER], *tasks.T),
        }
        slots = np.arange(events.count)
        for number, rows in enumerate(events.rows_at(slots)):
            event_numbers = events.number[slots[events.stream[slots] == number]]
            columns = [pa.array(event_numbers), *rows.columns]
            tables[f"rows{number}"] = pa.RecordBatch.from_arrays(
                columns, names=[NUMBER, *(f"{n}" for n in range(rows.num_columns))]
            )
        pieces: dict[str, pa.RecordBatch] = {}
        for name, rows in tables.items():
            pieces |= cut(name, rows)
        scalars: dict[str, object] = {
            "next": [numbers.next for numbers in (self._matches, self._nodes, self._cells)],
            "machine": s[list(STATE_SCALARS)].tolist(),
            "flags": w.flags.tolist(),
            "given": events.total,
        }
        return pieces, scalars

    def restore(
        self,
        empty: PatternMemory,
        pieces: Mapping[str, pa.RecordBatch],
        scalars: JsonMapping,
        events: EventStore,
    ) -> PatternMemory:
        """The memory from ``snapshot``; ``events`` gets the events of its matches.

        The values that conditions search by are still to be computed: see ``nfa.prepare_all``.
        """
        steps = self._steps
        matches = _array("matches", pieces, steps + 2)
        nodes = _array("nodes", pieces, 3)
        cells = _array("cells", pieces, 2)
        local = _array("local", pieces, len(_LOCAL))
        tasks = _array("tasks", pieces, memory_layout.TASK_COLUMNS)[:, 1:]
        counters = (self._matches, self._nodes, self._cells)
        for numbers, rows, following in zip(
            counters, (matches, nodes, cells), scalars["next"], strict=True
        ):
            numbers.restore(rows[:, 0], following)
        event_numbers = self._put_events(pieces, scalars["given"], events)

        node_rows = np.empty((len(nodes), memory_layout.NODE_COLUMNS), dtype=np.int64)
        node_rows[:, memory_layout.EVENT] = _places(event_numbers, nodes[:, 1])
        node_rows[:, memory_layout.TIME] = nodes[:, 2]
        node_rows[:, memory_layout.FORWARD] = _places(nodes[:, 0], nodes[:, 3])
        _chain(node_rows)
        held = np.empty((len(matches), steps + 2), dtype=np.int64)
        for step in range(steps):
            held[:, step] = _places(nodes[:, 0], matches[:, 1 + step])
        held[:, steps:] = matches[:, 1 + steps :]

        w = empty
        w.scalars[list(STATE_SCALARS)] = scalars["machine"]
        counts = len(held), len(node_rows), len(cells), len(tasks)
        w.scalars[
            [memory_layout.MATCHES, memory_layout.NODES, memory_layout.CELLS, memory_layout.TASKS]
        ] = counts
        states = np.zeros((len(local), memory_layout.LOCAL_COLUMNS), dtype=np.int64)
        states[:, list(_LOCAL)] = local[:, 1:]
        in_list = cells[:, 1] >= 0
        linked, lists = _linked(cells, SCRATCH + 2 * len(local), states)
        linked[:, memory_layout.HOLDS] = cells[:, 2]
        linked[in_list, memory_layout.HOLDS] = _places(matches[:, 0], cells[in_list, 2])
        # Sorted rows are a heap.
        tasks = tasks[
            np.lexsort((tasks[:, memory_layout.TASK_NUMBER], tasks[:, memory_layout.TASK_TIME]))
        ]
        # A bucket for each cell, and a power of two for the hashes.
        room = 1 << (len(cells) + len(empty.buckets)).bit_length()
        return w._replace(
            flags=np.array(scalars["flags"], dtype=np.int64),
            matches=np.concatenate([held, np.zeros_like(empty.matches)]),
            nodes=np.concatenate([node_rows, np.zeros_like(empty.nodes)]),
            cells=np.concatenate([linked, np.zeros_like(empty.cells)]),
            entries=np.zeros(len(cells) + len(empty.cells), dtype=np.int64),
            ready=np.zeros(len(local), dtype=np.int64),
            buckets=np.zeros((room, memory_layout.BUCKET_COLUMNS), dtype=np.int64),
            hashes=np.full(2 * room, NONE, dtype=np.int64),
            tasks=np.concatenate([tasks, np.zeros_like(empty.tasks)]),
            lists=lists,
            local=states,
        )

    def _put_events(
        self, pieces: Mapping[str, pa.RecordBatch], total: int, events: EventStore
    ) -> Longs:
        """Put the events into the first slots; returns their former slots, rising."""
        batches, numbers = [], []
        for number, schema in enumerate(self._schemas):
            fields = [pa.field(f"{n}", field.type) for n, field in enumerate(schema)]
            named = pa.schema([pa.field(NUMBER, pa.int64()), *fields])
            rows = _joined(f"rows{number}", pieces, named)
            numbers.append(rows.column(0).to_numpy())
            batches.append(pa.RecordBatch.from_arrays(rows.columns[1:], schema=schema))
        together = np.concatenate(numbers)
        streams = np.repeat(np.arange(len(numbers)), [len(mine) for mine in numbers])
        order = np.argsort(together)
        event_numbers = together[order]
        places = [[np.searchsorted(event_numbers, mine)] for mine in numbers]
        events.total = total
        events.add_again(event_numbers, streams[order], [[rows] for rows in batches], places)
        return event_numbers


def _rows(numbers: Longs, *columns: Array) -> pa.RecordBatch:
    """Columns by the rows' numbers, rising."""
    order = np.argsort(numbers)
    arrays = [pa.array(np.ascontiguousarray(column[order])) for column in (numbers, *columns)]
    return pa.RecordBatch.from_arrays(arrays, names=_names(len(columns)))


def _names(columns: int) -> list[str]:
    return [NUMBER, *(f"{n}" for n in range(columns))]


def _joined(name: str, pieces: Mapping[str, pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    rows = stored(name, pieces)
    return rows if rows is not None else pa.RecordBatch.from_pylist([], schema)


def _array(name: str, pieces: Mapping[str, pa.RecordBatch], columns: int) -> Array:
    """int64[n, 1 + columns], the rows of a table by number."""
    schema = pa.schema([pa.field(column, pa.int64()) for column in _names(columns)])
    rows = _joined(name, pieces, schema)
    return np.stack([column.to_numpy() for column in rows.columns], axis=1)


def _places(numbers: Longs, requested: Array) -> Longs:
    """Places of the requested numbers in ``numbers``, which rise; negative ones stay."""
    return np.where(requested < 0, requested, np.searchsorted(numbers, requested))


def _lists_of_cells(w: PatternMemory) -> Longs:
    """By cell of swept memory its list; for the queue of step ``k``, ``_QUEUES - k``."""
    lists = np.flatnonzero(w.lists[:, memory_layout.HEAD] != NONE)
    keys = np.flatnonzero(w.local[:, memory_layout.QUEUE] != NONE)
    lengths = w.lists[lists, memory_layout.END] - w.lists[lists, memory_layout.HEAD] + 1
    queued = w.local[keys, memory_layout.QUEUE_END] - w.local[keys, memory_layout.QUEUE] + 1
    return np.repeat(np.concatenate([lists, _QUEUES - keys]), np.concatenate([lengths, queued]))


@njit
def _put_in_order(of: Array, numbers: Array, following: int) -> int:
    """Have the numbers of the cells of each list rise; ``of``: by cell, its list."""
    highest = NONE
    for cell in range(len(of)):
        if cell == 0 or of[cell] != of[cell - 1]:
            highest = NONE
        if numbers[cell] <= highest:
            numbers[cell] = following
            following += 1
        highest = numbers[cell]
    return following


@njit
def _chain(nodes: Array) -> None:
    """Fill ``BACK``, ``TAIL`` and ``LENGTH`` of nodes that have their successors."""
    for node in range(len(nodes)):
        nodes[node, memory_layout.BACK] = NONE
        nodes[node, memory_layout.TAIL] = node
        nodes[node, memory_layout.LENGTH] = 1
    for node in range(len(nodes)):
        after = nodes[node, memory_layout.FORWARD]
        if after != NONE:
            nodes[after, memory_layout.BACK] = node
    for node in range(len(nodes)):
        if nodes[node, memory_layout.BACK] != NONE:
            continue
        at = node
        while nodes[at, memory_layout.FORWARD] != NONE:
            at = nodes[at, memory_layout.FORWARD]
            nodes[node, memory_layout.LENGTH] += 1
        nodes[node, memory_layout.TAIL] = at


def _linked(cells: Array, count: int, local: Array) -> tuple[Array, Array]:
    """The cells as linked lists, ``count`` of them; queues are recorded in ``local``."""
    of = cells[:, 1]
    order = np.argsort(of, kind="stable")
    follows = np.flatnonzero(of[order[1:]] == of[order[:-1]])
    before, after = order[follows], order[follows + 1]
    linked = np.zeros((len(cells), memory_layout.CELL_COLUMNS), dtype=np.int64)
    linked[:, [memory_layout.AFTER, memory_layout.BEFORE, memory_layout.BUCKET]] = NONE
    linked[before, memory_layout.AFTER] = after
    in_list = of >= 0
    linked[after, memory_layout.BEFORE] = np.where(in_list[after], before, NONE)
    lists = np.full((count, memory_layout.LIST_COLUMNS), NONE, dtype=np.int64)
    lists[:, memory_layout.SIZE] = np.bincount(of[in_list], minlength=count)
    # Open bounds: the lists are always searched.
    lists[:, memory_layout.LOW], lists[:, memory_layout.HIGH] = (
        -memory_layout.FAR,
        memory_layout.FAR,
    )
    local[:, [memory_layout.QUEUE, memory_layout.QUEUE_END]] = NONE
    listed, queued = order[in_list[order]], order[~in_list[order]]
    lists[of[listed[::-1]], memory_layout.HEAD] = listed[::-1]
    lists[of[listed], memory_layout.END] = listed
    local[_QUEUES - of[queued[::-1]], memory_layout.QUEUE] = queued[::-1]
    local[_QUEUES - of[queued], memory_layout.QUEUE_END] = queued
    return linked, lists
