"""Native loop of a join of two windows: lists of rows by key, and the pairs that each event finds.

A window's content is what it has emitted as current and not yet as expired.  So the loop follows
the output of both windows, in the total order, and need not read the windows.  Each side has a
list of rows for each key; an event searches the other side's list of its own key.

All arrays are int64.  ``node[s, n]`` is a row of side s that has not expired, by growing row
number; ``lists[s, k]`` is key k's list; ``reg[s, i]`` are the registers of partition instance i.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from mesh.operators.base import CURRENT, EXPIRED, NIL, RESET
from mesh.operators.native import LONG1, LONG2, LONG3, helper, native, njit, types
from mesh.operators.total_order import is_same_chunk

#: Columns of ``node``: row number, key (``NIL``: equal to none), neighbours, the row's state,
#: partition instance, and the place among all rows that arrived on both sides.
ID, KEY, NEXT, BEFORE, STATE, INSTANCE, RANK = range(7)
NODE_COLUMNS = 7
#: States of a row: not yet let in, in the list, gone.
WAITING, INSIDE, GONE = range(3)
#: Columns of ``lists``.
HEAD, TAIL, COUNT = range(3)
LIST_COLUMNS = 3
#: Registers: rows inside; the last row that entered, that left, and that was inside when the other
#: side last searched; when the pending timer was set: twice the time, plus 1 by an event, 0 by a
#: timer; and the number of that event among all arrivals, or the step at which the timer fired.
R_COUNT, R_ENTERED, R_LEFT, R_SEARCHED, R_ARMED, R_PLACE = range(6)
REGISTERS = 6
NEW = np.array([0, -1, -1, -1, -1, -1])
#: Columns of a window's output.
E_ORDER, E_CLOCK, E_PATH, E_CHUNK, E_KIND, E_ID, E_INSTANCE, E_TIME = range(8)
EVENT_COLUMNS = 8
#: Parameters and counters of the loop: its place on both sides, events done in this run and
#: ever, pairs written, nodes used and gone by side, the path of the query's timers, the side that
#: triggers, the side that is searched, room that the next event needs, by side the milliseconds
#: after which a timer is set again (0: it is set by events), and whether rows that a join has
#: searched keep their time when they leave; whether pairs of expired events are not used; whether
#: events alone move time.
(
    M_LEFT, M_RIGHT, M_DONE, M_STEPS, M_PAIRS, M_USED, M_USED_RIGHT, M_GONE, M_GONE_RIGHT, M_PATH,
    M_TRIGGER, M_TRIGGER_RIGHT, M_LISTED, M_LISTED_RIGHT, M_NEED, M_SPAN, M_SPAN_RIGHT,
    M_KEEPS, M_KEEPS_RIGHT, M_CURRENT, M_PLAYBACK,
) = range(21)  # fmt: skip
COUNTERS = 21


@helper
def _find(node, s, used, row):
    """The node of a row that exists."""
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


@helper
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


@helper
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


@helper
def _same_piece(events, at):
    """True if the event at ``at`` is of the same chunk as the one before it."""
    before = at - 1
    return is_same_chunk(
        events[at, E_ORDER], events[at, E_CLOCK], events[at, E_PATH], events[at, E_CHUNK],
        events[before, E_ORDER], events[before, E_CLOCK], events[before, E_PATH],
        events[before, E_CHUNK],
    )  # fmt: skip


@helper
def _armed(events, at, reg, meta, s):
    """The time at which the timer was set that caused the chunk at ``at``."""
    when = reg[s, events[at, E_INSTANCE], R_ARMED]
    if meta[M_SPAN + s]:
        return max(when, 2 * (events[at, E_CLOCK] - meta[M_SPAN + s]))
    return when


@helper
def _right_first(left, i, right, j, reg, meta):
    """True if the right side's next event precedes the left's; both begin a chunk.

    Of two timers at one instant the one that was set first fires first; in playback, where they
    are at one instant when they are due before one event, all those of the left side do.
    """
    for column in (E_ORDER, E_CLOCK, E_PATH):
        if left[i, column] != right[j, column]:
            return right[j, column] < left[i, column]
    if left[i, E_PATH] != meta[M_PATH]:
        return right[j, E_CHUNK] < left[i, E_CHUNK]
    if meta[M_PLAYBACK] != 0:
        return False
    first, second = _armed(left, i, reg, meta, 0), _armed(right, j, reg, meta, 1)
    if first != second:
        return second < first
    mine, other = left[i, E_INSTANCE], right[j, E_INSTANCE]
    return reg[1, other, R_PLACE] < reg[0, mine, R_PLACE]


@helper
def _next_side(left, i, right, j, reg, meta):
    """The side of the next event, which exists; a chunk stays together."""
    if i > 0 and i < left.shape[0] and _same_piece(left, i):
        return 0
    if j > 0 and j < right.shape[0] and _same_piece(right, j):
        return 1
    if i == left.shape[0] or j == right.shape[0]:
        return 1 if i == left.shape[0] else 0
    return 1 if _right_first(left, i, right, j, reg, meta) else 0


@helper
def _move(node, lists, reg, meta, s, n, events, at):
    """Add a row to its window's list, or remove it."""
    kind, instance, clock = events[at, E_KIND], events[at, E_INSTANCE], events[at, E_CLOCK]
    by_timer = events[at, E_PATH] == meta[M_PATH]
    if by_timer:
        reg[s, instance, R_PLACE] = meta[M_STEPS]
        if meta[M_SPAN + s] == 0:
            reg[s, instance, R_ARMED] = 2 * clock
    if kind == CURRENT:
        if reg[s, instance, R_COUNT] == 0 and meta[M_SPAN + s] == 0:
            reg[s, instance, R_ARMED] = 2 * clock + 1
            reg[s, instance, R_PLACE] = node[s, n, RANK]
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


@native(types.void(LONG2, LONG2, LONG3, LONG3, LONG3, LONG1, LONG2, LONG2))
def join_loop(left, right, node, lists, reg, meta, origin, pairs):
    """Process the output of both windows until it ends, or ``pairs`` is full.

    ``origin[k]`` becomes (side, number, whether it keeps its time) of event k; ``pairs[p]`` is
    (k, a row it found).
    """
    i, j = meta[M_LEFT], meta[M_RIGHT]
    while i < left.shape[0] or j < right.shape[0]:
        s = _next_side(left, i, right, j, reg, meta)
        events, at = (left, i) if s == 0 else (right, j)
        kind, instance = events[at, E_KIND], events[at, E_INSTANCE]
        done = meta[M_DONE]
        origin[done, 2] = 0
        if kind != RESET:
            n = _find(node, s, meta[M_USED + s], events[at, E_ID])
            key = node[s, n, KEY]
            asks = kind == CURRENT or meta[M_CURRENT] == 0
            if meta[M_TRIGGER + s] and key != NIL and asks:
                count = lists[1 - s, key, COUNT]
                if meta[M_PAIRS] + count > pairs.shape[0]:
                    meta[M_NEED] = count
                    break
                match = lists[1 - s, key, HEAD]
                while match != NIL:
                    pairs[meta[M_PAIRS], 0] = done
                    pairs[meta[M_PAIRS], 1] = node[1 - s, match, ID]
                    meta[M_PAIRS] += 1
                    match = node[1 - s, match, NEXT]
            if meta[M_TRIGGER + s]:
                reg[1 - s, instance, R_SEARCHED] = reg[1 - s, instance, R_ENTERED]
            if kind == EXPIRED and meta[M_KEEPS + s]:
                origin[done, 2] = events[at, E_ID] <= reg[s, instance, R_SEARCHED]
            meta[M_STEPS] += 1
            _move(node, lists, reg, meta, s, n, events, at)
        origin[done, 0], origin[done, 1] = s, at
        meta[M_DONE] = done + 1
        if s == 0:
            i += 1
        else:
            j += 1
    meta[M_LEFT], meta[M_RIGHT] = i, j


@njit(types.void(LONG3, LONG3, LONG1, types.int64))
def compact(node, lists, meta, s):
    """Drop the nodes of side s that are gone."""
    used = meta[M_USED + s]
    where = np.empty(used, dtype=np.int64)
    count = 0
    for n in range(used):
        where[n] = count
        if node[s, n, STATE] != GONE:
            count += 1
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
    meta[M_USED + s] = count
    meta[M_GONE + s] = 0


@native(types.void(LONG3, LONG3, LONG3, LONG1, types.int64))
def settle(node, lists, reg, meta, s):
    """After a restore: derive each row's state, on side s, from its instance's registers."""
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


@native(types.void(LONG3, LONG3, LONG3, LONG1, types.int64, types.int64))
def forget_instance(node, lists, reg, meta, s, instance):
    """Remove all rows of one partition instance, on side s."""
    for n in range(meta[M_USED + s]):
        if node[s, n, INSTANCE] != instance or node[s, n, STATE] == GONE:
            continue
        if node[s, n, STATE] == INSIDE and meta[M_LISTED + s] and node[s, n, KEY] != NIL:
            _unlink(node, lists, s, n)
        node[s, n, STATE] = GONE
        meta[M_GONE + s] += 1
        reg[s, instance, R_LEFT] = node[s, n, ID]
    reg[s, instance, R_COUNT] = 0
    reg[s, instance, R_ARMED] = -1
