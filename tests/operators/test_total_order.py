"""Borders of chunks, and places of timers among events."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mesh.operators.base import NEVER
from mesh.operators.total_order import (
    fired_order,
    fires_before,
    playback_place,
    run_begins,
    run_starts,
)

ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=20)


@given(rows=ROWS)
def test_a_run_begins_where_any_column_changes(rows: list[tuple[int, int]]) -> None:
    begins = run_begins(*(np.array(column) for column in zip(*rows, strict=True)))
    expected = [at == 0 or rows[at] != rows[at - 1] for at in range(len(rows))]
    assert begins.tolist() == expected
    starts = run_starts(begins).tolist()
    for at, start in enumerate(starts):
        assert expected[start]
        assert set(rows[start : at + 1]) == {rows[at]}


EVENT = st.tuples(st.integers(0, 9), st.integers(0, 5), st.integers(0, 3))


@given(due=st.integers(0, 5), timer_path=st.integers(0, 3), event=EVENT)
def test_a_timer_that_is_due_earlier_fires_first(
    due: int, timer_path: int, event: tuple[int, int, int]
) -> None:
    order, clock, path = event
    fires = fires_before(due, 2, timer_path, 0, 0, order, clock, path)
    if due != clock:
        assert fires == (due < clock)
    elif order % 2:
        assert fires, "timers of an instant precede external events"
    else:
        assert fires == (timer_path < path)


@given(event=EVENT, last=st.tuples(st.integers(0, 4), st.integers(0, 5)))
def test_a_timer_that_was_due_when_it_was_set_fires_after_what_is_under_way(
    event: tuple[int, int, int], last: tuple[int, int]
) -> None:
    order, clock, path = event
    last_order, last_clock = 2 * last[0], last[1]
    fires = fires_before(0, 3, 1, last_order, last_clock, order, clock, path)
    assert fires == ((order, clock) != (last_order, last_clock))


@given(
    clocks=st.lists(st.integers(0, 9), max_size=6).map(sorted),
    due=st.integers(0, 9),
    first=st.integers(0, 5),
    last_order=st.integers(0, 12),
)
def test_a_fired_timer_stands_between_events_and_goes_never_back(
    clocks: list[int], due: int, first: int, last_order: int
) -> None:
    earlier = sum(clock < due for clock in clocks)
    order = fired_order(earlier, first, last_order)
    assert order % 2 == 0
    assert order >= last_order
    # External event k has the order 2 * (first + k) + 1.
    assert order == 2 * (first + earlier) or order - last_order <= 1


@given(
    clocks=st.lists(st.integers(1, 9), max_size=6).map(sorted),
    due=st.integers(0, 12),
    now=st.integers(0, 12),
    before=st.integers(0, 12),
)
def test_a_timer_of_playback_fires_only_where_time_moves(
    clocks: list[int], due: int, now: int, before: int
) -> None:
    earlier = sum(clock < due for clock in clocks)
    order, clock = playback_place(np.array(clocks, dtype=np.int64), earlier, due, 0, 0, now, before)
    if earlier < len(clocks):
        assert (order, clock) == (2 * earlier, clocks[earlier])
        assert clock >= due
    elif due <= now and now > before and now > max(clocks, default=-1):
        assert (order, clock) == (2 * len(clocks), now)
    else:
        assert clock == NEVER
