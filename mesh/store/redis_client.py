"""Connections to Redis, and errors of its client as errors of the mesh.

The client library is that of the extra ``redis``, and is imported on first use.

Rows of tables as hashes of Redis: their keys, the texts of values, and look-ups among them.

    Prices:IBM              key of one part: the name of the table, and the text of the value
    Pairs:a%3Ab:5           of several, in the order of the definition; % and : are escaped
      symbol IBM            fields are attributes; a null has none
      price  12.5

The key says which row a hash is: its fields of key attributes are for other programs.  A hash whose
key is not the text of a key value, or that has no field of the table, is no row of it.
"""

from __future__ import annotations

import decimal
import logging
import math
import operator
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mesh.errors import MeshError
from mesh.model.stored import AllOf, AnyKey, AnyOf, Clause, Compared, Comparison
from mesh.model.types import AttributeType
from mesh.store.engine import STATEMENT_S, away
from mesh.store.values import exact
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mesh.model.stored import Database, StoredTable
    from mesh.model.values import Row


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


_WHOLE: Final = re.compile(r"-?[0-9]{1,19}")
_FRACTION: Final = re.compile(
    r"[+-]?(?:[0-9]{1,400}\.?[0-9]{0,400}|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,4})?"
    r"|NaN|-?Infinity"
)
_FLAGS: Final = {"true": True, "false": False, "1": True, "0": False}
_FLOAT_MAX: Final = float(np.finfo(np.float32).max)
_INFINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_ORDERS: Final = {
    Comparison.EQUAL: operator.eq,
    Comparison.LESS: operator.lt,
    Comparison.LESS_OR_EQUAL: operator.le,
    Comparison.GREATER: operator.gt,
    Comparison.GREATER_OR_EQUAL: operator.ge,
}


def text_of(value: Any, attribute: AttributeType) -> str:
    """The text of a value that is not null."""
    return _WRITERS[attribute](value)


def value_of(data: bytes, attribute: AttributeType) -> Any:
    """The value of a text; the text itself, or its bytes, if it has none of this type."""
    try:
        return _READERS[attribute](data.decode())
    except UnicodeDecodeError:
        return data


def _flag_text(value: bool) -> str:
    return "true" if value else "false"


def _double_text(value: float) -> str:
    # The shortest text that is this number.
    text = repr(value)
    return _INFINITE.get(text, text)


def _float_text(value: float) -> str:
    text = str(np.float32(value))
    return _INFINITE.get(text, text)


def _flag(text: str) -> Any:
    return _FLAGS.get(text.lower(), text)


def _whole(text: str) -> Any:
    return int(text) if _WHOLE.fullmatch(text) else text


def _double(text: str) -> Any:
    if not _FRACTION.fullmatch(text):
        return text
    number = float(text)
    written = repr(number)
    if written == text or _INFINITE.get(written) == text:
        return number
    if decimal.Decimal(written) == decimal.Decimal(text):
        return number
    # More digits than a double has.
    return text


def _float(text: str) -> Any:
    """The float that a number is, or is the shortest text of; another number as it is."""
    number = _double(text)
    if not isinstance(number, float) or not math.isfinite(number):
        return number
    with np.errstate(over="ignore"):
        rounded = np.float32(number)
    is_same = float(rounded) == number or float(str(rounded)) == number
    return float(rounded) if is_same else number


_WRITERS: Final[Mapping[AttributeType, Callable[[Any], str]]] = {
    AttributeType.STRING: str,
    AttributeType.INT: str,
    AttributeType.LONG: str,
    AttributeType.FLOAT: _float_text,
    AttributeType.DOUBLE: _double_text,
    AttributeType.BOOL: _flag_text,
}
_READERS: Final[Mapping[AttributeType, Callable[[str], Any]]] = {
    AttributeType.STRING: str,
    AttributeType.INT: _whole,
    AttributeType.LONG: _whole,
    AttributeType.FLOAT: _float,
    AttributeType.DOUBLE: _double,
    AttributeType.BOOL: _flag,
}


def _key_value(value: Any, attribute: AttributeType) -> Any:
    """The value of a key attribute that equals one of any type; None if there is none."""
    if not isinstance(value, int | float) or attribute is AttributeType.BOOL:
        return value
    if attribute in (AttributeType.INT, AttributeType.LONG):
        return int(value) if math.isfinite(value) and value == int(value) else None
    if attribute is AttributeType.FLOAT and math.isfinite(value):
        is_exact = abs(value) <= _FLOAT_MAX and float(np.float32(value)) == value
        return float(value) if is_exact else None
    return float(value)


class Hashes:
    """The hashes of a table's rows."""

    def __init__(self, table: StoredTable) -> None:
        self.table = table
        #: The names of the fields.
        self.names = tuple(column.name for column in table.columns)
        self._types = tuple(column.type for column in table.columns)
        self._keys = tuple(table.arrow.get_field_index(column.name) for column in table.keys)
        self._key_types = tuple(column.type for column in table.keys)
        self._prefix = f"{table.name}:"
        escaped = re.sub(r"([\\*?\[\]^-])", r"\\\1", self._prefix)
        #: The pattern of SCAN that all keys match.
        self.pattern = f"{escaped}*"

    def key_of(self, key: Sequence[Any]) -> str:
        """The key of the row with these values of key columns."""
        texts = [
            # Keys have one zero.
            _WRITERS[kind](value + 0.0 if isinstance(value, float) else value)
            for value, kind in zip(key, self._key_types, strict=True)
        ]
        if len(texts) > 1:
            texts = [text.replace("%", "%25").replace(":", "%3A") for text in texts]
        return self._prefix + ":".join(texts)

    def values_of(self, row: Sequence[Any]) -> Row:
        """The values of key columns of a row."""
        return tuple(row[at] for at in self._keys)

    def key_of_row(self, row: Sequence[Any]) -> str:
        """The key of a row."""
        return self.key_of(self.values_of(row))

    def key_in(self, key: bytes) -> Row | None:
        """The values of key columns; None for a key that no row has."""
        try:
            text = key.decode().removeprefix(self._prefix)
        except UnicodeDecodeError:
            return None
        parts = text.split(":") if len(self._keys) > 1 else [text]
        if len(parts) != len(self._keys):
            return None
        if len(parts) > 1:
            parts = [part.replace("%3A", ":").replace("%25", "%") for part in parts]
        try:
            values = tuple(
                exact(_READERS[kind](part), kind)
                for part, kind in zip(parts, self._key_types, strict=True)
            )
        except (ValueError, TypeError, ArithmeticError):
            return None
        is_exact = self.key_of(values).encode() == key and all(value == value for value in values)
        return values if is_exact else None

    def row_of(self, key: Row, fields: Sequence[bytes | bool | None]) -> Row | None:
        """The row of a hash, in the columns of the table; None if it is none.

        Args:
            key: see ``key_in``.
            fields: its fields ``names``; None or False for those that are missing.
        """
        if all(one is None or one is False for one in fields):
            return None
        row = [
            value_of(data, kind) if isinstance(data, bytes) else None
            for data, kind in zip(fields, self._types, strict=True)
        ]
        for at, value in zip(self._keys, key, strict=True):
            row[at] = value
        return tuple(row)

    def keys_in(self, clause: Clause) -> list[Row] | None:
        """The keys of all rows that a look-up can find; None if it does not say."""
        parts = clause.parts if isinstance(clause, AllOf) else (clause,)
        names, kinds = [self.names[at] for at in self._keys], self._key_types
        for part in parts:
            if isinstance(part, AnyKey) and sorted(part.columns) == sorted(names):
                order = [part.columns.index(name) for name in names]
                listed = (
                    tuple(_key_value(key[at], kind) for at, kind in zip(order, kinds, strict=True))
                    for key in part.keys
                )
                return [key for key in listed if None not in key]
        return None


def finder(clause: Clause) -> Callable[[Mapping[str, Any]], bool]:
    """Whether a look-up finds a row; a value that its attribute can't have meets nothing."""
    match clause:
        case AllOf(parts):
            every = [finder(part) for part in parts]
            return lambda row: all(test(row) for test in every)
        case AnyOf(parts):
            some = [finder(part) for part in parts]
            return lambda row: any(test(row) for test in some)
        case AnyKey(columns, listed):
            keys = frozenset(listed)
            return lambda row: tuple(row[name] for name in columns) in keys
        case Compared(name, Comparison.IS_NULL):
            return lambda row: row[name] is None
        case Compared(name, Comparison.IS_NOT_NULL):
            return lambda row: row[name] is not None
        case Compared(name, Comparison.CONTAINS, value):
            return lambda row: isinstance(row[name], str) and value in row[name]
        case Compared(name, how, value):
            return lambda row: _compared(row[name], how, value)


def _compared(actual: Any, how: Comparison, value: Any) -> bool:
    is_alike = isinstance(actual, str | bytes) == isinstance(value, str | bytes)
    return actual is not None and is_alike and bool(_ORDERS[how](actual, value))
