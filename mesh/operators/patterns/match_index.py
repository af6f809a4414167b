"""Index of the matches that wait at a step, by the value that their next event must equal.

A condition ``e1.key == key`` selects by value among thousands of matches; so the matches at such a
step are also chained by value, in the order of the list.  A bucket is such a chain.  Buckets that
are left empty stay until all of them are rebuilt, when memory is swept.

The step's list is identified by the number of its list ``PENDING``.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from mesh.operators.native import bare, inner
from mesh.operators.patterns.memory_layout import (
    ALIKE,
    ALIKE_BEFORE,
    BUCKET,
    BUCKET_END,
    BUCKET_HEAD,
    BUCKET_KEY,
    BUCKET_LIST,
    BUCKET_SIZE,
    BUCKETS,
    MOST_ALIKE,
    NONE,
    SEED,
    UNLINKED,
    PatternMemory,
)
from mesh.operators.select.hashing import scatter

# An odd number that spreads close values, as in xxhash.
_SPREAD: Final = -4417276706812531889


@bare
def bucket_of(w: PatternMemory, of: int, key: int, is_insert: bool) -> int:
    """The bucket of a list's matches with ``key``; ``NONE`` or, on request, a new one."""
    mask = len(w.hashes) - 1
    mixed = scatter((key ^ w.scalars[SEED]) + of * _SPREAD)
    at = np.int64(mixed & np.uint64(mask))
    while True:
        bucket = w.hashes[at]
        if bucket == NONE:
            break
        if w.buckets[bucket, BUCKET_KEY] == key and w.buckets[bucket, BUCKET_LIST] == of:
            return int(bucket)
        at = (at + 1) & mask
    if not is_insert:
        return NONE
    bucket = w.scalars[BUCKETS]
    w.scalars[BUCKETS] += 1
    w.hashes[at] = bucket
    w.buckets[bucket, BUCKET_LIST] = of
    w.buckets[bucket, BUCKET_KEY] = key
    w.buckets[bucket, BUCKET_HEAD] = NONE
    w.buckets[bucket, BUCKET_END] = NONE
    w.buckets[bucket, BUCKET_SIZE] = 0
    return int(bucket)


@inner
def link(w: PatternMemory, cell: int) -> None:
    """Put a cell that is appended to its list at the end of its bucket."""
    bucket = w.cells[cell, BUCKET]
    if bucket == NONE:
        return
    end = w.buckets[bucket, BUCKET_END]
    w.cells[cell, ALIKE] = NONE
    w.cells[cell, ALIKE_BEFORE] = end
    if end == NONE:
        w.buckets[bucket, BUCKET_HEAD] = cell
    else:
        w.cells[end, ALIKE] = cell
    w.buckets[bucket, BUCKET_END] = cell
    w.buckets[bucket, BUCKET_SIZE] += 1
    w.scalars[MOST_ALIKE] = max(w.scalars[MOST_ALIKE], w.buckets[bucket, BUCKET_SIZE])


@inner
def unlink(w: PatternMemory, cell: int) -> None:
    """Remove a cell from its bucket, if it is in one."""
    bucket = w.cells[cell, BUCKET]
    if bucket == NONE or w.cells[cell, ALIKE_BEFORE] == UNLINKED:
        return
    before, after = w.cells[cell, ALIKE_BEFORE], w.cells[cell, ALIKE]
    if before == NONE:
        w.buckets[bucket, BUCKET_HEAD] = after
    else:
        w.cells[before, ALIKE] = after
    if after == NONE:
        w.buckets[bucket, BUCKET_END] = before
    else:
        w.cells[after, ALIKE_BEFORE] = before
    w.buckets[bucket, BUCKET_SIZE] -= 1


@inner
def clear_buckets(w: PatternMemory) -> None:
    """Forget all buckets; the caller rebuilds them."""
    w.scalars[BUCKETS] = 0
    w.scalars[MOST_ALIKE] = 0
    for at in range(len(w.hashes)):
        w.hashes[at] = NONE
