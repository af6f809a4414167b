"""Vectors: constants, and columns to Arrow and back."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from mesh.functions.vectors import constant, from_arrow
from tests.support.vectors import BOOL, DOUBLE, INT, NAN, STRING


@pytest.mark.parametrize("length", [0, 1, 3])
def test_a_constant_broadcasts_to_any_length(length: int) -> None:
    for value, type in (("a", STRING), (1.5, DOUBLE), (None, INT), (True, BOOL)):
        vector = constant(value, type)
        assert vector.to_arrow(length).to_pylist() == [value] * length
        assert vector.to_arrow(length).type == type.arrow


def test_columns_with_nulls_and_nan_survive_the_way_to_arrow_and_back() -> None:
    array = pa.array([1.0, None, NAN])
    vector = from_arrow(array, DOUBLE)
    back = vector.to_arrow(3)
    assert back.null_count == 1
    assert math.isnan(back[2].as_py())
    sliced = from_arrow(pa.array([True, None, False]).slice(1), BOOL)
    assert sliced.to_arrow(2).to_pylist() == [None, False]
