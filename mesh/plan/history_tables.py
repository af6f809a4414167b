"""Addresses of tables with past events.

postgresql://ada@db.example:5432/shop#public.orders      a URL, the table after '#'
sqlite:///shop.db#orders                                 a file in manager.history_dir
datasource:shop#orders                                   a database of stores.sources_file
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError
from mesh.model.addresses import is_among
from mesh.model.stored import Backend, Database, is_reserved
from mesh.plan.history_files import unusable
from mesh.plan.jdbc import database_of

if TYPE_CHECKING:
    from collections.abc import Collection

_SOURCE: Final = "datasource:"
_KINDS: Final = ("postgresql", "postgres", "mysql", "mariadb", "sqlite")
_PORTS: Final = {Backend.POSTGRESQL: 5432, Backend.MYSQL: 3306}


@dataclass(frozen=True, slots=True)
class TablePlace:
    """A table of a database."""

    #: None if ``source`` names one of ``stores.sources_file``.
    database: Database | None
    source: str
    #: With its schema, if that is given: ``public.orders``.
    table: str

    def __str__(self) -> str:
        """The table, without a login, for messages."""
        return f"table {self.table} of {self.database or self.source}"


def is_table(path: str) -> bool:
    """Whether a path of a history is the address of a table, rather than of files."""
    kind = path.removeprefix("jdbc:").partition("://")[0].partition("+")[0].lower()
    is_url = "://" in path or path.startswith("jdbc:")
    return path.startswith(_SOURCE) or (is_url and kind.partition(":")[0] in _KINDS)


def table_of(root: str, path: str) -> TablePlace:
    """The table of an address.

    Args:
        root: directory outside of which no file of SQLite is read.
        path: as above.

    Raises:
        MeshError: MESH-C161 for an address that names no table, has a password, or is a file
            outside of ``root``; MESH-P240 for a URL that can't be read.
    """
    address, _, table = path.rpartition("#")
    if not address or not table:
        raise unusable(
            "the address of a database names no table", "Its name is after '#', as in ..#orders."
        )
    if is_reserved(table):
        raise unusable(f'table "{table}" is one of the mesh\'s own', "It has no past events.")
    if address.startswith(_SOURCE):
        return TablePlace(None, address.removeprefix(_SOURCE), table)
    database = database_of(address, None, None)
    if database.password:
        raise unusable(
            "the address of a database has a password",
            "It would be in logs. Use 'datasource:NAME#TABLE', with NAME in stores.sources_file.",
        )
    if database.backend is Backend.SQLITE:
        database = replace(database, database=_file_of(root, database.database))
    return TablePlace(database, "", table)


def check_address(place: TablePlace, allowed: Collection[str]) -> None:
    """Refuse a database that is not among the addresses of ``manager.history_databases``."""
    database = place.database
    if database is None or database.backend is Backend.SQLITE:
        return
    port = database.port or _PORTS[database.backend]
    if not is_among(allowed, database.host, port):
        raise MeshError(
            "MESH-C161",
            f"this manager reads no past events from {database.host}:{port}",
            detail=f"Open are: {', '.join(allowed) or 'none'}.",
            hint="Add it to the setting manager.history_databases, or the database to the file of "
            "stores.sources_file.",
        )


def _file_of(root: str, path: str) -> str:
    top = Path(os.path.realpath(root))
    place = Path(os.path.realpath(top / path))
    if not place.is_relative_to(top) or not place.is_file():
        raise unusable(f"there is no file {path} in manager.history_dir", f"That is {top}.")
    return str(place)
