"""Past events in a table of a database, in the order of their times.

Events of one time are in the order of the primary key.  All are read by one statement, so that rows
which are written meanwhile are none of them.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from mesh.history.rows import rows_of
from mesh.model.stored import Backend, StoreOptions
from mesh.plan.history_addresses import unusable
from mesh.store import sources
from mesh.store.engine import database_errors, engine_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import sqlalchemy as sa

    from mesh.history.rows import PastRows
    from mesh.model.stored import Database
    from mesh.plan.history_addresses import TablePlace

#: Rows of one batch.
BATCH_ROWS: Final = 65_536
#: Longest time of a statement, seconds: the database sorts the whole table.
_STATEMENT_S: Final = 3600


@dataclass(frozen=True, slots=True)
class HistoryTable:
    """A table with past events.

    It has a column for each attribute of the stream, and ``time`` with the times of events:
    timestamps (UTC without a zone), or milliseconds since 1970.
    """

    place: TablePlace
    schema: pa.Schema
    time: str
    #: The app that reads it.
    app: str = ""

    def count(self) -> int:
        """The number of rows."""
        import sqlalchemy as sa

        with self._connected() as connection:
            table = self._table(connection)
            return int(connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0)

    def contents(self) -> str:
        """The table with its number of rows: one to which rows are added is another one."""
        return f"{self.place} {self.count()}"

    def batches(self, skipped: int = 0) -> Iterator[PastRows]:
        """All rows but the first ``skipped``.

        Raises:
            MeshError: MESH-C161 for a table that can't be used, MESH-S140 to MESH-S145 for the
                database.
        """
        import sqlalchemy as sa

        with self._connected() as connection:
            table = self._table(connection)
            names = list(dict.fromkeys((*self.schema.names, self.time)))
            order = dict.fromkeys((self.time, *(c.name for c in table.primary_key.columns)))
            query = sa.select(*(table.c[name] for name in names))
            query = query.order_by(*(table.c[name] for name in order))
            query = query.offset(skipped) if skipped else query
            streaming = connection.execution_options(yield_per=BATCH_ROWS)
            with streaming.execute(query) as result:
                for some in result.partitions():
                    yield self._rows(names, some)

    def _rows(self, names: Sequence[str], rows: Sequence[Sequence[object]]) -> PastRows:
        try:
            values = zip(*rows, strict=True)
            columns = [self._column(n, list(some)) for n, some in zip(names, values, strict=True)]
            batch = pa.RecordBatch.from_arrays(columns, names=list(names))
            return rows_of(self.place, batch, self.schema, self.time)
        except pa.ArrowException as error:
            raise unusable(f"{self.place} has other values", f"{error}") from error

    @contextmanager
    def _connected(self) -> Iterator[sa.Connection]:
        database = self.place.database
        if database is None:
            database = sources.database(StoreOptions(None, source=self.place.source), self.app)
        with (
            database_errors(database, "reading past events"),
            _engine_of(database).connect() as connection,
        ):
            yield connection

    def _table(self, connection: sa.Connection) -> sa.Table:
        import sqlalchemy as sa

        space, _, name = self.place.table.rpartition(".")
        try:
            table = sa.Table(name, sa.MetaData(), schema=space or None, autoload_with=connection)
        except sa.exc.NoSuchTableError:
            raise unusable(f"there is no {self.place}", "") from None
        missing = [n for n in (*self.schema.names, self.time) if n not in table.c]
        if missing:
            columns = ", ".join(table.c.keys())
            raise unusable(f'{self.place} has no column "{missing[0]}"', f"It has: {columns}.")
        return table

    def _column(self, name: str, values: list[Any]) -> Any:
        if name in self.schema.names and name != self.time:
            kind = self.schema.field(name).type
            try:
                return pa.array(values, kind)
            except pa.ArrowException:
                # As a decimal of the database for a double of the stream.
                return pa.array(values).cast(kind)
        return pa.array(values)


def _engine_of(database: Database) -> sa.Engine:
    if database.backend is not Backend.SQLITE:
        return engine_of(database, _STATEMENT_S)
    import sqlite3
    from urllib.parse import quote

    import sqlalchemy as sa

    # Not by ``engine_of``, whose connections lock the file for writers.
    address = f"file:{quote(database.database)}?mode=ro"
    return sa.create_engine(
        "sqlite+pysqlite://",
        poolclass=sa.NullPool,
        creator=lambda: sqlite3.connect(address, uri=True),
    )
