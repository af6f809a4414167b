"""Closed rows of an aggregation into PostgreSQL, beside a bare binary COPY and merge.

The writer of an instance commits rows with its marker.  The bare program has the same rows as
tuples of the driver, and neither merges equal keys, nor sorts, nor knows a position.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from bench.connector.harness import Figure
from mesh.files import scratch
from mesh.model.stored import Backend, MergeRule, StoredColumn, StoredTable, rows_channel
from mesh.model.types import AttributeType
from mesh.store import copying
from mesh.store.copying import merge_rows
from mesh.store.schema import sql_table
from mesh.store.values import merged, values
from mesh.store.writer import StoredRows, StoreWriter
from tests.support import databases

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Groups of an aggregation, of which half are in the table already, and commits of each program.
GROUPS: Final = 10_000
ROUNDS: Final = 20
#: Part of the bare rate.
_SHARE: Final = 0.8
_LONG, _DOUBLE = AttributeType.LONG, AttributeType.DOUBLE
_COLUMNS: Final = (
    StoredColumn("AGG_TIMESTAMP", _LONG, MergeRule.KEY),
    StoredColumn("symbol", AttributeType.STRING, MergeRule.KEY),
    StoredColumn("AGG_SUM_price", _DOUBLE, MergeRule.SUM),
    StoredColumn("AGG_COUNT", _LONG, MergeRule.SUM),
    StoredColumn("AGG_MIN_price", _DOUBLE, MergeRule.MIN),
    StoredColumn("AGG_MAX_price", _DOUBLE, MergeRule.MAX),
    StoredColumn("AGG_SUM_quantity", _LONG, MergeRule.SUM),
)


def measure(*, quick: bool = False) -> list[Figure]:
    """The figure; ``quick`` for a test, with little data."""
    groups, rounds = (300, 3) if quick else (GROUPS, ROUNDS)
    with databases.postgresql() as running, scratch.directory("bench-ask") as directory:
        database = databases.new_database(running, directory, "bench").database
        own, bare = (StoredTable(name, _COLUMNS, "AGG_TIMESTAMP") for name in ("Own", "Bare"))
        writer = StoreWriter(database, "bench", 1, [own, bare])
        writer.open()
        plain = _Bare(writer, bare)
        took_s: dict[str, list[float]] = {"own": [], "bare": []}
        for number in range(rounds):
            rows = _rows(number, groups)
            position = np.arange(groups) + 1 + number * groups
            stored = StoredRows(rows_channel("Own"), position, rows)
            took_s["own"].append(_took_s(lambda stored=stored: writer.commit([stored])))  # type: ignore[misc]
            tuples = values(merged(rows, bare), Backend.POSTGRESQL)
            took_s["bare"].append(_took_s(lambda tuples=tuples: plain.commit(tuples)))  # type: ignore[misc]
        assert writer.rows(own).num_rows == writer.rows(bare).num_rows
        writer.close()
    own_rate, bare_rate = (groups / _typical_s(took_s[name]) for name in ("own", "bare"))
    note = f"{rounds} commits of {groups:,} rows, half of them of rows that are there"
    name = "closed rows into PostgreSQL, exactly once, beside a bare COPY and merge"
    return [Figure(name, own_rate / 1000, "k/s", _SHARE, limit=bare_rate / 1000, note=note)]


class _Bare:
    """Binary COPY and merge over a connection of the writer's kind."""

    def __init__(self, writer: StoreWriter, table: StoredTable) -> None:
        import sqlalchemy as sa

        connection: Any = writer._connection
        assert connection is not None, "opened"
        target = sql_table(table, sa.MetaData(), Backend.POSTGRESQL)
        name = copying.temporary(table.name)
        columns: list[Any] = [sa.column(column.name) for column in table.columns]
        source: Any = sa.table(sa.quoted_name(name, True), *columns)
        merging = merge_rows(table, target, Backend.POSTGRESQL, source)
        self._merge = str(merging.compile(dialect=connection.dialect))
        names = ", ".join(f'"{column.name}"' for column in table.columns)
        self._copy = f'COPY "{name}" ({names}) FROM STDIN (FORMAT BINARY)'
        self._types = ["int8", "text", "float8", "int8", "float8", "float8", "int8"]
        self._driver = connection.connection.driver_connection

    def commit(self, rows: Sequence[tuple[Any, ...]]) -> None:
        with self._driver.transaction(), self._driver.cursor() as cursor:
            with cursor.copy(self._copy) as copy:
                copy.set_types(self._types)
                for row in rows:
                    copy.write_row(row)
            cursor.execute(self._merge)


def _rows(number: int, groups: int) -> pa.RecordBatch:
    """Rows of a bucket of ten seconds, of which every second commit is the first."""
    rng = np.random.default_rng(number)
    price = rng.integers(0, 1000, groups) / 8
    columns: list[pa.Array[Any]] = [
        pa.array(np.full(groups, number // 2 * 10_000)),
        pa.array([f"symbol-{key}" for key in rng.permutation(groups).tolist()]),
        pa.array(price * 3),
        pa.array(np.full(groups, 3)),
        pa.array(price - 1),
        pa.array(price + 1),
        pa.array(rng.integers(0, 1000, groups)),
    ]
    return pa.RecordBatch.from_arrays(columns, [column.name for column in _COLUMNS])


def _typical_s(took_s: Sequence[float]) -> float:
    """The mean of the medians of commits of new rows, and of rows that are there.

    The latter take nearly twice as long, so the median of all may be any time between.
    """
    return (statistics.median(took_s[::2]) + statistics.median(took_s[1::2])) / 2


def _took_s(call: Callable[[], None]) -> float:
    began_s = time.perf_counter()
    call()
    return time.perf_counter() - began_s
