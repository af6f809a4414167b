"""Lists of partial matches: order by time, in both directions, and the log of what moved."""

from __future__ import annotations

import numpy as np
import pytest

from mesh.operators.patterns import lists, memory_layout
from mesh.operators.patterns.memory_layout import (
    AFTER,
    BEFORE,
    END,
    ENTERED,
    ENTERED_MATCH,
    HEAD,
    HOLDS,
    JOURNALS,
    LEFT,
    NEVER,
    NONE,
    SCRATCH,
    STEPS,
    WITHIN_MS,
    PatternMemory,
)

PATTERN_STEPS = 2
TIMES = {
    "none": [],
    "one": [5],
    "sorted": [1, 1, 2, 3],
    "reversed": [9, 7, 5, 3, 1],
    "equal times": [3, 1, 3, 1, 3, 1, 2],
    "without a time": [NEVER, 4, NEVER, 1, 2, NEVER],
    "many": np.random.default_rng(3).integers(0, 40, 97).tolist(),
}


def memory(times: list[int]) -> PatternMemory:
    """A memory with a list ``SCRATCH`` of matches of these times, in this order."""
    empty = np.zeros(0, dtype=np.int64)
    size = len(times) + 1
    scalars = np.zeros(memory_layout.SCALARS, dtype=np.int64)
    scalars[[STEPS, JOURNALS, WITHIN_MS]] = PATTERN_STEPS, 1, NEVER
    scalars[memory_layout.FREE_CELL] = NONE
    matches = np.zeros((size, PATTERN_STEPS + 2), dtype=np.int64)
    matches[: len(times), PATTERN_STEPS] = times
    held = np.full((SCRATCH + 2, memory_layout.LIST_COLUMNS), NONE, dtype=np.int64)
    held[:, memory_layout.SIZE] = 0
    given = {
        "scalars": scalars,
        "matches": matches,
        "lists": held,
        "cells": np.zeros((size, memory_layout.CELL_COLUMNS), dtype=np.int64),
        "nodes": np.zeros((1, memory_layout.NODE_COLUMNS), dtype=np.int64),
        "entries": np.zeros(size, dtype=np.int64),
        "entered": np.zeros((2 * size, memory_layout.ENTERED_COLUMNS), dtype=np.int64),
        "left": np.zeros(size, dtype=np.int64),
    }
    w = PatternMemory(**{name: given.get(name, empty) for name in PatternMemory._fields})
    for match in range(len(times)):
        lists.push(w, SCRATCH, match)
    return w


def along(w: PatternMemory, first: int, direction: int) -> list[int]:
    """The matches of list ``SCRATCH`` from one end to the other."""
    found, cell = [], w.lists[SCRATCH, first]
    while cell != NONE:
        found.append(int(w.cells[cell, HOLDS]))
        cell = w.cells[cell, direction]
    return found


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", TIMES)
def test_a_list_is_put_in_the_order_of_time(name: str) -> None:
    times = TIMES[name]
    w = memory(times)
    lists.sort(w, SCRATCH)
    # Matches of one time, and those without one, keep their order; these are last.
    wanted = sorted(range(len(times)), key=lambda match: (times[match] == NEVER, times[match]))
    assert along(w, HEAD, AFTER) == wanted
    assert along(w, END, BEFORE) == wanted[::-1]
    moved = len(times) if wanted != list(range(len(times))) else 0
    assert int(w.scalars[LEFT]) == moved
    entered = w.entered[len(times) : int(w.scalars[ENTERED]), ENTERED_MATCH]
    assert entered.tolist() == (wanted if moved else [])
