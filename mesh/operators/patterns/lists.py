"""Lists of partial matches: chains of cells.  Native code.

Timers of steps that wait for absence: queues of times, and a heap of their first ones.
"""

from __future__ import annotations

from mesh.operators.native import bare, inner, remove_first, sift_up
from mesh.operators.patterns.memory_layout import (
    AFTER,
    BEFORE,
    BUCKET,
    CELLS,
    CLOCK_MS,
    END,
    ENTERED,
    ENTERED_LIST,
    ENTERED_MATCH,
    FAR,
    FREE_CELL,
    HEAD,
    HIGH,
    HOLDS,
    JOURNALS,
    LEFT,
    LOW,
    NEVER,
    NONE,
    ORDER,
    QUEUE,
    QUEUE_END,
    RUNNING,
    SCRATCH,
    SERIAL,
    SIZE,
    STEPS,
    TASK_COLUMNS,
    TASK_COUNT,
    TASK_KEY,
    TASK_NUMBER,
    TASK_ORDER,
    TASK_TIME,
    TASKS,
    TIME,
    WITHIN_MS,
    PatternMemory,
)


@inner
def list_of(w: PatternMemory, step: int, instance: int, which: int) -> int:
    """The number of a step's list."""
    return int(SCRATCH + 2 * (instance * w.scalars[STEPS] + step) + which)


@inner
def new_cell(w: PatternMemory, value: int) -> int:
    """A cell that holds ``value``."""
    cell = w.scalars[FREE_CELL]
    if cell != NONE:
        w.scalars[FREE_CELL] = w.cells[cell, AFTER]
    else:
        cell = w.scalars[CELLS]
        w.scalars[CELLS] += 1
    w.cells[cell, HOLDS] = value
    w.cells[cell, AFTER] = NONE
    w.cells[cell, BEFORE] = NONE
    w.cells[cell, BUCKET] = NONE
    return int(cell)


@inner
def free_cell(w: PatternMemory, cell: int) -> None:
    """Free a cell."""
    w.cells[cell, AFTER] = w.scalars[FREE_CELL]
    w.scalars[FREE_CELL] = cell


@inner
def bound(w: PatternMemory, of: int, match: int) -> None:
    """Widen the bounds of a list by the first events of ``match``."""
    for place in range(len(w.starts)):
        step = w.starts[place]
        node = w.matches[match, step]
        if node != NONE:
            time_ms = w.nodes[node, TIME]
            w.lists[of, LOW] = min(w.lists[of, LOW], time_ms)
            w.lists[of, HIGH] = max(w.lists[of, HIGH], time_ms)


@inner
def enter(w: PatternMemory, of: int, cell: int) -> None:
    """Log that the content of a cell has entered a list."""
    at = w.scalars[ENTERED]
    w.entries[cell] = w.scalars[SERIAL] + at
    w.entered[at, ENTERED_LIST] = of
    w.entered[at, ENTERED_MATCH] = w.cells[cell, HOLDS]
    w.scalars[ENTERED] = at + 1


@inner
def leave(w: PatternMemory, cell: int) -> None:
    """Log that the content of a cell has left its list."""
    at = w.scalars[LEFT]
    w.left[at] = w.entries[cell]
    w.scalars[LEFT] = at + 1


@bare
def push(w: PatternMemory, of: int, match: int) -> None:
    """Put ``match`` at the end of a list."""
    cell = new_cell(w, match)
    if w.lists[of, HEAD] == NONE:
        w.lists[of, HEAD] = cell
        w.lists[of, LOW] = FAR
        w.lists[of, HIGH] = -FAR
    else:
        w.cells[w.lists[of, END], AFTER] = cell
        w.cells[cell, BEFORE] = w.lists[of, END]
    w.lists[of, END] = cell
    w.lists[of, SIZE] += 1
    if w.scalars[JOURNALS] == 1 and of >= SCRATCH:
        enter(w, of, cell)
    if w.scalars[WITHIN_MS] != NEVER:
        bound(w, of, match)


@inner
def remove(w: PatternMemory, of: int, before: int, cell: int) -> None:
    """Remove ``cell`` from a list, where it follows the cell ``before``, or is first."""
    after = w.cells[cell, AFTER]
    if before == NONE:
        w.lists[of, HEAD] = after
    else:
        w.cells[before, AFTER] = after
    if after != NONE:
        w.cells[after, BEFORE] = before
    if w.lists[of, END] == cell:
        w.lists[of, END] = before
    w.lists[of, SIZE] -= 1
    if w.scalars[JOURNALS] == 1 and of >= SCRATCH:
        leave(w, cell)
    free_cell(w, cell)


@inner
def clear(w: PatternMemory, of: int) -> None:
    """Empty a list."""
    head = w.lists[of, HEAD]
    if head != NONE:
        if w.scalars[JOURNALS] == 1 and of >= SCRATCH:
            cell = head
            while cell != NONE:
                leave(w, cell)
                cell = w.cells[cell, AFTER]
        w.cells[w.lists[of, END], AFTER] = w.scalars[FREE_CELL]
        w.scalars[FREE_CELL] = head
        w.lists[of, HEAD] = NONE
        w.lists[of, END] = NONE
        w.lists[of, SIZE] = 0


@inner
def is_later(w: PatternMemory, left: int, right: int) -> bool:
    """Whether a match without a time, or with a later one, follows another."""
    a, b = w.matches[left, w.scalars[STEPS]], w.matches[right, w.scalars[STEPS]]
    if b == NEVER:
        return False
    return bool(a == NEVER or a > b)


@inner
def _is_sorted(w: PatternMemory, of: int) -> bool:
    """Whether a list is in the order of time."""
    cell = w.lists[of, HEAD]
    for _ in range(w.lists[of, SIZE] - 1):
        after = w.cells[cell, AFTER]
        if is_later(w, w.cells[cell, HOLDS], w.cells[after, HOLDS]):
            return False
        cell = after
    return True


@inner
def _merge_runs(w: PatternMemory, of: int, width: int) -> bool:
    """Merge neighbouring runs of ``width`` cells of a list; whether that was one run."""
    left, tail, pairs = w.lists[of, HEAD], NONE, 0
    while left != NONE:
        pairs += 1
        lefts, rights, right = 0, width, left
        while lefts < width and right != NONE:
            lefts += 1
            right = w.cells[right, AFTER]
        while lefts > 0 or (rights > 0 and right != NONE):
            takes_right = lefts == 0
            if lefts > 0 and rights > 0 and right != NONE:
                takes_right = is_later(w, w.cells[left, HOLDS], w.cells[right, HOLDS])
            if takes_right:
                cell, right, rights = right, w.cells[right, AFTER], rights - 1
            else:
                cell, left, lefts = left, w.cells[left, AFTER], lefts - 1
            if tail == NONE:
                w.lists[of, HEAD] = cell
            else:
                w.cells[tail, AFTER] = cell
            w.cells[cell, BEFORE] = tail
            tail = cell
        left = right
    w.cells[tail, AFTER] = NONE
    w.lists[of, END] = tail
    return bool(pairs == 1)


@bare
def sort(w: PatternMemory, of: int) -> None:
    """Put a list in the order of time, keeping the order of those of one time."""
    if _is_sorted(w, of):
        return
    width = 1
    while not _merge_runs(w, of, width):
        width *= 2
    if w.scalars[JOURNALS] == 1:
        # Entries of a list have rising numbers.
        cell = w.lists[of, HEAD]
        while cell != NONE:
            leave(w, cell)
            enter(w, of, cell)
            cell = w.cells[cell, AFTER]


@inner
def append(w: PatternMemory, of: int, more: int) -> None:
    """Move all of the list ``more`` to the end of a list."""
    head = w.lists[more, HEAD]
    if head == NONE:
        return
    if w.lists[of, HEAD] == NONE:
        w.lists[of, HEAD] = head
        w.lists[of, LOW] = w.lists[more, LOW]
        w.lists[of, HIGH] = w.lists[more, HIGH]
    else:
        w.cells[w.lists[of, END], AFTER] = head
        w.cells[head, BEFORE] = w.lists[of, END]
        w.lists[of, LOW] = min(w.lists[of, LOW], w.lists[more, LOW])
        w.lists[of, HIGH] = max(w.lists[of, HIGH], w.lists[more, HIGH])
    w.lists[of, END] = w.lists[more, END]
    w.lists[of, SIZE] += w.lists[more, SIZE]
    w.lists[more, HEAD] = NONE
    w.lists[more, END] = NONE
    w.lists[more, SIZE] = 0


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
