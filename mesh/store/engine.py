"""Connections to databases: engines of SQLAlchemy, and errors of drivers as errors of the mesh.

The client libraries are those of the extra ``rdbms``, and are imported on first use.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from mesh.errors import MeshError
from mesh.model.stored import Backend
from mesh.store.causes import is_answer, reason_of, remedy
from mesh.store.sql import sa

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.model.stored import Database

#: Longest time of a statement, seconds: shorter than that after which a slot counts as hanging.
STATEMENT_S: Final = 20
_DRIVERS: Final = {
    Backend.SQLITE: "sqlite+pysqlite",
    Backend.POSTGRESQL: "postgresql+psycopg",
    Backend.MYSQL: "mysql+pymysql",
}
_FORMATS: Final = (
    "-c TimeZone=UTC -c DateStyle=ISO,YMD -c IntervalStyle=postgres -c bytea_output=hex "
    "-c extra_float_digits=1 -c lc_monetary=C -c xmloption=content"
)
#: Without the strict mode texts are cut and numbers changed in silence.
_MYSQL_SESSION: Final = (
    "SET time_zone = '+00:00', sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')"
)
_PORTS: Final = {Backend.POSTGRESQL: 5432, Backend.MYSQL: 3306, Backend.SQLITE: None}


@lru_cache(maxsize=64)
def engine_of(database: Database, statement_s: int = STATEMENT_S) -> sa.Engine:
    """The engine of a database; it keeps no connections.

    Args:
        database: with its login.
        statement_s: longest time of a statement, seconds.

    Raises:
        MeshError: MESH-S143, the client libraries are not installed.
    """
    try:
        is_file = database.backend is Backend.SQLITE
        url = sa.URL.create(
            _DRIVERS[database.backend],
            username=database.username or None,
            password=database.password or None,
            host=database.host or None,
            port=database.port or _PORTS[database.backend],
            database=database.database,
        )
        engine = sa.create_engine(
            url,
            poolclass=sa.NullPool,
            hide_parameters=True,
            connect_args=_connect_args(database, statement_s),
            **({} if is_file else {"isolation_level": "READ COMMITTED"}),
        )
    except ModuleNotFoundError as error:
        raise MeshError(
            "MESH-S143",
            "the client libraries of databases are not installed",
            detail=f"{error}.",
            hint="Install the extra on workers: pip install 'nats-event-mesh[rdbms]'.",
        ) from error
    if is_file:
        sa.event.listen(engine, "connect", _set_up_sqlite)
        sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _connect_args(database: Database, statement_s: int) -> dict[str, object]:
    wait_s = max(1, round(database.connect_timeout_s))
    parameters = dict(database.parameters)
    options = parameters.pop("options", "")
    match database.backend:
        case Backend.SQLITE:
            return {"timeout": wait_s, "check_same_thread": False}
        case Backend.POSTGRESQL:
            return {
                "connect_timeout": max(2, wait_s),
                # Of what the log has in octets, too.
                "client_encoding": "utf8",
                "tcp_user_timeout": statement_s * 1000,
                **parameters,
                # The last one counts: values have one form, whatever a login has by default.
                "options": f"-c statement_timeout={statement_s}s {options} {_FORMATS}",
            }
        case _:
            return {
                "connect_timeout": wait_s,
                "read_timeout": statement_s,
                "write_timeout": statement_s,
                "charset": "utf8mb4",
                "init_command": _MYSQL_SESSION,
                **parameters,
            }


def _set_up_sqlite(connection: Any, _record: object) -> None:
    # SQLAlchemy's own event begins transactions: the driver would begin them at the first write.
    connection.isolation_level = None
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")


def _begin_sqlite(connection: sa.Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


@contextmanager
def database_errors(database: Database, doing: str) -> Iterator[None]:
    """Raise errors of the driver as those of the mesh, without values of rows.

    Raises:
        MeshError: MESH-S140, the database does not answer; MESH-S142, it refuses a statement.
    """
    try:
        yield
    except sa.exc.DBAPIError as error:
        reason = f"{reason_of(error)}."
        if not is_answer(error):
            raise away(database, doing, reason) from None
        raise MeshError(
            "MESH-S142",
            f"database {database} refuses a statement, {doing}",
            detail=reason,
            hint=remedy(error)
            or "Compare the tables with docs/stores.md; the events are kept meanwhile.",
        ) from None
    except OSError as error:
        raise away(database, doing, f"{error}.") from None


def away(database: Database, doing: str, reason: str) -> MeshError:
    """The error of a database that does not answer."""
    return MeshError(
        "MESH-S140",
        f"database {database} does not answer, {doing}",
        detail=reason,
        hint="The instance tries again by itself; its events wait in their channels.",
    )


def overtaken(database: Database, producer: str, writer_epoch: int, epoch: int | None) -> MeshError:
    """The error of a writer whose marker one of ``epoch`` has; None: unknown."""
    by = "another writer" if epoch is None else f"epoch {epoch}"
    return MeshError(
        "MESH-S141",
        f"{by} has taken over the marker {producer} in database {database}",
        detail=f"This writer has epoch {writer_epoch}.",
        hint="Nothing has to be done: this copy of the instance ends or starts again.",
    )
