"""Changes from PostgreSQL's log, by a replication slot and the plugin pgoutput.

The slot is read by SQL without moving it.  It is advanced once the changes are stored, and after a
crash before that the stored position says which transactions to skip.
"""

from __future__ import annotations

import hashlib
import re
import struct
from typing import TYPE_CHECKING, Any, Final

import orjson

from mesh.connect.contract import Batch
from mesh.receiver.types.databases import operations_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import sqlalchemy

    from mesh.connect.contract import Context

#: Changes of a read; whole transactions are read, so there may be more.
_CHANGES: Final = 2000
_INTEGERS: Final = (20, 21, 23, 26)
_FLOATS: Final = (700, 701, 1700)
_BOOL: Final = 16
_OPERATIONS: Final = {"I": "insert", "U": "update", "D": "delete"}


class Changes:
    """Decoder of pgoutput's messages, version 1."""

    def __init__(self, table: str, operations: frozenset[str]) -> None:
        self._table, self._operations = table, operations
        self._columns: dict[int, list[tuple[str, int]]] = {}
        #: Operation and columns of each change of the transaction so far.
        self._open: list[tuple[str, dict[str, Any]]] = []

    def feed(self, data: bytes) -> tuple[int, list[tuple[str, dict[str, Any]]]] | None:
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
            found, self._open = self._open, []
            return end, found
        return None

    def _relation(self, data: bytes) -> None:
        (number,) = struct.unpack_from(">I", data, 1)
        space, at = _text(data, 5)
        name, at = _text(data, at)
        (count,) = struct.unpack_from(">H", data, at + 1)
        at += 3
        columns = []
        for _ in range(count):
            column, at = _text(data, at + 1)
            (kind,) = struct.unpack_from(">I", data, at)
            columns.append((column, kind))
            at += 8
        if self._table in (name, f"{space}.{name}"):
            self._columns[number] = columns
        else:
            self._columns.pop(number, None)

    def _change(self, kind: str, data: bytes) -> None:
        (number,) = struct.unpack_from(">I", data, 1)
        operation = _OPERATIONS[kind]
        columns = self._columns.get(number)
        if columns is None or operation not in self._operations:
            return
        event: dict[str, Any] = {}
        at = 5
        while at < len(data):
            part = chr(data[at])
            values, at = _tuple(data, at + 1, columns)
            # K and O: the key or the whole row before the change.
            prefix = "" if part == "N" else "before_"
            event |= {f"{prefix}{name}": value for name, value in values.items()}
        self._open.append((operation, event))


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return data[at:end].decode(), end + 1


def _tuple(data: bytes, at: int, columns: list[tuple[str, int]]) -> tuple[dict[str, Any], int]:
    (count,) = struct.unpack_from(">H", data, at)
    at += 2
    found: dict[str, Any] = {}
    for name, kind in columns[:count]:
        mark = chr(data[at])
        at += 1
        if mark == "n":
            found[name] = None
        elif mark == "t":
            (length,) = struct.unpack_from(">I", data, at)
            found[name] = _value(data[at + 4 : at + 4 + length].decode(), kind)
            at += 4 + length
        # u: a large value that has not changed, and is not in the log.
    return found, at


def _value(text: str, kind: int) -> Any:
    if kind in _INTEGERS:
        return int(text)
    if kind in _FLOATS:
        number = float(text)
        return number if number == number and abs(number) != float("inf") else None
    return text == "t" if kind == _BOOL else text


def lsn_of(number: int) -> str:
    """A place in the log as PostgreSQL writes it."""
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"


class Listening:
    """See ``mesh.receiver.types.cdc_source.Reading``."""

    def __init__(self, sa: Any, connection: sqlalchemy.Connection, context: Context) -> None:
        self._sa, self._connection = sa, connection
        self._table = str(context.options["table.name"])
        self._operations = operations_of(context.options)
        name = re.sub(r"[^a-z0-9_]", "_", f"{context.app}_{context.stream}".lower())[:40]
        digest = hashlib.blake2b(context.instance.encode(), digest_size=4).hexdigest()
        #: Of the slot and of the publication.
        self.name = f"mesh_{name}_{digest}"
        self._end = 0

    def begin(self, position: Mapping[str, Any]) -> Mapping[str, Any]:
        """Create the publication and the slot where they are missing."""
        text, connection = self._sa.text, self._connection
        own = {"name": self.name}
        with connection.begin():
            query = text("select 1 from pg_publication where pubname = :name")
            if connection.execute(query, own).first() is None:
                quote = connection.dialect.identifier_preparer.quote_identifier
                table = ".".join(quote(part) for part in self._table.split("."))
                connection.execute(text(f"create publication {quote(self.name)} for table {table}"))
        with connection.begin():
            query = text("select 1 from pg_replication_slots where slot_name = :name")
            if connection.execute(query, own).first() is None:
                made = text("select pg_create_logical_replication_slot(:name, 'pgoutput')")
                connection.execute(made, own)
        self._end = int(position.get("end") or 0)
        # It has read on, and was ended before it could say so.
        self.committed({"end": self._end})
        return {"end": self._end}

    def read(self) -> Batch | None:
        """The changes of the transactions that have ended."""
        query = self._sa.text(
            "select data from pg_logical_slot_peek_binary_changes("
            "cast(:name as name), null, :count, 'proto_version', '1', 'publication_names',"
            " cast(:name as text))"
        )
        with self._connection.begin():
            found = self._connection.execute(query, {"name": self.name, "count": _CHANGES})
            messages = [bytes(row.data) for row in found]
        decoder = Changes(self._table, self._operations)
        payloads: list[bytes] = []
        properties: list[dict[str, str]] = []
        names: list[str] = []
        last = self._end
        for message in messages:
            ended = decoder.feed(message)
            if ended is None or ended[0] <= self._end:
                continue
            last = ended[0]
            for at, (operation, event) in enumerate(ended[1]):
                payloads.append(orjson.dumps(event))
                properties.append({"operation": operation})
                names.append(f"{last}-{at}")
        if last == self._end:
            return None
        self._end = last
        return Batch(payloads, {"end": last}, properties, names)

    def committed(self, position: Mapping[str, Any]) -> None:
        """Advance the slot, so that the server may remove the log before it."""
        if position["end"]:
            query = self._sa.text(
                "select pg_replication_slot_advance(slot_name, cast(:end as pg_lsn))"
                " from pg_replication_slots where slot_name = :name"
                " and confirmed_flush_lsn < cast(:end as pg_lsn)"
            )
            own = {"name": self.name, "end": lsn_of(position["end"])}
            with self._connection.begin():
                self._connection.execute(query, own)

    def close(self) -> None:
        """See ``Reading``."""
