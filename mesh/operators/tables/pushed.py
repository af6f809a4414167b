"""Conditions over a table's rows as look-ups in a database.

A condition is cut into parts that a database can evaluate and others; the others are left out, so a
look-up may find more rows than meet the condition, and never fewer.  What is compared with a column
is computed here, for all rows of a frame together:

    T.k == S.k and T.v < S.v and T.a == 'x'      for one row: all three
    the same, for 500 rows                       k in (..500 values) and a == 'x'

Left out are arithmetic and functions of columns, ``!=``, order of texts, and most of ``not``: there
databases differ from the mesh in nulls, NaN, rounding, and the order of texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mesh.language.syntax import BinaryOperator, UnaryOperator
from mesh.model.stored import EVERY_ROW, AllOf, AnyKey, AnyOf, Clause, Compared, Comparison
from mesh.model.types import AttributeType
from mesh.operators.expressions import compile_expression
from mesh.plan.bound import (
    BinaryExpression,
    Column,
    EventIsNull,
    FunctionCall,
    TableCheck,
    UnaryExpression,
    conjuncts,
    walk,
)
from mesh.plan.bound.expressions import TABLE_STEP

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mesh.model.values import Row
    from mesh.operators.expressions import Evaluator, Frame
    from mesh.plan.bound import BoundExpression

#: Keys of one look-up, and alternatives that are no keys.
KEYS_MAX: Final = 1000
_ALTERNATIVES_MAX: Final = 50
_INT_MAX: Final = 2**31
_FRACTIONS: Final = (AttributeType.FLOAT, AttributeType.DOUBLE)
_ORDERS: Final = {
    BinaryOperator.LESS: Comparison.LESS,
    BinaryOperator.LESS_OR_EQUAL: Comparison.LESS_OR_EQUAL,
    BinaryOperator.GREATER: Comparison.GREATER,
    BinaryOperator.GREATER_OR_EQUAL: Comparison.GREATER_OR_EQUAL,
}
_MIRRORED: Final = {
    Comparison.EQUAL: Comparison.EQUAL,
    Comparison.LESS: Comparison.GREATER,
    Comparison.LESS_OR_EQUAL: Comparison.GREATER_OR_EQUAL,
    Comparison.GREATER: Comparison.LESS,
    Comparison.GREATER_OR_EQUAL: Comparison.LESS_OR_EQUAL,
}
#: By type of a column, other types that databases compare with it as the mesh does.
_ALSO: Final = {
    AttributeType.INT: (AttributeType.LONG, AttributeType.FLOAT, AttributeType.DOUBLE),
    AttributeType.LONG: (AttributeType.INT,),
    AttributeType.FLOAT: (AttributeType.DOUBLE,),
    AttributeType.DOUBLE: (AttributeType.INT, AttributeType.LONG, AttributeType.FLOAT),
}
#: Functions whose value is another one each time.
_RANDOM: Final = frozenset({"math:rand", "uuid"})


@dataclass(frozen=True, slots=True)
class _Test:
    """A column compared with the parameter of number ``parameter``; -1 for none."""

    column: str
    type: AttributeType
    how: Comparison
    parameter: int = -1

    def value(self, row: Row) -> Any:
        """The parameter of one row, in the column's kind of number."""
        value = row[self.parameter]
        return float(value) if self.type in _FRACTIONS else value

    def may_hold(self, row: Row) -> bool:
        """Whether any value of the column may meet it; null and NaN equal nothing."""
        value = row[self.parameter]
        if value is None or value != value:
            return False
        if isinstance(value, str):
            return "\0" not in value
        if self.type is AttributeType.INT and self.how is Comparison.EQUAL:
            return bool(-_INT_MAX <= value < _INT_MAX)
        return True


@dataclass(frozen=True, slots=True)
class _Group:
    """Parts of which all, or any, hold."""

    parts: tuple[_Part, ...]
    is_any: bool


_Part = _Test | _Group


class Pushed:
    """The look-ups of a condition; None as condition, every row."""

    def __init__(self, on: BoundExpression | None) -> None:
        """Compile it; inside of ``using``, where its functions are found."""
        self._parameters: list[tuple[BoundExpression, Evaluator]] = []
        results = [self._part(part) for part in ([] if on is None else conjuncts(on))]
        parts = [part for part in results if part is not None]
        equal: dict[str, _Test] = {}
        for part in parts:
            if isinstance(part, _Test) and part.how is Comparison.EQUAL:
                equal.setdefault(part.column, part)
        self._equal = tuple(equal.values())
        self._rest = tuple(part for part in parts if part not in self._equal)

    @property
    def is_whole(self) -> bool:
        """Whether it always asks for every row."""
        return not self._equal and not self._rest

    def lookups(self, frame: Frame) -> Iterator[Clause]:
        """Look-ups that find every row that meets the condition with a row of ``frame``."""
        if not frame.length:
            return
        if self.is_whole:
            yield EVERY_ROW
            return
        columns = [
            evaluate(frame).spread(frame.length).to_arrow(frame.length).to_pylist()
            for _, evaluate in self._parameters
        ]
        rows = list(dict.fromkeys(zip(*columns, strict=True))) if columns else [()]
        if self._equal and len(rows) > 1:
            yield from self._by_keys(rows)
            return
        row_clauses = (self._of_row(row) for row in rows)
        clauses = tuple(dict.fromkeys(clause for clause in row_clauses if clause is not None))
        for start in range(0, len(clauses), _ALTERNATIVES_MAX):
            some = clauses[start : start + _ALTERNATIVES_MAX]
            yield some[0] if len(some) == 1 else AnyOf(some)

    def _by_keys(self, rows: Sequence[Row]) -> Iterator[Clause]:
        """Look-ups by the columns that are compared for equality, and what no row changes."""
        names = tuple(test.column for test in self._equal)
        keys = dict.fromkeys(
            tuple(test.value(row) for test in self._equal)
            for row in rows
            if all(test.may_hold(row) for test in self._equal)
        )
        fixed = tuple(
            clause
            for part in self._rest
            if not any(_parameters(part)) and (clause := _clause(part, ())) is not None
        )
        for some in key_parts(names, tuple(keys)):
            yield AllOf((some, *fixed)) if fixed else some

    def _of_row(self, row: Row) -> Clause | None:
        """The look-up of one row; None if it finds nothing."""
        parts = [_clause(part, row) for part in self._rest]
        if any(part is None for part in parts):
            return None
        if self._equal:
            if not all(test.may_hold(row) for test in self._equal):
                return None
            key = tuple(test.value(row) for test in self._equal)
            parts.insert(0, AnyKey(tuple(test.column for test in self._equal), (key,)))
        clauses = tuple(part for part in parts if part is not None)
        return clauses[0] if len(clauses) == 1 else AllOf(clauses)

    def _part(self, part: BoundExpression, *, negated: bool = False) -> _Part | None:
        """The tests of ``part``, or of its opposite, for a database; None for none."""
        match part:
            case UnaryExpression(UnaryOperator.NOT, operand):
                return self._part(operand, negated=not negated)
            case UnaryExpression(UnaryOperator.IS_NULL, Column() as column):
                if column.step != TABLE_STEP:
                    return None
                how = Comparison.IS_NOT_NULL if negated else Comparison.IS_NULL
                return _Test(column.name, column.type, how)
            case BinaryExpression(BinaryOperator.AND | BinaryOperator.OR):
                is_any = (part.operator is BinaryOperator.OR) is not negated
                return self._group((part.left, part.right), negated, is_any=is_any)
            case BinaryExpression() if not negated:
                return self._compared(part)
            case FunctionCall("str:contains", (Column() as column, text)) if not negated:
                if column.step == TABLE_STEP and column.type is text.type is AttributeType.STRING:
                    return self._test(column, Comparison.CONTAINS, text)
        return None

    def _group(
        self, expressions: Sequence[BoundExpression], negated: bool, *, is_any: bool
    ) -> _Part | None:
        parts = [self._part(one, negated=negated) for one in expressions]
        if is_any and any(part is None for part in parts):
            return None
        members = tuple(part for part in parts if part is not None)
        return _Group(members, is_any) if members else None

    def _compared(self, part: BinaryExpression) -> _Part | None:
        is_equal = part.operator is BinaryOperator.EQUAL
        how = Comparison.EQUAL if is_equal else _ORDERS.get(part.operator)
        if how is None:
            return None
        for column, other, direction in (
            (part.left, part.right, how),
            (part.right, part.left, _MIRRORED[how]),
        ):
            if isinstance(column, Column) and column.step == TABLE_STEP:
                return self._test(column, direction, other)
        return None

    def _test(self, column: Column, how: Comparison, other: BoundExpression) -> _Test | None:
        if other.type is None or AttributeType.OBJECT in (column.type, other.type):
            return None
        is_alike = column.type is other.type or other.type in _ALSO.get(column.type, ())
        has_order = column.type.is_numeric or how in (Comparison.EQUAL, Comparison.CONTAINS)
        if not is_alike or not has_order or not _is_parameter(other):
            return None
        self._parameters.append((other, compile_expression(other)))
        return _Test(column.name, column.type, how, len(self._parameters) - 1)


def _is_parameter(value: BoundExpression) -> bool:
    """Whether a value is known before any row of the table is, and is the same again."""
    return not any(
        (isinstance(part, Column) and part.step == TABLE_STEP)
        or isinstance(part, TableCheck | EventIsNull)
        or (isinstance(part, FunctionCall) and (part.is_script or part.function in _RANDOM))
        for part in walk(value)
    )


def _parameters(part: _Part) -> Iterator[bool]:
    """Of each test in ``part``, whether it has a parameter."""
    if isinstance(part, _Test):
        yield part.parameter >= 0
        return
    for inner in part.parts:
        yield from _parameters(inner)


def key_parts(names: tuple[str, ...], keys: Sequence[Row]) -> Iterator[AnyKey]:
    """Look-ups of any number of keys."""
    for start in range(0, len(keys), KEYS_MAX):
        yield AnyKey(names, tuple(keys[start : start + KEYS_MAX]))


def _clause(part: _Part, row: Row) -> Clause | None:
    """A part with the values of one row; None if it holds for no row of the table."""
    if isinstance(part, _Group):
        clauses = [_clause(inner, row) for inner in part.parts]
        there = tuple(one for one in clauses if one is not None)
        if part.is_any:
            return AnyOf(there) if there else None
        return AllOf(there) if len(there) == len(clauses) else None
    if part.parameter < 0:
        return Compared(part.column, part.how)
    if not part.may_hold(row):
        return None
    return Compared(part.column, part.how, part.value(row))
