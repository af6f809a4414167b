"""Reads of the tables of an aggregation, consistent with the state of one of its writers.

What has left the state of a part is in the tables, and its marker says up to where.  A state that
was stored earlier still has some of it: then both together would count it twice.  So the marker is
read in the same snapshot of the database as the rows, and compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.errors import MeshError
from mesh.model.stored import Backend
from mesh.store.engine import database_errors, engine_of
from mesh.store.schema import marker_table, sql_table
from mesh.store.sql import sa
from mesh.store.values import to_arrow

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from mesh.model.stored import Database, StoredTable


class BehindError(Exception):
    """The state is older than the rows in the database: a newer one has to be loaded."""


def read_rows(
    database: Database,
    tables: Sequence[StoredTable],
    within: tuple[int, int],
    producer: str,
    position: int,
) -> list[pa.RecordBatch]:
    """The rows of tables with a time in a span, of all writers, at one moment.

    Args:
        database: with the tables.
        tables: one that does not exist yet has no rows.
        within: first time, and the time after the last.
        producer: the part whose state is asked together with the rows.
        position: of the last row that the state has let go.

    Raises:
        BehindError: the producer's rows are further than ``position``.
        MeshError: MESH-S140 if the database does not answer; MESH-S142.
    """
    metadata = sa.MetaData()
    backend = database.backend
    marker = marker_table(metadata, backend)
    targets = [sql_table(table, metadata, backend) for table in tables]
    engine = engine_of(database)
    if backend is not Backend.SQLITE:
        engine = engine.execution_options(isolation_level="REPEATABLE READ")
    with database_errors(database, "when an aggregation is read"), engine.connect() as connection:
        missing = {t.name for t in tables if not sa.inspect(connection).has_table(t.name)}
        connection.rollback()
        if tables[0].name in missing:
            return [to_arrow([], table) for table in tables]
        at = connection.execute(
            sa.select(marker.c.position).where(marker.c.producer == producer)
        ).scalar_one_or_none()
        if at is not None and at > position:
            raise BehindError
        batches = []
        for table, target in zip(tables, targets, strict=True):
            time = target.c[table.time]
            chosen = sa.select(*(target.c[one.name] for one in table.columns)).where(
                time >= within[0], time < within[1]
            )
            rows = [] if table.name in missing else connection.execute(chosen).all()
            batches.append(to_arrow(rows, table))
    return batches


def unavailable(aggregation: str) -> MeshError:
    """The error of a state that stays older than the database."""
    return MeshError(
        "MESH-A503",
        f'aggregation "{aggregation}" has not caught up with its database yet',
        detail="Its instance starts again from a snapshot, and reads events that it had read.",
        hint="Ask again in a moment.",
    )
