"""Addresses of past events: files, tables of a database or of Iceberg, and JetStream streams.

    postgresql://ada@db.example:5432/shop#public.orders      a URL, the table after '#'
    sqlite:///shop.db#orders                                 a file in manager.history_dir
    datasource:shop#orders                                   a database of stores.sources_file

    orders/metadata/00002-9274643d.metadata.json      the metadata of a table in manager.history_dir
    iceberg:warehouse#shop.orders                     a table of a catalog that PyIceberg knows

    nats:OLD_ORDERS                    a stream of the mesh's own servers
    nats:OLD_ORDERS#orders.eu.>        its messages with such a subject

A directory alone does not say which metadata of a table of Iceberg is current; a catalog does.  The
stream of an app's channel is one as well; other streams of the mesh are not.  The files that a path
names are listed without reading them; a manager looks before it deploys the app.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError
from mesh.model import names
from mesh.model.addresses import is_among
from mesh.model.stored import Backend, Database, is_reserved
from mesh.model.types import AttributeType
from mesh.plan.nats_source import is_stream_name, is_subject
from mesh.plan.stores import database_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from mesh.model.types import StreamSchema


_SOURCE: Final = "datasource:"
_KINDS: Final = ("postgresql", "postgres", "mysql", "mariadb", "sqlite")
_PORTS: Final = {Backend.POSTGRESQL: 5432, Backend.MYSQL: 3306}

_CATALOG: Final = "iceberg:"
METADATA: Final = ".metadata.json"

_STREAM: Final = "nats:"

PARQUET: Final = (".parquet", ".pq")
_CSV: Final = (".csv", ".csv.gz")


@dataclass(frozen=True, slots=True)
class StreamPlace:
    """A JetStream stream, or its messages with some subjects."""

    js_stream: str
    #: With wildcards; empty for all events.
    subject: str = ""

    def __str__(self) -> str:
        """For messages."""
        return f"JetStream stream {self.js_stream}"

    @property
    def app(self) -> str | None:
        """The app whose channel it is; None for a stream of others."""
        is_mesh = names.is_mesh_stream(self.js_stream)
        return names.app_of_js_stream(self.js_stream) if is_mesh else None

    @property
    def subjects(self) -> tuple[str, ...]:
        """The subjects of its events; none for all messages."""
        if self.subject:
            return (self.subject,)
        # Markers of writers are beside the events of an app.
        return (names.subject(self.app, ">"),) if self.app is not None else ()


def is_stream(path: str) -> bool:
    """Whether a path of a history is a JetStream stream."""
    return path.startswith(_STREAM)


def stream_of(path: str) -> StreamPlace:
    """The stream of an address; MESH-C161 for one that names none, or one of the mesh's records."""
    js_stream, _, subject = path.removeprefix(_STREAM).partition("#")
    if not is_stream_name(js_stream) or (subject and not is_subject(subject)):
        raise unusable(
            f"{path} names no JetStream stream",
            "It is nats:STREAM, or nats:STREAM#SUBJECT, on the mesh's own servers.",
        )
    place = StreamPlace(js_stream, subject)
    if names.is_mesh_stream(js_stream) and place.app is None:
        raise unusable(
            f"{place} has no events of an app", "It is one of the mesh's buckets or records."
        )
    return place


def check_time(place: StreamPlace, time: str, stream: StreamSchema) -> None:
    """Refuse an attribute of a stream that has no times; MESH-C161."""
    kinds = {one.name: one.type for one in stream.attributes}
    if time and kinds.get(time) not in (AttributeType.LONG, AttributeType.INT):
        raise unusable(
            f'events of {place} have no times in "{time}"',
            "Times are in an attribute of type long, milliseconds since 1970; without one they are "
            "those of the messages.",
        )


@dataclass(frozen=True, slots=True)
class IcebergPlace:
    """An Iceberg table."""

    #: With its namespace, in a catalog; empty for one of a metadata file.
    catalog: str
    table: str
    #: Its metadata, and the directory outside of which no file of it is read.
    metadata: str = ""
    root: str = ""

    def __str__(self) -> str:
        """For messages."""
        return f"table {self.table} of catalog {self.catalog}" if self.catalog else self.metadata


def is_iceberg(path: str) -> bool:
    """Whether a path of a history is an Iceberg table."""
    return path.startswith(_CATALOG) or path.endswith(METADATA)


def iceberg_of(root: str, path: str) -> IcebergPlace:
    """The table of an address; MESH-C161 for one that names none.

    Args:
        root: directory outside of which no metadata is read.
        path: as above.
    """
    if path.startswith(_CATALOG):
        catalog, _, table = path.removeprefix(_CATALOG).partition("#")
        if not catalog or not table:
            raise unusable(
                "the address of an Iceberg table names no table",
                "It is iceberg:CATALOG#NAMESPACE.TABLE.",
            )
        return IcebergPlace(catalog, table)
    top = Path(os.path.realpath(root))
    place = Path(os.path.realpath(top / path))
    if "\0" in path or not place.is_relative_to(top) or not place.is_file():
        raise unusable(f"there is no {path} in manager.history_dir", f"That is {top}.")
    return IcebergPlace("", "", str(place), str(top))


def check_catalog(place: IcebergPlace, allowed: Collection[str]) -> None:
    """Refuse a catalog that is not among those of ``manager.history_catalogs``."""
    if place.catalog and place.catalog not in allowed:
        raise MeshError(
            "MESH-C161",
            f"this manager reads no past events from Iceberg catalog {place.catalog}",
            detail=f"Open are: {', '.join(allowed) or 'none'}.",
            hint="Add it to the setting manager.history_catalogs.",
        )


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


def files_of(root: str, path: str) -> Sequence[Path]:
    """The files of a path, in their order; hidden ones are left out.

    Args:
        root: directory outside of which nothing is read.
        path: a file, or a directory with all files below it, relative to ``root`` or absolute.

    Raises:
        MeshError: MESH-C161 for what is no file of events.
    """
    if "\0" in path:
        raise unusable("the path has a character that no path has", "It is U+0000.")
    if "://" in path:
        raise unusable(
            f"{path} is no path",
            "History is read from files of the manager's machine, from databases, from streams of "
            "NATS, and from Iceberg tables; from object stores by a catalog alone.",
        )
    top = Path(os.path.realpath(root))
    place = Path(os.path.realpath(top / path))
    if not place.is_relative_to(top):
        raise unusable(f"{path} is outside of manager.history_dir", f"That is {top}.")
    if not place.exists():
        raise unusable(f"there is no {path} in manager.history_dir", f"That is {top}.")
    if place.is_file():
        return [_checked(place, top)]
    if any((place / "metadata").glob("*.metadata.json")):
        raise unusable(
            f"{path} is an Iceberg table",
            "Name its current metadata, as in orders/metadata/00002-1f.metadata.json, or its "
            "catalog, as in iceberg:warehouse#shop.orders.",
        )
    inside = (
        one
        for one in place.rglob("*")
        if one.is_file()
        and not any(part.startswith((".", "_")) for part in one.relative_to(place).parts)
    )
    files = [_checked(one, top) for one in sorted(inside)]
    if not files:
        raise unusable(f"{path} has no files", "Hidden files are left out.")
    return files


def _checked(path: Path, top: Path) -> Path:
    if not Path(os.path.realpath(path)).is_relative_to(top):
        raise unusable(f"{path} is a link that leaves manager.history_dir", f"That is {top}.")
    if not path.name.endswith((*PARQUET, *_CSV)):
        raise unusable(f"{path} is neither Parquet nor CSV", "The name says which it is.")
    return path


def unusable(what: str, detail: str) -> MeshError:
    """MESH-C161: files, a table or a stream that are no history."""
    return MeshError(
        "MESH-C161",
        what,
        detail=detail or None,
        hint="History is Parquet (.parquet) or CSV (.csv, .csv.gz), a file or a directory; or a "
        "table, as in 'postgresql://host/name#table' or 'iceberg:catalog#space.table'; or a stream "
        "of JetStream, as in 'nats:OLD_ORDERS'. Write other data to Parquet first.",
    )
