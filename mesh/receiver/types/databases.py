"""Connections of sources and sinks to databases, and their errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from mesh.connect.access import open_database
from mesh.connect.contract import Options, UnavailableError, library
from mesh.model.stored import StoreOptions
from mesh.plan.stores import database_of
from mesh.store import causes, sources
from mesh.store.engine import engine_of
from mesh.store.refusals import is_by_rule

if TYPE_CHECKING:
    import sqlalchemy as sa

    from mesh.connect.contract import Context
    from mesh.model.stored import Database

#: Of PostgreSQL: types that don't go together, which the values of an event may have.
_STATES: Final = ("42804", "42846")


def opened(context: Context, url: str) -> tuple[Database, sa.Connection]:
    """A connection to the database of an option, or to one that the settings name.

    Raises:
        MeshError: the URL can't be read, its file is not open to connectors, or the client
            libraries are not installed, or see ``mesh.store.sources``; DBAPIError of SQLAlchemy: it
            does not answer.
    """
    options = context.options
    named = options.get("datasource") or options.get("datasource.name")
    if named:
        database = sources.database(StoreOptions(None, str(named)), context.app)
    else:
        login = options.get("username"), options.get("password")
        database = open_database(context.access, database_of(str(options[url]), *login))
    return database, engine_of(database).connect()


def reason_of(error: object) -> str:
    """The first line of a driver's error, without statements and values."""
    return causes.reason_of(error)


def explained(error: Any) -> str:
    """The reason of a driver's error, and its remedy if one is known."""
    remedy = causes.remedy(error)
    return f"{reason_of(error)}. {remedy}".removesuffix(".") if remedy else reason_of(error)


def is_refusal(error: BaseException) -> bool:
    """Whether a database or its driver refuses the values of a row; others may end by themselves.

    Drivers raise errors of Python for values that they can't encode.
    """
    sa = library("sqlalchemy", "rdbms")
    if not isinstance(error, sa.exc.DBAPIError):
        return not isinstance(error, OSError | UnavailableError)
    if is_by_rule(error):
        return True
    origin = error.orig
    if hasattr(origin, "sqlite_errorname") or type(origin).__module__ == "sqlite3":
        return isinstance(error, sa.exc.InterfaceError | sa.exc.ProgrammingError)
    state = getattr(origin, "sqlstate", None)
    is_unsent = state is None and isinstance(error, sa.exc.ProgrammingError)
    return is_unsent or state in _STATES


def check(context: Context, url: str, table: str = "") -> None:
    """Log in to the database of ``opened``, and look for a table.

    Raises:
        UnavailableError: it does not answer, or has no such table; MeshError as ``opened``.
    """
    sa = library("sqlalchemy", "rdbms")
    try:
        _, connection = opened(context, url)
        with connection:
            connection.execute(sa.text("select 1"))
            space, _, name = table.rpartition(".")
            if table and not sa.inspect(connection).has_table(name, schema=space or None):
                raise UnavailableError(f'there is no table "{table}"')
    except sa.exc.DBAPIError as error:
        raise UnavailableError(reason_of(error)) from None


def ask_for_octets(connection: sa.Connection) -> bool:
    """Have PostgreSQL show texts as they are stored, if their encoding is SQL_ASCII.

    Such a database has texts in any encoding, and the server would refuse a whole query for one
    that is no UTF-8.  It holds to the end of the transaction; the driver then takes ASCII only.
    """
    pooled: Any = connection.connection.driver_connection
    is_ascii: bool = pooled.info.parameter_status("server_encoding") == "SQL_ASCII"
    if is_ascii:
        connection.exec_driver_sql("set local client_encoding to sql_ascii")
    return is_ascii


def operations_of(options: Options) -> frozenset[str]:
    """The operations of the source ``cdc``.  Raises ``ValueError`` for another word."""
    words = str(options.get("operation") or "insert").lower().split(",")
    operations = frozenset(word.strip() for word in words)
    if not operations <= {"insert", "update", "delete"}:
        raise ValueError('option "operation" is a list of insert, update and delete')
    return operations
