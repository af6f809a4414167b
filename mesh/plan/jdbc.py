"""Addresses of databases: JDBC URLs of the reference engine, and URLs of SQLAlchemy's form.

The driver's name is not needed: the kind of the database is in the URL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from mesh.errors import MeshError, not_supported
from mesh.model.column_types import Backend, backend_of
from mesh.model.stored import Database

if TYPE_CHECKING:
    from mesh.errors import Position

#: Parameters that a driver takes under the same name.
_PARAMETERS: Final = {
    Backend.POSTGRESQL: ("sslmode", "sslrootcert", "application_name", "options"),
    Backend.MYSQL: ("charset",),
    Backend.SQLITE: (),
}
_JDBC: Final = "jdbc:"


def database_of(
    url: str, username: str | None, password: str | None, position: Position | None = None
) -> Database:
    """The database of a URL.

    Args:
        url: ``jdbc:mysql://host:port/name?..``, ``jdbc:postgresql:..``, ``jdbc:mariadb:..``,
            ``jdbc:sqlite:file``, or ``postgresql+psycopg://user@host/name`` and its like.
        username: of the login; None: that in the URL.
        password: likewise.
        position: of the annotation, for errors.

    Raises:
        MeshError: MESH-P900 for a database without a driver here; MESH-P240 for a URL that can't
            be read.
    """
    is_jdbc = url.startswith(_JDBC)
    kind, _, address = url.removeprefix(_JDBC).partition(":")
    backend = backend_of(url)
    if backend is None:
        raise not_supported(
            f"a store in a database of kind {kind or 'without a name'}",
            position,
            hint="Use PostgreSQL, MySQL, MariaDB or SQLite.",
        )
    if backend is Backend.SQLITE:
        return _file(address.partition("?")[0], position, is_jdbc=is_jdbc)
    try:
        # JDBC allows ``jdbc:postgresql:name`` for a database of this machine.
        parts = urlsplit(address if address.startswith("//") else f"//localhost/{address}")
        port = parts.port
    except ValueError:
        # Its message shows what it took for a port, which may be a password.
        raise _unreadable(position, "Host or port can't be read.") from None
    database = unquote(parts.path.removeprefix("/"))
    if not parts.hostname or not database:
        raise _unreadable(position, "A host and the name of a database are needed.")
    params = dict(parse_qsl(parts.query, keep_blank_values=True))
    url_user = unquote(parts.username or "") or params.get("user", "")
    url_password = unquote(parts.password or "") or params.get("password", "")
    return Database(
        backend,
        database,
        parts.hostname,
        port,
        url_user if username is None else username,
        url_password if password is None else password,
        tuple((name, params[name]) for name in _PARAMETERS[backend] if name in params),
    )


def _file(address: str, position: Position | None, *, is_jdbc: bool) -> Database:
    path = address if is_jdbc else address.removeprefix("//").removeprefix("/")
    if not path or path == ":memory:":
        raise _unreadable(position, "A store in SQLite is a file: jdbc:sqlite:/var/lib/app.db.")
    return Database(Backend.SQLITE, path)


def _unreadable(position: Position | None, detail: str) -> MeshError:
    # The URL may hold a password, so it is not shown.
    return MeshError(
        "MESH-P240",
        "the URL of a store can't be read",
        detail=detail,
        hint="Write jdbc:mysql://host:3306/name, jdbc:postgresql://host/name or jdbc:sqlite:file.",
        position=position,
    )
