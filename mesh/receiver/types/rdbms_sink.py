"""Sink ``rdbms``: rows and position in one transaction.

The table ``mesh_marker`` has a row for each sink: the epoch of the last writer and the sequence of
the last event.  A writer changes it only while no later epoch has.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, Any

import orjson

from mesh.connect.contract import FailedRecordsError, RefusedRecordsError, UnavailableError, library
from mesh.errors import MeshError
from mesh.model.column_types import NoFormError
from mesh.model.column_values import fitted, refusal
from mesh.model.stored import STRING_LENGTH, MergeRule, StoredColumn, StoredTable, name_problem
from mesh.model.types import AttributeType
from mesh.receiver.types.databases import check, explained, is_refusal, opened, reason_of
from mesh.receiver.types.threads import in_thread
from mesh.store.catalogue import columns_of
from mesh.store.schema import create_tables, marker_table, sql_table, written_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import sqlalchemy

    from mesh.connect.contract import Context, Record
    from mesh.model.stored import Database
    from mesh.model.values import EventValues, JsonMapping


def lengths_of(text: str | None) -> dict[str, int]:
    """``a:100,b:20`` by attribute.

    Raises:
        ValueError: it has another form.
    """
    lengths = {}
    for word in (text or "").split(","):
        name, colon, length = word.strip().partition(":")
        if word.strip() and (not colon or not length.strip().isdecimal()):
            raise ValueError('option "field.length" is a list such as a:100,b:20')
        if word.strip():
            lengths[name.strip()] = int(length)
    return lengths


class RdbmsSink:
    """See ``mesh.connect.contract.Sink``."""

    state: JsonMapping | None = None

    def __init__(self) -> None:
        self.position: int | None = None
        self._connection: sqlalchemy.Connection | None = None

    async def open(self, context: Context, state: JsonMapping | None) -> None:
        """Create what is missing, take the row of the marker table, and read the position."""
        self._sa = library("sqlalchemy", "rdbms")
        self._context = context
        try:
            await in_thread(self._open)
        except self._sa.exc.DBAPIError as error:
            raise UnavailableError(explained(error)) from None

    async def check(self, context: Context) -> None:
        """Log in; ``open`` would create what is missing."""
        await in_thread(check, context, "jdbc.url")

    def _open(self) -> None:
        options = self._context.options
        database, connection = opened(self._context, "jdbc.url")
        self._connection = connection
        name = options.get("table.name") or self._context.stream
        if reason := name_problem(name):
            # The name of the stream, or one of a reference.
            raise MeshError("MESH-P232", reason)
        with connection.begin():
            is_there = self._sa.inspect(connection).has_table(name)
        metadata = self._sa.MetaData()
        self._marker = marker_table(metadata, database.backend)
        if not is_there:
            self._define(name, metadata, database, lengths_of(options.get("field.length")))
        create_tables(connection, metadata, database)
        with connection.begin():
            self._columns = columns_of(connection, name)
        self._table = written_table(name, self._columns)
        self.position = self._taken(connection)

    def _define(
        self, name: str, metadata: Any, database: Database, lengths: Mapping[str, int]
    ) -> None:
        columns = tuple(
            StoredColumn(
                one, AttributeType(kind), MergeRule.LATEST, lengths.get(one, STRING_LENGTH)
            )
            for one, kind in self._context.attributes
        )
        sql_table(StoredTable(name, columns, ""), metadata, database.backend)

    def _taken(self, connection: sqlalchemy.Connection) -> int | None:
        marker, context = self._marker, self._context
        mine = marker.c.producer == context.producer
        with connection.begin():
            row = connection.execute(
                self._sa.select(marker.c.epoch, marker.c.position).where(mine).with_for_update()
            ).one_or_none()
            if row is None:
                connection.execute(
                    marker.insert().values(
                        producer=context.producer, epoch=context.epoch, position=-1
                    )
                )
                return None
            if row.epoch > context.epoch:
                raise UnavailableError(f"epoch {row.epoch} has taken over")
            connection.execute(marker.update().where(mine).values(epoch=context.epoch))
            return int(row.position) if row.position >= 0 else None

    async def write(self, records: Sequence[Record]) -> Sequence[str | None]:
        """Insert the rows, all or none."""
        rows: list[EventValues] = []
        reasons: dict[int, str] = {}
        for at, record in enumerate(records):
            row = self._row(record.payload)
            if isinstance(row, str):
                reasons[at] = row
            else:
                rows.append(row)
        if reasons:
            raise RefusedRecordsError(reasons)
        # A replay is of an earlier event, and the position stays.
        sequence = max(records[-1].sequence, self.position or 0)
        try:
            refusals = await in_thread(self._insert, rows, sequence)
        except self._sa.exc.DBAPIError as error:
            # Whether it was committed is not known: the host opens the sink again and asks.
            raise ConnectionResetError(explained(error)) from None
        if refusals:
            raise RefusedRecordsError(refusals)
        return [None] * len(records)

    def _row(self, payload: bytes) -> EventValues | str:
        try:
            row = orjson.loads(payload)
        except orjson.JSONDecodeError:
            row = None
        if not isinstance(row, dict):
            return "the payload is no map: use the mapper keyvalue"
        for name, value in row.items():
            column = self._columns.get(name)
            if column is None:
                return f'the table has no column "{name}"'
            try:
                row[name] = fitted(column, value)
            except NoFormError as error:
                return refusal(name, column, value, str(error))
        return row

    def _insert(self, rows: list[EventValues], sequence: int) -> dict[int, str]:
        """Insert rows with the position; the reasons of rows that the database refuses."""
        assert self._connection is not None
        try:
            with self._connection.begin():
                # One statement has the columns of its first row.
                for _, alike in itertools.groupby(rows, key=sorted):
                    self._connection.execute(self._table.insert(), list(alike))
                self._move(sequence)
        except Exception as error:
            if not is_refusal(error):
                raise
            reasons = self._refused(rows)
            if reasons:
                return reasons
            # A constraint that is checked at the end of a transaction, as one that is deferred.
            raise FailedRecordsError(reason_of(error), {}) from None
        self.position = sequence
        return {}

    def _move(self, sequence: int) -> None:
        assert self._connection is not None
        marker, context = self._marker, self._context
        moved = self._connection.execute(
            marker.update()
            .where(marker.c.producer == context.producer, marker.c.epoch <= context.epoch)
            .values(epoch=context.epoch, position=sequence)
        )
        if moved.rowcount != 1:
            raise ConnectionResetError("a later epoch has taken over")

    def _refused(self, rows: Sequence[EventValues]) -> dict[int, str]:
        """Try rows one by one, and undo all of it; the reasons of those that fail."""
        assert self._connection is not None
        reasons: dict[int, str] = {}
        with self._connection.begin() as whole:
            for at, row in enumerate(rows):
                try:
                    with self._connection.begin_nested():
                        self._connection.execute(self._table.insert(), row)
                except Exception as error:
                    if not is_refusal(error):
                        raise
                    reasons[at] = reason_of(error)
            whole.rollback()
        return reasons

    async def close(self) -> None:
        """Disconnect."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                await in_thread(connection.close)
