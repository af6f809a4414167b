"""Pages of rows as pieces of a state: a batch that changes few rows gives few of them new names."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from mesh.operators.base import State
from mesh.operators.state.range_pieces import PagedPieces

PAGE = 4096


def table(values: list[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"v": pa.array(values, pa.int64())})


def pieces_of(paged: PagedPieces, values: list[int]) -> dict[str, pa.RecordBatch]:
    return paged.pieces(lambda start, stop: table(values[start:stop]), len(values))


def test_only_pages_that_changed_have_new_names() -> None:
    paged = PagedPieces("t")
    values = list(range(3 * PAGE - 5))
    paged.touch_added(0, len(values), 1)
    first = pieces_of(paged, values)
    assert list(first) == ["t-0-1", "t-1-1", "t-2-1"]
    values[PAGE] = -1
    paged.touch(np.array([PAGE, -1]), 2)
    second = pieces_of(paged, values)
    assert sorted(second) == ["t-0-1", "t-1-2", "t-2-1"]
    assert second["t-1-2"].column("v")[0].as_py() == -1
    assert paged.names == ["t-0-1", "t-1-2", "t-2-1"]
    paged.touch(np.array([-1, -7]), 3)
    assert pieces_of(paged, values).keys() == second.keys()


def test_rows_that_are_cut_off_take_their_pages_along() -> None:
    paged = PagedPieces("t")
    paged.touch_added(0, 3 * PAGE, 1)
    paged.touch_from(PAGE + 3, PAGE + 4, 2)
    assert paged.names == ["t-0-1", "t-1-2"]
    paged.touch_from(0, 0, 3)
    assert paged.names == []


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(0, 2 * PAGE)),
            st.tuples(st.just("set"), st.integers(0, 5 * PAGE)),
            st.tuples(st.just("cut"), st.integers(0, 5 * PAGE)),
        ),
        max_size=8,
    )
)
def test_pieces_are_the_rows_and_a_name_stands_for_one_content(
    steps: list[tuple[str, int]],
) -> None:
    paged, values = PagedPieces("t"), list[int]()
    known: dict[str, pa.RecordBatch] = {}
    for version, (what, number) in enumerate(steps, 1):
        if what == "add":
            first = len(values)
            values += range(first, first + number)
            if number:
                paged.touch_added(first, len(values), version)
        elif values and what == "set":
            at = number % len(values)
            values[at] = -version
            paged.touch(np.array([at]), version)
        elif values:
            at = number % len(values)
            del values[at:]
            paged.touch_from(at, at, version)
        found = pieces_of(paged, values)
        for name, piece in found.items():
            assert known.setdefault(name, piece).equals(piece)
        rows = [v for name in paged.names for v in found[name].column("v").to_pylist()]
        assert rows == values
    other = PagedPieces("t")
    restored = other.restore(paged.versions(), State(pieces_of(paged, values), {}))
    assert sorted(restored) == [PAGE * n for n in range(len(paged.names))]
    assert other.names == paged.names
