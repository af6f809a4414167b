"""Batch windows: events are held until their batch is full or over, then emitted as one chunk.

The loops of ``lengthBatch``, ``timeBatch`` and ``batch``.  The previous batch is emitted first, as
expired events; then a reset of the aggregates; then the batch.  With ``stream.current.event``
events are emitted on arrival, and expire as a batch.

Source: observed on Siddhi 5.1.7, live and in playback.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from mesh.operators.base import CURRENT, EXPIRED, NIL, RESET
from mesh.operators.native import helper, native
from mesh.operators.windows.window_loop import (
    A_COUNT,
    A_HEAD,
    A_ROW,
    B_HEAD,
    B_ROW,
    COMMON,
    E_CLOCK,
    E_INSTANCE,
    E_ORDER,
    E_PATH,
    E_TIME,
    LOOP,
    M_PIECE,
    P_ARGS,
    P_BASE,
    P_EXPIRED,
    ROW,
    TIME,
    add,
    arm,
    begin,
    emit,
    ends_chunk,
    free_node,
    new_node,
    next_timer,
    poll,
    skip_idle,
    timer_before,
)

#: Events since the batch began; whether any arrived since the last reset.
COUNT, DIRTY = COMMON, COMMON + 1
#: Time at which the running batch ends; 0 before the first event.
EMIT_AT = COMMON


@helper
def _expire(par, node, reg, meta, out, i, time, clock, order, path):
    """Expire the previous batch."""
    while reg[i, B_HEAD] != NIL:
        n = poll(node, reg, i, B_HEAD)
        if par[P_EXPIRED] != 0:
            emit(out, meta, node[n, ROW], EXPIRED, time, clock, order, path, i)
        free_node(node, meta, n)


@helper
def _let_go(par, node, reg, meta, out, i, clock, order, path):
    """Emit the batch; it expires next."""
    while reg[i, A_HEAD] != NIL:
        n = poll(node, reg, i, A_HEAD)
        emit(out, meta, node[n, ROW], CURRENT, node[n, TIME], clock, order, path, i)
        if par[P_EXPIRED] != 0:
            node[n, 2] = NIL
            add(node, reg, i, B_HEAD, n)
        else:
            reg[i, B_ROW] = node[n, ROW] + 1
            free_node(node, meta, n)


@native(LOOP)
def length_batch_loop(ev, clocks, par, node, reg, heap, meta, out):
    """``lengthBatch(n, stream.current.event)``: n events at a time."""
    size, streams = par[P_ARGS], par[P_ARGS + 1] != 0
    for e in range(ev.shape[1]):
        begin(ev, meta, e)
        i, row = ev[E_INSTANCE, e], par[P_BASE] + e
        time, clock = ev[E_TIME, e], ev[E_CLOCK, e]
        order, path = ev[E_ORDER, e], ev[E_PATH, e]
        meta[M_PIECE] += 1
        if size == 0:
            emit(out, meta, row, CURRENT, time, clock, order, path, i)
            if par[P_EXPIRED] != 0:
                emit(out, meta, row, EXPIRED, clock, clock, order, path, i)
            emit(out, meta, row, RESET, clock, clock, order, path, i)
            reg[i, A_ROW] = row + 1
            reg[i, B_ROW] = row + 1
            continue
        reg[i, COUNT] += 1
        if streams:
            if reg[i, COUNT] == size + 1:
                _expire(par, node, reg, meta, out, i, clock, clock, order, path)
                emit(out, meta, row, RESET, clock, clock, order, path, i)
                reg[i, COUNT] = 1
            emit(out, meta, row, CURRENT, time, clock, order, path, i)
            reg[i, A_ROW] = row + 1
            if par[P_EXPIRED] != 0:
                add(node, reg, i, B_HEAD, new_node(node, meta, row, time))
            else:
                reg[i, B_ROW] = row + 1
            continue
        add(node, reg, i, A_HEAD, new_node(node, meta, row, time))
        if reg[i, COUNT] == size:
            _expire(par, node, reg, meta, out, i, clock, clock, order, path)
            emit(out, meta, row, RESET, clock, clock, order, path, i)
            _let_go(par, node, reg, meta, out, i, clock, order, path)
            reg[i, COUNT] = 0


@helper
def _time_is_up(par, node, reg, meta, out, i, clock, order, path):
    """End the running time batch."""
    _expire(par, node, reg, meta, out, i, clock, clock, order, path)
    if reg[i, DIRTY] != 0:
        emit(out, meta, NIL, RESET, clock, clock, order, path, i)
        reg[i, DIRTY] = 0
    _let_go(par, node, reg, meta, out, i, clock, order, path)


@native(LOOP)
def time_batch_loop(ev, clocks, par, node, reg, heap, meta, out):
    """``timeBatch(t, start.time, stream.current.event)``: the events of t milliseconds."""
    span, has_start, start, streams = (
        par[P_ARGS],
        par[P_ARGS + 1] != 0,
        par[P_ARGS + 2],
        par[P_ARGS + 3] != 0,
    )
    sends = False
    for e in range(ev.shape[1] + 1):
        idle = 0
        while timer_before(ev, clocks, par, reg, heap, meta, e):
            i, clock, order, path = next_timer(clocks, par, reg, heap, meta)
            is_empty = reg[i, A_HEAD] == NIL and reg[i, B_HEAD] == NIL and reg[i, DIRTY] == 0
            idle = idle + 1 if is_empty else 0
            if clock >= reg[i, EMIT_AT]:
                reg[i, EMIT_AT] += span
                _time_is_up(par, node, reg, meta, out, i, clock, order, path)
            arm(reg, heap, meta, i, reg[i, EMIT_AT])
            skip_idle(ev, par, reg, heap, meta, e, idle, span, EMIT_AT)
        if e == ev.shape[1]:
            break
        i, row = ev[E_INSTANCE, e], par[P_BASE] + e
        time, clock = ev[E_TIME, e], ev[E_CLOCK, e]
        order, path = ev[E_ORDER, e], ev[E_PATH, e]
        first = begin(ev, meta, e) or e == 0 or ev[E_INSTANCE, e - 1] != i
        if first:
            if reg[i, EMIT_AT] == 0:
                reg[i, EMIT_AT] = clock + span
                if has_start:
                    # The remainder has the sign of the dividend, as in Java.
                    past = clock - start
                    over = abs(past) % span
                    reg[i, EMIT_AT] -= over if past >= 0 else -over
                arm(reg, heap, meta, i, reg[i, EMIT_AT])
            sends = clock >= reg[i, EMIT_AT]
            if sends:
                reg[i, EMIT_AT] += span
                arm(reg, heap, meta, i, reg[i, EMIT_AT])
        reg[i, DIRTY] = 1
        if streams:
            emit(out, meta, row, CURRENT, time, clock, order, path, i)
            reg[i, A_ROW] = row + 1
            if par[P_EXPIRED] != 0:
                add(node, reg, i, B_HEAD, new_node(node, meta, row, time))
            else:
                reg[i, B_ROW] = row + 1
        else:
            add(node, reg, i, A_HEAD, new_node(node, meta, row, time))
        if sends and ends_chunk(ev, e):
            _time_is_up(par, node, reg, meta, out, i, clock, order, path)
            sends = False


@native(LOOP)
def batch_loop(ev, clocks, par, node, reg, heap, meta, out):
    """``batch(n)``: the events of one chunk, n at a time; all of them with n = 0."""
    size = par[P_ARGS]
    for e in range(ev.shape[1]):
        i, row = ev[E_INSTANCE, e], par[P_BASE] + e
        time, clock = ev[E_TIME, e], ev[E_CLOCK, e]
        order, path = ev[E_ORDER, e], ev[E_PATH, e]
        if begin(ev, meta, e) or e == 0 or ev[E_INSTANCE, e - 1] != i:
            meta[M_PIECE] += 1
            if par[P_EXPIRED] != 0 and reg[i, B_HEAD] != NIL:
                _expire(par, node, reg, meta, out, i, clock, clock, order, path)
                if reg[i, DIRTY] != 0:
                    emit(out, meta, row, RESET, clock, clock, order, path, i)
                    reg[i, DIRTY] = 0
        add(node, reg, i, A_HEAD, new_node(node, meta, row, time))
        ends = ends_chunk(ev, e)
        if reg[i, A_COUNT] == size or ends:
            if reg[i, DIRTY] != 0:
                emit(out, meta, row, RESET, clock, clock, order, path, i)
            reg[i, DIRTY] = 1
            _let_go(par, node, reg, meta, out, i, clock, order, path)
            if not ends:
                meta[M_PIECE] += 1
