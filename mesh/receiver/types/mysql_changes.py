"""Changes from the binary log of MySQL and MariaDB, as a replica would read them.

The position is a file of the log and the end of a transaction in it.  Each look reads whole
transactions up to the log's present end.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mesh.connect.contract import Batch, UnavailableError, library
from mesh.mapping.row_source import EVERY
from mesh.receiver.types.column_values import payload_of
from mesh.receiver.types.databases import operations_of
from mesh.receiver.types.mysql_rows import MysqlColumn, are_like, columns_of, images_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import sqlalchemy

    from mesh.connect.contract import Context
    from mesh.model.stored import Database
    from mesh.model.values import EventValues, JsonMapping, Row

#: Changes of a read; whole transactions are read, so there may be more.
_CHANGES: Final = 2000
#: Settings of the server without which changes are not, or not whole, in the log as rows.
_NEEDED: Final = {
    "log_bin": ("ON",), "binlog_format": ("ROW",), "binlog_row_image": ("FULL", "FULL_NODUP"),
    "binlog_transaction_compression": ("OFF",), "log_bin_compress": ("OFF",),
    "binlog_row_value_options": ("",),
}  # fmt: skip
#: The begin of a statement that changes rows, and the operation of it.
_STATEMENT: Final = re.compile(r"\s*(?:/\*.*?\*/\s*)*([a-z]+)\b", re.DOTALL | re.IGNORECASE)
_STATEMENTS: Final = {
    "insert": "insert", "replace": "insert", "load": "insert", "update": "update",
    "delete": "delete",
}  # fmt: skip
#: Places in a transaction to which it may return, and the return.
_SAVEPOINT: Final = re.compile(r"(SAVEPOINT|ROLLBACK TO(?: SAVEPOINT)?)\s+(.+)", re.I | re.DOTALL)
_ALTERS: Final = ("alter", "create", "rename")
_NO_ROWS: Final = (
    "the log has a statement instead of rows: a session with binlog_format=STATEMENT has changed "
    "the table"
)
_NO_NAMES: Final = (
    "the table has lost or moved columns since this change, and the log has no names of them: the "
    "server needs binlog_row_metadata=FULL for that"
)
#: Ends of the periods of present rows: TIMESTAMP's last value, and that of MariaDB since 11.5.
#: Columns that the catalogue does not list, at the end of a row.
_HIDDEN: Final = (
    MysqlColumn("row_start", "timestamp(6)", None, "ROW START"),
    MysqlColumn("row_end", "timestamp(6)", None, "ROW END"),
)
_PRESENT: Final = ("2038-01-19 03:14:07.999999", "2106-02-07 06:28:15.999999")


class LoggedChange(NamedTuple):
    """A changed row: its columns, or the reason why it has none."""

    operation: str
    row: EventValues
    reason: str = ""


class BinaryLog:
    """See ``mesh.receiver.types.cdc_source.ChangeReader``."""

    def __init__(
        self, sa: Any, connection: sqlalchemy.Connection, context: Context, database: Database
    ) -> None:
        log = library("pymysqlreplication", "rdbms")
        rows = library("pymysqlreplication.row_event", "rdbms")
        events = library("pymysqlreplication.event", "rdbms")
        self._errors = library("pymysql", "rdbms").err.MySQLError
        # It gives advice about the server at each connection.
        logging.getLogger("pymysqlreplication").setLevel(logging.ERROR)
        self._sa, self._connection, self._reader_of = sa, connection, log.BinLogStreamReader
        self._operations = operations_of(context.options)
        self._kinds = {
            rows.WriteRowsEvent: "insert", rows.UpdateRowsEvent: "update",
            rows.DeleteRowsEvent: "delete",
        }  # fmt: skip
        self._table_map = rows.TableMapEvent
        #: Ends of transactions: the second may also be the begin of one.
        self._commit, self._query = (events.XidEvent, events.XAPrepareEvent), events.QueryEvent
        space, _, name = str(context.options["table.name"]).rpartition(".")
        self._table = {"space": space or database.database, "name": name}
        number = context.options.get("database.server.id")
        digest = hashlib.blake2b(context.instance.encode(), digest_size=4).digest()
        self._number = int(number or int.from_bytes(digest, "big") | 1)
        (_, login) = connection.dialect.create_connect_args(connection.engine.url)
        limits = {"charset": "utf8mb4", "read_timeout": 20, "connect_timeout": 10}
        self._login = {**login, **limits}
        self._columns: Sequence[MysqlColumn] = ()
        self._is_versioned = False
        #: Whether changes stay when their transaction is rolled back, as in MyISAM.
        self._keeps_all = False
        self._at: tuple[str, int] = ("", 0)
        self._server = ""
        self._reader: Any = None

    def begin(self, position: JsonMapping) -> JsonMapping:
        """See ``ChangeReader``; the beginning is the present end of the log."""
        variables = self._variables()
        for name, values in _NEEDED.items():
            if variables.get(name, values[0]).upper() not in values:
                needed = f"it needs {name}={values[0] or 'nothing'}"
                raise UnavailableError(f"the server has {name}={variables[name]}, and {needed}")
        # MySQL and MariaDB have different names for what identifies a server.
        self._server = variables.get("server_uuid") or variables.get("server_uid") or ""
        if position.get("server", self._server) != self._server:
            raise UnavailableError(
                "another server answers, whose log has other places than the one that was read"
            )
        self._columns = self._described()
        self._at = (position["file"], position["at"]) if position else self._end()
        return self._position()

    def _position(self) -> EventValues:
        return {"file": self._at[0], "at": self._at[1], "server": self._server}

    def _rows(self, text: str, **values: Any) -> list[Row]:
        with self._connection.begin():
            return [tuple(row) for row in self._connection.execute(self._sa.text(text), values)]

    def _variables(self) -> dict[str, str]:
        names = ", ".join(f"'{name}'" for name in (*_NEEDED, "server_uuid", "server_uid"))
        rows = self._rows(f"show global variables where variable_name in ({names})")
        return {str(name).lower(): str(value) for name, value in rows}

    def _described(self) -> Sequence[MysqlColumn]:
        rows = self._rows(
            "select table_name, table_type, transactions from information_schema.tables t"
            " left join information_schema.engines e on e.engine = t.engine"
            " where table_schema = :space and table_name = :name", **self._table,
        )  # fmt: skip
        if not rows:
            raise UnavailableError(f'there is no table "{self._table["name"]}"')
        if rows[0][1] == "VIEW":
            raise UnavailableError(
                f'"{self._table["name"]}" is a view, which has no log: read its tables, or use '
                "mode='polling'"
            )
        # A server may compare names without case; the log has the own one.
        self._table["name"] = rows[0][0]
        self._is_versioned = rows[0][1] == "SYSTEM VERSIONED"
        self._keeps_all = rows[0][2] != "YES"
        with self._connection.begin():
            columns = columns_of(self._connection, "{space}.{name}".format(**self._table))
        for column in columns:
            if column.period and column.type.startswith("bigint"):
                raise UnavailableError(
                    f'the table is versioned by transactions ("{column.name}" is a BIGINT), and '
                    "the log has no rows of such tables: use mode='polling'"
                )
        return columns

    def _end(self) -> tuple[str, int]:
        try:
            (status, *_) = self._rows("show binary log status")
        except self._sa.exc.ProgrammingError:
            # Its name before MySQL 8.4, and in MariaDB.
            (status, *_) = self._rows("show master status")
        return str(status[0]), int(status[1])

    def read(self) -> Batch | None:
        """The changes of the transactions that have ended."""
        if self._reader is None:
            if self._end() == self._at:
                return None
            self._reader = self._opened()
        before, payloads = self._at, list[bytes]()
        properties: list[dict[str, str]] = []
        names: list[str] = []
        changes: list[LoggedChange] = []
        #: Number of changes before each savepoint of the transaction.
        savepoints: dict[str, int] = {}
        while len(payloads) < _CHANGES:
            event = self._next()
            if event is None:
                if not changes:
                    self._at = (self._reader.log_file, self._reader.log_pos)
                self._close()
                break
            if isinstance(event, self._query):
                self._look_again(event)
            if type(event) in self._kinds:
                changes += self._changes(self._kinds[type(event)], event)
            elif isinstance(event, self._query) and (operation := self._operation_of(event)):
                changes.append(LoggedChange(operation, {}, _NO_ROWS))
            elif savepoint := self._savepoint_of(event):
                word, name = savepoint
                if word.upper() == "SAVEPOINT":
                    savepoints[name] = len(changes)
                elif not self._keeps_all:
                    del changes[savepoints.get(name, 0) :]
            elif self._is_end(event):
                if self._is_undone(event):
                    changes.clear()
                savepoints.clear()
                self._at = (self._reader.log_file, self._reader.log_pos)
                for at, (operation, change, reason) in enumerate(changes):
                    payloads.append(payload_of(change, {reason: [EVERY]} if reason else None))
                    properties.append({"operation": operation})
                    names.append(f"{self._at[0]}-{self._at[1]}-{at}")
                changes.clear()
        if self._at == before:
            return None
        return Batch(payloads, self._position(), properties, names)

    def _next(self) -> Any:
        try:
            return self._reader.fetchone()
        except self._errors as error:
            # A file that the server has removed, for example.
            raise UnavailableError(f"the log can't be read: {error.args[-1]}") from error

    def _opened(self) -> Any:
        return self._reader_of(
            connection_settings=dict(self._login), server_id=self._number, resume_stream=True,
            log_file=self._at[0], log_pos=self._at[1], only_schemas=[self._table["space"]],
            only_tables=[self._table["name"]], ignore_decode_errors=True, enable_logging=False,
            only_events=[*self._kinds, self._table_map, *self._commit, self._query],
        )  # fmt: skip

    def _is_end(self, event: Any) -> bool:
        return isinstance(event, self._commit) or (
            isinstance(event, self._query) and event.query.strip().upper() != "BEGIN"
        )

    def _savepoint_of(self, event: Any) -> tuple[str, str] | None:
        """The statement and the name of a savepoint that is set, or returned to."""
        if not isinstance(event, self._query):
            return None
        match = _SAVEPOINT.fullmatch(event.query.strip())
        return (match[1], match[2]) if match else None

    def _is_undone(self, event: Any) -> bool:
        """Whether a transaction ends without its changes, of which the log has some."""
        is_rollback = isinstance(event, self._query) and event.query.strip().upper() == "ROLLBACK"
        return is_rollback and not self._keeps_all

    def _operation_of(self, event: Any) -> str | None:
        """The operation of a statement that changes rows of the table; None for others."""
        match = _STATEMENT.match(event.query)
        operation = _STATEMENTS.get(match[1].lower()) if match else None
        schema = event.schema.decode() if isinstance(event.schema, bytes) else event.schema
        if operation not in self._operations or not self._names_table(event):
            return None
        is_in_schema = schema == self._table["space"] or self._table["space"] in event.query
        return operation if is_in_schema else None

    def _look_again(self, event: Any) -> None:
        """Describe a table that was altered: as many columns may have other names."""
        match = _STATEMENT.match(event.query)
        if match and match[1].lower() in _ALTERS and self._names_table(event):
            # One that has gone since then has the columns that are known.
            with contextlib.suppress(UnavailableError):
                self._columns = self._described()

    def _names_table(self, event: Any) -> bool:
        return bool(re.search(rf"\b{re.escape(self._table['name'])}\b", event.query))

    def _changes(self, operation: str, event: Any) -> Iterator[LoggedChange]:
        """The changes of an event that are of operations of the source."""
        columns = self._columns_of(event.columns)
        if columns is None:
            if operation in self._operations:
                for _ in images_of(event, [None] * len(event.columns)):
                    yield LoggedChange(operation, {}, _NO_NAMES)
            return
        ends = [one.name for one in columns if one is not None and one.period == "ROW END"]
        hidden = [one.name for one in columns if one in _HIDDEN and one not in self._columns]
        for images in images_of(event, columns):
            kind = operation
            if ends:
                is_present = [image[ends[0]] in _PRESENT for image in images]
                if not is_present[0]:
                    # A row of the history.
                    continue
                if not is_present[-1]:
                    # A delete, which ends the period of the row.
                    kind, images = "delete", images[:1]
            if kind in self._operations:
                shown = [{n: v for n, v in one.items() if n not in hidden} for one in images]
                yield LoggedChange(kind, _event(kind, shown))

    def _columns_of(self, logged: Sequence[Any]) -> Sequence[MysqlColumn | None] | None:
        """The columns of the table for those of the log; None for one that is gone.

        None if the log has no names, and other columns than the table.
        """
        by_name = {column.name: column for column in self._columns}
        # Of a versioned table the log has two columns that the catalogue hides.
        has_hidden = self._is_versioned and not any(c.period for c in self._columns)
        hidden = _HIDDEN if has_hidden else ()
        visible = logged[: len(logged) - len(hidden)]
        names = [one.name for one in visible]
        has_names = all(names)
        is_current = by_name.keys() >= set(names) if has_names else are_like(visible, self._columns)
        if not is_current:
            # The table may have got columns.
            self._columns = self._described()
            by_name = {column.name: column for column in self._columns}
            if not has_names and not are_like(visible, self._columns):
                return None
        columns = [by_name.get(n) if n else self._columns[at] for at, n in enumerate(names)]
        return [*columns, *hidden]

    def committed(self, position: JsonMapping) -> None:
        """See ``ChangeReader``; the server keeps its log as long as it is configured to."""

    def close(self) -> None:
        """End the connections of a reader."""
        self._close()

    def _close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


def _event(operation: str, images: Sequence[JsonMapping]) -> EventValues:
    """The columns of a change; those before it begin with ``before_``."""
    if operation == "insert":
        return dict(images[0])
    before = {f"before_{name}": value for name, value in images[0].items()}
    return {**before, **images[1]} if operation == "update" else before
