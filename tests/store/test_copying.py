"""PostgreSQL's binary format, read by a real server.

Rows that are merged by key in one statement: as merging them one after the other does.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.model.stored import Backend, MergeRule, StoredColumn, StoredTable
from mesh.model.types import AttributeType
from mesh.store.copying import _ROWS, encoded, merge_rows
from mesh.store.engine import engine_of
from mesh.store.sql import sa
from tests.support import databases

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.databases import DatabaseServer


#: By the database's type: Arrow's type, and values that are hard to write.
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, False]),
    "int2": (pa.int16(), [-32768, 32767, 0]),
    "int4": (pa.int32(), [-(2**31), 2**31 - 1]),
    "int8": (pa.int64(), [-(2**63), 2**63 - 1, 2**53 + 1]),
    "float4": (pa.float32(), [1.5, -0.0, math.inf]),
    "float8": (pa.float64(), [0.1, -math.inf, 5e-324]),
    "text": (pa.string(), ["", "a", "żółw\t\n\\", "x" * 70_000, "𝄞"]),
    "bytea": (pa.binary(), [b"", b"\x00\xff", b"PGCOPY"]),
}


def rows_of(count: int, *, nulls: bool) -> pa.RecordBatch:
    """Rows that have the values of each column in turn."""
    arrays = []
    for at, (type_, values) in enumerate(COLUMNS.values()):
        wanted = [*values, None] if nulls else values
        arrays.append(pa.array([wanted[(n + at) % len(wanted)] for n in range(count)], type_))
    return pa.RecordBatch.from_arrays(arrays, names=list(COLUMNS))


@pytest.mark.slow
def test_a_server_reads_what_was_written(postgresql: DatabaseServer, tmp_path: Path) -> None:
    database = databases.new_database(postgresql, tmp_path, "binary_copy").database
    typed = ", ".join(f'"{name}" {name}' for name in COLUMNS)
    with engine_of(database).connect() as connection:
        driver: Any = connection.connection.driver_connection
        cursor = driver.cursor()
        cursor.execute(f"CREATE TEMPORARY TABLE t (n serial, {typed})")
        given = [
            rows_of(7, nulls=True),
            rows_of(5, nulls=False),
            # Arrays that begin within others, and more than one piece.
            rows_of(23, nulls=True).slice(4, 11),
            rows_of(0, nulls=True),
            rows_of(_ROWS + 3, nulls=True).drop_columns(["text"]),
        ]
        for rows in given:
            cursor.execute("TRUNCATE t")
            of_rows = ", ".join(f'"{name}"' for name in rows.schema.names)
            with cursor.copy(f"COPY t ({of_rows}) FROM STDIN (FORMAT BINARY)") as copy:
                for piece in encoded(rows, rows.schema.names):
                    copy.write(piece)
            cursor.execute(f"SELECT {of_rows} FROM t ORDER BY n")
            assert cursor.fetchall() == list(
                zip(*(c.to_pylist() for c in rows.columns), strict=True)
            )


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
