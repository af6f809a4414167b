"""Source ``cdc``: rows of a table by a column that grows, or changes from the database's log."""

from __future__ import annotations

import contextlib
import datetime
import decimal
from typing import TYPE_CHECKING, Any, Final, Protocol

import orjson

from mesh.clock import SystemClock
from mesh.connect.contract import Batch, UnavailableError
from mesh.connect.extras import library
from mesh.model.stored import Backend
from mesh.receiver.types.databases import check, opened, plain, reason_of
from mesh.receiver.types.mysql_changes import BinaryLog
from mesh.receiver.types.pg_changes import Listening
from mesh.receiver.types.schedule import Schedule
from mesh.receiver.types.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import sqlalchemy

    from mesh.connect.contract import Context

_ROWS: Final = 2000


class Reading(Protocol):
    """One way to read changes; its methods run in a thread."""

    def begin(self, position: Mapping[str, Any]) -> Mapping[str, Any]:
        """Prepare, and the position at which to begin."""
        ...

    def read(self) -> Batch | None:
        """The next changes."""
        ...

    def committed(self, position: Mapping[str, Any]) -> None:
        """The changes up to ``position`` are stored."""
        ...

    def close(self) -> None:
        """Release what is open beside the connection."""
        ...


class CdcSource:
    """See ``mesh.connect.contract.Source``."""

    def __init__(self) -> None:
        self._connection: sqlalchemy.Connection | None = None
        self._reading: Reading | None = None

    async def open(self, context: Context, position: Mapping[str, Any] | None) -> None:
        """Connect, and find where to begin."""
        self._sa = library("sqlalchemy", "rdbms")
        is_polling = str(context.options["mode"]).lower() == "polling"
        self._schedule = Schedule(
            int(context.options.get("polling.interval") or 1000),
            context.options.get("cron.expression") if is_polling else None,
        )
        self._first: Batch | None = None
        found = await self._call(self._open, context, position)
        if position is None:
            # Stored before the first rows: another start would begin later, and miss some.
            self._first = Batch([], found)

    async def check(self, context: Context) -> None:
        """Log in, and look for the table; ``open`` would create what is missing."""
        await in_thread(
            check, context, str(context.options["url"]), str(context.options["table.name"])
        )

    def _open(self, context: Context, position: Mapping[str, Any] | None) -> Mapping[str, Any]:
        options = context.options
        database, connection = opened(context, str(options["url"]))
        self._connection = connection
        if str(options["mode"]).lower() == "polling":
            self._reading = Polling(self._sa, connection, options)
        elif database.backend is Backend.POSTGRESQL:
            self._reading = Listening(self._sa, connection, context)
        elif database.backend is Backend.MYSQL:
            self._reading = BinaryLog(self._sa, connection, context, database)
        else:
            raise ValueError("mode='listening' is not for SQLite; write mode='polling'")
        return self._reading.begin(position or {})

    async def _call(self, call: Any, *arguments: Any) -> Any:
        try:
            return await in_thread(call, *arguments)
        except self._sa.exc.SQLAlchemyError as error:
            raise UnavailableError(reason_of(error)) from None

    async def read(self) -> Batch | None:
        """The next changes; waits for the interval if there are none."""
        first, self._first = self._first, None
        if first is not None:
            return first
        assert self._reading is not None
        if self._schedule.is_due:
            batch: Batch | None = await self._call(self._reading.read)
            if batch is not None:
                return batch
            self._schedule.end_look()
        await self._schedule.rest()
        return None

    async def committed(self, position: Mapping[str, Any]) -> None:
        """Let the database forget the changes."""
        assert self._reading is not None
        await self._call(self._reading.committed, position)

    async def close(self) -> None:
        """Disconnect."""
        with contextlib.suppress(Exception):
            # In one call: a cancelled caller would not make the second.
            await in_thread(self._close)

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        reading, self._reading = self._reading, None
        try:
            if reading is not None:
                reading.close()
        finally:
            if connection is not None:
                connection.close()


class Polling:
    """Rows with a larger value than the last one of a column; from the present maximum at first."""

    def __init__(
        self, sa: Any, connection: sqlalchemy.Connection, options: Mapping[str, Any]
    ) -> None:
        self._sa, self._connection = sa, connection
        if not options.get("polling.column"):
            raise ValueError('mode="polling" needs the option "polling.column"')
        with connection.begin():
            self._table = sa.Table(options["table.name"], sa.MetaData(), autoload_with=connection)
        if options["polling.column"] not in self._table.columns:
            raise ValueError(f'the table has no column "{options["polling.column"]}"')
        self._column = self._table.columns[options["polling.column"]]
        self._last: Any = None
        self._waits = bool(options.get("wait.on.missed.record"))
        if self._waits and not isinstance(self._column.type, sa.Integer):
            raise ValueError("wait.on.missed.record needs a polling.column of whole numbers")
        self._limit_s = int(options.get("missed.record.waiting.timeout", -1))
        self._clock = SystemClock()
        #: When a gap after the last value was first seen.
        self._gap_s: float | None = None

    def begin(self, position: Mapping[str, Any]) -> Mapping[str, Any]:
        """See ``Reading``."""
        if position:
            self._last = loaded(position["last"])
        else:
            with self._connection.begin():
                query = self._sa.select(self._sa.func.max(self._column))
                self._last = self._connection.execute(query).scalar_one()
        return {"last": stored(self._last)}

    def read(self) -> Batch | None:
        """See ``Reading``."""
        query = self._sa.select(self._table).order_by(self._column).limit(_ROWS)
        if self._last is None:
            query = query.where(self._column.is_not(None))
        else:
            query = query.where(self._column > self._last)
        with self._connection.begin():
            rows = self._connection.execute(query).mappings().all()
            if len(rows) == _ROWS:
                # Rows of the last value that the limit has cut off.
                last = rows[-1][self._column.name]
                same = self._sa.select(self._table).where(self._column == last)
                rest = self._connection.execute(same).mappings().all()
                rows = [row for row in rows if row[self._column.name] != last] + list(rest)
        if self._waits:
            rows = self._without_gap(rows)
        if not rows:
            return None
        self._last = rows[-1][self._column.name]
        # Names of SQLAlchemy are of a subclass, which the encoder refuses.
        keys = [str.__str__(name) for name in rows[0]]
        payloads = [
            orjson.dumps(dict(zip(keys, row.values(), strict=True)), default=plain) for row in rows
        ]
        properties = [{"operation": "insert"}] * len(rows)
        names = [f"{stored(row[self._column.name])}-{at}" for at, row in enumerate(rows)]
        return Batch(payloads, {"last": stored(self._last)}, properties, names)

    def _without_gap(self, rows: Sequence[Any]) -> Sequence[Any]:
        """The rows before the first missing value, which may be of a transaction that is open."""
        last, now_s = self._last, self._clock.monotonic_s()
        for at, row in enumerate(rows):
            value = row[self._column.name]
            if last is not None and value > last + 1:
                if at:
                    return rows[:at]
                self._gap_s = now_s if self._gap_s is None else self._gap_s
                if self._limit_s < 0 or now_s < self._gap_s + self._limit_s:
                    return []
            self._gap_s, last = None, value
        return rows

    def committed(self, position: Mapping[str, Any]) -> None:
        """See ``Reading``; the database knows nothing of it."""

    def close(self) -> None:
        """See ``Reading``."""


def stored(value: Any) -> Any:
    """A value of a column as a JSON value of the position."""
    if isinstance(value, datetime.datetime):
        return {"time": value.isoformat()}
    if isinstance(value, datetime.date):
        return {"date": value.isoformat()}
    if isinstance(value, decimal.Decimal):
        return {"number": str(value)}
    return value


def loaded(value: Any) -> Any:
    """The inverse of ``stored``."""
    if not isinstance(value, dict):
        return value
    ((kind, text),) = value.items()
    if kind == "time":
        return datetime.datetime.fromisoformat(text)
    return datetime.date.fromisoformat(text) if kind == "date" else decimal.Decimal(text)
