"""Look-ups as SQL: a database finds at least the rows that meet the condition, and few others."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.model.stored import (
    AllOf,
    AnyKey,
    AnyOf,
    Backend,
    Clause,
    Compared,
    Comparison,
    MergeRule,
    StoredColumn,
    StoredTable,
)
from mesh.model.types import AttributeType
from mesh.store.lookups import select
from mesh.store.schema import sql_table
from mesh.store.sql import sa

if TYPE_CHECKING:
    from collections.abc import Callable

TABLE: Final = StoredTable(
    "T",
    (
        StoredColumn("k", AttributeType.LONG, MergeRule.KEY),
        StoredColumn("s", AttributeType.STRING, MergeRule.LATEST, 20),
        StoredColumn("v", AttributeType.DOUBLE, MergeRule.LATEST),
        StoredColumn("b", AttributeType.BOOL, MergeRule.LATEST),
    ),
)
TEXTS: Final = st.text("ab%_/\\", max_size=4)
VALUES: Final[dict[str, st.SearchStrategy[Any]]] = {
    "k": st.integers(0, 9),
    "s": TEXTS,
    "v": st.sampled_from([-1.5, 0.0, 2.0, 1e300]),
    "b": st.booleans(),
}
ROWS: Final = st.lists(
    st.fixed_dictionaries(
        {"k": VALUES["k"], **{n: st.none() | VALUES[n] for n in ("s", "v", "b")}}
    ),
    max_size=8,
    unique_by=lambda row: row["k"],
)
HOW: Final[dict[Comparison, Callable[[Any, Any], bool]]] = {
    Comparison.EQUAL: operator.eq, Comparison.LESS: operator.lt,
    Comparison.LESS_OR_EQUAL: operator.le, Comparison.GREATER: operator.gt,
    Comparison.GREATER_OR_EQUAL: operator.ge,
    Comparison.CONTAINS: lambda text, part: part in text,
}  # fmt: skip


@st.composite
def compared(draw: st.DrawFn) -> Clause:
    column = draw(st.sampled_from(["k", "s", "v", "b"]))
    how = draw(st.sampled_from(Comparison))
    if how in (Comparison.IS_NULL, Comparison.IS_NOT_NULL):
        return Compared(column, how)
    if how is Comparison.CONTAINS:
        return Compared("s", how, draw(TEXTS))
    return Compared(column, how, draw(VALUES[column]))


@st.composite
def any_key(draw: st.DrawFn) -> Clause:
    columns = tuple(draw(st.lists(st.sampled_from(["k", "s", "b"]), min_size=1, unique=True)))
    keys = draw(st.lists(st.tuples(*(VALUES[column] for column in columns)), max_size=4))
    return AnyKey(columns, tuple(keys))


CLAUSES: Final = st.recursive(
    compared() | any_key(),
    lambda parts: st.builds(
        lambda kind, listed: kind(tuple(listed)),
        st.sampled_from([AllOf, AnyOf]), st.lists(parts, max_size=3),
    ),
    max_leaves=5,
)  # fmt: skip


def holds(clause: Clause, row: dict[str, Any]) -> bool:
    match clause:
        case AllOf(parts):
            return all(holds(part, row) for part in parts)
        case AnyOf(parts):
            return any(holds(part, row) for part in parts)
        case AnyKey(columns, keys):
            return tuple(row[column] for column in columns) in keys
        case Compared(column, Comparison.IS_NULL):
            return row[column] is None
        case Compared(column, Comparison.IS_NOT_NULL):
            return row[column] is not None
        case Compared(column, how, value):
            return row[column] is not None and bool(HOW[how](row[column], value))


def found(rows: list[dict[str, Any]], clause: Clause) -> list[int]:
    """The keys of the rows that SQLite finds."""
    engine = sa.create_engine("sqlite://")
    target = sql_table(TABLE, sa.MetaData(), Backend.SQLITE)
    target.metadata.create_all(engine)
    with engine.begin() as connection:
        if rows:
            connection.execute(sa.insert(target), rows)
        keys = [row.k for row in connection.execute(select(TABLE, target, clause, Backend.SQLITE))]
    engine.dispose()
    return sorted(keys)


@given(rows=ROWS, clause=CLAUSES)
def test_sqlite_finds_the_rows_of_which_it_holds(
    rows: list[dict[str, Any]], clause: Clause
) -> None:
    # Texts here have no letters that LIKE would take for others.
    assert found(rows, clause) == sorted(row["k"] for row in rows if holds(clause, row))


def test_signs_of_patterns_are_only_themselves() -> None:
    texts = ["ab", "a%b", "a_b", "a/b", None]
    rows = [{"k": n, "s": text, "v": None, "b": None} for n, text in enumerate(texts)]
    for key, sign in ((1, "%"), (2, "_"), (3, "/")):
        assert found(rows, Compared("s", Comparison.CONTAINS, sign)) == [key]
    assert found(rows, Compared("s", Comparison.CONTAINS, "")) == [0, 1, 2, 3]


def test_no_parts_hold_for_every_row_or_for_none() -> None:
    rows = [{"k": 1, "s": None, "v": None, "b": None}]
    assert found(rows, AllOf()) == [1]
    assert found(rows, AnyOf()) == []
    assert found(rows, AnyKey(("k",), ())) == []


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_numbers_that_a_database_lacks_select_nothing_away(value: float) -> None:
    rows = [{"k": 1, "s": None, "v": 2.0, "b": None}]
    assert found(rows, Compared("v", Comparison.LESS, value)) == [1]


def test_a_text_with_a_zero_is_in_no_row() -> None:
    rows = [{"k": 1, "s": "a", "v": None, "b": None}]
    for how in (Comparison.EQUAL, Comparison.CONTAINS):
        assert found(rows, AnyOf((Compared("s", how, "a\0"),))) == []
    assert found(rows, AnyKey(("s",), (("a\0",), ("a",)))) == [1]
