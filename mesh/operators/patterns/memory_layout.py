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

from mesh.operators.patterns.memory import Array as Array
from mesh.operators.patterns.memory import directory_type, opener

# Columns of ``plan``, one row a step.
KIND, START, NEXT, EVERY, WITHIN_EVERY, CALLBACK, FINISHES, LAST, PARTNER = range(9)
LOGIC, WAITING, LEAST, MOST, STREAM, PROGRAM, PROGRAM_END = range(9, 16)
#: A comparison that is evaluated first, or ``NONE``; the programs of the match's and the event's
#: side.
QUICK, OF_MATCH, OF_MATCH_END, OF_EVENT, OF_EVENT_END = range(16, 21)
#: Whether waiting matches are found by a value, and the programs of that.
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
#: Whether a condition has just failed, and on which part: see ``WHY``.  ``FAILURES``: how many are
#: written down; ``LOST_CHUNK``: the number of the array of which no further event is processed.
FAILING, REASON, FAILURES, LOST_CHUNK = range(23, 27)
#: Whether the journal is kept, the number of its first entry, how many matches entered and how many
#: left; and, where it has no room, how much is needed of both.
JOURNALS, SERIAL, ENTERED, LEFT, NEED_ENTERED, NEED_LEFT = range(27, 33)
#: Number of requests to Python, and how many one event may make for each match; how many a match
#: may make without answers, how many end a run, the event of the first without an answer, and for
#: how many room is needed: see ``requests``.
REQUESTS, PREDICATES, LOOKAHEAD, MOST_REQUESTS, FIRST_UNANSWERED, NEED_REQUESTS = range(33, 39)
#: Seed of the hashes of ``match_index``, for this process.
SEED: Final = 39
SCALARS: Final = 40

# Columns of ``nodes``; ``TAIL`` and ``LENGTH`` are those of a chain, at its first node.
EVENT, TIME, FORWARD, BACK, TAIL, LENGTH = range(6)
NODE_COLUMNS: Final = 6

# Columns of ``cells``.  ``BITS`` is the match's side of the step's quick comparison; ``ALIKE``
# and ``ALIKE_BEFORE`` link the cells of one ``BUCKET``: see ``match_index``.
HOLDS, AFTER, BITS, BITS_NULL, BEFORE, ALIKE, ALIKE_BEFORE, BUCKET = range(8)
CELL_COLUMNS: Final = 8
#: ``ALIKE_BEFORE`` of a cell in a list ``NEW``.
UNLINKED: Final = -2

# Columns of ``buckets``.
BUCKET_LIST, BUCKET_KEY, BUCKET_HEAD, BUCKET_END, BUCKET_SIZE = range(5)
BUCKET_COLUMNS: Final = 5

# Columns of ``lists``; ``LOW`` and ``HIGH`` bound the times of its matches' first events.
HEAD, END, SIZE, LOW, HIGH = range(5)
LIST_COLUMNS: Final = 5
#: Lists that belong to no step.
SCRATCH: Final = 1
PENDING, NEW = 0, 1

# Columns of ``entered``: the list that a match has entered, and the match.
ENTERED_LIST, ENTERED_MATCH = range(2)
ENTERED_COLUMNS: Final = 2

# Columns of ``local``, one row for each step of each instance; ``DUE`` is the time that the step
# was last scheduled for or, of a pair, that of its last event.
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

# Columns of ``failed``: the event on which a condition failed, the step, and the failed part:
# ``NONE`` for the condition on the event alone; an attribute of an event, as ``slot *
# ATTRIBUTES_MOST + column``; or, below ``NONE``, the row of the program of an expression without
# its event; from ``PREDICATE_REASON`` downwards, the reason of a predicate of Python.
FAILED_EVENT, FAILED_STEP, WHY = range(3)
FAILED_COLUMNS: Final = 3
ATTRIBUTES_MOST: Final = 1 << 16
PREDICATE_REASON: Final = -(1 << 40)

#: ``receivers``: whether matches that a stream's event completes are emitted, and each separately.
NOT_AT_ALL, AT_ONCE, EACH = range(3)

NONE: Final = -1
#: ``EVENT`` of a node for an absent event.
NOTHING: Final = -1
#: In place of an event: its own condition fails at every waiting match.
FAILS: Final = -2
#: ``nulls`` of a value that could not be computed.
FAILED: Final = 2
NEVER: Final = -1
FAR: Final = 1 << 62


class PatternMemory(NamedTuple):
    """All that the machine works on; the arrays' columns are named above."""

    plan: Array
    #: The steps that a match can begin with.
    starts: Array
    #: The steps in the orders in which the engine begins, resets and updates them.
    initials: Array
    resets: Array
    updates: Array
    #: By stream: the steps in the order of the text, and in the order in which they receive an
    #: event.
    readers: Array
    #: By stream: whether it is read once, and whether matches that it completes are emitted.
    receivers: Array
    #: The reads of a match: step, index, whether all of its events.
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
    #: The journal (see ``entries``): by cell, the number of its entry; the entered matches, by
    #: number, and the numbers of those that left; by step and instance, the last entry that is
    #: ready.
    entries: Array
    entered: Array
    left: Array
    ready: Array
    #: The reads of Python's predicates: step and index.
    references: Array
    #: Requests to Python, their hash table, and by match how many have no answer in this run.
    requests: Array
    request_heads: Array
    request_counts: Array


#: Widths of rows that are the same in all memories.
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
#: Native: the memory that a directory leads to.
opened: Final = opener(
    directory_type({name: _WIDTHS.get(name, 0) for name in PatternMemory._fields}, _FLOATING)
)
