"""Timers of absent events: fire the first one.  Native code."""

from __future__ import annotations

from mesh.operators.native import inner
from mesh.operators.patterns.lists import (
    add_task,
    clear,
    free_cell,
    list_of,
    pop_task,
    push,
    remove,
    schedule,
    wake_at,
)
from mesh.operators.patterns.matches import add_event, emit_match, new_match, next_chunk
from mesh.operators.patterns.memory_layout import (
    ABSENT,
    ABSENT_LOGICAL,
    ACTIVE,
    AFTER,
    AND,
    CALLBACK,
    CAUSE,
    CLOCK_MS,
    DUE,
    EVERY,
    FINISHES,
    FIRED,
    HEAD,
    HOLDS,
    IS_SEQUENCE,
    KIND,
    LOGIC,
    NEVER,
    NEW,
    NEXT,
    NONE,
    NOTHING,
    OR,
    ORDER,
    PARTNER,
    PENDING,
    QUEUE,
    RESETS,
    RUNNING,
    SIZE,
    START,
    STEPS,
    TASK_KEY,
    TASK_NUMBER,
    TASK_ORDER,
    TASK_TIME,
    TIME,
    WAITING,
    WITHIN_EVERY,
    PatternMemory,
)
from mesh.operators.patterns.wait_lists import add, add_again, is_over, make_ready, reset


@inner
def _send(w: PatternMemory, step: int, instance: int, match: int) -> None:
    """Pass a match on after its event has been absent for its time."""
    steps = w.scalars[STEPS]
    if w.plan[step, FINISHES] == 1:
        next_chunk(w)
        emit_match(w, instance, match)
    if w.plan[step, NEXT] != NONE:
        add(w, w.plan[step, NEXT], instance, match)
    if w.plan[step, EVERY] != NONE:
        add_again(w, w.plan[step, EVERY], instance, match)
    elif w.plan[step, START] == 1:
        w.local[instance * steps + step, ACTIVE] = 0
        partner = w.plan[step, PARTNER]
        if (
            w.plan[step, KIND] == ABSENT_LOGICAL
            and w.plan[step, LOGIC] == OR
            and w.plan[partner, KIND] == ABSENT_LOGICAL
        ):
            w.local[instance * steps + partner, ACTIVE] = 0
    if w.plan[step, CALLBACK] != NONE:
        w.local[instance * steps + w.plan[step, CALLBACK], RESETS] = 1


@inner
def _absent(w: PatternMemory, step: int, instance: int, time_ms: int) -> None:
    """Process the end of the time of ``not S for t``."""
    steps = w.scalars[STEPS]
    key = instance * steps + step
    if w.local[key, ACTIVE] == 0:
        return
    waiting = w.plan[step, WAITING]
    pending = list_of(w, step, instance, PENDING)
    new = list_of(w, step, instance, NEW)
    is_sequence = w.scalars[IS_SEQUENCE] == 1
    is_first = w.plan[step, START] == 1 and w.lists[new, SIZE] == 0 and w.lists[pending, SIZE] == 0
    if is_first and is_sequence and w.plan[step, EVERY] == NONE and w.local[key, DUE] > 0:
        is_first = False
    if is_first:
        add(w, step, instance, new_match(w))
    elif is_sequence and w.lists[new, SIZE] > 0:
        reset(w, step, instance)
    make_ready(w, step, instance)
    clear(w, 0)
    again = w.plan[step, WITHIN_EVERY]
    before = NONE
    cell = w.lists[pending, HEAD]
    while cell != NONE:
        after = w.cells[cell, AFTER]
        match = w.cells[cell, HOLDS]
        match_ms = w.matches[match, steps]
        if is_over(w, match, time_ms):
            remove(w, pending, before, cell)
            if again != NONE and w.plan[step, EVERY] not in (step, NONE):
                add_again(w, w.plan[step, EVERY], instance, match)
        elif (match_ms == NEVER and time_ms >= w.local[key, DUE]) or (
            match_ms != NEVER and time_ms >= match_ms + waiting
        ):
            remove(w, pending, before, cell)
            w.matches[match, steps] = time_ms
            push(w, 0, match)
        else:
            before = cell
        cell = after
    if again != NONE:
        make_ready(w, again, instance)
    is_idle = w.lists[0, SIZE] == 0
    _send_all(w, step, instance)
    if w.scalars[CLOCK_MS] > waiting + time_ms:
        w.local[key, DUE] = w.scalars[CLOCK_MS] + waiting
    if is_idle and w.local[key, DUE] < time_ms:
        w.local[key, DUE] = time_ms + waiting
        schedule(w, step, instance, w.local[key, DUE])


@inner
def _send_all(w: PatternMemory, step: int, instance: int) -> None:
    cell = w.lists[0, HEAD]
    while cell != NONE:
        _send(w, step, instance, w.cells[cell, HOLDS])
        cell = w.cells[cell, AFTER]
    clear(w, 0)


@inner
def _has_waited(w: PatternMemory, step: int, match: int, time_ms: int) -> bool:
    node = w.matches[match, step]
    since = w.matches[match, w.scalars[STEPS]] if node == NONE else w.nodes[node, TIME]
    return bool(time_ms >= since + w.plan[step, WAITING])


@inner
def _absent_of_pair(w: PatternMemory, step: int, instance: int, time_ms: int) -> None:
    """Process the end of the time of an absent event in a logical pair."""
    steps = w.scalars[STEPS]
    key = instance * steps + step
    if w.local[key, ACTIVE] == 0:
        return
    waiting = w.plan[step, WAITING]
    partner = w.plan[step, PARTNER]
    is_idle = True
    if time_ms >= w.local[key, DUE] + waiting:
        pending = list_of(w, step, instance, PENDING)
        new = list_of(w, step, instance, NEW)
        is_sequence = w.scalars[IS_SEQUENCE] == 1
        is_empty = w.lists[new, SIZE] == 0 and w.lists[pending, SIZE] == 0
        if w.plan[step, START] == 1 and is_sequence and is_empty:
            add(w, step, instance, new_match(w))
        elif is_sequence and w.lists[new, SIZE] > 0:
            reset(w, step, instance)
        make_ready(w, step, instance)
        clear(w, 0)
        dropped = NONE
        before = NONE
        cell = w.lists[pending, HEAD]
        while cell != NONE:
            after = w.cells[cell, AFTER]
            match = w.cells[cell, HOLDS]
            if is_over(w, match, time_ms):
                dropped = match
                remove(w, pending, before, cell)
            elif _has_waited(w, step, match, time_ms):
                remove(w, pending, before, cell)
                is_alone = w.matches[match, partner] == NONE
                if w.plan[step, LOGIC] == OR and is_alone:
                    add_event(w, match, step, NOTHING, NEVER)
                    push(w, 0, match)
                elif w.plan[step, LOGIC] == AND and is_alone:
                    add_event(w, match, step, NOTHING, NEVER)
                elif w.plan[step, LOGIC] == AND:
                    push(w, 0, match)
            else:
                before = cell
            cell = after
        again = w.plan[step, WITHIN_EVERY]
        if dropped != NONE and again != NONE:
            add_again(w, again, instance, dropped)
            make_ready(w, again, instance)
        is_idle = w.lists[0, SIZE] == 0
        cell = w.lists[0, HEAD]
        while cell != NONE:
            w.matches[w.cells[cell, HOLDS], steps] = time_ms
            _send(w, step, instance, w.cells[cell, HOLDS])
            cell = w.cells[cell, AFTER]
        clear(w, 0)
        w.local[key, DUE] = 0
    if w.plan[step, EVERY] != NONE or (is_idle and w.plan[step, START] == 1):
        since = w.scalars[CLOCK_MS] if w.local[key, DUE] == 0 else w.local[key, DUE]
        schedule(w, step, instance, since + waiting)


@inner
def fire_first(w: PatternMemory, order: int) -> None:
    """Serve the queue of the task that is due first; ``order`` is its place."""
    key = w.tasks[0, TASK_KEY]
    steps = w.scalars[STEPS]
    step, instance = key % steps, key // steps
    w.scalars[CLOCK_MS] = max(w.scalars[CLOCK_MS], w.tasks[0, TASK_TIME])
    w.scalars[ORDER] = max(order, w.tasks[0, TASK_ORDER])
    w.scalars[CAUSE] = NONE
    w.scalars[FIRED] += 1
    number = w.tasks[0, TASK_NUMBER]
    pop_task(w)
    cell = w.local[key, QUEUE]
    time_ms = w.cells[cell, HOLDS]
    w.local[key, QUEUE] = w.cells[cell, AFTER]
    free_cell(w, cell)
    if w.plan[step, KIND] == ABSENT:
        _absent(w, step, instance, time_ms)
    else:
        _absent_of_pair(w, step, instance, time_ms)
    # Processing may have put further times into the queue; those that are due follow at once.
    cell = w.local[key, QUEUE]
    if cell == NONE:
        w.local[key, RUNNING] = 0
    elif w.cells[cell, HOLDS] <= w.scalars[CLOCK_MS]:
        add_task(w, key, w.scalars[CLOCK_MS], number)
    else:
        wake_at(w, key, w.cells[cell, HOLDS])
