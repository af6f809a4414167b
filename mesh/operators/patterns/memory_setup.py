"""The machine's initial memory: its tables, and a little room for everything else.

``empty_memory`` is longer than 60 lines because it is a table: one array for each field.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mesh.language.syntax import StateKind
from mesh.operators.patterns import memory_layout, program
from mesh.operators.patterns.memory_layout import PatternMemory
from mesh.operators.select import hashing

if TYPE_CHECKING:
    from mesh.operators.patterns.events import EventStore
    from mesh.operators.patterns.layout import PatternLayout
    from mesh.operators.patterns.memory import Array
    from mesh.plan.bound import BoundPattern


def empty_memory(
    pattern: BoundPattern,
    layout: PatternLayout,
    reads: Array,
    conditions: tuple[Array, Array],
    events: EventStore,
) -> PatternMemory:
    """The empty memory of a pattern.

    Args:
        pattern: the pattern.
        layout: its tables.
        reads: the query's reads of a match (``SelectedColumns.table``).
        conditions: the program, as whole numbers and as doubles.
        events: the content of the slots of events.
    """
    steps = len(pattern.steps)
    scalars = np.zeros(memory_layout.SCALARS, dtype=np.int64)
    scalars[memory_layout.IS_SEQUENCE] = pattern.kind is StateKind.SEQUENCE
    within = pattern.within_ms
    scalars[memory_layout.WITHIN_MS] = memory_layout.NEVER if within is None else within
    scalars[memory_layout.STEPS] = steps
    scalars[[memory_layout.FREE_CELL, memory_layout.FIRST_UNANSWERED]] = memory_layout.NONE
    scalars[memory_layout.SKIPS] = layout.is_bounded
    scalars[memory_layout.READERS] = layout.readers.shape[1]
    timed = (memory_layout.ABSENT, memory_layout.ABSENT_LOGICAL)
    scalars[memory_layout.IS_TIMED] = np.isin(layout.plan[:, memory_layout.KIND], timed).any()
    scalars[[memory_layout.LAST_ORDER, memory_layout.LAST_CLOCK]] = memory_layout.NEVER
    scalars[memory_layout.CLOCK_MS] = np.iinfo(np.int64).min
    scalars[memory_layout.SERIAL] = 1
    scalars[memory_layout.SEED] = hashing.SEED.astype(np.int64)
    stack = np.zeros(program.STACK_SIZE, dtype=np.int64)
    lists = np.full(
        (memory_layout.SCRATCH, memory_layout.LIST_COLUMNS), memory_layout.NONE, dtype=np.int64
    )
    lists[:, memory_layout.SIZE] = 0
    return PatternMemory(
        plan=layout.plan,
        starts=layout.starts,
        initials=layout.initials,
        resets=layout.resets,
        updates=layout.updates,
        readers=layout.readers,
        receivers=layout.receivers,
        reads=reads,
        program=conditions[0],
        program_floats=conditions[1],
        scalars=scalars,
        flags=np.zeros((steps, memory_layout.FLAG_COLUMNS), dtype=np.int64),
        matches=np.zeros((256, steps + 2), dtype=np.int64),
        nodes=np.zeros((256, memory_layout.NODE_COLUMNS), dtype=np.int64),
        cells=np.zeros((512, memory_layout.CELL_COLUMNS), dtype=np.int64),
        lists=lists,
        buckets=np.zeros((256, memory_layout.BUCKET_COLUMNS), dtype=np.int64),
        hashes=np.full(512, memory_layout.NONE, dtype=np.int64),
        local=np.zeros((0, memory_layout.LOCAL_COLUMNS), dtype=np.int64),
        tasks=np.zeros((256, memory_layout.TASK_COLUMNS), dtype=np.int64),
        values=events.values,
        floats=events.values.view(np.float64),
        nulls=events.nulls,
        stack=stack,
        stack_floats=stack.view(np.float64),
        stack_nulls=np.zeros(program.STACK_SIZE, dtype=np.int64),
        path=np.zeros(steps + 1, dtype=np.int64),
        outputs=np.zeros((256, memory_layout.OUT_COLUMNS + 2 * len(reads)), dtype=np.int64),
        items=np.zeros(256, dtype=np.int64),
        failed=np.zeros((256, memory_layout.FAILED_COLUMNS), dtype=np.int64),
        entries=np.zeros(512, dtype=np.int64),
        entered=np.zeros((0, memory_layout.ENTERED_COLUMNS), dtype=np.int64),
        left=np.zeros(0, dtype=np.int64),
        ready=np.zeros(0, dtype=np.int64),
        references=np.zeros((0, 2), dtype=np.int64),
        requests=np.zeros((0, 1), dtype=np.int64),
        request_heads=np.zeros(0, dtype=np.int64),
        request_counts=np.zeros(0, dtype=np.int64),
    )
