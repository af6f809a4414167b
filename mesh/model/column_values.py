"""Values of events as values of columns: natively, or as the exact text of the column."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import orjson

from mesh.model.column_texts import form
from mesh.model.column_types import Backend, ColumnType, Kind, NoFormError

if TYPE_CHECKING:
    from collections.abc import Callable

_NAMES: Final = {str: "string", bool: "bool", int: "whole number", float: "fraction", dict: "map"}
#: Kinds that numbers are values of.
_NUMBERS: Final = frozenset(
    {Kind.NUMERIC, Kind.REAL, Kind.MONEY, Kind.TEXT, Kind.CHAR, Kind.ANY, Kind.INTEGER, Kind.DOUBLE}
)
#: Kinds whose values drivers take as numbers and flags; those of others are exact texts.
NATIVE: Final = frozenset({Kind.INTEGER, Kind.DOUBLE, Kind.BOOLEAN})


def fitted(column: ColumnType, value: Any) -> Any:
    """A value of JSON as a column has it.

    Raises:
        NoFormError: it is no value of the column, or would become another one.
    """
    if value is None:
        return None
    if column.backend is Backend.SQLITE:
        return _sqlite(column, value)
    converter = _NATIVE.get((column.kind, type(value)))
    if converter is not None:
        return converter(column, value)
    text = form(column, _text(column, value))
    match column.kind:
        case Kind.INTEGER:
            return int(text)
        case Kind.DOUBLE if text not in ("Infinity", "-Infinity", "NaN"):
            return float(text)
        case Kind.DOUBLE:
            return float(text.lower())
        case Kind.BOOLEAN:
            return text == "true"
        case _:
            return text


def refusal(name: str, column: ColumnType, value: Any, reason: str) -> str:
    """The reason why a column can't have a value, with its name."""
    kind = _NAMES.get(type(value), "list")
    shown = str(value)
    shown = shown if len(shown) <= 40 else f"{shown[:40]}.."
    return f'column "{name}" is {column.declared} and can\'t have the {kind} {shown}: {reason}'


def _text(column: ColumnType, value: Any) -> str:
    """The text by which a column is asked for its form."""
    match value:
        case str():
            return value
        case bool():
            if column.backend is Backend.MYSQL and column.kind in (Kind.INTEGER, Kind.BIT):
                return str(int(value))
        case int() if column.kind is Kind.BIT and column.backend is Backend.MYSQL:
            if value >= 0:
                return f"{value:b}".zfill(column.length or 1)
        case int() | float() if column.kind in _NUMBERS:
            is_whole = column.kind is Kind.INTEGER and value == math.trunc(value)
            return str(int(value)) if is_whole else repr(value)
        case dict() | list() if column.kind in (Kind.JSON, Kind.JSONB):
            return orjson.dumps(value).decode()
    raise NoFormError("it is of another kind")


def _sqlite(column: ColumnType, value: Any) -> Any:
    if isinstance(value, str):
        return form(column, value)
    if not isinstance(value, int | float):
        raise NoFormError("it is of another kind")
    is_rounded = column.kind is Kind.DOUBLE and isinstance(value, int) and float(value) != value
    if is_rounded or (isinstance(value, int) and not -(2**63) <= value < 2**63):
        raise NoFormError("it is beyond the range")
    return value


def _whole(column: ColumnType, value: int) -> int:
    if not column.span[0] <= value <= column.span[1]:
        raise NoFormError("it is beyond the range")
    return value


def _flag(_: ColumnType, value: bool) -> bool:
    return value


def _fraction(_: ColumnType, value: float) -> float:
    return value


_NATIVE: Final[dict[tuple[Kind, type], Callable[[ColumnType, Any], Any]]] = {
    (Kind.INTEGER, int): _whole,
    (Kind.BOOLEAN, bool): _flag,
    (Kind.DOUBLE, float): _fraction,
}
