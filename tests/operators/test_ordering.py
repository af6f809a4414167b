"""``order by``: columns of numbers sort rows as comparing their values one by one does."""

from __future__ import annotations

import functools
import math
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.functions.vectors import Vector, from_arrow
from mesh.language.syntax import Direction
from mesh.model.types import AttributeType
from mesh.operators.select.ordering import sort_columns

VALUES: dict[AttributeType, st.SearchStrategy[Any]] = {
    AttributeType.INT: st.integers(-(2**31), 2**31 - 1),
    AttributeType.LONG: st.integers(-(2**63), 2**63 - 1),
    AttributeType.FLOAT: st.floats(width=32),
    AttributeType.DOUBLE: st.floats() | st.sampled_from([0.0, -0.0, math.nan]),
    AttributeType.STRING: st.text("aÄz\uffff\U0001f600", max_size=3),
    AttributeType.BOOL: st.booleans(),
}


def compared(a: Any, b: Any) -> int:
    """As Java's ``compareTo``."""
    if isinstance(a, str):
        a, b = a.encode("utf-16-be"), b.encode("utf-16-be")
    elif isinstance(a, float):
        if math.isnan(a) or math.isnan(b):
            return int(math.isnan(a)) - int(math.isnan(b))
        if a == b == 0.0:
            a, b = math.copysign(1.0, a), math.copysign(1.0, b)
    return int(a > b) - int(a < b)


@given(data=st.data())
@pytest.mark.parametrize("type", VALUES)
def test_rows_are_in_the_order_of_their_values(type: AttributeType, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | VALUES[type], max_size=12))
    direction = data.draw(st.sampled_from(Direction))
    vector = from_arrow(pa.array(values, type.arrow), type)
    columns = sort_columns([(vector, direction)])
    found = np.lexsort([np.asarray(column) for column in columns[::-1]]).tolist()
    sign = -1 if direction is Direction.DESCENDING else 1

    def before(one: int, other: int) -> int:
        a, b = values[one], values[other]
        if a is None or b is None:
            return int(a is None) - int(b is None)
        return sign * compared(a, b)

    expected = sorted(range(len(values)), key=functools.cmp_to_key(before))
    if type is AttributeType.DOUBLE and any(
        v is not None and math.isnan(v) and struct.pack(">d", v) != struct.pack(">d", math.nan)
        for v in values
    ):
        # NaNs with other bits are equal as well, so that they keep their order.
        assert [values[n] is None for n in found] == [values[n] is None for n in expected]
    assert found == expected


def test_the_first_key_counts_most() -> None:
    first = from_arrow(pa.array([2, 1, 2, 1], pa.int32()), AttributeType.INT)
    second = from_arrow(pa.array(["a", "b", None, "a"]), AttributeType.STRING)
    keys = [(first, Direction.ASCENDING), (second, Direction.DESCENDING)]
    columns = [np.asarray(column) for column in sort_columns(keys)]
    assert np.lexsort(columns[::-1]).tolist() == [1, 3, 0, 2]


def test_nulls_keep_their_order_whatever_is_in_their_place() -> None:
    vector = Vector(
        AttributeType.INT, np.array([9, 1, 5], dtype=np.int32), np.array([True, True, False])
    )
    for direction in Direction:
        columns = [np.asarray(column) for column in sort_columns([(vector, direction)])]
        assert np.lexsort(columns[::-1]).tolist() == [2, 0, 1]
