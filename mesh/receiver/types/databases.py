"""Connections of sources and sinks to databases, and their errors."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mesh.model.stored import Backend
from mesh.plan.jdbc import database_of
from mesh.receiver.access import path_of
from mesh.store.engine import engine_of

if TYPE_CHECKING:
    import sqlalchemy as sa

    from mesh.connect.contract import Context
    from mesh.model.stored import Database


def opened(context: Context, url: str) -> tuple[Database, sa.Connection]:
    """A connection to a database.

    Raises:
        MeshError: the URL can't be read, its file is not open to connectors, or the client
            libraries are not installed; DBAPIError of SQLAlchemy: it does not answer.
    """
    options = context.options
    database = database_of(url, options.get("username"), options.get("password"))
    if database.backend is Backend.SQLITE:
        database = replace(database, database=path_of(context.access, database.database))
    return database, engine_of(database).connect()


def reason_of(error: Any) -> str:
    """The first line of a driver's error, without statements and values."""
    lines = str(getattr(error, "orig", None) or error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__
