"""``externalTimeBatch(ts, t, start, timeout, replace)``: batches of t milliseconds by an attribute.

A batch ends when an event after it arrives or, with a timeout, when none has arrived for so long.
Events of the same batch that arrive after a timeout are emitted together with those that the
timeout emitted, once more, and the aggregates restart.

Source: observed on Siddhi 5.1.7, live and in playback.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from mesh.operators.base import CURRENT, EXPIRED, NIL, RESET
from mesh.operators.native import helper, native
from mesh.operators.windows.window_loop import (
    A_COUNT,
    A_HEAD,
    B_COUNT,
    B_HEAD,
    B_ROW,
    COMMON,
    E_ARG,
    E_ARG2,
    E_CLOCK,
    E_INSTANCE,
    E_ORDER,
    E_PATH,
    E_TIME,
    LOOP,
    M_OUT,
    M_PIECE,
    M_RESUME,
    NEXT,
    P_ARGS,
    P_BASE,
    P_EXPIRED,
    ROW,
    TIME,
    WHOSE,
    add,
    arm,
    begin,
    emit,
    free_node,
    new_node,
    next_timer,
    poll,
    skip_idle,
    timer_before,
)

#: Start of batches, end of the running one (-1: none began), the latest time, and whether the
#: running batch was emitted already by a timeout.
START, END, LATEST, FLUSHED = range(COMMON, COMMON + 4)
REGISTERS = COMMON + 4
#: Initial values of the registers; the rest is 0.
BEGIN = {END: -1, LATEST: -1}
#: Arguments: t; 0 without a start, 1 with a constant one, 2 with an attribute; the start; the
#: timeout, 0 without; whether the timestamp becomes the end of its batch.
SPAN, START_KIND, START_AT, TIMEOUT, REPLACE = range(P_ARGS, P_ARGS + 5)


@helper
def _end_of(now, start, span):
    """The end of the batch that ``now`` is in; the remainder has the sign of the dividend."""
    past = now - start
    over = abs(past) % span
    return now + span - (over if past >= 0 else -over)


@helper
def _keep_current(par, node, reg, meta, out, i, keeps, clock, order, path):
    """Emit the batch, and keep it to expire if ``keeps``."""
    while reg[i, A_HEAD] != NIL:
        n = poll(node, reg, i, A_HEAD)
        emit(out, meta, node[n, ROW], CURRENT, node[n, TIME], clock, order, path, i)
        if keeps:
            node[n, NEXT] = NIL
            add(node, reg, i, B_HEAD, n)
        else:
            reg[i, B_ROW] = node[n, ROW] + 1
            free_node(node, meta, n)


@helper
def _flush(par, node, reg, meta, out, i, keeps, clock, order, path):
    """Expire the previous batch, and emit this one."""
    meta[M_PIECE] += 1
    now = reg[i, LATEST]
    while reg[i, B_HEAD] != NIL:
        n = poll(node, reg, i, B_HEAD)
        if par[P_EXPIRED] != 0:
            emit(out, meta, node[n, ROW], EXPIRED, now, clock, order, path, i)
        free_node(node, meta, n)
    if reg[i, A_HEAD] != NIL:
        emit(out, meta, NIL, RESET, now, clock, order, path, i)
        _keep_current(par, node, reg, meta, out, i, keeps, clock, order, path)


@helper
def _append(par, node, reg, meta, out, i, keeps, clock, order, path):
    """Emit the events since a timeout, together with those that the timeout emitted."""
    if reg[i, A_HEAD] == NIL:
        return
    meta[M_PIECE] += 1
    now = reg[i, LATEST]
    if par[P_EXPIRED] != 0:
        n = reg[i, B_HEAD]
        while n != NIL:
            emit(out, meta, node[n, ROW], EXPIRED, now, clock, order, path, i)
            n = node[n, NEXT]
    emit(out, meta, NIL, RESET, now, clock, order, path, i)
    n = reg[i, B_HEAD]
    while n != NIL:
        emit(out, meta, node[n, ROW], CURRENT, node[n, TIME], clock, order, path, i)
        n = node[n, NEXT]
    _keep_current(par, node, reg, meta, out, i, keeps, clock, order, path)


@helper
def _has_room(reg, meta, out, i):
    return meta[M_OUT] + 2 * reg[i, B_COUNT] + reg[i, A_COUNT] + 2 <= out.shape[1]


@native(LOOP)
def external_time_batch_loop(ev, clocks, par, node, reg, heap, meta, out):
    """The window's loop; it returns when ``out`` is full, to be called again."""
    span = par[SPAN]
    first = meta[M_RESUME]
    meta[M_RESUME] = 0
    for e in range(first, ev.shape[1] + 1):
        idle = 0
        while timer_before(ev, clocks, par, reg, heap, meta, e):
            i = heap[0, WHOSE]
            if not _has_room(reg, meta, out, i):
                meta[M_RESUME] = e
                meta[M_OUT] += 1 << 40
                return
            i, clock, order, path = next_timer(clocks, par, reg, heap, meta)
            is_empty = reg[i, FLUSHED] != 0 and reg[i, A_HEAD] == NIL
            idle = idle + 1 if is_empty else 0
            if reg[i, FLUSHED] == 0:
                _flush(par, node, reg, meta, out, i, True, clock, order, path)
                reg[i, FLUSHED] = 1
            else:
                _append(par, node, reg, meta, out, i, True, clock, order, path)
            arm(reg, heap, meta, i, clock + par[TIMEOUT])
            skip_idle(ev, par, reg, heap, meta, e, idle, par[TIMEOUT], NIL)
        if e == ev.shape[1]:
            break
        i, row = ev[E_INSTANCE, e], par[P_BASE] + e
        if not _has_room(reg, meta, out, i):
            meta[M_RESUME] = e
            meta[M_OUT] += 1 << 40
            return
        begin(ev, meta, e)
        now, clock = ev[E_ARG, e], ev[E_CLOCK, e]
        order, path = ev[E_ORDER, e], ev[E_PATH, e]
        if reg[i, END] < 0:
            if par[START_KIND] == 1:
                reg[i, START] = par[START_AT]
                reg[i, END] = _end_of(now, par[START_AT], span)
            else:
                reg[i, START] = ev[E_ARG2, e] if par[START_KIND] == 2 else now
                reg[i, END] = reg[i, START] + span
            if par[TIMEOUT] > 0:
                arm(reg, heap, meta, i, clock + par[TIMEOUT])
        reg[i, LATEST] = max(reg[i, LATEST], now)
        if now >= reg[i, END]:
            keeps = par[P_EXPIRED] != 0
            if reg[i, FLUSHED] != 0:
                _append(par, node, reg, meta, out, i, keeps, clock, order, path)
                reg[i, FLUSHED] = 0
            else:
                _flush(par, node, reg, meta, out, i, keeps, clock, order, path)
            reg[i, END] = _end_of(reg[i, LATEST], reg[i, START], span)
            if par[TIMEOUT] > 0:
                arm(reg, heap, meta, i, clock + par[TIMEOUT])
        if par[REPLACE] != 0:
            ev[E_ARG, e] = reg[i, END]
        add(node, reg, i, A_HEAD, new_node(node, meta, row, ev[E_TIME, e]))
