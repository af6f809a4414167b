"""Conditions over a table's rows, compiled once: by primary key or index for equalities.

A condition is evaluated for one event at a time, since an event sees the changes of the previous
one.  It is a look-up of the key, a look-up of an index, or a vectorised scan of every row.  The
rows of a look-up are tested where the condition has further parts.

Two rules of the reference engine that its other comparisons don't have: a null key of text finds
the row with a null key where the condition is nothing but the key; and rows found by comparing
an indexed attribute are listed by its values.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from mesh.language.syntax import BinaryOperator
from mesh.model.types import AttributeType
from mesh.operators.expressions import Frame, TimedByAnother, compile_expression, compile_filter
from mesh.operators.tables.store import python_value
from mesh.plan.bound import BinaryExpression, Column, conjuncts, walk
from mesh.plan.bound.expressions import TABLE_STEP

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mesh.functions.vectors import Vector
    from mesh.operators.base import Bools, Longs
    from mesh.operators.expressions import Key
    from mesh.operators.tables.store import Table
    from mesh.plan.bound import BoundExpression

    Evaluator = Callable[[Frame], Vector]

#: From this number on rows are looked up together rather than each alone.
_MANY = 8
_NONE = np.empty(0, dtype=np.int64)
_WHOLE = (AttributeType.INT, AttributeType.LONG)
_ORDERS = (
    BinaryOperator.LESS,
    BinaryOperator.LESS_OR_EQUAL,
    BinaryOperator.GREATER,
    BinaryOperator.GREATER_OR_EQUAL,
)


class Condition:
    """``on`` over the rows of ``table`` and the columns of a frame; None holds for every row.

    ``is_key``: whether it is an equality of the primary key, and nothing else.
    """

    def __init__(self, on: BoundExpression | None, table: Table) -> None:
        self._table = table
        parts = [] if on is None else list(conjuncts(on))
        # The engine allows any expression here; one that is no condition holds for no row.
        self._never = on is not None and on.type is not AttributeType.BOOL
        equal = _equalities(parts)
        key = [equal[name] for name in table.primary_key if name in equal]
        self._key = key if table.primary_key and len(key) == len(table.primary_key) else None
        self.is_key = self._key is not None and len(parts) == len(table.primary_key)
        self._index: _Equal | None = None
        if self._key is None:
            self._index = next((equal[name] for name in table.indexes if name in equal), None)
        self._listed_by = _listed_by(parts, table)
        self._rest = None if on is None or self.is_key or self._never else compile_filter(on)
        candidates = (e for e in equal.values() if e.type is not AttributeType.OBJECT)
        self._equal = self._index or next(candidates, None)
        #: The last frame evaluated, and by attribute the values that its rows require.
        self._last_frame: Frame | None = None
        self._values: dict[str, list[object]] = {}
        #: The slots by the value of ``_equal``'s attribute, and when that was so.
        self._by_value: tuple[tuple[int, int], dict[object, list[int]]] | None = None

    def find(self, frame: Frame, row: int) -> Longs:
        """The slots of the rows that meet it with row ``row`` of ``frame``, as the engine lists.

        Where it fails on one of them, the row of ``frame`` fails.
        """
        table = self._table
        if self._never:
            return _NONE
        hits: Longs | None = None
        if self._key is not None:
            values = [self._value(equal, frame, row) for equal in self._key]
            slot = table.by_key(values[0] if len(values) == 1 else tuple(values))
            hits = _NONE if slot is None else np.array([slot])
        elif self._index is not None:
            value = self._value(self._index, frame, row)
            hits = _NONE if value is None else table.by_index(self._index.name, value)
        if hits is not None and (self._rest is None or not len(hits)):
            return table.arrange(hits)
        if self._rest is None:
            return table.arrange(table.slots())
        rows = TableFrame(table, hits, frame, np.array([row]))
        if not rows.length:
            return _NONE
        met = self._rest(rows)
        if rows.failures:
            there = table.alive() if hits is None else np.ones(len(hits), dtype=np.bool_)
            for number in sorted(rows.failures):
                if there[number]:
                    frame.failures.setdefault(row, rows.failures[number])
        slots = np.flatnonzero(met & table.alive()) if hits is None else hits[met]
        slots = table.arrange(slots)
        if self._listed_by is not None and len(slots) > 1:
            slots = slots[
                np.argsort(_sortable(table.vector(self._listed_by, slots)), kind="stable")
            ]
        return slots

    def _value(self, equal: _Equal, frame: Frame, row: int) -> object:
        """The value that an attribute has to equal for one row; computed for a whole frame."""
        if frame.length == 1:
            return python_value(equal.value(frame), row)
        if self._last_frame is not frame:
            self._last_frame, self._values = frame, {}
        values = self._values.get(equal.name)
        if values is None:
            values = self._values[equal.name] = equal.values(frame)
        return values[row]

    def pairs(self, frame: Frame) -> tuple[Longs, Longs]:
        """As ``find`` for all rows of ``frame``: the row of each match, and its slot."""
        if frame.length < _MANY or self._never or self._equal is None:
            hits = [self.find(frame, row) for row in range(frame.length)]
            counts = [len(slots) for slots in hits]
            return np.repeat(np.arange(len(hits)), counts), np.concatenate([_NONE, *hits])
        if self._key is not None:
            values = [equal.values(frame) for equal in self._key]
            keys = values[0] if len(values) == 1 else zip(*values, strict=True)
            slot = self._table.by_keys(keys)
            rows = np.flatnonzero(slot >= 0)
            slots = slot[rows]
        else:
            rows, slots = self._alike(self._equal, frame)
        if self._rest is not None and len(rows):
            beside = TableFrame(self._table, slots, frame, rows)
            met = self._rest(beside)
            for pair in sorted(beside.failures):
                frame.failures.setdefault(int(rows[pair]), beside.failures[pair])
            rows, slots = rows[met], slots[met]
        if self._key is None and self._table.primary_key and len(rows):
            ends = np.flatnonzero(rows[1:] != rows[:-1]) + 1
            slots = np.concatenate([self._table.arrange(part) for part in np.split(slots, ends)])
        return rows, slots

    def _alike(self, equal: _Equal, frame: Frame) -> tuple[Longs, Longs]:
        """The pairs that are equal in one attribute, the slots of each row growing."""
        values = equal.values(frame)
        hits: list[Sequence[int]] = []
        if self._index is not None:
            slots_of = {v: self._table.by_index(equal.name, v).tolist() for v in set(values)}
            hits = [() if value is None else slots_of[value] for value in values]
        else:
            get = self._slots_by_value(equal).get
            hits = [get(value, ()) for value in values]
        counts = np.fromiter(map(len, hits), dtype=np.int64, count=len(hits))
        slots = np.fromiter(chain.from_iterable(hits), dtype=np.int64, count=int(counts.sum()))
        return np.repeat(np.arange(len(hits)), counts), slots

    def _slots_by_value(self, equal: _Equal) -> dict[object, list[int]]:
        """The slots by value of an attribute that has no index; made once for each version."""
        version = self._table.version
        if self._by_value is None or self._by_value[0] != version:
            by_value: dict[Any, list[int]] = {}
            alive = self._table.slots()
            values = _listed(self._table.vector(equal.name, alive), len(alive))
            for value, slot in zip(values, alive.tolist(), strict=True):
                if value is not None:
                    by_value.setdefault(value, []).append(slot)
            self._by_value = version, by_value
        return self._by_value[1]

    def any(self, frame: Frame) -> Bools:
        """bool[n], for each row of ``frame`` whether a row of the table meets it."""
        is_met = np.zeros(frame.length, dtype=np.bool_)
        is_met[self.pairs(frame)[0]] = True
        return is_met


@dataclass(frozen=True, slots=True)
class _Equal:
    """``T.name == value``, or the other way round; the value names no column of the table."""

    name: str
    type: AttributeType
    value: Evaluator

    def values(self, frame: Frame) -> list[Any]:
        """By row, the value that the attribute has to equal, as a Python value."""
        return _listed(self.value(frame), frame.length)


def _listed(vector: Vector, length: int) -> list[Any]:
    """The values of a vector as Python values, None for nulls."""
    return vector.spread(length).to_arrow(length).to_pylist()


def _equalities(parts: Sequence[BoundExpression]) -> dict[str, _Equal]:
    """By attribute of the table, the first conjunct that is an equality with it."""
    equalities: dict[str, _Equal] = {}
    for part in parts:
        if not isinstance(part, BinaryExpression) or part.operator is not BinaryOperator.EQUAL:
            continue
        for column, other in ((part.left, part.right), (part.right, part.left)):
            if _is_table_column(column) and not _names_table(other) and _same_kind(column, other):
                assert isinstance(column, Column)
                equal = _Equal(column.name, column.type, compile_expression(other))
                equalities.setdefault(column.name, equal)
    return equalities


def _same_kind(column: BoundExpression, other: BoundExpression) -> bool:
    """Whether Python's equality of their values is the engine's; floats meet others in ways."""
    if column.type is other.type:
        return column.type is not None
    return column.type in _WHOLE and other.type in _WHOLE


def _listed_by(parts: Sequence[BoundExpression], table: Table) -> str | None:
    """The indexed attribute that gives the engine's order, if the whole is one comparison of it."""
    if len(parts) != 1 or not isinstance(parts[0], BinaryExpression):
        return None
    part = parts[0]
    if part.operator not in _ORDERS:
        return None
    for column, other in ((part.left, part.right), (part.right, part.left)):
        if _is_table_column(column) and not _names_table(other):
            assert isinstance(column, Column)
            return column.name if column.name in table.indexes else None
    return None


def _is_table_column(part: BoundExpression) -> bool:
    return isinstance(part, Column) and part.step == TABLE_STEP


def _names_table(part: BoundExpression) -> bool:
    return any(_is_table_column(inner) for inner in walk(part))


def _sortable(vector: Vector) -> Any:
    values = vector.values
    return values.to_numpy(zero_copy_only=False) if not isinstance(values, np.ndarray) else values


class TableFrame(TimedByAnother):
    """Rows of a table, each beside a row of another frame, or all of them beside the same one.

    ``slots``: None for all slots; ``rows``: as many, or one, which broadcasts.
    """

    def __init__(self, table: Table, slots: Longs | None, outer: Frame, rows: Longs) -> None:
        length = len(table.alive()) if slots is None else len(slots)
        super().__init__(length, {}, outer, rows)
        self._table, self._slots = table, slots

    def column(self, column: Column) -> Vector:
        """A column of the table, or of the other frame."""
        if column.step == TABLE_STEP:
            return self._table.vector(column.name, self._slots)
        vector = self._outer.column(column)
        return vector if len(vector) == 1 else vector.take(self._outer_rows)

    def has(self, key: Key) -> bool:
        """Whether there is a column ``key``."""
        return key[0] == TABLE_STEP or self._outer.has(key)
