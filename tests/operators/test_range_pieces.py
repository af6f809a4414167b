"""Pieces of a state by ranges of rows."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.operators.state import range_pieces
from mesh.operators.state.range_pieces import NUMBER, cut, joined, pieces_of

NUMBERS = st.sets(st.integers(0, 5000), max_size=400).map(sorted)


def table(numbers: list[int]) -> pa.RecordBatch:
    texts = pa.array([f"v{number}" for number in numbers], pa.string())
    return pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64()), texts], names=[NUMBER, "v"])


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_pieces, "_MOST", 16)


@pytest.mark.usefixtures("small_pieces")
def test_what_is_cut_is_joined_again_and_a_change_stays_in_its_piece() -> None:
    @settings(max_examples=2 * settings().max_examples)
    @given(numbers=NUMBERS, gone=st.integers(0, 5000))
    def holds(numbers: list[int], gone: int) -> None:
        rows = table(numbers)
        pieces = cut("rows", rows)
        assert all(0 < len(piece) <= 16 for piece in pieces.values())
        assert pieces_of("rows", {**pieces, "rows1-x": rows}) == pieces
        if numbers:
            assert joined(pieces) == rows
        fewer = cut("rows", table([number for number in numbers if number != gone]))
        # Its piece is another one, or it and the one beside it have become one.
        assert len(set(pieces) - set(fewer)) <= 1 + (len(fewer) < len(pieces))
        assert len(set(fewer) - set(pieces)) <= 1

    holds()
