"""Sliding windows: events are emitted on arrival, and expire one by one, oldest first.

The loops of ``length``, ``time``, ``timeLength``, ``externalTime`` and ``delay``.  Events that
expire before another one arrives are in its chunk; those that a timer expires are a chunk.

Source: observed on Siddhi 5.1.7, live and in playback.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from mesh.operators.base import BEFORE_ALL, CURRENT, EXPIRED, NEVER, NIL, RESET
from mesh.operators.native import helper, native
from mesh.operators.windows.window_loop import (
    A_COUNT,
    A_HEAD,
    A_ROW,
    ALARM,
    B_HEAD,
    B_TAIL,
    COMMON,
    E_ARG,
    E_CLOCK,
    E_INSTANCE,
    E_NODE_TIME,
    E_ORDER,
    E_PATH,
    E_TIME,
    LOOP,
    P_ARGS,
    P_BASE,
    ROW,
    TIME,
    add,
    arm,
    begin,
    emit,
    free_node,
    new_node,
    next_timer,
    poll,
    timer_before,
)

#: The latest time that an event of the instance had.
LATEST = COMMON
#: Initial values of the registers; the rest is 0.
LATEST_START = {LATEST: BEFORE_ALL}


@helper
def _leave(node, reg, meta, out, i, now, time, kind, clock, order, path):
    """Expire events due at ``now``, at the head of instance i's list."""
    while reg[i, A_HEAD] != NIL and node[reg[i, A_HEAD], TIME] <= now:
        n = poll(node, reg, i, A_HEAD)
        emit(out, meta, node[n, ROW], kind, time, clock, order, path, i)
        free_node(node, meta, n)


@native(LOOP)
def length_loop(ev, clocks, par, node, reg, heap, meta, out):
    """``length(n)``: the last n events."""
    size = par[P_ARGS]
    for e in range(ev.shape[1]):
        begin(ev, meta, e)
        i, row = ev[E_INSTANCE, e], par[P_BASE] + e
        time, clock = ev[E_TIME, e], ev[E_CLOCK, e]
        order, path = ev[E_ORDER, e], ev[E_PATH, e]
        if reg[i, A_COUNT] < size:
            emit(out, meta, row, CURRENT, time, clock, order, path, i)
        elif reg[i, A_COUNT] > 0:
            n = poll(node, reg, i, A_HEAD)
            emit(out, meta, node[n, ROW], EXPIRED, clock, clock, order, path, i)
            free_node(node, meta, n)
            emit(out, meta, row, CURRENT, time, clock, order, path, i)
        else:
            # A window of length 0: the event expires at once, and the aggregates are reset.
            emit(out, meta, row, CURRENT, time, clock, order, path, i)
            emit(out, meta, row, EXPIRED, time, clock, order, path, i)
            emit(out, meta, row, RESET, time, clock, order, path, i)
            reg[i, A_ROW] = row + 1
            continue
        add(node, reg, i, A_HEAD, new_node(node, meta, row, time))


@helper
def _passing_of_time(ev, clocks, par, node, reg, heap, meta, out, kind):
    """``time`` and ``delay``, which differ only in the kind and time of their output.

    An event leaves no earlier than those before it, so it is due when the latest of them is.  A
    timer is set for events that are later than all before; one that is late and due already waits
    for the next event.
    """
    span = par[P_ARGS]
    for e in range(ev.shape[1] + 1):
        while timer_before(ev, clocks, par, reg, heap, meta, e):
            i, clock, order, path = next_timer(clocks, par, reg, heap, meta)
            _leave(node, reg, meta, out, i, clock, clock, kind, clock, order, path)
            if reg[i, A_HEAD] != NIL:
                arm(reg, heap, meta, i, node[reg[i, A_HEAD], TIME])
        if e == ev.shape[1]:
            break
        begin(ev, meta, e)
        i, row = ev[E_INSTANCE, e], par[P_BASE] + e
        time, clock = ev[E_TIME, e], ev[E_CLOCK, e]
        order, path = ev[E_ORDER, e], ev[E_PATH, e]
        _leave(node, reg, meta, out, i, clock, clock, kind, clock, order, path)
        rises = time > reg[i, LATEST]
        if rises:
            reg[i, LATEST] = time
        due = reg[i, LATEST] + span
        ev[E_NODE_TIME, e] = due
        add(node, reg, i, A_HEAD, new_node(node, meta, row, due))
        if reg[i, ALARM] == NEVER and (rises or due > clock):
            arm(reg, heap, meta, i, node[reg[i, A_HEAD], TIME])
        if kind == EXPIRED:
            emit(out, meta, row, CURRENT, time, clock, order, path, i)


@native(LOOP)
def time_loop(ev, clocks, par, node, reg, heap, meta, out):
    """``time(t)``: the events of the last t milliseconds."""
    _passing_of_time(ev, clocks, par, node, reg, heap, meta, out, EXPIRED)


@native(LOOP)
def delay_loop(ev, clocks, par, node, reg, heap, meta, out):
    """``delay(t)``: events are emitted t milliseconds late, with the time of their emission."""
    _passing_of_time(ev, clocks, par, node, reg, heap, meta, out, CURRENT)


@native(LOOP)
def external_time_loop(ev, clocks, par, node, reg, heap, meta, out):
    """``externalTime(ts, t)``: the last t milliseconds by an attribute; there are no timers."""
    span = par[P_ARGS]
    for e in range(ev.shape[1]):
        begin(ev, meta, e)
        i, row = ev[E_INSTANCE, e], par[P_BASE] + e
        now, clock = ev[E_ARG, e], ev[E_CLOCK, e]
        order, path = ev[E_ORDER, e], ev[E_PATH, e]
        _leave(node, reg, meta, out, i, now - span, now, EXPIRED, clock, order, path)
        ev[E_NODE_TIME, e] = now
        add(node, reg, i, A_HEAD, new_node(node, meta, row, now))
        emit(out, meta, row, CURRENT, ev[E_TIME, e], clock, order, path, i)


@native(LOOP)
def time_length_loop(ev, clocks, par, node, reg, heap, meta, out):
    """``timeLength(t, n)``: of the last t milliseconds the last n events.

    List B holds the times of timers.  They fire in the order in which they were set, one that is
    set to an earlier time with the one before it.
    """
    span, size = par[P_ARGS], par[P_ARGS + 1]
    for e in range(ev.shape[1] + 1):
        while timer_before(ev, clocks, par, reg, heap, meta, e):
            i, clock, order, path = next_timer(clocks, par, reg, heap, meta)
            while reg[i, B_HEAD] != NIL and node[reg[i, B_HEAD], TIME] <= clock:
                free_node(node, meta, poll(node, reg, i, B_HEAD))
            _leave(node, reg, meta, out, i, clock - span, clock, EXPIRED, clock, order, path)
            if reg[i, B_HEAD] != NIL:
                arm(reg, heap, meta, i, node[reg[i, B_HEAD], TIME])
        if e == ev.shape[1]:
            break
        begin(ev, meta, e)
        i, row = ev[E_INSTANCE, e], par[P_BASE] + e
        time, clock = ev[E_TIME, e], ev[E_CLOCK, e]
        order, path = ev[E_ORDER, e], ev[E_PATH, e]
        _leave(node, reg, meta, out, i, clock - span, clock, EXPIRED, clock, order, path)
        if reg[i, A_COUNT] < size:
            add(node, reg, i, A_HEAD, new_node(node, meta, row, time))
        elif reg[i, A_COUNT] > 0:
            n = poll(node, reg, i, A_HEAD)
            emit(out, meta, node[n, ROW], EXPIRED, clock, clock, order, path, i)
            free_node(node, meta, n)
            add(node, reg, i, A_HEAD, new_node(node, meta, row, time))
        else:
            reg[i, A_ROW] = row + 1
        if reg[i, B_HEAD] == NIL:
            add(node, reg, i, B_HEAD, new_node(node, meta, NIL, time + span))
            arm(reg, heap, meta, i, time + span)
        elif time + span > node[reg[i, B_TAIL], TIME]:
            add(node, reg, i, B_HEAD, new_node(node, meta, NIL, time + span))
        emit(out, meta, row, CURRENT, time, clock, order, path, i)
