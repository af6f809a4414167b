"""Texts of values as Java has them."""

from __future__ import annotations

import pyarrow as pa

from mesh.mapping.texts import text_of


def test_texts_of_numbers_are_javas() -> None:
    column = pa.array([1.0, 1e10, 0.0001, None, 2.5, 0.0], pa.float64())
    assert text_of(column).to_pylist() == ["1.0", "1.0E10", "1.0E-4", "null", "2.5", "0.0"]
