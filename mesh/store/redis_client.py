"""Connections to Redis, and errors of its client as errors of the mesh.

The client library is that of the extra ``redis``, and is imported on first use.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mesh.errors import MeshError
from mesh.store.engine import STATEMENT_S, away
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.model.stored import Database

log = logging.getLogger(__name__)


def connected(database: Database) -> Any:
    """A client of redis-py, whose first command connects it.

    Raises:
        MeshError: MESH-S143, the client library is not installed.
    """
    try:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ModuleNotFoundError as error:
        raise MeshError(
            "MESH-S143",
            "the client library of Redis is not installed",
            detail=f"{error}.",
            hint="Install the extra on workers: pip install 'nats-event-mesh[redis]'.",
        ) from error
    parameters = dict(database.parameters)
    roots = parameters.get("sslrootcert")
    return redis.Redis(
        host=database.host,
        port=database.port or 6379,
        db=int(database.database),
        username=database.username or None,
        password=database.password or None,
        socket_connect_timeout=database.connect_timeout_s,
        socket_timeout=STATEMENT_S,
        # A command whose outcome is unknown is not repeated here: the marker is read instead.
        retry=Retry(NoBackoff(), 0),
        ssl="tls" in parameters,
        # Releases before 6 do not by default.
        ssl_check_hostname=True,
        ssl_ca_certs=None if roots == "system" else roots,
        protocol=2,
    )


@contextmanager
def database_errors(database: Database, doing: str) -> Iterator[None]:
    """Raise errors of the client as those of the mesh, without values of rows.

    Raises:
        MeshError: MESH-S140, the server does not answer; MESH-S142, it refuses a command.
    """
    from redis.exceptions import ConnectionError as LostError
    from redis.exceptions import ReadOnlyError, RedisError, ResponseError
    from redis.exceptions import TimeoutError as LateError

    try:
        yield
    except (LostError, LateError, OSError) as error:
        raise away(database, doing, _reason(error)) from None
    except RedisError as error:
        reason = _reason(error)
        if not isinstance(error, ResponseError) or isinstance(error, ReadOnlyError):
            # After a change of the primary the address leads to the new one, in time.
            raise away(database, doing, reason) from None
        raise MeshError(
            "MESH-S142",
            f"database {database} refuses a command, {doing}",
            detail=reason,
            hint="See docs/stores.md, Redis; the events are kept meanwhile.",
        ) from None


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"{lines[0].strip().rstrip('.')}."


def check(database: Database) -> None:
    """Refuse a server that evicts keys: rows, and the marker, would be gone at any time.

    Raises:
        MeshError: MESH-S142; see ``database_errors``.
    """
    client = connected(database)
    try:
        with database_errors(database, "when its settings are read"):
            info = _info(client, "memory")
    finally:
        client.close()
    policy = info.get("maxmemory_policy", "noeviction")
    if info.get("maxmemory") and policy != "noeviction":
        raise MeshError(
            "MESH-S142",
            f"database {database} evicts keys",
            detail=f"maxmemory-policy is {policy}: when its memory is full, rows are gone.",
            hint="Set maxmemory-policy to noeviction, or maxmemory to 0.",
        )


def warn_of_loss(client: Any, database: Database) -> None:
    """Log if the server may lose what it has acknowledged."""
    info = _info(client, "persistence")
    if info and not info.get("aof_enabled"):
        log.warning(
            "Redis keeps no log of its changes: rows are lost when it ends",
            extra=fields(database=str(database), hint="set appendonly to yes"),
        )


def _info(client: Any, section: str) -> Any:
    """A section of the server's own report; nothing if the login may not ask."""
    from redis.exceptions import NoPermissionError

    try:
        return client.info(section)
    except NoPermissionError:
        return {}
