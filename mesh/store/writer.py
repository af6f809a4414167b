"""The marker transaction: rows and the position up to which they are in the database, as one.

A producer is a part of a group, which numbers its rows the same on each replay.  Its row of
``mesh_marker`` has the position of the last rows in the database, and the epoch of its writer.

    claim    a new writer writes its epoch, and reads the position
    commit   UPDATE mesh_marker .. WHERE producer, epoch and position are still those;
             rows are merged into their tables; COMMIT

The marker's row comes first, so its lock queues a second writer, which then finds no row.  Rows up
to the position are skipped.  If the outcome of a COMMIT is unknown, the connection is given up;
the next claim waits for the end of that transaction, and reads which it was.

If the database refuses rows by a rule of its own, and their table has on.error='STORE', the
transaction is repeated with parts of the rows, and those that are refused are kept in
``mesh_refused`` by it.

The file is longer than 400 lines because all of that is one transaction.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from mesh.model.stored import (
    DELETED,
    EVERY_ROW,
    Backend,
    changes_channel,
    purge_channel,
    rows_channel,
)
from mesh.store import copying
from mesh.store.catalogue import columns_of, described, expect_key
from mesh.store.causes import reason_of
from mesh.store.copying import merge_rows
from mesh.store.engine import database_errors, engine_of, overtaken
from mesh.store.lookups import select
from mesh.store.reads import keep_reads, load_reads
from mesh.store.refusals import drop_refused, is_by_rule, keep_refused, load_refused, refused_rows
from mesh.store.schema import create_tables, marker_table, reads_table, refused_table, sql_table
from mesh.store.sql import sa
from mesh.store.stored_rows import StoredRows as StoredRows
from mesh.store.stored_rows import after, in_order, keys_of, write_most
from mesh.store.values import merged, to_arrow, values

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from mesh.model.stored import Clause, Database, ReadRun, StoredTable
    from mesh.store.refusals import RefusedRow

#: From this number on rows go through COPY into a temporary table, where there is one.
COPY_ROWS: Final = 200


class StoreWriter:
    """The writer of one producer to one database, over one connection; for one thread."""

    def __init__(
        self,
        database: Database,
        producer: str,
        epoch: int,
        tables: Sequence[StoredTable],
        purge_filters: Mapping[str, tuple[str, str]] | None = None,
        full_tables: Collection[str] = (),
        records: bool = False,
        refusable: Collection[str] = (),
    ) -> None:
        """A writer without a connection.

        Args:
            database: with the tables.
            producer: the name in the marker.
            epoch: of the writer: an older one can't write any more after the first ``open``.
            tables: those that it writes; they are created.
            purge_filters: by table, column and value of the purged rows; other tables: all.
            full_tables: the tables of which the state has all rows, see ``initial``.
            records: whether it records what runs have read.
            refusable: the tables whose rows the database may refuse, see ``refused``.
        """
        self.database = self._database = database
        self.producer = self._producer = producer
        self._epoch = epoch
        self._purge_filters = purge_filters or {}
        backend = database.backend
        self._metadata = sa.MetaData()
        self._marker = marker_table(self._metadata, backend)
        self._set_tables(tables, self._metadata)
        self._full_tables = tuple(full_tables)
        self._reads = reads_table(self._metadata, backend) if records else None
        self._refusable = {changes_channel(name): name for name in refusable}
        self._refused = refused_table(self._metadata, backend) if refusable else None
        #: Whether there may be refused rows that ``refused`` has not returned.
        self._has_refused = bool(refusable)
        self._dropped = 0
        #: Tables that the transaction has copied rows for.
        self._copied: set[str] = set()
        #: Tables that have the key by which rows are merged.
        self._keyed: set[str] = set()
        self._connection: sa.Connection | None = None
        #: PostgreSQL copies so many rows, and more, by way of a temporary table.
        self.copy_rows = COPY_ROWS
        #: Rows that were in ``full_tables`` when the producer wrote its marker first.
        self.initial = 0
        #: Of the last rows that are in the database.
        self.position = 0

    def __repr__(self) -> str:
        return f"StoreWriter({self._database}, {self._producer}, epoch={self._epoch})"

    def open(self) -> None:
        """Connect, create what is missing, and claim the marker.

        Raises:
            MeshError: MESH-S140, no answer; MESH-S141, a newer epoch has claimed it; MESH-S142.
        """
        if self._connection is not None:
            return
        with database_errors(self._database, "when a writer connects"):
            connection = engine_of(self._database).connect()
        try:
            with database_errors(self._database, "when tables are created"):
                create_tables(connection, self._metadata, self._database)
                self._describe(connection)
                copying.create(connection, self.tables)
            with database_errors(self._database, "when the marker is claimed"), connection.begin():
                self.position = self._claim(connection)
        except BaseException:
            connection.invalidate()
            connection.close()
            raise
        self._connection = connection

    def _set_tables(self, tables: Sequence[StoredTable], metadata: sa.MetaData) -> None:
        #: Those that it writes; with the types of their columns once it is open.
        self.tables = tuple(tables)
        self._tables = {rows_channel(t.name): t for t in tables}
        self._purged = {purge_channel(t.name): t for t in tables}
        self._targets = {t.name: sql_table(t, metadata, self._database.backend) for t in tables}
        self._changed = {changes_channel(t.name): t for t in tables}

    def _describe(self, connection: sa.Connection) -> None:
        with connection.begin():
            tables = [
                described(t, columns_of(connection, t.name), self._database) for t in self.tables
            ]
        self._set_tables(tables, sa.MetaData())

    def commit(self, batches: Sequence[StoredRows]) -> None:
        """Write rows after ``position``, and move it to that of the last, in one transaction.

        Raises:
            MeshError: see ``open``.  The outcome is unknown then, and the connection closed.
        """
        self.open()
        pending = [after(batch, self.position) for batch in batches]
        pending = [batch for batch in pending if batch.rows.num_rows]
        if not pending:
            return
        last = max(int(batch.position[-1]) for batch in pending)
        with self._connected("when rows are written") as connection:
            self._write_all(connection, pending, last)
        self.position = last

    def refused(self, after: int) -> list[RefusedRow]:
        """The rows after a position that the database has refused and that are not dropped.

        Raises:
            MeshError: see ``open``.  The connection is closed then.
        """
        if not self._has_refused:
            return []
        assert self._refused is not None, "a table is refusable"
        with self._transaction("when refused rows are read") as connection:
            rows = load_refused(connection, self._refused, self._producer, after)
        self._has_refused = False
        return rows

    def drop_refused(self, until: int) -> None:
        """Drop the refused rows up to a position, which have left.

        Raises:
            MeshError: see ``open``.  The connection is closed then.
        """
        if until <= self._dropped:
            return
        assert self._refused is not None, "there were some"
        with self._transaction("when refused rows are deleted") as connection:
            # Another writer waits for this row, or has taken it over.
            self._move(connection, self.position)
            drop_refused(connection, self._refused, self._producer, until)
        self._dropped = until

    @contextmanager
    def _connected(self, doing: str) -> Iterator[sa.Connection]:
        """The connection, which is given up after any error."""
        self.open()
        connection = self._connection
        assert connection is not None, "opened above"
        try:
            with database_errors(self._database, doing):
                yield connection
        except BaseException:
            self._connection = None
            connection.invalidate()
            connection.close()
            raise

    @contextmanager
    def _transaction(self, doing: str) -> Iterator[sa.Connection]:
        with self._connected(doing) as connection, connection.begin():
            yield connection

    def rows(self, table: StoredTable) -> pa.RecordBatch:
        """All rows of a table; see ``find``."""
        return self.find(table, EVERY_ROW)

    def record(self, run: ReadRun) -> None:
        """Record what a run has read, before its output leaves.

        Raises:
            MeshError: see ``open``.  The connection is closed then.
        """
        assert self._reads is not None, "it records"
        with self._transaction("when reads are recorded") as connection:
            # Another writer waits for this row, or has taken it over.
            self._move(connection, self.position)
            keep_reads(connection, self._reads, self._producer, run)

    def recorded(self, after: int) -> list[ReadRun]:
        """The reads of runs with higher numbers, in their order; see ``record``."""
        self.open()
        assert self._connection is not None, "opened above"
        assert self._reads is not None, "it records"
        with (
            database_errors(self._database, "when recorded reads are read"),
            self._connection.begin(),
        ):
            return load_reads(self._connection, self._reads, self._producer, after)

    def find(self, table: StoredTable, clause: Clause) -> pa.RecordBatch:
        """The rows of a table that a look-up finds.

        Raises:
            MeshError: see ``open``.  The connection is closed then.
        """
        with self._transaction(f"when table {table.name} is read") as connection:
            chosen = select(table, self._targets[table.name], clause, self._database.backend)
            return to_arrow(connection.execute(chosen).all(), table)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _claim(self, connection: sa.Connection) -> int:
        marker = self._marker
        condition = marker.c.producer == self._producer
        query = sa.select(marker.c.epoch, marker.c.position).where(condition)
        row = connection.execute(query.with_for_update()).one_or_none()
        if row is None:
            new = {"producer": self._producer, "epoch": self._epoch, "position": 0}
            connection.execute(marker.insert().values(**new))
            if self._full_tables:
                counts = (
                    sa.select(sa.func.count()).select_from(self._targets[t])
                    for t in self._full_tables
                )
                self.initial = sum(connection.execute(count).scalar_one() for count in counts)
                first = {**new, "producer": self._first, "position": self.initial}
                connection.execute(marker.insert().values(**first))
            return 0
        if row.epoch > self._epoch:
            raise overtaken(self._database, self._producer, self._epoch, row.epoch)
        connection.execute(marker.update().where(condition).values(epoch=self._epoch))
        initial = sa.select(marker.c.position).where(marker.c.producer == self._first)
        self.initial = int(connection.execute(initial).scalar_one_or_none() or 0)
        return int(row.position)

    @property
    def _first(self) -> str:
        """The row of the marker table that has ``initial``."""
        return f"{self._producer} initial"

    def _move(self, connection: sa.Connection, position: int) -> None:
        marker = self._marker
        moved = connection.execute(
            marker.update()
            .where(
                marker.c.producer == self._producer,
                marker.c.epoch == self._epoch,
                marker.c.position == self.position,
            )
            .values(position=position)
        )
        if moved.rowcount != 1:
            raise overtaken(self._database, self._producer, self._epoch, None)

    def _write_all(
        self, connection: sa.Connection, batches: Sequence[StoredRows], last: int
    ) -> None:
        """Write rows and move the marker, without those that the database refuses if need be."""
        try:
            with connection.begin():
                self._copied.clear()
                self._move(connection, last)
                for batch in in_order(batches):
                    self._write(connection, batch)
            return
        except sa.exc.DBAPIError as error:
            if not is_by_rule(error) or not any(b.channel in self._refusable for b in batches):
                raise
        with connection.begin():
            self._copied.clear()
            self._move(connection, last)
            if self._database.backend is Backend.POSTGRESQL:
                # Else some would be found in COMMIT only.
                connection.exec_driver_sql("SET CONSTRAINTS ALL IMMEDIATE")
            refused: list[RefusedRow] = []
            for batch in in_order(batches):
                if batch.channel in self._refusable:
                    refused += self._write_most(connection, batch)
                else:
                    self._write(connection, batch)
            if refused:
                assert self._refused is not None, "a table is refusable"
                keep_refused(connection, self._refused, self._producer, refused)
        self._has_refused |= bool(refused)

    def _write_most(self, connection: sa.Connection, batch: StoredRows) -> list[RefusedRow]:
        """Write the rows that the database takes; the others.

        Of each key the last state counts; if that is refused, the one before.
        """
        table = self._changed[batch.channel]
        keys = keys_of(table, batch.rows)

        def attempt(rows: Sequence[int]) -> str | None:
            return self._attempt(connection, table, batch.rows.take(pa.array(rows, pa.int64())))

        reasons: dict[int, str] = {}
        left: Sequence[int] = range(len(keys))
        while left:
            last = sorted({keys[row]: row for row in left}.values())
            refused = write_most(last, attempt)
            reasons |= refused
            again = {keys[row] for row in refused}
            left = [row for row in left if row not in refused and keys[row] in again]
        return refused_rows(table.name, batch.position, batch.rows, reasons)

    def _attempt(
        self, connection: sa.Connection, table: StoredTable, rows: pa.RecordBatch
    ) -> str | None:
        """Change all rows, or none; then the reason."""
        try:
            with connection.begin_nested():
                self._change(connection, table, rows)
        except sa.exc.DBAPIError as error:
            if not is_by_rule(error):
                raise
            return f"the database refuses the row: {reason_of(error)}"
        return None

    def _write(self, connection: sa.Connection, batch: StoredRows) -> None:
        purged = self._purged.get(batch.channel)
        if purged is not None:
            before_ms = batch.rows.column(0)[-1].as_py()
            self._purge(connection, purged, before_ms)
            return
        changed = self._changed.get(batch.channel)
        if changed is not None:
            self._change(connection, changed, batch.rows)
            return
        self._merge(connection, self._tables[batch.channel], batch.rows)

    def _change(self, connection: sa.Connection, table: StoredTable, rows: pa.RecordBatch) -> None:
        """Bring the rows of a table to the last state of each in ``rows``."""
        names = [column.name for column in table.keys]
        keys = keys_of(table, rows)
        last = {key: row for row, key in enumerate(keys)}
        is_gone = rows.column(DELETED).to_pylist()
        gone = [key for key, row in last.items() if is_gone[row]]
        if gone:
            target = self._targets[table.name]
            bound = (target.c[n] == sa.bindparam(f"key{at}") for at, n in enumerate(names))
            listed = [{f"key{at}": part for at, part in enumerate(key)} for key in gone]
            connection.execute(target.delete().where(*bound), listed)
        there = pa.array([row for row in last.values() if not is_gone[row]], pa.int64())
        if len(there):
            plain = rows.select([column.name for column in table.columns])
            self._merge(connection, table, plain.take(there))

    def _merge(self, connection: sa.Connection, table: StoredTable, batch: pa.RecordBatch) -> None:
        target = self._targets[table.name]
        backend = self._database.backend
        if table.name not in self._keyed:
            expect_key(connection, table, self._database)
            self._keyed.add(table.name)
        rows = merged(batch, table)
        if backend is Backend.POSTGRESQL and rows.num_rows >= self.copy_rows:
            if table.name in self._copied:
                copying.empty(connection, table)
            self._copied.add(table.name)
            copying.merge(connection, table, target, rows)
            return
        statement = merge_rows(table, target, backend)
        listed = values(rows, backend)
        if backend is not Backend.SQLITE:
            names = rows.schema.names
            connection.execute(statement, [dict(zip(names, row, strict=True)) for row in listed])
            return
        # The driver alone is ten times as fast here as SQLAlchemy with its parameters.
        compiled = statement.compile(dialect=connection.dialect)
        assert compiled.positiontup == rows.schema.names, "each column is a parameter, in order"
        connection.exec_driver_sql(str(compiled), listed)

    def _purge(self, connection: sa.Connection, table: StoredTable, before_ms: int) -> None:
        target = self._targets[table.name]
        condition = target.c[table.time] < before_ms
        statement = target.delete().where(condition)
        if table.name in self._purge_filters:
            column, value = self._purge_filters[table.name]
            statement = statement.where(target.c[column] == value)
        connection.execute(statement)
