"""Databases by kind: their writers, reads, and the comparison of a deploy.

Modules of a kind are imported when a database of it is used.  Each of them has one step that is
atomic, a transaction or a script: the rows of a run, the marker's position and what the run has
read are in the database together, or not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from mesh.model.stored import Backend

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pyarrow as pa

    from mesh.model.stored import Clause, Database, ReadRun, StoredTable
    from mesh.store.refusals import RefusedRow
    from mesh.store.stored_rows import StoredRows


class Writer(Protocol):
    """The writer of one producer, a part of a group, to one database; it belongs to one thread.

    A writer of an older epoch changes nothing.

        open      connect, and claim the marker: ``position`` is that of the last rows there
        find      rows of a table that a look-up finds, and perhaps others
        record    what a run has read, before its output leaves
        commit    rows after ``position``, and the new position
    """

    database: Database
    #: The name in the marker.
    producer: str
    #: Those that it writes; with the types of their columns once it is open.
    tables: tuple[StoredTable, ...]
    #: Rows that were in tables with all of their rows in the state, when the marker was written
    #: first.
    initial: int
    #: Of the last rows that are in the database.
    position: int

    def open(self) -> None:
        """Connect, create what is missing, and claim the marker.

        Raises:
            MeshError: MESH-S140, no answer; MESH-S141, a newer epoch has claimed it; MESH-S142.
        """

    def commit(self, batches: Sequence[StoredRows]) -> None:
        """Write rows after ``position``, and move it to that of the last, as one.

        Raises:
            MeshError: see ``open``.  The outcome is unknown then, and the connection closed.
        """

    def find(self, table: StoredTable, clause: Clause) -> pa.RecordBatch:
        """The rows of a table that a look-up finds, see ``mesh.store.values.to_arrow``.

        Raises:
            MeshError: see ``open``.
        """

    def rows(self, table: StoredTable) -> pa.RecordBatch:
        """All rows of a table; see ``find``."""

    def record(self, run: ReadRun) -> None:
        """Record what a run has read, before its output leaves.

        Raises:
            MeshError: see ``open``.
        """

    def recorded(self, after: int) -> list[ReadRun]:
        """The reads of runs with higher numbers, in their order; see ``record``."""

    def refused(self, after: int) -> list[RefusedRow]:
        """The rows after a position that the database has refused and that are not dropped.

        Raises:
            MeshError: see ``open``.
        """

    def drop_refused(self, until: int) -> None:
        """Drop the refused rows up to a position, which have left.

        Raises:
            MeshError: see ``open``.
        """

    def close(self) -> None:
        """Close the connection."""


def writer_of(
    database: Database,
    producer: str,
    epoch: int,
    tables: Sequence[StoredTable],
    purge_filters: Mapping[str, tuple[str, str]],
    full_tables: Collection[str],
    records: bool,
    refusable: Collection[str],
) -> Writer:
    """A writer without a connection; see ``StoreWriter``."""
    if database.backend is Backend.REDIS:
        from mesh.store.redis_writer import RedisWriter

        return RedisWriter(database, producer, epoch, tables, full_tables, records)
    from mesh.store.writer import StoreWriter

    return StoreWriter(
        database, producer, epoch, tables, purge_filters, full_tables, records, refusable
    )


def read(
    database: Database, table: StoredTable, clause: Clause, rows_max: int
) -> tuple[pa.RecordBatch, bool]:
    """The rows of a look-up, over a connection of its own, and whether there are more.

    Args:
        database: with the table.
        table: if it does not exist yet it has no rows.
        clause: the look-up; others may come as well.
        rows_max: the most rows that are read.

    Raises:
        MeshError: MESH-S140 if the database does not answer; MESH-S142.
    """
    if database.backend is Backend.REDIS:
        from mesh.store import redis_writer

        return redis_writer.read(database, table, clause, rows_max)
    from mesh.store import lookups

    return lookups.read(database, table, clause, rows_max)


def existing(
    database: Database, tables: Sequence[StoredTable], *, are_written: bool
) -> list[StoredTable]:
    """Those tables that exist, with the types of their columns; nothing is created.

    Raises:
        MeshError: MESH-S140; MESH-S142, a column is missing, or a unique key of rows that
            ``are_written``, or the database can't keep rows;
            MESH-S146, a column has a type of which the attribute can't have the values.
    """
    if database.backend is Backend.REDIS:
        from mesh.store import redis_client

        redis_client.check(database)
        return []
    from mesh.store import lookups

    return lookups.existing(database, tables, are_written=are_written)
