"""Changes from PostgreSQL's log, by a replication slot and the plugin pgoutput.

The slot is read by SQL without moving it.  It is advanced once the changes are stored, and after a
crash before that the stored position says which transactions to skip.
"""

from __future__ import annotations

import hashlib
import re
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mesh.clock import SystemClock
from mesh.connect.contract import Batch, UnavailableError
from mesh.receiver.types.column_values import payload_of, pg_value
from mesh.receiver.types.databases import ask_for_octets, operations_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import sqlalchemy

    from mesh.connect.contract import Context
    from mesh.model.values import EventValues, JsonMapping

#: Changes of a read; whole transactions are read, so there may be more.
_CHANGES: Final = 2000
_OPERATIONS: Final = {"I": "insert", "U": "update", "D": "delete"}
#: The slot of a table without changes follows the log after so many bytes or seconds.
_IDLE_BYTES: Final = 1 << 20
_IDLE_S: Final = 10.0
#: State of an error: configuration limit exceeded.
_NO_SLOTS: Final = "53400"
_KINDS: Final = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}
_NO_VALUE: Final = (
    "is unchanged, and the log has no such large value of it; "
    "it has it after: alter table {} replica identity full"
)
_NO_GENERATED: Final = (
    "is a generated column, of which the log has no values before PostgreSQL 18: "
    "use mode='polling', or make the value in the app"
)
_NO_EARLIER: Final = (
    "is not in the log, which has earlier values of the key only; "
    "it has all after: alter table {} replica identity full"
)


class RelationColumn(NamedTuple):
    """A column of a relation as the log describes it."""

    name: str
    #: Number of its type.
    kind: int
    #: Part of the replica identity.
    is_key: bool


class RowChange(NamedTuple):
    """A changed row: its columns, and those without a value by reason."""

    operation: str
    row: EventValues
    refused: dict[str, list[str]]


class ChangeDecoder:
    """Decoder of pgoutput's messages, version 1."""

    def __init__(
        self, table: str, operations: frozenset[str], domains: Mapping[int, int] | None = None
    ) -> None:
        """A decoder; ``domains`` are the types below those of domains."""
        self._table, self._operations, self._domains = table, operations, domains or {}
        self._columns: dict[int, list[RelationColumn]] = {}
        #: Changes of the transaction so far.
        self._open: list[RowChange] = []

    def feed(self, data: bytes) -> tuple[int, list[RowChange]] | None:
        """One message; at the end of a transaction its end in the log and its changes."""
        kind = chr(data[0])
        if kind == "B":
            self._open = []
        elif kind == "R":
            self._relation(data)
        elif kind in _OPERATIONS:
            self._change(kind, data)
        elif kind == "C":
            (end,) = struct.unpack_from(">Q", data, 10)
            changes, self._open = self._open, []
            return end, changes
        return None

    def _relation(self, data: bytes) -> None:
        (number,) = struct.unpack_from(">I", data, 1)
        _, at = _text(data, 5)
        _, at = _text(data, at)
        # Replica identity, then the number of columns.
        (count,) = struct.unpack_from(">H", data, at + 1)
        at += 3
        columns = []
        for _ in range(count):
            is_key = bool(data[at] & 1)
            name, at = _text(data, at + 1)
            (kind,) = struct.unpack_from(">I", data, at)
            columns.append(RelationColumn(name, self._domains.get(kind, kind), is_key))
            at += 8
        # The publication has one table, which may have been renamed.
        self._columns[number] = columns

    def _change(self, kind: str, data: bytes) -> None:
        (number,) = struct.unpack_from(">I", data, 1)
        operation = _OPERATIONS[kind]
        if operation not in self._operations:
            return
        columns = self._columns[number]
        parts: dict[str, EventValues] = {}
        at = 5
        while at < len(data):
            part = chr(data[at])
            parts[part], at = _tuple(data, at + 1, columns)
        self._open.append(_changed(operation, columns, parts, self._table))


def _changed(
    operation: str,
    columns: Sequence[RelationColumn],
    parts: Mapping[str, EventValues],
    table: str,
) -> RowChange:
    """The change of a row.

    Args:
        operation: insert, update or delete.
        columns: of the row.
        parts: ``N`` the row, without its unchanged large values; ``O`` the row before, or ``K``
            the key before.
        table: for reasons.
    """
    row, refused = dict(parts.get("N", {})), dict[str, list[str]]()
    if operation == "insert":
        return RowChange(operation, row, refused)
    before = parts.get("O")
    if before is None:
        # Of a key that has not changed the log says nothing.
        key = parts.get("K", row)
        before = {c.name: key[c.name] for c in columns if c.is_key and c.name in key}
    if operation == "update":
        row = {c.name: row[c.name] if c.name in row else before.get(c.name, _ABSENT)
               for c in columns}  # fmt: skip
        absent = [name for name, value in row.items() if value is _ABSENT]
        if absent:
            refused[_NO_VALUE.format(table)] = absent
            row = {name: value for name, value in row.items() if value is not _ABSENT}
    lacking = [f"before_{c.name}" for c in columns if c.name not in before]
    if lacking:
        refused[_NO_EARLIER.format(table)] = lacking
    return RowChange(operation, {**{f"before_{n}": v for n, v in before.items()}, **row}, refused)


_ABSENT: Final = object()


def _text(data: bytes, at: int) -> tuple[str, int]:
    """A name; a database with the encoding SQL_ASCII has some that are not in UTF-8."""
    end = data.index(0, at)
    return data[at:end].decode(errors="backslashreplace"), end + 1


def _tuple(data: bytes, at: int, columns: Sequence[RelationColumn]) -> tuple[EventValues, int]:
    (count,) = struct.unpack_from(">H", data, at)
    at += 2
    row: EventValues = {}
    for column in columns[:count]:
        mark = chr(data[at])
        at += 1
        if mark == "n":
            row[column.name] = None
        elif mark == "t":
            (length,) = struct.unpack_from(">I", data, at)
            row[column.name] = pg_value(data[at + 4 : at + 4 + length], column.kind)
            at += 4 + length
        # u: a large value that has not changed, and is not in the log.
    return row, at


def _quoted(name: str) -> str:
    """A name in a statement; SQLAlchemy's own would double percent signs, also for parameters."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def lsn_of(number: int) -> str:
    """A place in the log as PostgreSQL writes it."""
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"


class Listening:
    """See ``mesh.receiver.types.cdc_source.ChangeReader``."""

    def __init__(self, sa: Any, connection: sqlalchemy.Connection, context: Context) -> None:
        self._sa, self._connection = sa, connection
        self._table = str(context.options["table.name"])
        self._operations = operations_of(context.options)
        name = re.sub(r"[^a-z0-9_]", "_", f"{context.app}_{context.stream}".lower())[:40]
        # A server has one namespace of slots for all of its databases.
        identity = f"{context.instance}/{connection.engine.url.database}"
        digest = hashlib.blake2b(identity.encode(), digest_size=4).hexdigest()
        #: Of the slot and of the publication.
        self.name = f"mesh_{name}_{digest}"
        self._end = 0
        #: Columns without values in the log, with those of earlier rows.
        self._generated: Sequence[str] = ()
        self._clock = SystemClock()
        #: The end of the log at the last advance of the slot, and its time.
        self._advanced, self._advanced_s = 0, 0.0

    def begin(self, position: JsonMapping) -> JsonMapping:
        """Create the publication and the slot where they are missing."""
        text, connection = self._sa.text, self._connection
        parameters = {"name": self.name}
        with connection.begin():
            self._publish()
        with connection.begin():
            query = text("select 1 from pg_replication_slots where slot_name = :name")
            if connection.execute(query, parameters).first() is None:
                if position:
                    raise UnavailableError(
                        f'the replication slot "{self.name}" is gone, and with it changes that '
                        "were not read: undeploy the app, and deploy it to begin at the present"
                    )
                self._create_slot()
        self._end = int(position.get("end") or 0)
        # It has read on, and was ended before it could say so.
        self.committed({"end": self._end})
        return {"end": self._end}

    def _create_slot(self) -> None:
        query = self._sa.text("select pg_create_logical_replication_slot(:name, 'pgoutput')")
        try:
            self._connection.execute(query, {"name": self.name})
        except self._sa.exc.OperationalError as error:
            if getattr(error.orig, "sqlstate", "") != _NO_SLOTS:
                raise
            raise UnavailableError(
                "all replication slots are in use, and each source has one: drop one without a "
                "reader, or raise max_replication_slots of the server"
            ) from None

    def _publish(self) -> None:
        """Create the publication, or add the table to it; find its generated columns."""
        text, connection = self._sa.text, self._connection
        table = ".".join(_quoted(part) for part in self._table.split("."))
        query = text(
            "select relkind, exists (select 1 from pg_inherits where inhparent = c.oid)"
            " from pg_class c where c.oid = to_regclass(:table)"
        )
        row = connection.execute(query, {"table": table}).first()
        if row is None:
            raise UnavailableError(f'there is no table "{self._table}"')
        kind, has_children = row
        if kind in _KINDS:
            raise UnavailableError(f'"{self._table}" is {_KINDS[kind]}, which has no log')
        if has_children and kind != "p":
            raise UnavailableError(
                f'"{self._table}" has tables that inherit from it, and their rows are not in its '
                "log: read each of them, or use mode='polling'"
            )
        query = text(
            "select attname from pg_attribute where attrelid = to_regclass(:table)"
            " and attgenerated <> ''"
        )
        names = connection.execute(query, {"table": table}).scalars().all()
        self._generated = [*names, *(f"before_{name}" for name in names)]
        if self._operations & {"update", "delete"}:
            self._expect_identity(table)
        query = text(
            "select p.pubviaroot, p.pubinsert, p.pubupdate, p.pubdelete,"
            " p.pubtruncate, r.oid is not null from pg_publication p left join"
            " pg_publication_rel r on r.prpubid = p.oid and r.prrelid = to_regclass(:table)"
            " where p.pubname = :name"
        )
        publication = connection.execute(query, {"table": table, "name": self.name}).first()
        operations = ", ".join(sorted(self._operations))
        # Without the root the log would name a partition instead of the table.
        options = f"(publish = '{operations}', publish_via_partition_root = true)"
        name = _quoted(self.name)
        if publication is None:
            self._execute(f"create publication {name} for table {table} with {options}")
            return
        published = (one in self._operations for one in ("insert", "update", "delete"))
        if tuple(publication)[:5] != (True, *published, False):
            self._execute(f"alter publication {name} set {options}")
        if not publication[5]:
            self._execute(f"alter publication {name} set table {table}")

    def _execute(self, statement: str) -> None:
        """Execute a statement as it is: a colon in a name is no parameter."""
        self._connection.exec_driver_sql(statement.replace("%", "%%"))

    def _expect_identity(self, table: str) -> None:
        """Refuse a table whose updates and deletes the server would refuse to any program."""
        query = self._sa.text(
            "select c.oid from pg_class c where c.relkind = 'r' and (c.oid = to_regclass(:table)"
            " or c.oid in (select relid from pg_partition_tree(to_regclass(:table))))"
            " and (c.relreplident = 'n' or c.relreplident = 'd' and not exists"
            " (select 1 from pg_index where indrelid = c.oid and indisprimary))"
        )
        if self._connection.execute(query, {"table": table}).first() is not None:
            raise UnavailableError(
                f'"{self._table}" has no primary key, and PostgreSQL refuses the updates and '
                "deletes of such a table once they are read from its log: give it one, or "
                f"alter table {table} replica identity full"
            )

    def read(self) -> Batch | None:
        """The changes of the transactions that have ended."""
        log_end = self._log_end()
        if log_end <= self._advanced:
            return None
        query = self._sa.text(
            "select data from pg_logical_slot_peek_binary_changes("
            "cast(:name as name), null, :count, 'proto_version', '1', 'publication_names',"
            " cast(:name as text))"
        )
        with self._connection.begin():
            ask_for_octets(self._connection)
            rows = self._connection.execute(query, {"name": self.name, "count": _CHANGES})
            messages = [bytes(row.data) for row in rows]
        decoder = ChangeDecoder(self._table, self._operations, self._domains() if messages else {})
        payloads: list[bytes] = []
        properties: list[dict[str, str]] = []
        names: list[str] = []
        last = self._end
        for message in messages:
            ended = decoder.feed(message)
            if ended is None or ended[0] <= self._end:
                continue
            last = ended[0]
            for at, (operation, row, refused) in enumerate(ended[1]):
                if lacking := [name for name in self._generated if name not in row]:
                    refused[_NO_GENERATED] = lacking
                payloads.append(payload_of(row, refused))
                properties.append({"operation": operation})
                names.append(f"{last}-{at}")
        if last == self._end:
            if len(messages) < _CHANGES:
                # All transactions up to there have been read, and none changed the table.
                self._follow(log_end)
            return None
        self._end = last
        return Batch(payloads, {"end": last}, properties, names)

    def _log_end(self) -> int:
        """The present end of the log.  Raises ``UnavailableError`` for a table that is gone."""
        query = self._sa.text(
            "select pg_current_wal_flush_lsn() - pg_lsn '0/0', exists (select 1 from"
            " pg_publication p join pg_publication_rel r on r.prpubid = p.oid"
            " where p.pubname = :name)"
        )
        with self._connection.begin():
            end, is_there = self._connection.execute(query, {"name": self.name}).one()
        if not is_there:
            raise UnavailableError(f'the table "{self._table}" was dropped')
        return int(end)

    def _domains(self) -> dict[int, int]:
        """The types below those of domains, by number."""
        query = self._sa.text(
            "with recursive d as (select oid, typbasetype as base from pg_type where typtype = 'd'"
            " union all select d.oid, t.typbasetype from d join pg_type t on t.oid = d.base"
            " where t.typtype = 'd') select d.oid, d.base from d join pg_type t on t.oid = d.base"
            " where t.typtype <> 'd'"
        )
        with self._connection.begin():
            return {int(number): int(base) for number, base in self._connection.execute(query)}

    def _follow(self, end: int) -> None:
        """Let the server remove the log of other tables."""
        now_s = self._clock.monotonic_s()
        grown = end - self._advanced
        if grown >= _IDLE_BYTES or (grown and now_s >= self._advanced_s + _IDLE_S):
            self._advance(end)
            self._advanced, self._advanced_s = end, now_s

    def committed(self, position: JsonMapping) -> None:
        """Advance the slot, so that the server may remove the log before it."""
        if position["end"]:
            self._advance(position["end"])

    def _advance(self, end: int) -> None:
        query = self._sa.text(
            "select pg_replication_slot_advance(slot_name, cast(:end as pg_lsn))"
            " from pg_replication_slots where slot_name = :name"
            " and confirmed_flush_lsn < cast(:end as pg_lsn)"
        )
        with self._connection.begin():
            self._connection.execute(query, {"name": self.name, "end": lsn_of(end)})

    def drop(self) -> None:
        """Drop the slot and the publication."""
        query = self._sa.text(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots"
            " where slot_name = :name"
        )
        with self._connection.begin():
            self._connection.execute(query, {"name": self.name})
        with self._connection.begin():
            self._execute(f"drop publication if exists {_quoted(self.name)}")

    def close(self) -> None:
        """See ``ChangeReader``."""
