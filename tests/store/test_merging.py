"""Rows that are merged by key in one statement: as merging them one after the other does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.model.stored import Backend, MergeRule, StoredColumn, StoredTable
from mesh.model.types import AttributeType
from mesh.store.merging import merge_rows
from mesh.store.sql import sa

LONG = AttributeType.LONG
RULES = {
    "key": MergeRule.KEY, "total": MergeRule.SUM, "least": MergeRule.MIN, "most": MergeRule.MAX,
    "note": MergeRule.LATEST, "at": MergeRule.LAST,
}  # fmt: skip
TABLE = StoredTable("R", tuple(StoredColumn(name, LONG, rule) for name, rule in RULES.items()))
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.integers(0, 2),
            "total": st.none() | st.integers(-9, 9),
            "least": st.none() | st.integers(-9, 9),
            "most": st.none() | st.integers(-9, 9),
            "note": st.none() | st.integers(0, 99),
            "at": st.integers(0, 5),
        }
    ),
    max_size=12,
)


def target_of(table: StoredTable) -> sa.Table:
    keys = {column.name for column in table.keys}
    columns = [sa.Column(c.name, sa.BigInteger, primary_key=c.name in keys) for c in table.columns]
    return sa.Table(table.name, sa.MetaData(), *columns)


def merged(rows: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The rows by key, one after the other."""
    found: dict[int, dict[str, Any]] = {}
    for row in rows:
        old = found.get(row["key"])
        if old is None:
            found[row["key"]] = dict(row)
            continue
        values = {name: [v for v in (old[name], row[name]) if v is not None] for name in RULES}
        is_later = row["at"] >= old["at"]
        found[row["key"]] = {
            "key": row["key"],
            "total": sum(values["total"]) if values["total"] else None,
            "least": min(values["least"], default=None),
            "most": max(values["most"], default=None),
            "note": row["note"] if is_later else old["note"],
            "at": max(row["at"], old["at"]),
        }
    return found


@given(rows=ROWS)
def test_a_row_is_merged_with_that_of_its_key(rows: list[dict[str, Any]]) -> None:
    engine = sa.create_engine("sqlite://")
    target = target_of(TABLE)
    target.metadata.create_all(engine)
    with engine.begin() as connection:
        for row in rows:
            connection.execute(merge_rows(TABLE, target, Backend.SQLITE), row)
        found = [dict(row) for row in connection.execute(sa.select(target)).mappings()]
    engine.dispose()
    # An extreme that comes first to an empty value is taken, and a null changes none.
    assert {row["key"]: row for row in found} == merged(rows)


@pytest.mark.parametrize("backend", [Backend.SQLITE, Backend.POSTGRESQL, Backend.MYSQL])
def test_the_time_of_the_latest_values_is_assigned_last(backend: Backend) -> None:
    from sqlalchemy.dialects import mysql, postgresql, sqlite

    dialects: dict[Backend, Any] = {
        Backend.SQLITE: sqlite, Backend.POSTGRESQL: postgresql, Backend.MYSQL: mysql,
    }  # fmt: skip
    statement = merge_rows(TABLE, target_of(TABLE), backend)
    text = str(statement.compile(dialect=dialects[backend].dialect()))
    changes = text[text.upper().index(" UPDATE ") :]
    assert text.upper().count("ON CONFLICT") == (backend is not Backend.MYSQL)
    # MySQL reads what it has assigned.
    assert changes.rindex("note") < changes.rindex(" at " if "`at`" not in changes else "`at`")


@pytest.mark.parametrize("backend", [Backend.SQLITE, Backend.POSTGRESQL, Backend.MYSQL])
def test_a_row_that_is_its_key_stays_as_it_is(backend: Backend) -> None:
    keys = StoredTable("K", (StoredColumn("k", LONG, MergeRule.KEY),))
    statement = merge_rows(keys, target_of(keys), backend)
    if backend is Backend.SQLITE:
        assert "DO NOTHING" in str(statement.compile(dialect=sa.create_engine("sqlite://").dialect))
    if backend is Backend.MYSQL:
        from sqlalchemy.dialects import mysql

        text = str(statement.compile(dialect=mysql.dialect()))
        assert "ON DUPLICATE KEY UPDATE k = " in text
