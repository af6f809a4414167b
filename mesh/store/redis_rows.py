"""Rows of tables as hashes of Redis: their keys, the texts of values, and look-ups among them.

    Prices:IBM              key of one part: the name of the table, and the text of the value
    Pairs:a%3Ab:5           of several, in the order of the definition; % and : are escaped
      symbol IBM            fields are attributes; a null has none
      price  12.5

The key says which row a hash is: its fields of key attributes are for other programs.  A hash whose
key is not the text of a key value, or that has no field of the table, is no row of it.
"""

from __future__ import annotations

import decimal
import operator
import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mesh.model.lookup import AllOf, AnyKey, AnyOf, Clause, Compared, Comparison
from mesh.model.stored_limits import single
from mesh.model.types import AttributeType
from mesh.store.values import exact

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mesh.model.stored import StoredTable

_WHOLE: Final = re.compile(r"-?[0-9]{1,19}")
_FRACTION: Final = re.compile(
    r"[+-]?(?:[0-9]{1,400}\.?[0-9]{0,400}|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,4})?"
    r"|NaN|-?Infinity"
)
_FLAGS: Final = {"true": True, "false": False, "1": True, "0": False}
_INFINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_ORDERS: Final = {
    Comparison.EQUAL: operator.eq,
    Comparison.LESS: operator.lt,
    Comparison.LESS_OR_EQUAL: operator.le,
    Comparison.GREATER: operator.gt,
    Comparison.GREATER_OR_EQUAL: operator.ge,
}


def text_of(value: Any, attribute: AttributeType) -> str:
    """The text of a value that is not null."""
    match attribute:
        case AttributeType.BOOL:
            return "true" if value else "false"
        case AttributeType.FLOAT | AttributeType.DOUBLE:
            # The shortest one that is this number.
            text = str(np.float32(value)) if attribute is AttributeType.FLOAT else repr(value)
            return _INFINITE.get(text, text)
        case _:
            return str(value)


def value_of(data: bytes, attribute: AttributeType) -> Any:
    """The value of a text; the text itself, or its bytes, if it has none of this type."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data
    match attribute:
        case AttributeType.INT | AttributeType.LONG:
            return int(text) if _WHOLE.fullmatch(text) else text
        case AttributeType.FLOAT | AttributeType.DOUBLE:
            number = _fraction(text)
            return _single(number) if attribute is AttributeType.FLOAT else number
        case AttributeType.BOOL:
            return _FLAGS.get(text.lower(), text)
        case _:
            return text


def _fraction(text: str) -> Any:
    if not _FRACTION.fullmatch(text):
        return text
    number = float(text)
    written = repr(number)
    if written == text or _INFINITE.get(written) == text:
        return number
    if decimal.Decimal(written) == decimal.Decimal(text):
        return number
    # More digits than a double has.
    return text


def _single(number: Any) -> Any:
    """The float that a number is, or is the shortest text of."""
    if not isinstance(number, float) or not (np.isnan(number) or single(np.array([number]))[0]):
        return number
    return float(np.float32(number))


def prefix_of(table: StoredTable) -> str:
    """The beginning of the keys of a table's rows."""
    return f"{table.name}:"


def pattern_of(table: StoredTable) -> str:
    """The pattern of SCAN that all keys of rows match."""
    return re.sub(r"([\\*?\[\]^-])", r"\\\1", prefix_of(table)) + "*"


def key_of(table: StoredTable, key: Sequence[Any]) -> str:
    """The key of the row with these values of key columns."""
    texts = [text_of(_own(value), c.type) for value, c in zip(key, table.keys, strict=True)]
    if len(texts) > 1:
        texts = [text.replace("%", "%25").replace(":", "%3A") for text in texts]
    return prefix_of(table) + ":".join(texts)


def _own(value: Any) -> Any:
    """Of the two zeros the one that keys have."""
    return value + 0.0 if isinstance(value, float) else value


def key_in(table: StoredTable, key: bytes) -> tuple[Any, ...] | None:
    """The values of key columns; None for a key that no row has."""
    try:
        text = key.decode().removeprefix(prefix_of(table))
    except UnicodeDecodeError:
        return None
    columns = table.keys
    parts = text.split(":") if len(columns) > 1 else [text]
    if len(parts) != len(columns):
        return None
    if len(columns) > 1:
        parts = [part.replace("%3A", ":").replace("%25", "%") for part in parts]
    try:
        values = tuple(
            exact(value_of(part.encode(), column.type), column.type)
            for part, column in zip(parts, columns, strict=True)
        )
    except (ValueError, TypeError, ArithmeticError):
        return None
    is_own = key_of(table, values).encode() == key and all(value == value for value in values)
    return values if is_own else None


def row_of(
    table: StoredTable, key: tuple[Any, ...], found: Sequence[bytes | None]
) -> tuple[Any, ...] | None:
    """The row of a hash, in the columns of ``table``; None if it is none.

    Args:
        table: with its columns.
        key: see ``key_in``.
        found: the fields by the names of the columns; None for those that are missing.
    """
    if not any(one is not None for one in found):
        return None
    given = iter(key)
    own = table.keys
    return tuple(
        next(given) if column in own else None if data is None else value_of(data, column.type)
        for column, data in zip(table.columns, found, strict=True)
    )


def keys_in(table: StoredTable, clause: Clause) -> list[tuple[Any, ...]] | None:
    """The keys of all rows that a look-up can find; None if it does not say."""
    parts = clause.parts if isinstance(clause, AllOf) else (clause,)
    names = [column.name for column in table.keys]
    for part in parts:
        if isinstance(part, AnyKey) and sorted(part.columns) == sorted(names):
            order = [part.columns.index(name) for name in names]
            return [tuple(key[at] for at in order) for key in part.keys]
    return None


def finder(clause: Clause) -> Callable[[Mapping[str, Any]], bool]:
    """Whether a look-up finds a row; a value that its attribute can't have meets nothing."""
    match clause:
        case AllOf(parts):
            every = [finder(part) for part in parts]
            return lambda row: all(found(row) for found in every)
        case AnyOf(parts):
            some = [finder(part) for part in parts]
            return lambda row: any(found(row) for found in some)
        case AnyKey(columns, listed):
            keys = frozenset(listed)
            return lambda row: tuple(row[name] for name in columns) in keys
        case Compared(name, Comparison.IS_NULL):
            return lambda row: row[name] is None
        case Compared(name, Comparison.IS_NOT_NULL):
            return lambda row: row[name] is not None
        case Compared(name, Comparison.CONTAINS, value):
            return lambda row: isinstance(row[name], str) and value in row[name]
        case Compared(name, how, value):
            return lambda row: _compared(row[name], how, value)


def _compared(own: Any, how: Comparison, value: Any) -> bool:
    is_alike = isinstance(own, str | bytes) == isinstance(value, str | bytes)
    return own is not None and is_alike and bool(_ORDERS[how](own, value))
