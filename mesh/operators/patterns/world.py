"""The memory of the exact pattern machine: arrays of whole numbers, and lists made in them.

A partial match is a row of ``matches``: for each step the first node of its chain of events, or
-1; then its time, -1 before its first event, and whether ``within`` has dropped it.  Copies of one
share the chains of the steps before the one they wait at: one that grows does so for all.

Each step of each instance has two lists of partial matches: those that wait (``PENDING``) and those
that will from the next event on (``NEW``).  Lists are chains of cells.

Native code; no Python objects inside.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from mesh.operators.native import njit
from mesh.operators.patterns.memory import Array as Array
from mesh.operators.patterns.memory import directory_type, opener

# Columns of ``plan``, one row a step.
KIND, START, NEXT, EVERY, WITHIN_EVERY, CALLBACK, FINISHES, LAST, PARTNER = range(9)
LOGIC, WAITING, LEAST, MOST, STREAM, PROGRAM, PROGRAM_END = range(9, 16)
#: A comparison that is asked first, or ``NONE``; the programs of what a match has, and what comes.
QUICK, OF_MATCH, OF_MATCH_END, OF_EVENT, OF_EVENT_END = range(16, 21)
#: Whether what waits is found by a value, and the programs of that.
KEY, KEY_OF_MATCH, KEY_OF_MATCH_END, KEY_OF_EVENT, KEY_OF_EVENT_END = range(21, 26)
PLAN_COLUMNS: Final = 26

# ``KIND``
ONE, COUNT, ABSENT, LOGICAL, ABSENT_LOGICAL = range(5)
# ``LOGIC``
AND, OR = 1, 2

# ``scalars``
IS_SEQUENCE, WITHIN_MS, STEPS, MATCHES, NODES, CELLS, FREE_CELL, TASKS, TASK_COUNT = range(9)
OUTPUTS, ITEMS, CLOCK_MS, ORDER, CAUSE, CHUNK, LAST_ORDER, LAST_CLOCK = range(9, 17)
#: ``READERS``: the width of ``readers``.
#: ``MOST_ALIKE``: as many, at most, are in one bucket.
#: ``IS_TIMED``: whether anything waits for time alone.
FIRED, SKIPS, READERS, BUCKETS, MOST_ALIKE, IS_TIMED = range(17, 23)
#: Whether a condition has just failed, and on what: see ``WHY``.  ``FAILURES``: how many are
#: written down; ``LOST_CHUNK``: the number of the array of which nothing more is taken.
FAILING, REASON, FAILURES, LOST_CHUNK = range(23, 27)
#: Whether the journal is kept, the number of its first entry, how many there are, how many have
#: left; and, where it has no room, how much is needed of both.
JOURNALS, SERIAL, ENTERED, LEFT, NEED_ENTERED, NEED_LEFT = range(27, 33)
#: How many requests to Python there are, and how many one event may make for each match; how many
#: a match may make without answers, how many end a run, the event of the first without an answer,
#: and for how many there has to be room: see ``requests``.
REQUESTS, PREDICATES, LOOKAHEAD, MOST_REQUESTS, FIRST_UNANSWERED, NEED_REQUESTS = range(33, 39)
SCALARS: Final = 39

# Columns of ``nodes``; ``TAIL`` and ``LENGTH`` are those of a chain, at its first node.
EVENT, TIME, FORWARD, BACK, TAIL, LENGTH = range(6)
NODE_COLUMNS: Final = 6

# Columns of ``cells``.  ``BITS`` is what the match has for the step's quick comparison; ``ALIKE``
# and ``ALIKE_BEFORE`` lead through the cells of one ``BUCKET``: see ``alike``.
HOLDS, AFTER, BITS, BITS_NULL, BEFORE, ALIKE, ALIKE_BEFORE, BUCKET = range(8)
CELL_COLUMNS: Final = 8
#: ``ALIKE_BEFORE`` of what is in a list ``NEW``.
UNLINKED: Final = -2

# Columns of ``buckets``.
BUCKET_LIST, BUCKET_KEY, BUCKET_HEAD, BUCKET_END, BUCKET_SIZE = range(5)
BUCKET_COLUMNS: Final = 5

# Columns of ``lists``; ``LOW`` and ``HIGH`` bound the times of the first events of what is in it.
HEAD, END, SIZE, LOW, HIGH = range(5)
LIST_COLUMNS: Final = 5
#: Lists that belong to no step.
SCRATCH: Final = 1
PENDING, NEW = 0, 1

# Columns of ``entered``: the list that a match has come into, and the match.
ENTERED_LIST, ENTERED_MATCH = range(2)
ENTERED_COLUMNS: Final = 2

# Columns of ``local``, one row for each step of each instance; ``DUE`` is when the step was last
# scheduled for or, of a pair, when its event last came.
ACTIVE, DUE, INITIALIZED, RESETS, STARTED, QUEUE, QUEUE_END, RUNNING = range(8)
LOCAL_COLUMNS: Final = 8

# Columns of ``tasks``, a heap by (time, number).
TASK_TIME, TASK_NUMBER, TASK_KEY, TASK_ORDER = range(4)
TASK_COLUMNS: Final = 4

# Columns of ``flags``, one row a step.
CHANGED, SUCCESS, RETURNED = range(3)
FLAG_COLUMNS: Final = 3

# Columns of ``outputs``, before the events that the query reads.
OUT_TIME, OUT_CLOCK, OUT_ORDER, OUT_CAUSE, OUT_CHUNK, OUT_DROPPED, OUT_INSTANCE, OUT_MATCH = range(
    8
)
OUT_COLUMNS: Final = 8

# Columns of ``failed``: the event on which a condition failed, the step, and what failed: ``NONE``
# for the condition on the event alone; an attribute of an event, as ``slot * ATTRIBUTES_MOST +
# column``; or, below ``NONE``, the row of the program of what is without its event; from
# ``PREDICATE_REASON`` downwards, why a predicate of Python failed.
FAILED_EVENT, FAILED_STEP, WHY = range(3)
FAILED_COLUMNS: Final = 3
ATTRIBUTES_MOST: Final = 1 << 16
PREDICATE_REASON: Final = -(1 << 40)

#: ``receivers``: whether what a stream's event completes comes out, and each match by itself.
NOT_AT_ALL, AT_ONCE, EACH = range(3)

NONE: Final = -1
#: ``EVENT`` of a node that stands for an event that did not come.
NOTHING: Final = -1
#: Instead of an event: one whose own condition fails wherever a match waits.
FAILS: Final = -2
#: ``nulls`` of a value that could not be computed.
FAILED: Final = 2
NEVER: Final = -1
FAR: Final = 1 << 62


class World(NamedTuple):
    """All that the machine works on; the arrays' columns are named above."""

    plan: Array
    #: The steps that a match can begin with.
    starts: Array
    #: The steps in the orders in which the engine begins, resets and updates them.
    initials: Array
    resets: Array
    updates: Array
    #: By stream: the steps in the order of the text, and in the order in which they see an event.
    readers: Array
    #: By stream: whether it is read once, and whether what it completes comes out.
    receivers: Array
    #: What is read of a match: step, index, whether all of its events.
    reads: Array
    program: Array
    program_floats: Array
    scalars: Array
    flags: Array
    matches: Array
    nodes: Array
    cells: Array
    lists: Array
    #: Matches of a list that are found by a value; ``hashes`` is a hash table of their numbers.
    buckets: Array
    hashes: Array
    local: Array
    tasks: Array
    values: Array
    floats: Array
    nulls: Array
    stack: Array
    stack_floats: Array
    stack_nulls: Array
    path: Array
    outputs: Array
    items: Array
    #: Events on which conditions failed.
    failed: Array
    #: The journal (see ``entries``): by cell, the number of its entry; what has entered, by number,
    #: and the numbers of what has left; by step and instance, the last entry that is ready.
    entries: Array
    entered: Array
    left: Array
    ready: Array
    #: What predicates of Python read: step and index.
    references: Array
    #: Requests to Python, their hash table, and by match how many have no answer in this run.
    requests: Array
    request_heads: Array
    request_counts: Array


#: Widths of rows that are the same in all worlds.
_WIDTHS: Final = {
    "plan": PLAN_COLUMNS,
    "reads": 3,
    "flags": FLAG_COLUMNS,
    "nodes": NODE_COLUMNS,
    "cells": CELL_COLUMNS,
    "buckets": BUCKET_COLUMNS,
    "lists": LIST_COLUMNS,
    "local": LOCAL_COLUMNS,
    "tasks": TASK_COLUMNS,
    "failed": FAILED_COLUMNS,
    "entered": ENTERED_COLUMNS,
    "references": 2,
}
#: Arrays that are another's memory as doubles.
_FLOATING: Final = ("program_floats", "floats", "stack_floats")
#: Native: the world that a directory leads to.
opened: Final = opener(
    directory_type({name: _WIDTHS.get(name, 0) for name in World._fields}, _FLOATING)
)


@njit
def list_of(w: World, step: int, instance: int, which: int) -> int:
    """The number of a step's list."""
    return int(SCRATCH + 2 * (instance * w.scalars[STEPS] + step) + which)


@njit
def new_cell(w: World, value: int) -> int:
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


@njit
def free_cell(w: World, cell: int) -> None:
    """Give a cell back."""
    w.cells[cell, AFTER] = w.scalars[FREE_CELL]
    w.scalars[FREE_CELL] = cell


@njit
def bound(w: World, of: int, match: int) -> None:
    """Widen the bounds of a list by the first events of ``match``."""
    for place in range(len(w.starts)):
        step = w.starts[place]
        node = w.matches[match, step]
        if node != NONE:
            time_ms = w.nodes[node, TIME]
            w.lists[of, LOW] = min(w.lists[of, LOW], time_ms)
            w.lists[of, HIGH] = max(w.lists[of, HIGH], time_ms)


@njit
def enter(w: World, of: int, cell: int) -> None:
    """Write down that what is in a cell has come into a list."""
    at = w.scalars[ENTERED]
    w.entries[cell] = w.scalars[SERIAL] + at
    w.entered[at, ENTERED_LIST] = of
    w.entered[at, ENTERED_MATCH] = w.cells[cell, HOLDS]
    w.scalars[ENTERED] = at + 1


@njit
def leave(w: World, cell: int) -> None:
    """Write down that what is in a cell has left its list."""
    at = w.scalars[LEFT]
    w.left[at] = w.entries[cell]
    w.scalars[LEFT] = at + 1


@njit
def push(w: World, of: int, match: int) -> None:
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


@njit
def remove(w: World, of: int, before: int, cell: int) -> None:
    """Take ``cell`` out of a list, where it comes behind the cell ``before``, or first."""
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


@njit
def clear(w: World, of: int) -> None:
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


@njit
def is_later(w: World, left: int, right: int) -> bool:
    """Whether a match without a time, or with a later one, goes behind another."""
    a, b = w.matches[left, w.scalars[STEPS]], w.matches[right, w.scalars[STEPS]]
    if b == NEVER:
        return False
    return bool(a == NEVER or a > b)


@njit
def sort(w: World, of: int) -> bool:
    """Put a list in the order of time, keeping the order of those of one time.

    Returns whether that moved matches to other cells.
    """
    size = w.lists[of, SIZE]
    cell = w.lists[of, HEAD]
    is_sorted = True
    for _ in range(size - 1):
        after = w.cells[cell, AFTER]
        if is_later(w, w.cells[cell, HOLDS], w.cells[after, HOLDS]):
            is_sorted = False
            break
        cell = after
    if is_sorted:
        return False
    values = np.empty(size, dtype=np.int64)
    keys = np.empty(size, dtype=np.int64)
    cell = w.lists[of, HEAD]
    for place in range(size):
        values[place] = w.cells[cell, HOLDS]
        time_ms = w.matches[values[place], w.scalars[STEPS]]
        keys[place] = FAR if time_ms == NEVER else time_ms
        cell = w.cells[cell, AFTER]
    order = np.argsort(keys, kind="mergesort")
    cell = w.lists[of, HEAD]
    for place in range(size):
        w.cells[cell, HOLDS] = values[order[place]]
        if w.scalars[JOURNALS] == 1:
            # Entries of a list have rising numbers.
            leave(w, cell)
            enter(w, of, cell)
        cell = w.cells[cell, AFTER]
    return True


@njit
def append(w: World, of: int, more: int) -> None:
    """Move all of the list ``more`` behind a list."""
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


@njit
def new_match(w: World) -> int:
    """A partial match without events."""
    match = w.scalars[MATCHES]
    w.scalars[MATCHES] += 1
    steps = w.scalars[STEPS]
    for step in range(steps):
        w.matches[match, step] = NONE
    w.matches[match, steps] = NEVER
    w.matches[match, steps + 1] = 0
    return int(match)


@njit
def copy_match(w: World, match: int) -> int:
    """A partial match with the same events, not dropped."""
    copy = w.scalars[MATCHES]
    w.scalars[MATCHES] += 1
    steps = w.scalars[STEPS]
    for column in range(steps + 1):
        w.matches[copy, column] = w.matches[match, column]
    w.matches[copy, steps + 1] = 0
    return int(copy)


@njit
def new_node(w: World, event: int, time_ms: int) -> int:
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


@njit
def add_event(w: World, match: int, step: int, event: int, time_ms: int) -> None:
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


@njit
def remove_last_event(w: World, match: int, step: int) -> None:
    """Take the last event off a step's chain."""
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


#: ``index`` of the last event of a chain.
CURRENT_EVENT: Final = -1


@njit
def node_at(w: World, match: int, step: int, index: int) -> int:
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
