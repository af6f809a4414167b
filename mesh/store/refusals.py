"""Rows that a database has refused, kept in ``mesh_refused`` until they have left as failed events.

They are inserted by the transaction that moves the marker, so they are there exactly if the other
rows of their run are.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from mesh.model.stored import DELETED
from mesh.store.sql import sa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from mesh.model.values import EventValues
#: Of PostgreSQL: values, constraints, generated columns, views, limits, and what a trigger raises.
_STATES: Final = ("22", "23", "428C9", "44", "54000", "P0001")
#: Of MySQL and MariaDB, where the driver has no class for them: no default, a wrong text, a
#: constraint, a generated column, JSON or geometry that is none, and what a trigger raises.
_NUMBERS: Final = (
    1048, 1264, 1265, 1292, 1364, 1366, 1367, 1406, 1411, 1416, 1426, 1643, 1644, 1690, 1906, 1918,
    3105, 3140, 3141, 3819, 4025,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A row of a table that the database has refused at ``time_ms``; ``event``: as JSON."""

    table: str
    position: int
    time_ms: int
    reason: str
    event: str


def is_by_rule(error: sa.exc.DBAPIError) -> bool:
    """Whether a statement is refused for its rows.

    A database that is away, deadlocks, time limits and missing tables are no such reason.
    """
    if error.connection_invalidated:
        return False
    if isinstance(error, sa.exc.IntegrityError | sa.exc.DataError):
        return True
    origin: Any = error.orig
    if origin.args and origin.args[0] in _NUMBERS:
        return True
    return (getattr(origin, "sqlstate", None) or "").startswith(_STATES)


def keep_refused(
    connection: sa.Connection, target: sa.Table, producer: str, rows: Sequence[RefusedRow]
) -> None:
    """Keep rows of a producer; inside of a transaction."""
    new = [
        {
            "producer": producer,
            "table_name": row.table,
            "position": row.position,
            "time_ms": row.time_ms,
            "reason": row.reason,
            "event": row.event,
        }
        for row in rows
    ]
    connection.execute(target.insert(), new)


def load_refused(
    connection: sa.Connection, target: sa.Table, producer: str, after: int
) -> list[RefusedRow]:
    """The rows of a producer after a position, in their order."""
    result = connection.execute(
        target.select()
        .where(target.c.producer == producer, target.c.position > after)
        .order_by(target.c.position)
    )
    return [
        RefusedRow(one.table_name, one.position, one.time_ms, one.reason, one.event)
        for one in result.all()
    ]


def drop_refused(connection: sa.Connection, target: sa.Table, producer: str, until: int) -> None:
    """Delete the rows of a producer up to a position; inside of a transaction."""
    connection.execute(
        target.delete().where(target.c.producer == producer, target.c.position <= until)
    )


def refused_rows(
    table: str, position: npt.NDArray[Any], rows: pa.RecordBatch, reasons: Mapping[int, str]
) -> list[RefusedRow]:
    """The rows with these numbers, refused now."""
    now_ms = time.time_ns() // 1_000_000
    return [
        RefusedRow(
            table,
            int(position[row]),
            now_ms,
            reasons[row],
            _event(rows.slice(row, 1).to_pylist()[0]),
        )
        for row in sorted(reasons)
    ]


def _event(row: EventValues) -> str:
    """A row as JSON; only a deletion tells so."""
    values = {name: value for name, value in row.items() if name != DELETED or value}
    return orjson.dumps(values, default=str).decode()
