"""The native loop of a join of two windows: lists of rows by key, and what each event finds.

What a window holds is what it has let in and not yet let go, so the loop follows the events that
both windows put out, in the total order, and needs not look into the windows.  Each side has a
list of rows for each key; an event looks through the other side's list of its own key.

All arrays are int64.  ``node[s, n]`` is a row of side s that has not left yet, by growing row
number; ``lists[s, k]`` is key k's list; ``reg[s, i]`` are the registers of partition instance i.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

NIL = -1
#: Columns of ``node``: row number, key (``NIL``: equal to none), neighbours, what has become of it.
ID, KEY, NEXT, BEFORE, STATE, INSTANCE = range(6)
NODE_COLUMNS = 6
#: States of a row: not yet let in, in the list, gone.
WAITING, INSIDE, GONE = range(3)
#: Columns of ``lists``.
HEAD, TAIL, COUNT = range(3)
LIST_COLUMNS = 3
#: Registers: rows inside, when the pending timer was set, the last row let in and let go.
R_COUNT, R_ARMED, R_ENTERED, R_LEFT = range(4)
REGISTERS = 4
#: Columns of a window's output.
E_ORDER, E_CLOCK, E_PATH, E_CHUNK, E_KIND, E_ID, E_INSTANCE = range(7)
EVENT_COLUMNS = 7
#: What the loop is told and remembers: where it is on both sides, events done in this run and
#: ever, pairs written, nodes used and gone by side, the path of the query's timers, which side sets
#: it off, which side is looked into, room that the next event needs.
(
    M_LEFT, M_RIGHT, M_DONE, M_STEPS, M_PAIRS, M_USED, M_USED_RIGHT, M_GONE, M_GONE_RIGHT, M_PATH,
    M_TRIGGER, M_TRIGGER_RIGHT, M_LISTED, M_LISTED_RIGHT, M_NEED,
) = range(15)  # fmt: skip
COUNTERS = 15

_CURRENT, _EXPIRED, _RESET = 0, 1, 2
_long1 = types.Array(types.int64, 1, "C")
_long2 = types.Array(types.int64, 2, "C")
_long3 = types.Array(types.int64, 3, "C")


def native(*signature: Any) -> Any:
    """A function that is compiled when the module is first imported, and then kept on disk."""
    compiler: Any = njit
    return compiler(*signature, cache=True, error_model="numpy")


@njit(cache=True)
def _find(node, s, used, row):
    """The node of a row, which is there."""
    low, high = 0, min(used - 1, row - node[s, 0, ID])
    if node[s, high, ID] == row:
        return high
    while low < high:
        middle = (low + high) // 2
        if node[s, middle, ID] < row:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True)
def _link(node, lists, s, n):
    key = node[s, n, KEY]
    tail = lists[s, key, TAIL]
    node[s, n, BEFORE], node[s, n, NEXT] = tail, NIL
    if tail == NIL:
        lists[s, key, HEAD] = n
    else:
        node[s, tail, NEXT] = n
    lists[s, key, TAIL] = n
    lists[s, key, COUNT] += 1


@njit(cache=True)
def _unlink(node, lists, s, n):
    key, before, behind = node[s, n, KEY], node[s, n, BEFORE], node[s, n, NEXT]
    if before == NIL:
        lists[s, key, HEAD] = behind
    else:
        node[s, before, NEXT] = behind
    if behind == NIL:
        lists[s, key, TAIL] = before
    else:
        node[s, behind, BEFORE] = before
    lists[s, key, COUNT] -= 1


@njit(cache=True)
def _same_piece(events, at):
    """Whether the event at ``at`` is of the same piece as the one before it."""
    for column in (E_ORDER, E_CLOCK, E_PATH, E_CHUNK):
        if events[at, column] != events[at - 1, column]:
            return False
    return True


@njit(cache=True)
def _right_first(left, i, right, j, reg, timer):
    """Whether the right side's next event comes before the left's; both stand at a piece's start.

    Of two timers at one instant the one that was set first fires first.
    """
    for column in (E_ORDER, E_CLOCK, E_PATH):
        if left[i, column] != right[j, column]:
            return right[j, column] < left[i, column]
    if left[i, E_PATH] == timer:
        return reg[1, right[j, E_INSTANCE], R_ARMED] < reg[0, left[i, E_INSTANCE], R_ARMED]
    return right[j, E_CHUNK] < left[i, E_CHUNK]


@njit(cache=True)
def _move(node, lists, reg, meta, s, n, kind, instance, path):
    """Let one row in or go."""
    step = meta[M_STEPS]
    if kind == _CURRENT:
        if reg[s, instance, R_COUNT] == 0:
            reg[s, instance, R_ARMED] = step
        reg[s, instance, R_COUNT] += 1
        reg[s, instance, R_ENTERED] = node[s, n, ID]
        if meta[M_LISTED + s] and node[s, n, KEY] != NIL:
            _link(node, lists, s, n)
        node[s, n, STATE] = INSIDE
        return
    if node[s, n, STATE] == INSIDE:
        reg[s, instance, R_COUNT] -= 1
        if meta[M_LISTED + s] and node[s, n, KEY] != NIL:
            _unlink(node, lists, s, n)
    if node[s, n, STATE] != GONE:
        meta[M_GONE + s] += 1
    node[s, n, STATE] = GONE
    reg[s, instance, R_LEFT] = node[s, n, ID]
    if path == meta[M_PATH]:
        reg[s, instance, R_ARMED] = step


@native(types.void(_long2, _long2, _long3, _long3, _long3, _long1, _long2, _long2))
def join_loop(left, right, node, lists, reg, meta, own, pairs):
    """Go on with both windows' outputs until they end, or ``pairs`` is full.

    ``own[k]`` becomes (side, number) of the k-th event; ``pairs[p]`` is (k, a row it found).
    """
    i, j = meta[M_LEFT], meta[M_RIGHT]
    while i < left.shape[0] or j < right.shape[0]:
        s = 0
        if i > 0 and i < left.shape[0] and _same_piece(left, i):
            s = 0
        elif (j > 0 and j < right.shape[0] and _same_piece(right, j)) or i == left.shape[0]:
            s = 1
        elif j < right.shape[0] and _right_first(left, i, right, j, reg, meta[M_PATH]):
            s = 1
        events, at = (left, i) if s == 0 else (right, j)
        kind, instance = events[at, E_KIND], events[at, E_INSTANCE]
        done = meta[M_DONE]
        if kind != _RESET:
            n = _find(node, s, meta[M_USED + s], events[at, E_ID])
            key = node[s, n, KEY]
            if meta[M_TRIGGER + s] and key != NIL:
                count = lists[1 - s, key, COUNT]
                if meta[M_PAIRS] + count > pairs.shape[0]:
                    meta[M_NEED] = count
                    break
                found = lists[1 - s, key, HEAD]
                while found != NIL:
                    pairs[meta[M_PAIRS], 0] = done
                    pairs[meta[M_PAIRS], 1] = node[1 - s, found, ID]
                    meta[M_PAIRS] += 1
                    found = node[1 - s, found, NEXT]
            meta[M_STEPS] += 1
            _move(node, lists, reg, meta, s, n, kind, instance, events[at, E_PATH])
        own[done, 0], own[done, 1] = s, at
        meta[M_DONE] = done + 1
        if s == 0:
            i += 1
        else:
            j += 1
    meta[M_LEFT], meta[M_RIGHT] = i, j


@native(types.void(_long3, _long3, _long1, types.int64))
def compact(node, lists, meta, s):
    """Drop the nodes of side s that are gone."""
    used = meta[M_USED + s]
    where = np.empty(used, dtype=np.int64)
    kept = 0
    for n in range(used):
        where[n] = kept
        if node[s, n, STATE] != GONE:
            kept += 1
    for n in range(used):
        if node[s, n, STATE] == GONE:
            continue
        to = where[n]
        for column in range(NODE_COLUMNS):
            node[s, to, column] = node[s, n, column]
        if node[s, to, STATE] == INSIDE and node[s, to, KEY] != NIL:
            if node[s, to, NEXT] != NIL:
                node[s, to, NEXT] = where[node[s, to, NEXT]]
            if node[s, to, BEFORE] != NIL:
                node[s, to, BEFORE] = where[node[s, to, BEFORE]]
    for key in range(lists.shape[1]):
        if lists[s, key, HEAD] != NIL:
            lists[s, key, HEAD] = where[lists[s, key, HEAD]]
            lists[s, key, TAIL] = where[lists[s, key, TAIL]]
    meta[M_USED + s] = kept
    meta[M_GONE + s] = 0


@native(types.void(_long3, _long3, _long3, _long1, types.int64))
def settle(node, lists, reg, meta, s):
    """After a restore: say of each row of side s, by its instance's registers, where it is."""
    for n in range(meta[M_USED + s]):
        instance = node[s, n, INSTANCE]
        if node[s, n, ID] <= reg[s, instance, R_LEFT]:
            node[s, n, STATE] = GONE
            meta[M_GONE + s] += 1
        elif node[s, n, ID] <= reg[s, instance, R_ENTERED]:
            node[s, n, STATE] = INSIDE
            if meta[M_LISTED + s] and node[s, n, KEY] != NIL:
                _link(node, lists, s, n)
        else:
            node[s, n, STATE] = WAITING


@native(types.void(_long3, _long3, _long3, _long1, types.int64, types.int64))
def forget_instance(node, lists, reg, meta, s, instance):
    """Let all rows of one partition instance go, on side s."""
    for n in range(meta[M_USED + s]):
        if node[s, n, INSTANCE] != instance or node[s, n, STATE] == GONE:
            continue
        if node[s, n, STATE] == INSIDE and meta[M_LISTED + s] and node[s, n, KEY] != NIL:
            _unlink(node, lists, s, n)
        node[s, n, STATE] = GONE
        meta[M_GONE + s] += 1
        reg[s, instance, R_LEFT] = node[s, n, ID]
    reg[s, instance, R_COUNT] = 0
    reg[s, instance, R_ARMED] = 0
