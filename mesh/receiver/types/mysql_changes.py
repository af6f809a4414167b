"""Changes from the binary log of MySQL and MariaDB, as a replica would read them.

The position is a file of the log and the end of a transaction in it.  Each look reads whole
transactions up to the log's present end.
"""

from __future__ import annotations

import hashlib
import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from mesh.connect.contract import Batch, UnavailableError
from mesh.connect.extras import library
from mesh.receiver.types.databases import operations_of, plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import sqlalchemy

    from mesh.connect.contract import Context
    from mesh.model.stored import Database

#: Changes of a read; whole transactions are read, so there may be more.
_CHANGES: Final = 2000
#: Settings of the server without which changes are not, or not whole, in the log as rows.
_NEEDED: Final = {
    "log_bin": ("ON",), "binlog_format": ("ROW",), "binlog_row_image": ("FULL", "FULL_NODUP"),
    "binlog_transaction_compression": ("OFF",), "log_bin_compress": ("OFF",),
    "binlog_row_value_options": ("",),
}  # fmt: skip
_TEXTS: Final = re.compile(r"'((?:[^']|'')*)'")
#: An encoding that nothing has: such values stay bytes.
_BYTES: Final = "none"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table as it is now; the log may know less of it."""

    name: str
    #: Such as ``int(10) unsigned`` and ``enum('a','b')``.
    type: str
    charset: str | None

    def complete(self, logged: Any) -> None:
        """Add to a column of the log what it does not say."""
        logged.name = logged.name or self.name
        logged.unsigned = logged.unsigned or "unsigned" in self.type
        texts = [text.replace("''", "'") for text in _TEXTS.findall(self.type)]
        if self.type.startswith("enum"):
            logged.enum_values = logged.enum_values or ["", *texts]
        elif self.type.startswith("set"):
            logged.set_values = logged.set_values or texts
        charset = self.charset or _BYTES
        logged.character_set_name = "utf8mb4" if charset.startswith("utf8") else charset


class BinaryLog:
    """See ``mesh.receiver.types.cdc_source.Reading``."""

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
        self._own = {"space": space or database.database, "name": name}
        number = context.options.get("database.server.id")
        digest = hashlib.blake2b(context.instance.encode(), digest_size=4).digest()
        self._number = int(number or int.from_bytes(digest, "big") | 1)
        (_, login) = connection.dialect.create_connect_args(connection.engine.url)
        limits = {"charset": "utf8mb4", "read_timeout": 20, "connect_timeout": 10}
        self._login = {**login, **limits}
        self._columns: Sequence[Column] = ()
        self._at: tuple[str, int] = ("", 0)
        self._server = ""
        self._reader: Any = None

    def begin(self, position: Mapping[str, Any]) -> Mapping[str, Any]:
        """See ``Reading``; the beginning is the present end of the log."""
        found = self._variables()
        for name, values in _NEEDED.items():
            if found.get(name, values[0]).upper() not in values:
                needed = f"it needs {name}={values[0] or 'nothing'}"
                raise UnavailableError(f"the server has {name}={found[name]}, and {needed}")
        # MySQL and MariaDB have different names for what identifies a server.
        self._server = found.get("server_uuid") or found.get("server_uid") or ""
        if position.get("server", self._server) != self._server:
            raise UnavailableError(
                "another server answers, whose log has other places than the one that was read"
            )
        self._columns = self._described()
        self._at = (position["file"], position["at"]) if position else self._end()
        return self._position()

    def _position(self) -> dict[str, Any]:
        return {"file": self._at[0], "at": self._at[1], "server": self._server}

    def _rows(self, text: str, **values: Any) -> list[tuple[Any, ...]]:
        with self._connection.begin():
            return [tuple(row) for row in self._connection.execute(self._sa.text(text), values)]

    def _variables(self) -> dict[str, str]:
        names = ", ".join(f"'{name}'" for name in (*_NEEDED, "server_uuid", "server_uid"))
        found = self._rows(f"show global variables where variable_name in ({names})")
        return {str(name).lower(): str(value) for name, value in found}

    def _described(self) -> list[Column]:
        found = self._rows(
            "select column_name, column_type, character_set_name, table_name"
            " from information_schema.columns where table_schema = :space and table_name = :name"
            " order by ordinal_position", **self._own,
        )  # fmt: skip
        if not found:
            raise UnavailableError(f'there is no table "{self._own["name"]}"')
        # A server may compare names without case; the log has the own one.
        self._own["name"] = found[0][3]
        return [Column(str(name), str(kind), charset) for name, kind, charset, _ in found]

    def _end(self) -> tuple[str, int]:
        try:
            (found, *_) = self._rows("show binary log status")
        except self._sa.exc.ProgrammingError:
            # Its name before MySQL 8.4, and in MariaDB.
            (found, *_) = self._rows("show master status")
        return str(found[0]), int(found[1])

    def read(self) -> Batch | None:
        """The changes of the transactions that have ended."""
        if self._reader is None:
            if self._end() == self._at:
                return None
            self._reader = self._opened()
        before, payloads = self._at, list[bytes]()
        properties: list[dict[str, str]] = []
        names: list[str] = []
        changes: list[tuple[str, dict[str, Any]]] = []
        while len(payloads) < _CHANGES:
            event = self._next()
            if event is None:
                if not changes:
                    self._at = (self._reader.log_file, self._reader.log_pos)
                self._close()
                break
            if isinstance(event, self._table_map):
                self._complete(event.columns)
            elif type(event) in self._kinds:
                operation = self._kinds[type(event)]
                if operation in self._operations:
                    changes += [(operation, _event(operation, row)) for row in event.rows]
            elif self._is_end(event):
                self._at = (self._reader.log_file, self._reader.log_pos)
                for at, (operation, change) in enumerate(changes):
                    payloads.append(orjson.dumps(change, default=_plain))
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
            log_file=self._at[0], log_pos=self._at[1], only_schemas=[self._own["space"]],
            only_tables=[self._own["name"]], ignore_decode_errors=True, enable_logging=False,
            only_events=[*self._kinds, self._table_map, *self._commit, self._query],
        )  # fmt: skip

    def _is_end(self, event: Any) -> bool:
        return isinstance(event, self._commit) or (
            isinstance(event, self._query) and event.query.strip().upper() != "BEGIN"
        )

    def _complete(self, logged: Sequence[Any]) -> None:
        """Add what the log does not say about the columns of a transaction."""
        by_name = {column.name: column for column in self._columns}
        if len(logged) > len(by_name) or any(one.name not in (None, *by_name) for one in logged):
            # The table may have got columns.
            self._columns = self._described()
            by_name = {column.name: column for column in self._columns}
        if len(logged) > len(by_name) and not all(one.name for one in logged):
            raise UnavailableError(
                "the table has lost columns, and the log has no names of the earlier ones: "
                "the server needs binlog_row_metadata=FULL for that"
            )
        for at, one in enumerate(logged):
            known = by_name.get(one.name) if one.name else self._columns[at]
            if known is not None:
                known.complete(one)

    def committed(self, position: Mapping[str, Any]) -> None:
        """See ``Reading``; the server keeps its log as long as it is configured to."""

    def close(self) -> None:
        """End the connections of a reader."""
        self._close()

    def _close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


def _event(operation: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a change; those before it begin with ``before_``."""
    if operation == "insert":
        return dict(row["values"])
    before = row["before_values"] if operation == "update" else row["values"]
    after = row["after_values"] if operation == "update" else {}
    return {**{f"before_{name}": value for name, value in before.items()}, **after}


def _plain(value: Any) -> Any:
    return ",".join(sorted(value)) if isinstance(value, set) else plain(value)
