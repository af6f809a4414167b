"""Pairs of a window join as columns: the place of the event that found the pair, and both rows.

A pair is (event, row): the event's number among all that the loop processed, and the row that it
found on the other side, or ``NIL`` for an event that is emitted alone.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.operators.base import EXPIRED, NIL, RESET
from mesh.operators.joins.join_loop import (
    E_CLOCK,
    E_ID,
    E_INSTANCE,
    E_KIND,
    E_ORDER,
    E_PATH,
    E_TIME,
)
from mesh.operators.native import BYTE1, LONG1, LONG2, native, types
from mesh.operators.total_order import is_same_cause

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.operators.base import Longs
    from mesh.operators.state.row_store import RowStore
    from pyspark_nats.arrow import ArrowArray

#: Rows of the output of ``place``: rows of both sides, and the place of the event.
P_LEFT, P_RIGHT, P_TIME, P_CLOCK, P_ORDER, P_PATH, P_CHUNK, P_INSTANCE = range(8)
PAIR_ROWS = 8


@native(types.void(LONG2, LONG2, LONG2, LONG2, LONG2))
def both_rows(origin, left, right, pairs, out):
    """Fill ``P_LEFT`` and ``P_RIGHT``."""
    for p in range(pairs.shape[0]):
        k = pairs[p, 0]
        at = origin[k, 1]
        if origin[k, 0] == 0:
            out[P_LEFT, p] = left[at, E_ID] if left[at, E_KIND] != RESET else NIL
            out[P_RIGHT, p] = pairs[p, 1]
        else:
            out[P_LEFT, p] = pairs[p, 1]
            out[P_RIGHT, p] = right[at, E_ID] if right[at, E_KIND] != RESET else NIL


@native(types.void(LONG2, LONG2, LONG2, LONG2, LONG1, LONG2, BYTE1))
def place(origin, left, right, pairs, last, out, kinds):
    """Fill all rows, and the events' kinds; each event's finds are a chunk, numbered under a cause.

    ``last``: (order, clock, path) of the last pair ever, and the number of its chunk.
    """
    before = -1
    for p in range(pairs.shape[0]):
        k, other = pairs[p, 0], pairs[p, 1]
        if k != before:
            side, at = origin[k, 0], origin[k, 1]
            events = left if side == 0 else right
            time, instance, kind = events[at, E_TIME], events[at, E_INSTANCE], events[at, E_KIND]
            order, clock, path = events[at, E_ORDER], events[at, E_CLOCK], events[at, E_PATH]
            mine = events[at, E_ID] if kind != RESET else NIL
            if not is_same_cause(order, clock, path, last[0], last[1], last[2]):
                last[0], last[1], last[2], last[3] = order, clock, path, 0
            else:
                last[3] += 1
            before = k
        out[P_LEFT, p] = mine if side == 0 else other
        out[P_RIGHT, p] = other if side == 0 else mine
        out[P_TIME, p] = time
        out[P_CLOCK, p] = clock
        out[P_ORDER, p] = order
        out[P_PATH, p] = path
        out[P_CHUNK, p] = last[3]
        out[P_INSTANCE, p] = instance
        kinds[p] = kind


@native(types.int64(types.int64, types.int64, LONG2, LONG2, LONG2, LONG2, LONG1, LONG2))
def with_singles(first, stop, origin, left, right, pairs, alone, out):
    """Insert events without a pair into ``pairs``; returns the new number of pairs."""
    count = p = 0
    for k in range(first, stop):
        has_pair = p < pairs.shape[0] and pairs[p, 0] == k
        while p < pairs.shape[0] and pairs[p, 0] == k:
            out[count, 0], out[count, 1] = k, pairs[p, 1]
            count += 1
            p += 1
        side, at = origin[k, 0], origin[k, 1]
        kind = left[at, E_KIND] if side == 0 else right[at, E_KIND]
        if kind == RESET:
            goes = alone[2 + side] != 0
        else:
            goes = alone[side] != 0 and not has_pair and not (alone[4] != 0 and kind == EXPIRED)
        if goes:
            out[count, 0], out[count, 1] = k, NIL
            count += 1
    return count


class PairMatches:
    """Attributes of rows of two stores, by (side, name), each looked up on request."""

    def __init__(self, sides: Sequence[tuple[RowStore, Longs, Sequence[str]]]) -> None:
        self._places = [store.find(ids, names) for store, ids, names in sides]
        self._keys = {(side, name) for side, (_, _, names) in enumerate(sides) for name in names}

    def __getitem__(self, key: tuple[int, str]) -> ArrowArray:
        side, name = key
        return self._places[side].column(name)

    def __contains__(self, key: object) -> bool:
        return key in self._keys
