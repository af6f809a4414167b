"""PostgreSQL's binary format, read by a real server."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mesh.store.copying import _ROWS, encoded
from mesh.store.engine import engine_of
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
