"""Hash codes of values as Java has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from mesh.operators.windows.java_hash_order import places, spread


def test_the_hash_codes_of_values_are_those_of_java() -> None:
    """Taken from a Java shell: ``Long.hashCode(-5L)`` and so on, before their halves are mixed."""

    def mixed(code: int) -> int:
        return (code & 0xFFFFFFFF) ^ ((code & 0xFFFFFFFF) >> 16)

    cases: list[tuple[pa.Array[Any], list[int]]] = [
        (pa.array([5, -5, None], pa.int32()), [5, -5, 0]),
        (pa.array([5, -5, 1 << 40], pa.int64()), [5, 4, 256]),
        (pa.array([1.5, -0.0], pa.float64()), [1073217536, -2147483648]),
        (pa.array(np.array([1.5, -2.0], np.float32)), [1069547520, -1073741824]),
        (pa.array([True, False]), [1231, 1237]),
    ]
    for column, codes in cases:
        assert list(places(column)) == [mixed(code) for code in codes]
    assert list(places(pa.array(["ab"]))) == [spread("ab")] == [mixed(3105)]
