"""Absences that are waited for again and again, in gaps of time: see ``operators.gaps``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mesh.operators.gaps import later_ms
from mesh.operators.patterns.memory_layout import (
    ABSENT,
    ABSENT_LOGICAL,
    AFTER,
    EVERY,
    FIRED,
    HOLDS,
    KIND,
    NEVER,
    NONE,
    QUEUE,
    START,
    STEPS,
    TASK_KEY,
    TASK_NUMBER,
    TASK_TIME,
    TASKS,
    WAITING,
)

if TYPE_CHECKING:
    from mesh.operators.patterns.memory import Array
    from mesh.operators.patterns.memory_layout import PatternMemory


def periods_ms(plan: Array) -> Array:
    """By step, the time after which it waits for an absence again; 0 where it doesn't."""
    absent = np.isin(plan[:, KIND], [ABSENT, ABSENT_LOGICAL]) & (plan[:, WAITING] != NEVER)
    again = (plan[:, START] == 1) | (plan[:, EVERY] != NONE)
    return np.where(absent & again, plan[:, WAITING], 0)


def skip(w: PatternMemory, to_ms: int) -> None:
    """Move timers of such steps that are due before ``to_ms`` up to it or after it."""
    periods = periods_ms(w.plan)
    tasks = w.tasks[: w.scalars[TASKS]]
    steps = int(w.scalars[STEPS])
    due = np.flatnonzero(tasks[:, TASK_TIME] < to_ms)
    for at in due[periods[tasks[due, TASK_KEY] % steps] > 0].tolist():
        key = int(tasks[at, TASK_KEY])
        period = int(periods[key % steps])
        cell = int(w.local[key, QUEUE])
        while cell != NONE:
            w.cells[cell, HOLDS] = later_ms(int(w.cells[cell, HOLDS]), period, to_ms)
            cell = int(w.cells[cell, AFTER])
        tasks[at, TASK_TIME] = later_ms(int(tasks[at, TASK_TIME]), period, to_ms)
    if len(due):
        # What is sorted is a heap.
        tasks[:] = tasks[np.lexsort((tasks[:, TASK_NUMBER], tasks[:, TASK_TIME]))]
        w.scalars[FIRED] += 1
