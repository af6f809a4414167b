"""Columns of tables of MySQL and MariaDB as their catalogue has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mesh.store.catalogue import labels_of
from mesh.store.sql import sa

if TYPE_CHECKING:
    from collections.abc import Sequence

_COLUMNS: Final = (
    "select column_name, column_type, character_set_name, generation_expression"
    " from information_schema.columns where table_schema = coalesce(:space, database())"
    " and table_name = :name order by ordinal_position"
)
_PERIOD: Final = ("ROW START", "ROW END")


@dataclass(frozen=True, slots=True)
class MysqlColumn:
    """A column of a table as it is now; the log may know less of it."""

    name: str
    #: Such as ``int(10) unsigned`` and ``enum('a','b')``.
    type: str
    charset: str | None = None
    #: ``ROW START`` or ``ROW END`` of a system-versioned table; empty for others.
    period: str = ""

    @property
    def labels(self) -> list[str]:
        """Values of an enumeration or a set."""
        return labels_of(self.type)


def columns_of(connection: sa.Connection, table: str) -> Sequence[MysqlColumn]:
    """The columns of a table, inside of a transaction; none if there is no table."""
    space, _, name = table.rpartition(".")
    rows = connection.execute(sa.text(_COLUMNS), {"space": space or None, "name": name}).all()
    return [
        MysqlColumn(str(column), str(kind), charset, text if text in _PERIOD else "")
        for column, kind, charset, text in rows
    ]
