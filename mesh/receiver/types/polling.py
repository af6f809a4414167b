"""Rows of a table by a column whose values grow.

Values are read as the server's texts, and not as those of a driver: no value can fail a look.
"""

from __future__ import annotations

import datetime
import decimal
import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final

import orjson

from mesh.clock import SystemClock
from mesh.connect.contract import Batch, Options, UnavailableError, library
from mesh.model.stored import Backend
from mesh.receiver.types.column_values import (
    Unreadable,
    decoded,
    mysql_value,
    payload_of,
    pg_value,
    sqlite_value,
)
from mesh.receiver.types.databases import ask_for_octets, reason_of
from mesh.receiver.types.mysql_rows import columns_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import sqlalchemy

    from mesh.model.values import EventValues, JsonMapping, Row

_ROWS: Final = 2000
#: Bytes of a value in a position, which is one message.
_VALUE_MAX: Final = 500_000
#: Types of PostgreSQL by their number: int8, int2, int4.
_PG_WHOLE: Final = (20, 21, 23)
_MYSQL_WHOLE: Final = ("tinyint", "smallint", "mediumint", "int", "bigint")


class PolledTable(ABC):
    """A table of one kind of database, whose values are texts of the server."""

    #: Before and after a name; the mark of a parameter, and of the octets of a text.
    quote, mark, octets_mark = '"', "%s", "%s"
    names: Sequence[str]
    #: The columns in a query.
    chosen = "*"

    def __init__(self, connection: sqlalchemy.Connection, name: str) -> None:
        self.connection = connection
        self.name = ".".join(self.quoted(part) for part in name.split("."))
        self._bare = name
        with connection.begin():
            self.renew()

    def renew(self) -> None:
        """Look for columns that have come or gone, inside of a transaction."""
        self.names = self.describe(self._bare)

    def quoted(self, name: str) -> str:
        """A name in a statement."""
        name = name.replace(self.quote, self.quote * 2).replace("%", "%%")
        return f"{self.quote}{name}{self.quote}"

    def find(self, rest: str, *values: object) -> Sequence[Row]:
        """The rows of a query, inside of a transaction; ``values`` are those of its marks."""
        rest, parameters = self._filled(rest, values)
        query = f"select {self.chosen} from {self.name} {rest}"
        rows = self.connection.exec_driver_sql(query, parameters)
        return [tuple(row) for row in rows]

    def _filled(self, rest: str, values: Row) -> tuple[str, Row]:
        """A query with its marks, and the values for the driver."""
        of_octets = any(isinstance(value, Unreadable) for value in values)
        mark = self.octets_mark if of_octets else self.mark
        parameters = (one.octets if isinstance(one, Unreadable) else one for one in values)
        return rest.replace("%s", mark), tuple(parameters)

    @abstractmethod
    def describe(self, name: str) -> Sequence[str]:
        """The names of the columns."""

    @abstractmethod
    def is_whole(self, at: int) -> bool:
        """Whether a column has whole numbers."""

    @abstractmethod
    def value(self, at: int, raw: object) -> Any:
        """A value for a payload; ``raw`` is not null."""

    def position(self, at: int, raw: Any) -> Any:
        """A value to compare the column with."""
        return int(raw) if self.is_whole(at) else raw


class PgTable(PolledTable):
    """A table of PostgreSQL."""

    # Databases with the encoding SQL_ASCII have texts of any octets.
    octets_mark = "convert_from(%s, 'SQL_ASCII')"
    _kinds: Sequence[int]

    def describe(self, name: str) -> Sequence[str]:
        """See ``PolledTable``."""
        self.find("where false")
        return self.names

    def renew(self) -> None:
        """See ``PolledTable``; each result has its columns."""
        if not hasattr(self, "names"):
            super().renew()

    def find(self, rest: str, *values: object) -> Sequence[Row]:
        """See ``PolledTable``; the driver would fail at times that Python does not have."""
        is_ascii = ask_for_octets(self.connection)
        if is_ascii:
            values = tuple(_octets_of(value) for value in values)
        rest, filled = self._filled(rest, values)
        parameters = tuple(value if isinstance(value, bytes) else str(value) for value in filled)
        query = f"select * from {self.name} {rest}"
        # The result as psycopg has it before it converts values.
        if is_ascii:
            cursor = self._cursor_of(query.encode(), parameters)
        else:
            cursor = self.connection.exec_driver_sql(query, parameters).cursor
        result = cursor.pgresult
        columns = range(result.nfields)
        self._kinds = [result.ftype(at) for at in columns]
        self.names = [result.fname(at).decode(errors="backslashreplace") for at in columns]
        return [tuple(result.get_value(row, at) for at in columns) for row in range(result.ntuples)]

    def _cursor_of(self, query: bytes, parameters: Row) -> Any:
        """The cursor of a query in octets; SQLAlchemy would read the names of columns as ASCII."""
        driver = library("psycopg", "rdbms")
        pooled: Any = self.connection.connection.driver_connection
        try:
            return pooled.cursor().execute(query, parameters)
        except driver.Error as error:
            raise UnavailableError(reason_of(error)) from None

    def is_whole(self, at: int) -> bool:
        """See ``PolledTable``."""
        return self._kinds[at] in _PG_WHOLE

    def value(self, at: int, raw: Any) -> Any:
        """See ``PolledTable``."""
        return pg_value(raw, self._kinds[at])

    def position(self, at: int, raw: Any) -> Any:
        """See ``PolledTable``."""
        return int(raw) if self.is_whole(at) else decoded(raw)


class MySqlTable(PolledTable):
    """A table of MySQL or MariaDB."""

    quote = "`"

    def describe(self, name: str) -> Sequence[str]:
        """See ``PolledTable``."""
        columns = columns_of(self.connection, name)
        self._kinds = [column.type for column in columns]
        # The server shows six digits of a FLOAT.
        self.chosen = ", ".join(
            f"{self.quoted(c.name)} + 0e0" if c.type.startswith("float") else self.quoted(c.name)
            for c in columns
        )
        return [column.name for column in columns]

    def find(self, rest: str, *values: object) -> Sequence[Row]:
        """See ``PolledTable``; the driver would change times, sets and others."""
        pooled: Any = self.connection.connection.driver_connection
        converters, pooled.decoders = pooled.decoders, {}
        try:
            return super().find(rest, *values)
        finally:
            pooled.decoders = converters

    def is_whole(self, at: int) -> bool:
        """See ``PolledTable``."""
        return self._kinds[at].startswith(_MYSQL_WHOLE)

    def value(self, at: int, raw: Any) -> Any:
        """See ``PolledTable``."""
        return mysql_value(raw, self._kinds[at])

    def position(self, at: int, raw: Any) -> Any:
        """See ``PolledTable``; the server would compare a text with a number as two doubles."""
        kind = self._kinds[at]
        if kind.startswith("decimal"):
            return decimal.Decimal(raw)
        if kind.startswith(("float", "double")):
            return float(raw)
        if kind.startswith("bit"):
            return int.from_bytes(raw, "big")
        return super().position(at, raw)


class SqliteTable(PolledTable):
    """A table of SQLite."""

    mark, octets_mark = "?", "cast(? as text)"

    def describe(self, name: str) -> Sequence[str]:
        """See ``PolledTable``."""
        pooled: Any = self.connection.connection.driver_connection
        pooled.text_factory = decoded
        space, _, bare = name.rpartition(".")
        before = f"{self.quoted(space)}." if space else ""
        rows = self.connection.exec_driver_sql(
            f"pragma {before}table_xinfo({self.quoted(bare)})"
        ).all()
        self._kinds = [str(row[2]).lower() for row in rows if row[6] != 1]
        return [str(row[1]) for row in rows if row[6] != 1]

    def is_whole(self, at: int) -> bool:
        """See ``PolledTable``."""
        return "int" in self._kinds[at]

    def value(self, at: int, raw: object) -> Any:
        """See ``PolledTable``."""
        return sqlite_value(raw)

    def position(self, at: int, raw: object) -> Any:
        """See ``PolledTable``."""
        return raw


_TABLES: Final[Mapping[str, type[PolledTable]]] = {
    Backend.POSTGRESQL: PgTable, Backend.MYSQL: MySqlTable, Backend.SQLITE: SqliteTable
}  # fmt: skip


class Polling:
    """Rows with a larger value than the last one of a column; from the present maximum at first."""

    def __init__(self, sa: object, connection: sqlalchemy.Connection, options: Options) -> None:
        self._connection = connection
        name, column = str(options["table.name"]), options.get("polling.column")
        if not column:
            raise ValueError('mode="polling" needs the option "polling.column"')
        self._table = _TABLES[connection.dialect.name](connection, name)
        if not self._table.names:
            raise UnavailableError(f'there is no table "{name}"')
        if column not in self._table.names:
            raise ValueError(f'the table has no column "{column}"')
        self._name, self._column = column, self._table.quoted(column)
        self._last: Any = None
        self._waits = bool(options.get("wait.on.missed.record"))
        if self._waits and not self._table.is_whole(self._at):
            raise ValueError("wait.on.missed.record needs a polling.column of whole numbers")
        self._limit_s = int(options.get("missed.record.waiting.timeout", -1))
        self._clock = SystemClock()
        #: When a gap after the last value was first seen.
        self._gap_s: float | None = None

    def begin(self, position: JsonMapping) -> JsonMapping:
        """See ``ChangeReader``."""
        if position:
            self._last = loaded(position["last"])
        else:
            column = self._column
            rest = f"where {column} is not null order by {column} desc limit 1"
            with self._connection.begin():
                rows = self._before_large(self._table.find(rest))
            self._last = self._position(rows[0]) if rows else None
        return {"last": stored(self._last)}

    @property
    def _at(self) -> int:
        """The place of the column."""
        return self._table.names.index(self._name)

    def _position(self, row: Row) -> object:
        return self._table.position(self._at, row[self._at])

    def read(self) -> Batch | None:
        """See ``ChangeReader``."""
        column, table = self._column, self._table
        limited = f"order by {column} limit {_ROWS}"
        with self._connection.begin():
            table.renew()
            if self._last is None:
                rows = table.find(f"where {column} is not null {limited}")
            else:
                rows = table.find(f"where {column} > %s {limited}", self._last)
            if len(rows) == _ROWS:
                # Rows of the last value that the limit has cut off.
                last = rows[-1][self._at]
                same = table.find(f"where {column} = %s", self._position(rows[-1]))
                rows = [row for row in rows if row[self._at] != last] + list(same)
        if self._waits:
            rows = self._without_gap(rows)
        rows = self._before_large(rows)
        if not rows:
            return None
        self._last = self._position(rows[-1])
        payloads = [payload_of(self._values(row)) for row in rows]
        properties = [{"operation": "insert"}] * len(rows)
        names = [f"{stored(self._position(row))}-{at}" for at, row in enumerate(rows)]
        return Batch(payloads, {"last": stored(self._last)}, properties, names)

    def _values(self, row: Row) -> EventValues:
        return {
            name: None if raw is None else self._table.value(at, raw)
            for at, (name, raw) in enumerate(zip(self._table.names, row, strict=True))
        }

    def _without_gap(self, rows: Sequence[Row]) -> Sequence[Row]:
        """The rows before the first missing value, which may be of a transaction that is open."""
        last, now_s = self._last, self._clock.monotonic_s()
        for at, row in enumerate(rows):
            value = self._position(row)
            if last is not None and value > last + 1:
                if at:
                    return rows[:at]
                self._gap_s = now_s if self._gap_s is None else self._gap_s
                if self._limit_s < 0 or now_s < self._gap_s + self._limit_s:
                    return []
            self._gap_s, last = None, value
        return rows

    def _before_large(self, rows: Sequence[Row]) -> Sequence[Row]:
        """The rows before the first whose value no position can have.

        Raises:
            UnavailableError: it is the first row.
        """
        for at, row in enumerate(rows):
            raw = row[self._at]
            # No text is six times as long in a position.
            if not isinstance(raw, str | bytes | Unreadable) or _length(raw) <= _VALUE_MAX // 6:
                continue
            size = len(orjson.dumps(stored(self._position(row))))
            if size <= _VALUE_MAX:
                continue
            if at:
                return rows[:at]
            raise UnavailableError(
                f'column "{self._name}" has a value of {size} bytes, and a position has '
                f"{_VALUE_MAX} at most: delete the row, or choose another polling.column"
            )
        return rows

    def committed(self, position: JsonMapping) -> None:
        """See ``ChangeReader``; the database knows nothing of it."""

    def close(self) -> None:
        """See ``ChangeReader``."""


def _length(raw: str | bytes | Unreadable) -> int:
    return len(raw.octets if isinstance(raw, Unreadable) else raw)


def _octets_of(value: Any) -> object:
    """A text beyond ASCII by its octets; the driver refuses it in a session of SQL_ASCII."""
    is_other = isinstance(value, str) and not value.isascii()
    return Unreadable("", value.encode()) if is_other else value


def stored(value: object) -> Any:
    """A value of a column as a JSON value of the position."""
    if isinstance(value, datetime.datetime):
        return {"time": value.isoformat()}
    if isinstance(value, datetime.date):
        return {"date": value.isoformat()}
    if isinstance(value, decimal.Decimal):
        return {"number": str(value)}
    if isinstance(value, Unreadable):
        return {"text": value.octets.hex()}
    if isinstance(value, float) and not math.isfinite(value):
        # JSON has null for it, which is the position before all rows.
        return {"float": str(value)}
    return {"octets": value.hex()} if isinstance(value, bytes) else value


def loaded(value: object) -> object:
    """The inverse of ``stored``."""
    if not isinstance(value, dict):
        return value
    ((kind, text),) = value.items()
    if kind == "time":
        return datetime.datetime.fromisoformat(text)
    if kind == "text":
        return decoded(bytes.fromhex(text))
    if kind == "octets":
        return bytes.fromhex(text)
    if kind == "float":
        return float(text)
    return datetime.date.fromisoformat(text) if kind == "date" else decimal.Decimal(text)
