"""Partitions of events by their keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.model.partition import few_partitions, fnv1a_32, partitions


def fnv1a_byte_by_byte(data: bytes) -> int:
    value = 2166136261
    for byte in data:
        value = ((value ^ byte) * 16777619) & 0xFFFFFFFF
    return value


@given(st.lists(st.binary(max_size=40)))
def test_hashes_equal_the_definition(values: list[bytes]) -> None:
    hashes = fnv1a_32(pa.array(values, pa.binary()))
    assert hashes.tolist() == [fnv1a_byte_by_byte(value) for value in values]


@given(st.lists(st.binary(max_size=40), max_size=10))
def test_hashes_of_many_values_equal_the_definition(values: list[bytes]) -> None:
    # Array operations work on this many.
    many = [*values, *(b"x" * (number % 7) for number in range(200))]
    hashes = fnv1a_32(pa.array(many, pa.binary()))
    assert hashes.tolist() == [fnv1a_byte_by_byte(value) for value in many]


def test_one_long_key_does_not_cost_array_operations_for_each_byte(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searches = 0
    search = np.searchsorted

    def counted(*given: Any, **named: Any) -> Any:
        nonlocal searches
        searches += 1
        return search(*given, **named)

    monkeypatch.setattr(np, "searchsorted", counted)
    long = b"x" * 20_000
    hashes = fnv1a_32(pa.array([b"short", long, *[b"seven.."] * 300], pa.binary()))
    assert hashes[1] == fnv1a_byte_by_byte(long)
    assert searches < 20


@given(st.lists(st.text(max_size=10), min_size=1), st.integers(0, 5))
def test_a_slice_has_the_partitions_of_its_rows(values: list[str], skip: int) -> None:
    whole = pa.array(values)
    assert partitions([whole.slice(skip)], 8).tolist() == partitions([whole], 8).tolist()[skip:]


def test_a_key_of_several_columns_is_joined() -> None:
    joined = partitions([pa.array(["a_1", "b_"])], 8)
    apart = partitions([pa.array(["a", "b"]), pa.array([1, None])], 8)
    assert apart.tolist() == joined.tolist()


@given(
    st.lists(
        st.tuples(
            st.none() | st.text(max_size=5),
            st.none() | st.integers(-(2**63), 2**63 - 1),
            st.none() | st.booleans(),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_few_rows_have_the_partitions_of_columns(rows: list[tuple[Any, ...]]) -> None:
    lists = [list(values) for values in zip(*rows, strict=True)]
    columns = [pa.array(one, kind) for one, kind in zip(lists, KINDS, strict=True)]
    assert few_partitions(lists, 7) == partitions(columns, 7).tolist()
    assert few_partitions([[1.5]], 7) is None


KINDS = (pa.string(), pa.int64(), pa.bool_())
