"""Rows in the binary log of MySQL and MariaDB, decoded to the texts that the server shows.

The library that reads the log makes Python's values of them, and so loses dates such as 0000-00-00,
empty sets, digits of fractions, and the zeros at the end of octets.

Columns of tables of MySQL and MariaDB as their catalogue has them.
"""

from __future__ import annotations

import codecs
import datetime
import ipaddress
import json
import re
import socket
import struct
import uuid
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

from mesh.connect.contract import UnavailableError
from mesh.receiver.types.column_values import Unreadable, mysql_value
from mesh.store.catalogue import labels_of
from mesh.store.sql import sa

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mesh.model.values import EventValues


#: Sizes of whole numbers by type: TINY, SHORT, LONG, LONGLONG, INT24.
_WHOLE: Final = {1: 1, 2: 2, 3: 4, 8: 8, 9: 3}
#: Of a session with another ``binlog_row_image``; that of the server is looked at.
_ABSENT: Final = Unreadable("is not in the log: the session's binlog_row_image was not FULL")
_EPOCH: Final = datetime.date(1970, 1, 1).toordinal()
#: Octets of some decimal digits.
_SIZES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_BINARY: Final = re.compile(r"binary\((\d+)\)")
_ADDRESSES: Final[dict[str, tuple[int, Callable[[bytes], str]]]] = {
    "uuid": (16, lambda octets: str(uuid.UUID(bytes=octets))),
    "inet4": (4, lambda octets: str(ipaddress.IPv4Address(octets))),
    "inet6": (16, lambda octets: socket.inet_ntop(socket.AF_INET6, octets)),
}
_CODECS: Final = {
    "latin1": "cp1252", "ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le",
    "utf32": "utf-32-be", "macroman": "mac_roman", "macce": "mac_latin2", "eucjpms": "euc_jp",
    "koi8r": "koi8_r", "koi8u": "koi8_u", "utf8": "utf-8", "utf8mb3": "utf-8", "utf8mb4": "utf-8",
}  # fmt: skip
_SAME: Final = "mesh-same-code"
# Octets that Windows has no character for are those of the same code in MySQL's latin1.
codecs.register_error(
    _SAME,
    lambda error: (error.object[error.start : error.end].decode("latin-1"), error.end),  # type: ignore[attr-defined]
)

_COLUMNS: Final = (
    "select column_name, column_type, character_set_name, generation_expression"
    " from information_schema.columns where table_schema = coalesce(:space, database())"
    " and table_name = :name order by ordinal_position"
)
_PERIOD: Final = ("ROW START", "ROW END")


@dataclass(frozen=True, slots=True)
class MysqlColumn:
    """A column of a table as it is now; the log may know less of it."""

    name: str
    #: Such as ``int(10) unsigned`` and ``enum('a','b')``.
    type: str
    charset: str | None = None
    #: ``ROW START`` or ``ROW END`` of a system-versioned table; empty for others.
    period: str = ""

    @property
    def labels(self) -> list[str]:
        """Values of an enumeration or a set."""
        return labels_of(self.type)


def columns_of(connection: sa.Connection, table: str) -> Sequence[MysqlColumn]:
    """The columns of a table, inside of a transaction; none if there is no table."""
    space, _, name = table.rpartition(".")
    rows = connection.execute(sa.text(_COLUMNS), {"space": space or None, "name": name}).all()
    return [
        MysqlColumn(str(column), str(kind), charset, text if text in _PERIOD else "")
        for column, kind, charset, text in rows
    ]


class Type(IntEnum):
    """Types in the log, other than whole numbers."""

    FLOAT = 4
    DOUBLE = 5
    TIMESTAMP = 7
    DATE = 10
    TIME = 11
    DATETIME = 12
    YEAR = 13
    VARCHAR = 15
    BIT = 16
    TIMESTAMP2 = 17
    DATETIME2 = 18
    TIME2 = 19
    JSON = 245
    DECIMAL = 246
    ENUM = 247
    SET = 248
    BLOB = 252
    STRING = 254
    GEOMETRY = 255


_WORD: Final = re.compile(r"[a-z]+")
_WHOLE_NAMES: Final = ("tinyint", "smallint", "mediumint", "int", "bigint")
#: Names of types in the catalogue by types of the log; others may be any name that is not here.
_NAMES: Final[dict[int, tuple[str, ...]]] = {
    **dict.fromkeys(_WHOLE, _WHOLE_NAMES), Type.FLOAT: ("float",), Type.DOUBLE: ("double",),
    Type.DECIMAL: ("decimal",), Type.DATE: ("date",), Type.TIME: ("time",),
    Type.TIME2: ("time",), Type.DATETIME: ("datetime",), Type.DATETIME2: ("datetime",),
    Type.TIMESTAMP: ("timestamp",), Type.TIMESTAMP2: ("timestamp",), Type.YEAR: ("year",),
    Type.BIT: ("bit",), Type.ENUM: ("enum",), Type.SET: ("set",),
}  # fmt: skip
_NAMED: Final = frozenset(name for names in _NAMES.values() for name in names)


def are_like(logged: Sequence[Any], columns: Sequence[MysqlColumn]) -> bool:
    """Whether columns of the log may be the first columns of the table, by their types."""
    return len(logged) <= len(columns) and all(
        _is_like(one.type, column.type) for one, column in zip(logged, columns, strict=False)
    )


def _is_like(kind: int, declared: str) -> bool:
    match = _WORD.match(declared)
    name = match[0] if match else ""
    return name in _NAMES[kind] if kind in _NAMES else name not in _NAMED


class Packet(Protocol):
    """Octets of an event that are not read yet."""

    #: Octets that were read.
    read_bytes: int

    def read(self, size: int) -> bytes:
        """The next octets."""
        ...

    def read_binary_json(self, size: int, is_partial: bool) -> object:
        """A document of MySQL's type JSON; its length has ``size`` octets."""
        ...


def images_of(event: Any, columns: Sequence[MysqlColumn | None]) -> list[list[EventValues]]:
    """The rows of an event: each has one image, and two if the event is of updates.

    Args:
        event: of rows, of the library; its rows are not read yet.
        columns: those of the table for the columns of the log; None for one that is gone.
    """
    bitmaps = [event.columns_present_bitmap]
    if hasattr(event, "columns_present_bitmap2"):
        bitmaps.append(event.columns_present_bitmap2)
    images = []
    while event.packet.read_bytes < event.event_size:
        images.append([_image(event.packet, event.columns, columns, one) for one in bitmaps])
    return images


def _image(
    packet: Packet, logged: Sequence[object], columns: Sequence[MysqlColumn | None], bitmap: bytes
) -> EventValues:
    indices = [at for at in range(len(logged)) if bitmap[at >> 3] & 1 << (at & 7)]
    nulls = packet.read((len(indices) + 7) // 8)
    image: EventValues = {}
    for place, at in enumerate(indices):
        column = columns[at]
        is_null = nulls[place >> 3] & 1 << (place & 7)
        value = None if is_null else value_of(packet, logged[at], column)
        if column is not None:
            image[column.name] = value
    for column in columns:
        if column is not None:
            image.setdefault(column.name, _ABSENT)
    return image


def value_of(packet: Packet, logged: object, column: MysqlColumn | None) -> Any:
    """A value for a payload; of a column that is gone it is only read."""
    text = _text(packet, logged, column)
    if column is None or isinstance(text, Unreadable):
        return text
    return mysql_value(text, column.type)


def _text(packet: Packet, logged: Any, column: MysqlColumn | None) -> str | bytes | Unreadable:
    """The text of a value as the server shows it, or octets."""
    kind, read = logged.type, packet.read
    declared = "" if column is None else column.type
    if kind in _WHOLE:
        is_signed = not (logged.unsigned or "unsigned" in declared)
        return str(int.from_bytes(read(_WHOLE[kind]), "little", signed=is_signed))
    match kind:
        case Type.FLOAT:
            return repr(struct.unpack("<f", read(4))[0])
        case Type.DOUBLE:
            return repr(struct.unpack("<d", read(8))[0])
        case Type.DECIMAL:
            return _decimal(read, logged.precision, logged.decimals)
        case Type.YEAR:
            year = read(1)[0]
            return str(1900 + year) if year else "0000"
        case Type.DATE:
            number = int.from_bytes(read(3), "little")
            return f"{number >> 9:04}-{number >> 5 & 15:02}-{number & 31:02}"
        case Type.TIMESTAMP2 | Type.DATETIME2 | Type.TIME2:
            return _NEW_TIMES[kind](read, logged.fsp)
        case Type.TIMESTAMP | Type.TIME | Type.DATETIME:
            return _old_time(read, kind, declared)
        case Type.ENUM | Type.SET:
            return _label(int.from_bytes(read(logged.size), "little"), logged, column)
        case Type.BIT:
            return read(logged.bytes)
        case Type.JSON:
            document = packet.read_binary_json(logged.length_size, False)
            return json.dumps(_keyed(document), ensure_ascii=False, default=str)
        case Type.BLOB | Type.GEOMETRY:
            size = logged.length_size
        case Type.VARCHAR | Type.STRING:
            size = 2 if logged.max_length > 255 else 1
        case _:
            raise UnavailableError(f'the log has a column "{logged.name}" of unknown type {kind}')
    return _string(read(int.from_bytes(read(size), "little")), column)


def _label(number: int, logged: Any, column: MysqlColumn | None) -> str | Unreadable:
    table_labels = column.labels if column is not None else []
    if logged.type == Type.SET:
        labels = logged.set_values or table_labels
        if number >> len(labels):
            return Unreadable("has a label that the table has not")
        return ",".join(one for at, one in enumerate(labels) if number >> at & 1)
    # 0 is that of a value that the server did not accept.
    labels = logged.enum_values or ["", *table_labels]
    return (
        labels[number] if number < len(labels) else Unreadable("has a label that the table has not")
    )


def _string(octets: bytes, column: MysqlColumn | None) -> str | bytes | Unreadable:
    if column is None:
        return octets
    if column.type in _ADDRESSES:
        size, shown = _ADDRESSES[column.type]
        return shown(octets.ljust(size, b"\0"))
    if fixed := _BINARY.match(column.type):
        return octets.ljust(int(fixed[1]), b"\0")
    if column.charset is None or column.charset == "binary":
        return octets
    codec = _CODECS.get(column.charset, column.charset)
    try:
        return octets.decode(codec, _SAME if codec == "cp1252" else "strict")
    except (LookupError, UnicodeDecodeError):
        return Unreadable(f"is a text of the character set {column.charset} that can't be read")


def _decimal(read: Callable[[int], bytes], precision: int, scale: int) -> str:
    whole = precision - scale
    sizes = [(_SIZES[whole % 9], whole % 9), *[(4, 9)] * (whole // 9)]
    fraction = [*[(4, 9)] * (scale // 9), (_SIZES[scale % 9], scale % 9)]
    octets = bytearray(read(sum(size for size, _ in (*sizes, *fraction))))
    is_negative = not octets[0] & 0x80
    octets[0] ^= 0x80
    if is_negative:
        octets = bytearray(one ^ 0xFF for one in octets)
    digits, at = "", 0
    for size, count in (*sizes, *fraction):
        if size:
            digits += f"{int.from_bytes(octets[at : at + size], 'big'):0{count}}"
        at += size
    before, after = digits[:whole].lstrip("0") or "0", digits[whole:]
    return ("-" if is_negative else "") + before + (f".{after}" if after else "")


def _fraction(number: int, digits: int) -> str:
    """A second's fraction, which the log has with an even number of digits."""
    return f".{number:0{digits + digits % 2}}"[: digits + 1] if digits else ""


def _timestamp(read: Callable[[int], bytes], digits: int) -> str:
    seconds = int.from_bytes(read(4), "big")
    fraction = _fraction(int.from_bytes(read((digits + 1) // 2), "big"), digits)
    return _instant(seconds) + fraction


def _instant(seconds: int) -> str:
    if not seconds:
        return "0000-00-00 00:00:00"
    days, rest = divmod(seconds, 86400)
    day = datetime.date.fromordinal(_EPOCH + days)
    return f"{day} {rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"


def _datetime(read: Callable[[int], bytes], digits: int) -> str:
    number = int.from_bytes(read(5), "big") - (1 << 39)
    fraction = _fraction(int.from_bytes(read((digits + 1) // 2), "big"), digits)
    day, clock = number >> 17, number & 0x1FFFF
    year, month = divmod(day >> 5, 13)
    return f"{year:04}-{month:02}-{day & 31:02} {_clock(clock)}{fraction}"


def _time(read: Callable[[int], bytes], digits: int) -> str:
    size = (digits + 1) // 2
    # Whole and fraction are one number, below zero from the middle of its range.
    number = int.from_bytes(read(3 + size), "big") - (1 << 23 + 8 * size)
    clock, part = divmod(abs(number), 1 << 8 * size)
    return f"{'-' if number < 0 else ''}{_clock(clock)}{_fraction(part, digits)}"


def _clock(number: int) -> str:
    return f"{number >> 12:02}:{number >> 6 & 63:02}:{number & 63:02}"


_NEW_TIMES: Final = {
    Type.TIMESTAMP2: _timestamp, Type.DATETIME2: _datetime, Type.TIME2: _time
}  # fmt: skip


def _old_time(read: Callable[[int], bytes], kind: int, declared: str) -> str | Unreadable:
    """Times as servers before MySQL 5.6 stored them, and MariaDB does if it is configured to."""
    if "(" in declared:
        raise UnavailableError(
            "the table has fractions of seconds in MariaDB's own format: set "
            "mysql56_temporal_format=ON, and then: alter table .. force"
        )
    if kind == Type.TIMESTAMP:
        return _instant(int.from_bytes(read(4), "little"))
    if kind == Type.TIME:
        number = int.from_bytes(read(3), "little", signed=True)
        sign, number = "-" if number < 0 else "", abs(number)
        return f"{sign}{number // 10000:02}:{number // 100 % 100:02}:{number % 100:02}"
    number = int.from_bytes(read(8), "little")
    text = f"{number:014}"
    day, clock = text[:8], text[8:]
    return f"{day[:4]}-{day[4:6]}-{day[6:]} {clock[:2]}:{clock[2:4]}:{clock[4:]}"


def _keyed(value: object) -> object:
    """A document of MySQL with texts instead of octets."""
    if isinstance(value, dict):
        return {_keyed(name): _keyed(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_keyed(inner) for inner in value]
    return value.decode() if isinstance(value, bytes) else value
