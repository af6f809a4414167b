"""Rows as hashes of Redis: texts of values, keys, and look-ups."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.model.stored import (
    AllOf,
    AnyKey,
    AnyOf,
    Compared,
    Comparison,
    MergeRule,
    StoredColumn,
    StoredTable,
)
from mesh.model.types import AttributeType
from mesh.store.redis_client import Hashes, finder, text_of, value_of

T = AttributeType
VALUES: dict[AttributeType, st.SearchStrategy[Any]] = {
    T.STRING: st.text(st.characters(exclude_categories=["Cs"])),
    T.INT: st.integers(-(2**31), 2**31 - 1),
    T.LONG: st.integers(-(2**63), 2**63 - 1),
    T.FLOAT: st.floats(width=32, allow_nan=False),
    T.DOUBLE: st.floats(allow_nan=False),
    T.BOOL: st.booleans(),
}


def table(*types: AttributeType) -> Hashes:
    """A table whose columns are all of its key."""
    columns = tuple(StoredColumn(f"c{at}", type, MergeRule.KEY) for at, type in enumerate(types))
    return Hashes(StoredTable("T", columns))


@given(st.data())
def test_a_value_is_that_of_its_text(data: st.DataObject) -> None:
    for attribute, values in VALUES.items():
        value = data.draw(values)
        assert value_of(text_of(value, attribute).encode(), attribute) == value


@given(st.data())
def test_a_key_is_that_of_one_row(data: st.DataObject) -> None:
    types = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
    key = tuple(data.draw(VALUES[one]) for one in types)
    own = table(*types)
    assert own.key_in(own.key_of(key).encode()) == key
    other = tuple(data.draw(VALUES[one]) for one in types)
    assert (key == other) == (own.key_of(key) == own.key_of(other))


@pytest.mark.parametrize(
    ("key", "types"),
    [
        (b"T:05", [T.INT]),
        (b"T:+5", [T.LONG]),
        (b"T:99999999999", [T.INT]),
        (b"T:1.50", [T.DOUBLE]),
        (b"T:-0.0", [T.DOUBLE]),
        (b"T:NaN", [T.DOUBLE]),
        (b"T:1", [T.BOOL]),
        (b"T:\xff", [T.STRING]),
        (b"T:a", [T.STRING, T.STRING]),
        (b"T:a:b:c", [T.STRING, T.STRING]),
        (b"T:1e999999999", [T.LONG]),
    ],
)
def test_another_key_is_of_no_row(key: bytes, types: list[AttributeType]) -> None:
    assert table(*types).key_in(key) is None


def test_texts_of_numbers_are_exact_or_none() -> None:
    assert value_of(b"0.1", T.FLOAT) == float(np.float32(0.1))
    # More digits than a float has: ``to_arrow`` tells it.
    assert value_of(b"0.123456789", T.FLOAT) == 0.123456789
    assert value_of(b"1e1", T.DOUBLE) == 10.0
    assert value_of(b"0.10000000000000000001", T.DOUBLE) == "0.10000000000000000001"
    assert value_of(b"1e400", T.DOUBLE) == "1e400"
    assert math.isnan(value_of(b"NaN", T.DOUBLE))
    assert value_of(b"-Infinity", T.DOUBLE) == -math.inf
    assert value_of(b"1_0", T.INT) == "1_0"
    assert value_of("٣".encode(), T.INT) == "٣"
    assert value_of(b"\xff", T.STRING) == b"\xff"
    assert value_of(b"TRUE", T.BOOL) is True


def test_a_hash_without_fields_of_the_table_is_no_row() -> None:
    columns = (
        StoredColumn("k", T.STRING, MergeRule.KEY),
        StoredColumn("n", T.INT, MergeRule.LATEST),
    )
    own = Hashes(StoredTable("T", columns))
    assert own.row_of(("a",), [None, None]) is None
    assert own.row_of(("a",), [None, b"5"]) == ("a", 5)
    # The key counts.
    assert own.row_of(("a",), [b"b", None]) == ("a", None)


ROWS: list[dict[str, Any]] = [
    {"k": "a", "n": 1, "v": 0.5},
    {"k": "b", "n": None, "v": math.nan},
    {"k": "ab", "n": "no number", "v": None},
]


@pytest.mark.parametrize(
    ("clause", "found"),
    [
        (AllOf(), "012"),
        (AnyOf(), ""),
        (AnyKey(("n", "k"), ((1, "a"), (2, "b"))), "0"),
        (Compared("k", Comparison.CONTAINS, "b"), "12"),
        (Compared("n", Comparison.IS_NULL), "1"),
        (Compared("n", Comparison.IS_NOT_NULL), "02"),
        (Compared("n", Comparison.LESS, 2), "0"),
        (Compared("v", Comparison.GREATER_OR_EQUAL, 0.5), "0"),
        (AllOf((Compared("n", Comparison.EQUAL, 1), Compared("v", Comparison.LESS, 0.5))), ""),
        (AnyOf((Compared("n", Comparison.EQUAL, 1), Compared("k", Comparison.EQUAL, "b"))), "01"),
    ],
)
def test_look_ups_among_rows(clause: Any, found: str) -> None:
    meets = finder(clause)
    assert "".join(str(at) for at, row in enumerate(ROWS) if meets(row)) == found


def test_a_look_up_by_the_whole_key_names_its_rows() -> None:
    own = table(T.STRING, T.INT)
    by = AnyKey(("c1", "c0"), ((1, "a"), (2, "b")))
    assert own.keys_in(by) == [("a", 1), ("b", 2)]
    assert own.keys_in(AllOf((Compared("c0", Comparison.IS_NOT_NULL), by))) == [("a", 1), ("b", 2)]
    assert own.keys_in(AnyKey(("c0",), (("a",),))) is None
    assert own.keys_in(AnyOf((by, Compared("c0", Comparison.EQUAL, "z")))) is None


@pytest.mark.parametrize(
    ("type", "given", "found"),
    [
        (T.INT, (1.0, -0.0, 2.5, math.nan, math.inf, 3, None), [1, 0, 3]),
        (T.LONG, (float(2**53), 1e300), [2**53, int(1e300)]),
        (T.FLOAT, (0.5, 0.1, 1e300, math.inf, 2), [0.5, math.inf, 2.0]),
        (T.DOUBLE, (0.1, 1), [0.1, 1.0]),
        (T.STRING, ("1.0", ""), ["1.0", ""]),
    ],
)
def test_a_look_up_by_a_number_of_another_type_names_the_key_that_is_equal(
    type: AttributeType, given: tuple[Any, ...], found: list[Any]
) -> None:
    own = table(type)
    made = {T.FLOAT: float, T.DOUBLE: float, T.STRING: str}.get(type, int)
    keys = own.keys_in(AnyKey(("c0",), tuple((one,) for one in given)))
    assert keys == [(one,) for one in found]
    assert keys is not None
    texts = [own.key_of(key) for key in keys]
    assert texts == [f"T:{text_of(made(one), type)}" for one in found]
