"""The pattern machine: processes each event and each timer exactly as the reference engine does.

A step has two sides: matches wait before its condition, and those that met it are passed on after
it.  An event goes to the steps of its stream; a match that passes a step's condition waits at the
next step, in its list ``NEW`` until the next event that the step is made ready for.  ``every`` puts
a copy back to its first step.  Timers wake the steps that wait for absence; each has a queue of
times, served in order of insertion, as the engine's schedulers do.

Names follow the events rather than the engine's classes; the order of everything is the engine's,
because it decides the output and its order.

Source: Siddhi 5.1.7, observed, and its published description of states; every shape is compared
with it by the cases in tests/cases.
"""

from __future__ import annotations

from typing import Final

from mesh.operators.native import bare, inner
from mesh.operators.patterns.absence import fire_first
from mesh.operators.patterns.advancing import advance
from mesh.operators.patterns.lists import enter, leave, list_of, schedule
from mesh.operators.patterns.match_index import clear_buckets
from mesh.operators.patterns.memory_layout import (
    ABSENT,
    ABSENT_LOGICAL,
    ACTIVE,
    AFTER,
    AT_ONCE,
    BUCKETS,
    CAUSE,
    CELLS,
    CLOCK_MS,
    DUE,
    ENTERED,
    FAILED_EVENT,
    FAILED_STEP,
    FAILING,
    FAILURES,
    FIRST_UNANSWERED,
    HEAD,
    IS_SEQUENCE,
    IS_TIMED,
    ITEMS,
    JOURNALS,
    KEY,
    KIND,
    LEFT,
    LOST_CHUNK,
    MATCHES,
    MOST_ALIKE,
    MOST_REQUESTS,
    NEED_ENTERED,
    NEED_LEFT,
    NEED_REQUESTS,
    NEVER,
    NEW,
    NODES,
    NONE,
    ORDER,
    OUT_MATCH,
    OUT_TIME,
    OUTPUTS,
    PENDING,
    PREDICATES,
    QUICK,
    READERS,
    REASON,
    REQUESTS,
    SCRATCH,
    SIZE,
    START,
    STARTED,
    STEPS,
    TASK_KEY,
    TASK_ORDER,
    TASK_TIME,
    TASKS,
    WAITING,
    WHY,
    WITHIN_MS,
    Array,
    PatternMemory,
    opened,
)
from mesh.operators.patterns.wait_lists import begin, drop_old, link_all, make_ready, prepare, reset

# Columns of the events of a batch.
EVENT_STREAM, EVENT_INSTANCE, EVENT_TIME, EVENT_CLOCK, EVENT_ORDER, EVENT_CHUNK = range(6)
EVENT_COLUMNS: Final = 6


@inner
def start_instance(w: PatternMemory, instance: int) -> None:
    """Begin with an instance, at the time of the clock."""
    steps = w.scalars[STEPS]
    for step in range(steps):
        w.local[instance * steps + step, ACTIVE] = 1
        w.local[instance * steps + step, STARTED] = 1
    for place in range(len(w.initials)):
        begin(w, w.initials[place], instance)
    for step in range(steps):
        is_timed = w.plan[step, WAITING] != NEVER and w.plan[step, START] == 1
        if is_timed and w.plan[step, KIND] in (ABSENT, ABSENT_LOGICAL):
            due_ms = w.scalars[CLOCK_MS] + w.plan[step, WAITING]
            if w.plan[step, KIND] == ABSENT:
                w.local[instance * steps + step, DUE] = due_ms
            schedule(w, step, instance, due_ms)


@inner
def take_event(
    w: PatternMemory, stream: int, instance: int, time_ms: int, slots: Array, number: int
) -> bool:
    """Process event ``number`` of a batch at the steps of its stream.

    ``slots[number, step]`` is the slot of the event's attributes, -1 where it can't pass, or
    ``FAILS``.  Returns False if a condition failed on it: then it has no effect.
    """
    steps = w.scalars[STEPS]
    if w.local[instance * steps, STARTED] == 0:
        start_instance(w, instance)
    if w.scalars[WITHIN_MS] != NEVER:
        for step in range(steps):
            drop_old(w, step, instance, time_ms)
    if w.scalars[IS_SEQUENCE] == 1:
        for place in range(len(w.resets)):
            reset(w, w.resets[place], instance)
        for place in range(len(w.updates)):
            make_ready(w, w.updates[place], instance)
    else:
        for place in range(w.scalars[READERS]):
            step = w.readers[stream, place]
            if step != NONE:
                make_ready(w, step, instance)
    # A stream read once passes on each match separately, one read often those of a step at once.
    comes_out = w.receivers[stream]
    outputs, items = w.scalars[OUTPUTS], w.scalars[ITEMS]
    for place in range(w.scalars[READERS] - 1, -1, -1):
        step = w.readers[stream, place]
        if step != NONE:
            advance(w, step, instance, slots[number, step], time_ms, comes_out)
            if w.scalars[FAILING] == 1:
                w.scalars[FAILING] = 0
                w.scalars[OUTPUTS], w.scalars[ITEMS] = outputs, items
                at = w.scalars[FAILURES]
                w.failed[at, FAILED_EVENT] = number
                w.failed[at, FAILED_STEP] = step
                w.failed[at, WHY] = w.scalars[REASON]
                w.scalars[FAILURES] += 1
                return False
    if comes_out == AT_ONCE:
        # The result of an earlier step with this event sets the time of the whole match.
        for at in range(outputs, w.scalars[OUTPUTS]):
            w.outputs[at, OUT_TIME] = w.matches[w.outputs[at, OUT_MATCH], steps]
    return True


@inner
def _has_room(w: PatternMemory, instance: int) -> bool:
    """Whether there surely is room for the output of one event or timer of an instance."""
    s = w.scalars
    waiting = 0
    held = 0
    for step in range(s[STEPS]):
        of = list_of(w, step, instance, PENDING)
        size = w.lists[of, SIZE]
        # Of the matches that are found by a value at most one bucket moves on.
        waiting += size if w.plan[step, KEY] == NONE else min(size, s[MOST_ALIKE])
        waiting += w.lists[of + 1, SIZE]
        held += size + w.lists[of + 1, SIZE]
    more = 4 * waiting + 8 * s[STEPS] + 16
    items = 0
    for number in range(len(w.reads)):
        if w.reads[number, 2] == 1:
            items += (waiting + 1) * (s[NODES] + more)
    if s[JOURNALS] == 1 and (
        s[ENTERED] + 2 * more > len(w.entered) or s[LEFT] + held + 2 * more > len(w.left)
    ):
        s[NEED_ENTERED] = 2 * more
        s[NEED_LEFT] = held + 2 * more
        return False
    if s[PREDICATES] > 0 and s[REQUESTS] + s[PREDICATES] * more >= len(w.requests):
        s[NEED_REQUESTS] = s[PREDICATES] * more
        return False
    return bool(
        s[MATCHES] + more <= len(w.matches)
        and s[NODES] + more <= len(w.nodes)
        and s[CELLS] + 2 * more <= len(w.cells)
        and s[TASKS] + more <= len(w.tasks)
        and s[OUTPUTS] + more <= len(w.outputs)
        and s[ITEMS] + items <= len(w.items)
        and s[BUCKETS] + more <= len(w.buckets)
        and s[FAILURES] < len(w.failed)
    )


#: Events whose room is checked at once.
_FEW: Final = 16


@inner
def _has_room_for_few(w: PatternMemory) -> bool:
    """Whether there surely is room for the output of ``_FEW`` events, until one adds a cell."""
    s = w.scalars
    if s[JOURNALS] == 1 or s[PREDICATES] > 0:
        return False
    for number in range(len(w.reads)):
        if w.reads[number, 2] == 1:
            return False
    # An instance has no more waiting matches than there are cells.
    most = 4 * s[CELLS] + 8 * s[STEPS] + 16
    more = _FEW * most
    return bool(
        s[MATCHES] + more <= len(w.matches)
        and s[NODES] + more <= len(w.nodes)
        and s[CELLS] + 2 * most <= len(w.cells)
        and s[TASKS] + more <= len(w.tasks)
        and s[OUTPUTS] + more <= len(w.outputs)
        and s[BUCKETS] + more <= len(w.buckets)
        and s[FAILURES] + _FEW <= len(w.failed)
    )


@bare
def start_at_once(directory: Array, instance: int) -> None:
    """Begin with an instance before any event."""
    start_instance(opened(directory), instance)


@bare
def enroll(directory: Array) -> None:
    """Begin the journal with all waiting matches; there is room for it."""
    w = opened(directory)
    w.scalars[JOURNALS] = 1
    for of in range(SCRATCH, len(w.lists)):
        cell = w.lists[of, HEAD]
        while cell != NONE:
            enter(w, of, cell)
            if (of - SCRATCH) % 2 == PENDING:
                w.ready[(of - SCRATCH) // 2] = w.entries[cell]
            cell = w.cells[cell, AFTER]


@bare
def leave_lists(directory: Array, lists: Array) -> None:
    """Log that all matches of some lists have left; there is room for it."""
    w = opened(directory)
    for of in lists:
        cell = w.lists[of, HEAD]
        while cell != NONE:
            leave(w, cell)
            cell = w.cells[cell, AFTER]


@bare
def prepare_all(directory: Array) -> None:
    """Recompute the parts that are not state, and the buckets."""
    w = opened(directory)
    clear_buckets(w)
    steps = w.scalars[STEPS]
    for step in range(steps):
        if w.plan[step, QUICK] == NONE and w.plan[step, KEY] == NONE:
            continue
        for instance in range(len(w.local) // steps):
            prepare(w, step, instance, PENDING)
            prepare(w, step, instance, NEW)
            link_all(w, step, list_of(w, step, instance, PENDING))


#: The results of ``run`` when all is done, and the highest value that encodes where it was stopped.
DONE: Final = -1
STOPPED: Final = -2


@inner
def _is_stopped(w: PatternMemory, at: int, count: int, last: int) -> bool:
    """Whether a run ends before event ``at``: it was to, or it has enough requests to Python."""
    s = w.scalars
    is_full = s[FIRST_UNANSWERED] != NONE and s[REQUESTS] >= s[MOST_REQUESTS]
    return bool(at < count and (at == last or is_full))


@bare
def run(
    directory: Array,
    first: int,
    last: int,
    events: Array,
    slots: Array,
    now_ms: int,
    all_clocks_ms: Array,
    first_order: int,
) -> int:
    """Process the events of a batch from number ``first`` on, and the timers up to ``now_ms``.

    Args:
        directory: that of the pattern's memory.
        first: the event to begin with.
        last: the event to stop before; the number of all events to process the timers after them
            too.
        events: int64[n, 6], see ``EVENT_STREAM``.
        slots: by event and step, the slot of the event's attributes, -1 where it can't pass the
            step, or ``FAILS``.
        now_ms: the time up to which timers fire after the last event.
        all_clocks_ms: the timeline's.
        first_order: the timeline's.

    Events that were sent at once are dropped after one on which a condition failed.

    Returns:
        ``DONE``; or the event before which more room is needed, which the caller makes to call
        again; or ``STOPPED`` minus the event before which the run was stopped.
    """
    w = opened(directory)
    count = len(events)
    at = first
    # The events that have room before the next check, and the number of cells at the last one.
    few, cells = 0, 0
    while True:
        if _is_stopped(w, at, count, last):
            return STOPPED - at
        # Timers before the event, or before the end of the batch.
        while w.scalars[TASKS] > 0:
            time_ms = w.tasks[0, TASK_TIME]
            if at < count:
                is_later = time_ms > events[at, EVENT_CLOCK]
                if is_later or w.tasks[0, TASK_ORDER] > events[at, EVENT_ORDER]:
                    break
            elif time_ms > now_ms:
                break
            if not _has_room(w, w.tasks[0, TASK_KEY] // w.scalars[STEPS]):
                return at
            few = 0
            fire_first(w, first_order + 2 * _place(all_clocks_ms, time_ms))
        if at == count:
            return DONE
        instance = events[at, EVENT_INSTANCE]
        if few == 0 or cells != w.scalars[CELLS]:
            if not _has_room(w, instance):
                return at
            cells = w.scalars[CELLS]
            few = _FEW if _has_room_for_few(w) else 1
        few -= 1
        clock_ms = events[at, EVENT_CLOCK]
        if w.scalars[IS_TIMED] == 1:
            # A timer may have been later; without timers events may arrive in another order.
            clock_ms = max(w.scalars[CLOCK_MS], clock_ms)
        w.scalars[CLOCK_MS] = clock_ms
        w.scalars[ORDER] = events[at, EVENT_ORDER]
        w.scalars[CAUSE] = at
        chunk = events[at, EVENT_CHUNK]
        if chunk != w.scalars[LOST_CHUNK]:
            stream, time_ms = events[at, EVENT_STREAM], events[at, EVENT_TIME]
            if not take_event(w, stream, instance, time_ms, slots, at):
                w.scalars[LOST_CHUNK] = chunk
        at += 1


@inner
def _place(clocks_ms: Array, time_ms: int) -> int:
    """The first of rising ``clocks_ms`` that is not before ``time_ms``."""
    low, high = 0, len(clocks_ms)
    while low < high:
        middle = (low + high) // 2
        if clocks_ms[middle] < time_ms:
            low = middle + 1
        else:
            high = middle
    return low
