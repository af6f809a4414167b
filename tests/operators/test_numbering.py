"""Numbers of cells by their keys: those of a table by hand, in each order that is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.operators.aggregations.numbering import CellNumbers, CellOrder

#: Batches of events, as (whether time goes on, bucket, group).
BATCHES = st.lists(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 4), st.integers(0, 5)), min_size=1, max_size=20
    ),
    max_size=8,
)


def longs(values: list[int]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


@given(batches=BATCHES, kept=st.integers(0, 3))
@pytest.mark.parametrize("order", [CellOrder.ANY, CellOrder.RISING])
def test_a_key_has_one_number_in_the_order_of_first_events(
    order: CellOrder, batches: list[list[tuple[bool, int, int]]], kept: int
) -> None:
    numbers = CellNumbers(order)
    known: dict[tuple[int, int, int], int] = {}
    now = 0
    for at, events in enumerate(batches):
        keys = []
        for goes_on, bucket, group in events:
            now += goes_on
            keys.append((now, now if order is CellOrder.RISING else bucket, group))
        arrivals, buckets, groups = (longs(list(column)) for column in zip(*keys, strict=True))
        found = numbers.number(arrivals, buckets, groups)
        assert found.tolist() == [known.setdefault(key, len(known)) for key in keys]
        assert [tuple(key) for key in numbers.keys.tolist()] == list(known)
        if at == kept:
            # Every second cell leaves, and the others close up.
            stay = list(range(0, len(known), 2))
            names = list(known)
            numbers.keep(longs(stay))
            known = {names[cell]: number for number, cell in enumerate(stay)}


@given(batches=BATCHES)
@pytest.mark.parametrize("order", [CellOrder.NEW, CellOrder.LATE])
def test_cells_that_are_appended_are_all_new(
    order: CellOrder, batches: list[list[tuple[bool, int, int]]]
) -> None:
    numbers = CellNumbers(order)
    for events in batches:
        first = numbers.count
        arrivals, buckets, groups = (longs([event[n] for event in events]) for n in (0, 1, 2))
        found = numbers.number(arrivals, buckets, groups)
        assert found.tolist() == list(range(first, first + len(events)))
        assert numbers.keys[first:].tolist() == [[int(a), b, c] for a, b, c in events]


def test_groups_that_get_other_numbers_are_found_by_them() -> None:
    numbers = CellNumbers(CellOrder.ANY)
    numbers.number(longs([7, 7, 7]), longs([1, 1, 2]), longs([0, 2, 0]))
    numbers.renumber(longs([1, 9, 0]))
    assert numbers.keys[:, 2].tolist() == [1, 0, 1]
    assert numbers.number(longs([7, 7]), longs([2, 1]), longs([1, 0])).tolist() == [2, 1]


def test_the_room_for_few_cells_stays_and_that_for_many_goes() -> None:
    numbers = CellNumbers(CellOrder.ANY)
    numbers.number(longs([1]), longs([1]), longs([0]), room=100)
    numbers.clear()
    assert numbers.room >= 100
    numbers.number(longs([1]), longs([1]), longs([0]), room=100_000)
    numbers.clear()
    assert (numbers.room, numbers.count) == (0, 0)
    assert numbers.number(longs([1]), longs([1]), longs([0])).tolist() == [0]
