"""Source ``cdc``: rows of a table by a column that grows, or changes from the database's log."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Protocol

from mesh.connect.contract import Batch, UnavailableError, library
from mesh.model.stored import Backend
from mesh.receiver.types.databases import check, opened, reason_of
from mesh.receiver.types.mysql_changes import BinaryLog
from mesh.receiver.types.pg_changes import Listening
from mesh.receiver.types.polling import Polling
from mesh.receiver.types.schedule import Schedule
from mesh.receiver.types.threads import in_thread

if TYPE_CHECKING:
    import sqlalchemy

    from mesh.connect.contract import Context
    from mesh.model.values import JsonMapping


class ChangeReader(Protocol):
    """One way to read changes; its methods run in a thread."""

    def begin(self, position: JsonMapping) -> JsonMapping:
        """Prepare, and the position at which to begin."""
        ...

    def read(self) -> Batch | None:
        """The next changes."""
        ...

    def committed(self, position: JsonMapping) -> None:
        """The changes up to ``position`` are stored."""
        ...

    def close(self) -> None:
        """Release what is open beside the connection."""
        ...


class CdcSource:
    """See ``mesh.connect.contract.Source``."""

    def __init__(self) -> None:
        self._connection: sqlalchemy.Connection | None = None
        self._reading: ChangeReader | None = None

    async def open(self, context: Context, position: JsonMapping | None) -> None:
        """Connect, and find where to begin."""
        self._sa = library("sqlalchemy", "rdbms")
        is_polling = str(context.options["mode"]).lower() == "polling"
        self._schedule = Schedule(
            int(context.options.get("polling.interval") or 1000),
            context.options.get("cron.expression") if is_polling else None,
        )
        self._first: Batch | None = None
        start = await self._call(self._open, context, position)
        if position is None:
            # Stored before the first rows: another start would begin later, and miss some.
            self._first = Batch([], start)

    async def check(self, context: Context) -> None:
        """Log in, and look for the table; ``open`` would create what is missing."""
        await in_thread(check, context, "url", str(context.options["table.name"]))

    async def remove(self, context: Context) -> None:
        """Drop the slot and the publication of PostgreSQL."""
        await in_thread(self._drop, context)

    def _drop(self, context: Context) -> None:
        if str(context.options["mode"]).lower() == "polling":
            return
        database, connection = opened(context, "url")
        with connection:
            if database.backend is Backend.POSTGRESQL:
                Listening(library("sqlalchemy", "rdbms"), connection, context).drop()

    def _open(self, context: Context, position: JsonMapping | None) -> JsonMapping:
        options = context.options
        database, connection = opened(context, "url")
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

    async def committed(self, position: JsonMapping) -> None:
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
