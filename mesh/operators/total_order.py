"""Total order of events and timers: the borders of chunks, and the place of a timer.

Each rule is defined once, as NumPy for whole runs and compiled for native loops.  The compiled form
is one function for both: plain Python calls its ``py_func``.

Events with equal (order, clock, path) have one *cause*; with equal chunk too they are one *chunk*.

A timer that is due at t fires before the first event with a clock of t or later.  If that is the
k-th event of a run that begins with external event ``first``, its order is ``2 * (first + k)``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mesh.operators.base import NEVER
from mesh.operators.native import helper, helper_with_entry

if TYPE_CHECKING:
    from mesh.operators.base import Bools, EventBatch, Longs


# Borders, NumPy


def run_begins(*columns: Any) -> Bools:
    """bool[n], whether any of ``columns`` differs from the row before; true for the first row."""
    count = len(columns[0])
    begins = np.ones(count, dtype=np.bool_)
    if count > 1:
        begins[1:] = columns[0][1:] != columns[0][:-1]
        for column in columns[1:]:
            begins[1:] |= column[1:] != column[:-1]
    return begins


def run_starts(begins: Bools) -> Longs:
    """int64[n], for each row the index at which its run begins."""
    return np.maximum.accumulate(np.where(begins, np.arange(len(begins)), 0))


def cause_begins(events: EventBatch) -> Bools:
    """bool[n], whether an event has another cause than the one before it."""
    return run_begins(events.order, events.clock_ms, events.path)


def instance_chunk_begins(events: EventBatch) -> Bools:
    """bool[n], whether the part of a chunk that is of one partition instance begins with it."""
    columns = (events.order, events.clock_ms, events.path, events.chunk, events.instance)
    return run_begins(*columns)


def chunk_starts(events: EventBatch) -> Longs:
    """int64[m], the first row of each chunk."""
    columns = (events.order, events.clock_ms, events.path, events.chunk)
    return np.flatnonzero(run_begins(*columns))


# Borders, native


@helper
def is_same_cause(  # type: ignore[no-untyped-def]
    order, clock, path, other_order, other_clock, other_path
):
    """Whether two events have one cause."""
    return order == other_order and clock == other_clock and path == other_path


@helper
def is_same_chunk(  # type: ignore[no-untyped-def]
    order, clock, path, chunk, other_order, other_clock, other_path, other_chunk
):
    """Whether two events are of one chunk."""
    return (
        order == other_order
        and clock == other_clock
        and path == other_path
        and chunk == other_chunk
    )


# Timers, native and Python.  A timer of a window has a number, which is odd if the timer was due
# already when it was set: such a timer fires after everything else that is under way.


@helper_with_entry
def fires_before(  # type: ignore[no-untyped-def]
    due, number, timer_path, last_order, last_clock, order, clock, path
):
    """Whether a timer fires before an event at (order, clock, path), while time is real.

    ``last_order``, ``last_clock``: the event or timer that was processed before.
    """
    if number % 2 == 1:
        if last_order % 2 == 0:
            return order != last_order or clock != last_clock
        if order != last_order + 1 or clock != last_clock:
            return order > last_order
        return timer_path < path
    if due != clock:
        return due < clock
    # At one instant timers precede external events, and the path decides among timers.
    return order % 2 == 1 or timer_path < path


@helper_with_entry
def fired_order(earlier, first, last_order):  # type: ignore[no-untyped-def]
    """The order of a timer, while time is real.

    ``earlier``: how many clocks of the run, which begins with external event ``first``, are before
    the time at which the timer is due.
    """
    return max(2 * (first + earlier), (last_order + 1) // 2 * 2)


@helper_with_entry
def playback_place(  # type: ignore[no-untyped-def]
    clocks, earlier, due, first, last_order, now, before
):
    """Order and clock of a timer in playback; clock ``NEVER`` if it does not fire in this run.

    Time doesn't pass until an event moves it: a timer set after the last move waits.  ``now``,
    ``before``: the times up to which this run and the previous one extend.
    """
    count = len(clocks)
    at = max(earlier, (last_order + 1) // 2 - first)
    if at < count:
        return 2 * (first + at), clocks[at]
    if due <= now and now > before and (count == 0 or now > clocks[count - 1]):
        return 2 * (first + count), now
    return 0, NEVER
