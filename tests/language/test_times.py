"""Numbers of texts as the original reads them."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from mesh.language.times import round_to_float


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_rounding_to_float_keeps_floats(value: float) -> None:
    assert round_to_float(value) == value
