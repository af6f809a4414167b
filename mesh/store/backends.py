"""Databases by kind: their writers, reads, and the comparison of a deploy.

Modules of a kind are imported when a database of it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.model.stored import Backend

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pyarrow as pa

    from mesh.model.lookup import Clause
    from mesh.model.stored import Database, StoredTable
    from mesh.store.contract import Writer


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
