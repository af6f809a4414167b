"""Sink ``rdbms-call``: a statement for each event, whose rows become events.

Each statement is a transaction.  One that gives rows only reads.
"""

from __future__ import annotations

import contextlib
import math
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import orjson
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from mesh.connect.contract import FailedRecordsError, UnavailableError, library
from mesh.errors import MeshError
from mesh.model import names
from mesh.model.statements import columns_in, formatted
from mesh.model.stored import Backend
from mesh.model.types import AttributeType
from mesh.receiver.outcomes import sent
from mesh.receiver.types.calls import NO_STATUS, hand_over
from mesh.receiver.types.databases import explained, is_refusal, opened, reason_of
from mesh.receiver.types.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import sqlalchemy

    from mesh.connect.contract import Context, Record
    from mesh.model.types import Attribute
    from mesh.model.values import EventValues, JsonMapping, Row

#: Rows that are fetched together; bytes of the rows of one statement.
_ROWS: Final = 1000
_BYTES_MAX: Final = 64 << 20
_MET_S: Final = 5.0
#: Has a session only read; SQLite has no such sessions, and undoes what it has done.
_READ_ONLY: Final = {
    Backend.POSTGRESQL: "set session characteristics as transaction read only",
    Backend.MYSQL: "set session transaction read only",
}
_RANGES: Final = {AttributeType.INT: 1 << 31, AttributeType.LONG: 1 << 63}


class RdbmsCall:
    """See ``mesh.connect.contract.Sink``."""

    state: JsonMapping | None = None
    takes_events = True

    def __init__(self) -> None:
        self._connection: sqlalchemy.Connection | None = None
        #: Key of the record that was executed last, and its rows that are not stored yet.
        self._done: tuple[str, list[bytes]] | None = None
        self._has_met = False

    async def open(self, context: Context, state: JsonMapping | None) -> None:
        """Connect.

        Raises:
            MeshError: MESH-C132 for a statement that may not change a database here; see
                ``mesh.store.sources``.
        """
        self._sa = library("sqlalchemy", "rdbms")
        self._context, options = context, context.options
        text = options.get("columns") or ""
        self._columns = columns_in(text) if text else ()
        if not self._columns and not context.access.changes_databases:
            raise MeshError(
                "MESH-C132",
                "no statement of an app may change a database on this worker",
                hint="Set stores.cud_operations: true.",
            )
        self._parameters = [n.strip() for n in str(options.get("parameters") or "").split(",")]
        self._subject = names.call_subject(context.app, options["sink.id"], NO_STATUS)
        self._has_met = False
        await self._connected()

    async def check(self, context: Context) -> None:
        """Log in; nothing is executed."""
        await self.open(context, None)
        await self.close()

    async def _connected(self) -> None:
        try:
            await in_thread(self._connect)
        except self._sa.exc.DBAPIError as error:
            raise UnavailableError(explained(error)) from None

    def _connect(self) -> None:
        database, self._connection = opened(self._context, "jdbc.url")
        statement = str(self._context.options["statement"])
        is_file = database.backend is Backend.SQLITE
        self._statement = statement if is_file else formatted(statement)
        if self._columns and not is_file:
            self._connection.exec_driver_sql(_READ_ONLY[database.backend])
            self._connection.commit()

    async def write(self, records: Sequence[Record]) -> Sequence[str | None]:
        """Execute the statement for each record in turn, and have its rows stored."""
        return await sent(self._send, records, 1)

    async def _send(self, record: Record) -> str | None:
        if self._done is None or self._done[0] != record.key:
            await self._meet()
            try:
                self._done = record.key, await self._rows(record)
            except ValueError as error:
                return str(error)
        _, left = self._done
        while left:
            # The key of the last is that of the record, the one of an only one.
            key = record.key if len(left) == 1 else f"{record.key}-{len(left)}"
            part = record._replace(key=key)
            try:
                refused = await hand_over(self._context.client, self._subject, part, left[0], ())
            except NoRespondersError:
                raise self._alone() from None
            if refused:
                return f"the rows can't be read: {refused}"
            del left[0]
        return None

    async def _meet(self) -> None:
        """Wait for the source: without it a statement would be executed for nothing."""
        if self._has_met:
            return
        # An answer with a flaw is refused, and nothing of it is stored.
        question = orjson.dumps({"flaw": "none was asked for"})
        try:
            await self._context.client.request(self._subject, question, timeout=_MET_S)
        except NoRespondersError:
            raise self._alone() from None
        except (NatsError, TimeoutError) as error:
            raise UnavailableError(f"the source does not answer: {error}") from error
        self._has_met = True

    def _alone(self) -> UnavailableError:
        name = self._context.options["sink.id"]
        return UnavailableError(f'no source rdbms-call-response with sink.id "{name}" runs')

    async def _rows(self, record: Record) -> list[bytes]:
        """The rows of a record's statement as payloads.

        Raises:
            ValueError: the database refuses it, or a row has no such values.
            UnavailableError, FailedRecordsError: it could not be executed.
        """
        if self._connection is None:
            await self._connected()
        event = dict(record.event or {})
        values = tuple(event[name] for name in self._parameters if name)
        try:
            return await in_thread(self._execute, event, values)
        except self._sa.exc.DBAPIError as error:
            if is_refusal(error):
                raise ValueError(reason_of(error)) from None
            await self.close()
            if isinstance(error, self._sa.exc.ProgrammingError):
                raise FailedRecordsError(reason_of(error), {}) from None
            raise UnavailableError(explained(error)) from None

    def _execute(self, event: EventValues, values: Row) -> list[bytes]:
        assert self._connection is not None
        with self._connection.begin() as whole:
            result = self._connection.exec_driver_sql(self._statement, values)
            if not self._columns:
                return [orjson.dumps({**event, "numRecords": max(0, result.rowcount)})]
            # A question has the event once more, and its payload in base 64.
            room = (self._context.client.max_payload - len(orjson.dumps(event)) - 4096) // 4 * 3
            if not result.returns_rows:
                raise ValueError("the statement gives no rows")
            payloads = list(_payloads(self._read(result, event), room))
            whole.rollback()
            return payloads

    def _read(self, result: Any, event: EventValues) -> Iterator[bytes]:
        count = len(result.keys())
        if count != len(self._columns):
            raise ValueError(f"the rows have {count} columns, and not {len(self._columns)}")
        is_empty, size = True, 0
        while rows := result.fetchmany(_ROWS):
            is_empty = False
            for row in rows:
                payload = orjson.dumps({**event, **_values(self._columns, row)})
                size += len(payload)
                if size > _BYTES_MAX:
                    raise ValueError(f"the rows have more than {_BYTES_MAX >> 20} MiB")
                yield payload
        if is_empty and self._context.options.get("empty") == "row":
            yield orjson.dumps({**event, **dict.fromkeys(one.name for one in self._columns)})

    async def close(self) -> None:
        """Disconnect."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                await in_thread(connection.close)


def _payloads(rows: Iterable[bytes], room: int) -> Iterator[bytes]:
    """Arrays of rows of at most ``room`` bytes; a larger row is alone."""
    held: list[bytes] = []
    size = 0
    for row in rows:
        if held and size + len(row) + 1 > room:
            yield b"[" + b",".join(held) + b"]"
            held, size = [], 0
        held.append(row)
        size += len(row) + 1
    if held:
        yield b"[" + b",".join(held) + b"]"


def _values(columns: Sequence[Attribute], row: Sequence[object]) -> EventValues:
    return {one.name: value_as(one, value) for one, value in zip(columns, row, strict=True)}


def value_as(column: Attribute, value: object) -> object:
    """A value of a driver as one of JSON.

    Raises:
        ValueError: it is none of the column's type.
    """
    kind = column.type
    if value is None:
        return None
    if kind is AttributeType.STRING:
        text = _text(value)
        if text is not None:
            return text
    elif isinstance(value, bool | int | float | Decimal):
        if kind is AttributeType.BOOL and value in (0, 1):
            return bool(value)
        if kind in (AttributeType.FLOAT, AttributeType.DOUBLE):
            return float(value)
        limit = _RANGES.get(kind)
        if limit and math.isfinite(value) and value == int(value) and -limit <= value < limit:
            return int(value)
    raise ValueError(f'column "{column.name}" is {str(value)[:80]!r}, which is no {kind}')


def _text(value: object) -> str | None:
    """The text of a value; None for octets."""
    match value:
        case str():
            return value
        case bool():
            return str(value).lower()
        case Decimal():
            return format(value, "f")
        case datetime():
            return value.isoformat(" ")
        case date() | time():
            return value.isoformat()
        case dict() | list():
            return orjson.dumps(value, default=str).decode()
        case bytes() | bytearray() | memoryview():
            return None
        case _:
            return str(value)
