"""Common parts of the native loops of windows: lists of events, timers, and the output columns.

A window's loop processes a run of events one by one, as the reference engine does, and fires timers
between them.  It works on row numbers and times; attributes stay in the row store.

All arrays are int64.  ``node`` is a pool of list elements, ``node[n] = (row, time, next)``; free
ones are chained through ``next``.  ``reg[i]`` are the registers of partition instance i; each
window defines its own after the common ones below.  ``heap`` holds pending timers,
``(due, number, instance)``, the next one first; an instance has one at most.  ``out`` has a column
for each event that is emitted.
"""

from __future__ import annotations

from mesh.operators.base import LOCAL_TIMER, NEVER, NIL
from mesh.operators.native import (
    LONG1,
    LONG2,
    READ1,
    helper,
    helper_with_entry,
    native,
    remove_first,
    sift_up,
    types,
)
from mesh.operators.total_order import (
    fired_order,
    fires_before,
    is_same_cause,
    is_same_chunk,
    playback_place,
)

#: Columns of ``node``.
ROW, TIME, NEXT = 0, 1, 2
#: Columns of ``heap``.
DUE, NUMBER, WHOSE = 0, 1, 2
TIMER_COLUMNS = 3
#: Rows of ``ev``: the columns of the events; the time that a loop gives the event's element where
#: it is not the event's own; up to two arguments of the window.
E_TIME, E_CLOCK, E_ORDER, E_PATH, E_CHUNK, E_INSTANCE, E_NODE_TIME, E_ARG, E_ARG2 = range(9)
EVENT_ROWS = 9
#: Rows of ``out``; ``piece`` counts the chunks that go out.
O_ROW, O_KIND, O_TIME, O_CLOCK, O_ORDER, O_PATH, O_PIECE, O_INSTANCE = range(8)
OUT_ROWS = 8

#: Registers that every window has: two lists (head, tail, length, first row not yet in it), the
#: pending timer and its number.
A_HEAD, A_TAIL, A_COUNT, A_ROW, B_HEAD, B_TAIL, B_COUNT, B_ROW, ALARM, ALARM_NUMBER = range(10)
#: The first register that is a window's own.
COMMON = 10

#: Counters: the first free node, nodes in use, pending timers, timers set so far, lines out, pieces
#: out, steps done, the event before, the event at which a loop resumes that found no room in
#: ``out``, and how many clocks were before the last timer.
(
    M_FREE, M_USED, M_HEAP, M_NUMBER, M_OUT, M_PIECE, M_STEPS, M_ORDER, M_CLOCK, M_PATH, M_CHUNK,
    M_RESUME, M_NEAR,
) = range(13)  # fmt: skip
COUNTERS = 16

#: Parameters of a run: number of its first event, end time of the run, that of the previous run,
#: number of the first row, the timers' path, whether events alone move time, whether expired events
#: are read; then the window's own arguments.
(P_FIRST, P_NOW, P_BEFORE, P_BASE, P_PATH, P_PLAYBACK, P_EXPIRED, P_ARGS) = range(8)
PARAMETERS = 16

#: The signature of a window's loop: ev, clocks, par, node, reg, heap, meta, out.
LOOP = types.void(LONG2, READ1, LONG1, LONG2, LONG2, LONG2, LONG1, LONG2)


@helper
def emit(out, meta, row, kind, time, clock, order, path, instance):  # type: ignore[no-untyped-def]
    """Emit one event."""
    at = meta[M_OUT]
    out[O_ROW, at] = row
    out[O_KIND, at] = kind
    out[O_TIME, at] = time
    out[O_CLOCK, at] = clock
    out[O_ORDER, at] = order
    out[O_PATH, at] = path
    out[O_PIECE, at] = meta[M_PIECE]
    out[O_INSTANCE, at] = instance
    meta[M_OUT] = at + 1


@helper
def new_node(node, meta, row, time):  # type: ignore[no-untyped-def]
    """An element that is in no list yet."""
    n = meta[M_FREE]
    if n >= 0:
        meta[M_FREE] = node[n, NEXT]
    else:
        n = meta[M_USED]
        meta[M_USED] = n + 1
    node[n, ROW] = row
    node[n, TIME] = time
    node[n, NEXT] = NIL
    return n


@helper
def free_node(node, meta, n):  # type: ignore[no-untyped-def]
    """Free an element."""
    node[n, ROW] = NIL
    node[n, NEXT] = meta[M_FREE]
    meta[M_FREE] = n


@helper
def add(node, reg, i, head, n):  # type: ignore[no-untyped-def]
    """Put element n at the end of instance i's list that begins at register ``head``."""
    if reg[i, head] == NIL:
        reg[i, head] = n
    else:
        node[reg[i, head + 1], NEXT] = n
    reg[i, head + 1] = n
    reg[i, head + 2] += 1


@helper
def poll(node, reg, i, head):  # type: ignore[no-untyped-def]
    """Remove and return the first element of a list that is not empty."""
    n = reg[i, head]
    reg[i, head] = node[n, NEXT]
    if reg[i, head] == NIL:
        reg[i, head + 1] = NIL
    reg[i, head + 2] -= 1
    reg[i, head + 3] = node[n, ROW] + 1
    return n


@helper_with_entry
def clear(node, reg, meta, i, head):  # type: ignore[no-untyped-def]
    """Free all elements of a list."""
    while reg[i, head] != NIL:
        free_node(node, meta, poll(node, reg, i, head))


@helper
def push(heap, meta, due, number, instance):  # type: ignore[no-untyped-def]
    """Put a timer into the heap."""
    at = meta[M_HEAP]
    meta[M_HEAP] = at + 1
    heap[at, DUE], heap[at, NUMBER], heap[at, WHOSE] = due, number, instance
    sift_up(heap, TIMER_COLUMNS, at)


@helper
def pop(heap, meta):  # type: ignore[no-untyped-def]
    """Remove the earliest timer from the heap."""
    meta[M_HEAP] -= 1
    remove_first(heap, TIMER_COLUMNS, meta[M_HEAP])


@helper
def arm(reg, heap, meta, i, due):  # type: ignore[no-untyped-def]
    """Set instance i's timer, in place of the one that it has.

    The number is odd if the timer is due already when it is set: such a timer fires after
    everything else that is under way at this instant.
    """
    meta[M_NUMBER] += 2
    reg[i, ALARM] = due
    reg[i, ALARM_NUMBER] = meta[M_NUMBER] + (1 if due <= meta[M_CLOCK] else 0)
    push(heap, meta, due, reg[i, ALARM_NUMBER], i)


@helper
def _drop_stale(reg, heap, meta):  # type: ignore[no-untyped-def]
    """Remove timers from the top of the heap that have been replaced."""
    while meta[M_HEAP] > 0 and reg[heap[0, WHOSE], ALARM_NUMBER] != heap[0, NUMBER]:
        pop(heap, meta)


@helper
def timer_before(ev, clocks, par, reg, heap, meta, e):  # type: ignore[no-untyped-def]
    """True if a timer fires before event e or, with e = n, before the end of the run."""
    _drop_stale(reg, heap, meta)
    if meta[M_HEAP] == 0:
        return False
    due = heap[0, DUE]
    if e < ev.shape[1] and due > ev[E_CLOCK, e]:
        return False
    if par[P_PLAYBACK] != 0:
        order, clock = _playback_place(clocks, par, meta, due)
        if clock == NEVER:
            return False
        if e == ev.shape[1]:
            return True
        return order < ev[E_ORDER, e]
    if e == ev.shape[1]:
        return due <= par[P_NOW]
    return fires_before(
        due, heap[0, NUMBER], par[P_PATH], meta[M_ORDER], meta[M_CLOCK],
        ev[E_ORDER, e], ev[E_CLOCK, e], ev[E_PATH, e],
    )  # fmt: skip


@helper
def _earlier_clocks(clocks, meta, due):  # type: ignore[no-untyped-def]
    """The number of clocks before ``due``; most often close to that of the last call."""
    low, high = 0, clocks.shape[0]
    near = meta[M_NEAR]
    if near <= high and (near == 0 or clocks[near - 1] < due):
        low = near
        while low < high and low < near + 4:
            if clocks[low] >= due:
                high = low
            else:
                low += 1
    while low < high:
        middle = (low + high) // 2
        if clocks[middle] < due:
            low = middle + 1
        else:
            high = middle
    meta[M_NEAR] = low
    return low


@helper
def _playback_place(clocks, par, meta, due):  # type: ignore[no-untyped-def]
    return playback_place(
        clocks, _earlier_clocks(clocks, meta, due), due,
        par[P_FIRST], meta[M_ORDER], par[P_NOW], par[P_BEFORE],
    )  # fmt: skip


@helper
def next_timer(clocks, par, reg, heap, meta):  # type: ignore[no-untyped-def]
    """Remove the earliest timer; its instance, and clock, order and path of its firing."""
    due, number, i = heap[0, DUE], heap[0, NUMBER], heap[0, WHOSE]
    path = LOCAL_TIMER
    if par[P_PLAYBACK] != 0:
        order, clock = _playback_place(clocks, par, meta, due)
    else:
        clock = max(due, meta[M_CLOCK])
        order = fired_order(_earlier_clocks(clocks, meta, due), par[P_FIRST], meta[M_ORDER])
        if number % 2 == 1 and order == meta[M_ORDER]:
            # Set as a consequence of another timer: it fires after that one.
            path = meta[M_PATH]
    pop(heap, meta)
    reg[i, ALARM] = NEVER
    reg[i, ALARM_NUMBER] = 0
    meta[M_STEPS] += 1
    meta[M_PIECE] += 1
    meta[M_CLOCK] = max(meta[M_CLOCK], clock)
    meta[M_ORDER] = max(meta[M_ORDER], order)
    meta[M_PATH] = path
    return i, clock, order, path


@helper
def skip_idle(ev, par, reg, heap, meta, e, idle, span, register):  # type: ignore[no-untyped-def]
    """Let timers that change nothing pass at once, all but the last few before event e.

    ``idle``: timers that have fired without an effect since the last event; once each instance's
    has, none has one before event e.  All are set again after ``span``, and ``register`` of an
    instance grows with its timer (NIL: none does).
    """
    if idle <= meta[M_HEAP] or meta[M_HEAP] == 0 or par[P_PLAYBACK] != 0:
        return
    until = ev[E_CLOCK, e] if e < ev.shape[1] else par[P_NOW]
    by = ((until - heap[0, DUE]) // span - 2) * span
    if by <= 0:
        return
    # All move alike, so that their order stays.
    for n in range(meta[M_HEAP]):
        i = heap[n, WHOSE]
        heap[n, DUE] += by
        if reg[i, ALARM_NUMBER] == heap[n, NUMBER]:
            reg[i, ALARM] += by
            if register != NIL:
                reg[i, register] += by


@helper
def begin(ev, meta, e):  # type: ignore[no-untyped-def]
    """Record the arrival of event e; true if it is the first of its chunk."""
    meta[M_STEPS] += 1
    if is_same_chunk(
        ev[E_ORDER, e], ev[E_CLOCK, e], ev[E_PATH, e], ev[E_CHUNK, e],
        meta[M_ORDER], meta[M_CLOCK], meta[M_PATH], meta[M_CHUNK],
    ):  # fmt: skip
        return False
    meta[M_ORDER], meta[M_CLOCK] = ev[E_ORDER, e], ev[E_CLOCK, e]
    meta[M_PATH], meta[M_CHUNK] = ev[E_PATH, e], ev[E_CHUNK, e]
    meta[M_PIECE] += 1
    return True


@helper
def ends_chunk(ev, e):  # type: ignore[no-untyped-def]
    """True if event e is the last of its chunk for its partition instance."""
    if e + 1 == ev.shape[1] or ev[E_INSTANCE, e] != ev[E_INSTANCE, e + 1]:
        return True
    return not is_same_chunk(
        ev[E_ORDER, e], ev[E_CLOCK, e], ev[E_PATH, e], ev[E_CHUNK, e],
        ev[E_ORDER, e + 1], ev[E_CLOCK, e + 1], ev[E_PATH, e + 1], ev[E_CHUNK, e + 1],
    )  # fmt: skip


@native(types.void(LONG2, types.int64, LONG1, LONG1))
def number_chunks(out, count, state, chunk):  # type: ignore[no-untyped-def]
    """Number the pieces under one (order, clock, path) from 0 on.

    ``state`` is (order, clock, path, piece, number) of the last line before, and then of these.
    """
    for k in range(count):
        if not is_same_cause(
            out[O_ORDER, k], out[O_CLOCK, k], out[O_PATH, k], state[0], state[1], state[2]
        ):
            state[0], state[1], state[2] = out[O_ORDER, k], out[O_CLOCK, k], out[O_PATH, k]
            state[4] = 0
        elif out[O_PIECE, k] != state[3]:
            state[4] += 1
        state[3] = out[O_PIECE, k]
        chunk[k] = state[4]


@native(types.void(LONG1, READ1, READ1, LONG2, LONG2, LONG1))
def rebuild_lists(rows, instances, times, node, reg, meta):  # type: ignore[no-untyped-def]
    """Put rows, in order of arrival, into the two lists of their instances.

    List B is older: it contains the rows from register B_ROW to before A_ROW.
    """
    for k in range(rows.shape[0]):
        i = instances[k]
        if rows[k] >= reg[i, A_ROW]:
            add(node, reg, i, A_HEAD, new_node(node, meta, rows[k], times[k]))
        elif rows[k] >= reg[i, B_ROW]:
            add(node, reg, i, B_HEAD, new_node(node, meta, rows[k], times[k]))


@native(types.void(LONG2, LONG2, LONG1))
def rebuild_heap(reg, heap, meta):  # type: ignore[no-untyped-def]
    """Put the pending timers of all instances into an empty heap."""
    meta[M_HEAP] = 0
    for i in range(reg.shape[0]):
        if reg[i, ALARM_NUMBER] != 0:
            push(heap, meta, reg[i, ALARM], reg[i, ALARM_NUMBER], i)


@native(types.void(LONG2, LONG2, LONG1, types.int64, types.int64))
def arm_one(reg, heap, meta, i, due):  # type: ignore[no-untyped-def]
    """Set one instance's timer."""
    arm(reg, heap, meta, i, due)


@native(types.void(types.int64, READ1, READ1, READ1, LONG2, LONG2, LONG1))
def rebuild_list(head, rows, instances, times, node, reg, meta):  # type: ignore[no-untyped-def]
    """Put rows into the lists that begin at register ``head``, in their order."""
    for k in range(rows.shape[0]):
        add(node, reg, instances[k], head, new_node(node, meta, rows[k], times[k]))
