"""SQL of columns whose values are not those of drivers: exact texts, decimals, single precision.

Types of SQLAlchemy, by which a statement reads and writes such a column through expressions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from mesh.model.column_types import Kind
from mesh.model.stored import Backend
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from collections.abc import Callable

    from mesh.model.column_types import ColumnType
    from mesh.model.stored import StoredColumn

#: Kinds that a database compares by value, with an index if there is one.
_COMPARED = frozenset(
    {
        Kind.TEXT, Kind.CHAR, Kind.INTEGER, Kind.NUMERIC, Kind.BYTES, Kind.UUID, Kind.DATE,
        Kind.TIME, Kind.TIMETZ, Kind.TIMESTAMP, Kind.TIMESTAMPTZ, Kind.ENUM, Kind.INET, Kind.CIDR,
        Kind.MACADDR, Kind.BOOLEAN, Kind.BIT,
    }
)  # fmt: skip
_FRACTIONS = (AttributeType.FLOAT, AttributeType.DOUBLE)


class _Raw(sa.types.UserDefinedType[Any]):
    """A type by the database's own name of it."""

    cache_ok = True

    def __init__(self, declared: str) -> None:
        self.declared = declared

    def get_col_spec(self, **_: object) -> str:
        """See SQLAlchemy."""
        return self.declared


class ExactText(sa.types.UserDefinedType[str]):
    """A column that strings are read from and written to as its exact text."""

    cache_ok = True

    def __init__(self, column: ColumnType) -> None:
        self.column = column

    def get_col_spec(self, **_: object) -> str:
        """See SQLAlchemy."""
        return self.column.declared

    def column_expression(self, column: Any) -> Any:
        """See SQLAlchemy: the text of a value."""
        return text_of(self.column, column)

    def bind_expression(self, bindvalue: Any) -> Any:
        """See SQLAlchemy: the value of a text."""
        return value_of(self.column, bindvalue)


class Decimals(sa.types.UserDefinedType[Any]):
    """A column of decimals for fractions: no database rounds their texts to fewer digits."""

    cache_ok = True

    def __init__(self, column: ColumnType) -> None:
        self.column = column

    def get_col_spec(self, **_: object) -> str:
        """See SQLAlchemy."""
        return self.column.declared

    def bind_processor(self, dialect: sa.Dialect) -> Callable[[Any], Any]:
        """See SQLAlchemy."""
        return lambda value: None if value is None else repr(float(value))

    def bind_expression(self, bindvalue: Any) -> Any:
        """See SQLAlchemy."""
        return value_of(self.column, bindvalue)


class Wholes(sa.types.UserDefinedType[Any]):
    """A column of whole numbers for fractions, which have been tested to have none."""

    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        """See SQLAlchemy."""
        return "BIGINT"

    def bind_processor(self, dialect: sa.Dialect) -> Callable[[Any], Any]:
        """See SQLAlchemy."""
        return lambda value: None if value is None else int(value)


class SummedColumn(sa.types.UserDefinedType[Any]):
    """A column of MySQL that is read as a sum: FLOAT else rounded, BIT else bytes."""

    cache_ok = True

    def __init__(self, declared: str, zero: str) -> None:
        self.declared, self.zero = declared, zero

    def get_col_spec(self, **_: object) -> str:
        """See SQLAlchemy."""
        return self.declared

    def column_expression(self, column: Any) -> Any:
        """See SQLAlchemy."""
        return _raw(column).op("+")(sa.literal_column(self.zero))


def type_of(column: StoredColumn) -> object:
    """The type of a column of an existing table; None for that of a table of the mesh."""
    actual = column.actual
    if actual is None:
        return None
    if column.type is AttributeType.BOOL and actual.backend is not Backend.POSTGRESQL:
        # A flag of SQLAlchemy would hide other numbers.
        return SummedColumn(actual.declared, "0") if actual.kind is Kind.BIT else sa.SmallInteger()
    if actual.backend is Backend.SQLITE:
        return None
    if column.type is AttributeType.STRING:
        return None if actual.is_text and not actual.charset else ExactText(actual)
    if column.type is AttributeType.BOOL and actual.kind is Kind.INTEGER:
        return Wholes()
    if column.type in _FRACTIONS and actual.kind in (Kind.NUMERIC, Kind.INTEGER):
        return Decimals(actual) if actual.kind is Kind.NUMERIC else Wholes()
    if actual.backend is Backend.MYSQL:
        if actual.kind is Kind.REAL:
            return SummedColumn(actual.declared, "0e0")
        if actual.kind is Kind.BIT:
            return SummedColumn(actual.declared, "0")
    return None


def is_compared(column: ColumnType) -> bool:
    """Whether a database compares values of a column with one another as their texts are."""
    return column.kind in _COMPARED


def text_of(column: ColumnType, expression: object) -> object:
    """The exact text of a value."""
    if column.backend is Backend.POSTGRESQL:
        if column.kind is Kind.CHAR:
            # A cast would remove the blanks at its end.
            return expression
        # A cast of an address alone shows the length of its prefix.
        is_address = column.kind is Kind.INET
        shown = sa.func.inet_out(_raw(expression)) if is_address else _raw(expression)
        return sa.cast(shown, sa.Text())
    operand: Any = _raw(expression)
    match column.kind:
        case Kind.TEXT | Kind.CHAR | Kind.JSON:
            return expression
        case Kind.BYTES:
            return sa.func.lower(sa.func.hex(operand))
        case Kind.BIT:
            digits = sa.func.bin(operand.op("+")(sa.literal_column("0")))
            return sa.func.lpad(digits, column.length, "0")
        case Kind.REAL:
            operand = operand.op("+")(sa.literal_column("0e0"))
        case _:
            pass
    return sa.cast(operand, sa.CHAR())


def value_of(column: ColumnType, text: object) -> Any:
    """The value of an exact text."""
    if column.backend is Backend.POSTGRESQL:
        return sa.cast(text, _Raw(column.declared))
    match column.kind:
        case Kind.BYTES:
            return sa.func.unhex(text)
        case Kind.BIT:
            return sa.cast(sa.func.conv(text, 2, 10), mysql.INTEGER(unsigned=True))
        case _:
            return text


def _raw(expression: object) -> Any:
    """An expression without the type that wraps it."""
    return sa.type_coerce(expression, _Raw("TEXT"))
