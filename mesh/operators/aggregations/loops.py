"""Native loops of aggregations: the cell of each event, and values added to cells.

A cell is the values of one (arrival bucket, event bucket, group); cells are numbered from 0 in the
order of their first event.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from mesh.operators.native import BOOL1, LONG1, LONG2, READ1, native, types
from mesh.operators.select.hashing import scatter

#: How a value is added to the value of its cell.
SUM, MIN, MAX = range(3)
#: The columns of a cell's key.
ARRIVAL, BUCKET, GROUP = range(3)
#: Entries of the state of ``number_cells``: the present arrival bucket, and its first cell.
S_ARRIVAL, S_FIRST = range(2)
#: Entries of the state of ``number_in_order``: the bucket of the last event, and its mark.
S_BUCKET, S_MARK = range(2)
_LOW = 0xFFFFFFFF
#: Rows whose slots stay in the processor's cache.
_BLOCK = 512

_nulls1 = types.Array(types.boolean, 1, "C", readonly=True)
_double1 = types.Array(types.float64, 1, "C")
_doubles = types.Array(types.float64, 1, "C", readonly=True)


@native(
    types.int64(
        READ1,
        READ1,
        READ1,
        types.uint64,
        LONG1,
        LONG2,
        types.int64,
        LONG1,
        LONG1,
        LONG1,
    )
)
def number_cells(arrival, bucket, group, seed, slots, keys, count, state, hashes, out):
    """Fill ``out`` with the cell of each row, and return the number of cells.

    Arrivals never fall, so only the cells of the present one are looked for.  ``slots``: an open
    hash table of them: the upper half of the key's hash, and the cell plus one, in one number.  A
    cell of an earlier arrival counts as an empty slot.  ``hashes``: scratch, as long as ``out``.
    """
    mask = np.uint64(len(slots) - 1)
    for start in range(0, len(out), _BLOCK):
        stop = min(start + _BLOCK, len(out))
        # Loads that don't depend on each other wait for memory together.
        for row in range(start, stop):
            hashed = scatter(np.uint64(bucket[row]) + scatter(np.uint64(group[row]) + seed))
            hashes[row] = np.int64(hashed)
            out[row] = slots[hashed & mask]
        for row in range(start, stop):
            entry, cell = out[row], (out[row] & _LOW) - 1
            is_same = cell >= 0 and entry >> 32 == hashes[row] >> 32
            if is_same and keys[cell, BUCKET] == bucket[row] and keys[cell, GROUP] == group[row]:
                out[row] = cell
            else:
                out[row] = -1
        for row in range(start, stop):
            a, b, g = arrival[row], bucket[row], group[row]
            if a != state[S_ARRIVAL]:
                state[S_ARRIVAL], state[S_FIRST] = a, count
            if out[row] >= state[S_FIRST]:
                continue
            slot, tag = np.uint64(hashes[row]) & mask, hashes[row] >> 32
            while True:
                entry = slots[slot]
                cell = (entry & _LOW) - 1
                if cell < state[S_FIRST]:
                    cell = count
                    count += 1
                    slots[slot] = (tag << 32) | (cell + 1)
                    keys[cell, ARRIVAL], keys[cell, BUCKET], keys[cell, GROUP] = a, b, g
                    break
                if entry >> 32 == tag and keys[cell, BUCKET] == b and keys[cell, GROUP] == g:
                    break
                slot = (slot + np.uint64(1)) & mask
            out[row] = cell
    return count


@native(types.int64(READ1, READ1, LONG2, types.int64, LONG2, LONG1, LONG1))
def number_in_order(bucket, group, keys, count, near, state, out):
    """As ``number_cells`` where arrival and bucket are one: no table is needed.

    ``near``: by group, a mark and the cell of the group in the bucket of the last row, if the mark
    is that of ``state``.
    """
    for row in range(len(out)):
        b, g = bucket[row], group[row]
        if b != state[S_BUCKET]:
            state[S_BUCKET] = b
            state[S_MARK] += 1
        elif near[g, 0] == state[S_MARK]:
            out[row] = near[g, 1]
            continue
        keys[count, ARRIVAL], keys[count, BUCKET], keys[count, GROUP] = b, b, g
        near[g, 0], near[g, 1] = state[S_MARK], count
        out[row] = count
        count += 1
    return count


@native(types.void(LONG2, types.int64, types.int64, LONG1, LONG1))
def chain_groups(keys, start, stop, last, before):
    """Link the cells from ``start`` to below ``stop``, each to the one before of its group.

    ``last``: by group its last cell, ``before``: by cell the one before; -1 for none.
    """
    for cell in range(start, stop):
        group = keys[cell, GROUP]
        before[cell] = last[group]
        last[group] = cell


@native(types.void(READ1, LONG1))
def count_rows(cells, counts):
    """Count the rows of each cell."""
    for row in range(len(cells)):
        counts[cells[row]] += 1


@native(types.void(READ1, READ1, LONG1))
def add_counts(cells, numbers, counts):
    """Add a number to that of each cell."""
    for row in range(len(cells)):
        counts[cells[row]] += numbers[row]


@native(
    [
        types.void(types.int64, READ1, READ1, _nulls1, LONG1, BOOL1),
        types.void(types.int64, READ1, _doubles, _nulls1, _double1, BOOL1),
    ]
)
def add_values(how, cells, values, nulls, total, seen):
    """Add each value that is not null to that of its cell; sums of whole numbers wrap.

    An extreme is no number where the first value is none, as in the engine.
    """
    has_nulls = len(nulls) > 0
    for row in range(len(cells)):
        if has_nulls and nulls[row]:
            continue
        cell, value = cells[row], values[row]
        if how == SUM:
            total[cell] += value
        elif (
            not seen[cell] or (how == MIN and value < total[cell])
            or (how == MAX and value > total[cell])
        ):  # fmt: skip
            total[cell] = value
        seen[cell] = True


@native(types.int64(READ1, READ1, LONG1, BOOL1, LONG1, LONG1))
def latest_rows(cells, times, last, seen, row_of, touched):
    """Find the latest row of each cell that is not earlier than its value; the later one of equals.

    ``last``: by cell, the time of its value, which is set.  ``row_of``: by cell the row, -1 before.
    ``touched``: filled with the cells that have a row; returns their number.
    """
    count = 0
    for row in range(len(cells)):
        cell = cells[row]
        if seen[cell] and times[row] < last[cell]:
            continue
        if row_of[cell] < 0:
            touched[count] = cell
            count += 1
        seen[cell] = True
        last[cell] = times[row]
        row_of[cell] = row
    return count
