"""Native binary heap of timers, for windows and patterns.

A heap is the first rows of a table, ordered by the columns 0 and 1: the time that a timer is due,
and a number that distinguishes timers of one time.  The table's owner keeps the number of its rows.
"""

from __future__ import annotations

from mesh.operators.native import helper


@helper
def _is_earlier(heap, left, right):  # type: ignore[no-untyped-def]
    if heap[left, 0] != heap[right, 0]:
        return heap[left, 0] < heap[right, 0]
    return heap[left, 1] < heap[right, 1]


@helper
def swap_rows(heap, columns, left, right):  # type: ignore[no-untyped-def]
    """Exchange two rows of that many columns."""
    for column in range(columns):
        held = heap[left, column]
        heap[left, column] = heap[right, column]
        heap[right, column] = held


@helper
def sift_up(heap, columns, at):  # type: ignore[no-untyped-def]
    """Move the row ``at``, the last one, up to its place."""
    while at > 0:
        parent = (at - 1) // 2
        if not _is_earlier(heap, at, parent):
            break
        swap_rows(heap, columns, at, parent)
        at = parent


@helper
def remove_first(heap, columns, last):  # type: ignore[no-untyped-def]
    """Exchange the first row with row ``last``, the last one; all but that are a heap then."""
    swap_rows(heap, columns, 0, last)
    at = 0
    while True:
        least = at
        for child in (2 * at + 1, 2 * at + 2):
            if child < last and _is_earlier(heap, child, least):
                least = child
        if least == at:
            break
        swap_rows(heap, columns, at, least)
        at = least
