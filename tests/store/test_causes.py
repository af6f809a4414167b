"""Errors of real databases: one that refuses a statement is not taken for one that is away."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
import sqlalchemy as sa

from mesh.errors import MeshError
from mesh.model.stored import (
    DELETED,
    Backend,
    MergeRule,
    StoredColumn,
    StoredTable,
    changes_channel,
    changes_schema,
)
from mesh.model.types import AttributeType
from mesh.store.engine import database_errors, engine_of
from mesh.store.writer import StoredRows, StoreWriter
from tests.support.databases import new_database

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.databases import TestDatabase

TABLE = StoredTable(
    "Seats",
    (
        StoredColumn("k", AttributeType.STRING, MergeRule.KEY, 20),
        StoredColumn("n", AttributeType.INT, MergeRule.LATEST),
    ),
)


def run_sql(store: TestDatabase, *statements: str) -> None:
    """Statements whose names are in double quotes, which MySQL has as backquotes."""
    is_mysql = store.database.backend is Backend.MYSQL
    with (
        database_errors(store.database, "when a test runs"),
        engine_of(store.database).begin() as c,
    ):
        for text in statements:
            c.execute(sa.text(text.replace('"', "`") if is_mysql else text))


def refused(store: TestDatabase, *statements: str) -> MeshError:
    with pytest.raises(MeshError) as raised:
        run_sql(store, *statements)
    return raised.value


def test_a_column_of_others_without_a_default_is_named_with_what_helps(store: TestDatabase) -> None:
    run_sql(
        store,
        'CREATE TABLE "Seats" ("k" varchar(20) PRIMARY KEY, "n" integer, "row" integer NOT NULL)',
    )
    one = StoreWriter(store.database, "p", 1, [TABLE])
    row = {"k": "a", "n": 1, DELETED: False}
    rows = pa.RecordBatch.from_pylist([row], schema=changes_schema(TABLE))
    with pytest.raises(MeshError) as raised:
        one.commit([StoredRows(changes_channel("Seats"), np.array([1], np.int64), rows)])
    error = raised.value
    assert error.code == "MESH-S142"
    assert "row" in str(error.detail)
    assert str(error.hint).startswith("Give the column a default, let it be null, or give the")


def test_a_view_that_takes_no_rows_is_refused_with_what_helps(store: TestDatabase) -> None:
    run_sql(
        store,
        'CREATE TABLE "Base" ("k" varchar(20), "n" integer)',
        'CREATE VIEW "Seats" AS SELECT DISTINCT "k", "n" FROM "Base"',
    )
    error = refused(store, 'INSERT INTO "Seats" ("k", "n") VALUES (\'a\', 1)')
    assert (error.code, str(error.hint)[:26]) == ("MESH-S142", "Name a table by table.name")
    assert "Seats" in str(error.detail)


def test_a_table_that_is_gone_is_no_database_that_is_away(store: TestDatabase) -> None:
    error = refused(store, 'INSERT INTO "Gone" VALUES (1)')
    assert error.code == "MESH-S142"
    assert "Gone" in str(error.detail)


@pytest.mark.slow
def test_a_file_of_sqlite_that_may_not_be_written_is_told_and_one_in_use_is_away(
    tmp_path: Path,
) -> None:
    store = new_database(None, tmp_path, "one")
    run_sql(store, 'CREATE TABLE "Base" ("k" varchar(20))')
    error = refused(store, "PRAGMA query_only = ON", "INSERT INTO \"Base\" VALUES ('a')")
    assert (error.code, str(error.hint)[:16]) == ("MESH-S142", "Grant the rights")
    hurried = replace(store.database, connect_timeout_s=1.0)
    with (
        engine_of(store.database).begin(),
        pytest.raises(MeshError) as raised,
        database_errors(hurried, "when a test runs"),
    ):
        engine_of(hurried).connect().begin()
    assert raised.value.code == "MESH-S140"
