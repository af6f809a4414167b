"""Timers of steps that wait for absence: queues of times, and a heap of their first ones."""

from __future__ import annotations

from mesh.operators.native import inner, remove_first, sift_up
from mesh.operators.patterns.lists import (
    new_cell,
)
from mesh.operators.patterns.memory_layout import (
    AFTER,
    CLOCK_MS,
    NONE,
    ORDER,
    QUEUE,
    QUEUE_END,
    RUNNING,
    STEPS,
    TASK_COLUMNS,
    TASK_COUNT,
    TASK_KEY,
    TASK_NUMBER,
    TASK_ORDER,
    TASK_TIME,
    TASKS,
    PatternMemory,
)


@inner
def add_task(w: PatternMemory, key: int, time_ms: int, number: int) -> None:
    """Schedule the queue ``key`` at a time, after tasks of that time with lower numbers."""
    at = w.scalars[TASKS]
    w.scalars[TASKS] += 1
    w.tasks[at, TASK_TIME] = max(time_ms, w.scalars[CLOCK_MS])
    w.tasks[at, TASK_NUMBER] = number
    w.tasks[at, TASK_KEY] = key
    # Orders of events are odd; timers that they cause follow them.
    w.tasks[at, TASK_ORDER] = w.scalars[ORDER] + (w.scalars[ORDER] & 1)
    sift_up(w.tasks, TASK_COLUMNS, at)


@inner
def wake_at(w: PatternMemory, key: int, time_ms: int) -> None:
    """Schedule the queue of step and instance ``key`` at a time, or after the present event."""
    add_task(w, key, time_ms, w.scalars[TASK_COUNT])
    w.scalars[TASK_COUNT] += 1


@inner
def pop_task(w: PatternMemory) -> None:
    """Remove the first task."""
    w.scalars[TASKS] -= 1
    remove_first(w.tasks, TASK_COLUMNS, w.scalars[TASKS])


@inner
def schedule(w: PatternMemory, step: int, instance: int, time_ms: int) -> None:
    """Put a time at the end of a step's queue."""
    key = instance * w.scalars[STEPS] + step
    cell = new_cell(w, time_ms)
    if w.local[key, QUEUE] == NONE:
        w.local[key, QUEUE] = cell
    else:
        w.cells[w.local[key, QUEUE_END], AFTER] = cell
    w.local[key, QUEUE_END] = cell
    if w.local[key, RUNNING] == 0:
        w.local[key, RUNNING] = 1
        wake_at(w, key, time_ms)
