"""Rows of both sides of a window join, in lists by key: arrays of ``join_loop`` and their state.

Attributes stay in the row stores of the sides.  The snapshot holds the registers alone: they
determine the rows of the stores in the windows, and the lists are rebuilt from those.

Numbers for the values that rows of both sides of a join must have in common.

A key is the partition instance and the values of the columns that the condition compares for
equality.  Rows that meet have the same number; a null equals nothing, nor does NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mesh.language.syntax import BinaryOperator
from mesh.model.types import AttributeType
from mesh.operators.base import NIL
from mesh.operators.expressions import Frame, compile_expression
from mesh.operators.joins import join_loop as m
from mesh.operators.joins.input import INSTANCE
from mesh.operators.select.hashing import RowNumbers, TextNumbers
from mesh.plan.bound import (
    BinaryExpression,
    Column,
    EventIsNull,
    FunctionCall,
    TableCheck,
    conjuncts,
    walk,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mesh.functions.vectors import Vector
    from mesh.operators.base import Bools, EventBatch, Longs
    from mesh.operators.joins.input import NumberedJoinInput
    from mesh.plan.bound import BoundExpression

    Evaluator = Callable[[Frame], Vector]

#: Rows that are gone, before a side is swept.
_SPARE = 4096


class RowLists:
    """The lists of both sides, and the counters of the loop.

    ``sides``: left and right; ``equal``: the values that rows of a pair have in common;
    ``triggers``: by side, whether its events search the other; ``only_current``: whether only
    current events do.
    """

    def __init__(
        self,
        sides: tuple[NumberedJoinInput, NumberedJoinInput],
        equal: Sequence[Equality],
        triggers: tuple[bool, bool],
        timer_path: int,
        *,
        only_current: bool,
    ) -> None:
        self._sides = sides
        self._keys = EquiJoinKeys(equal)
        self._triggers = triggers
        self._timer_path = timer_path
        self._only_current = only_current
        self.clear()

    def clear(self) -> None:
        """Forget all rows; the keys that are known keep their numbers."""
        self.node = np.empty((2, 1024, m.NODE_COLUMNS), dtype=np.int64)
        self.lists = _no_lists(64)
        self.registers = _no_registers(1)
        self.meta = np.zeros(m.COUNTERS, dtype=np.int64)
        self.meta[m.M_PATH], self.meta[m.M_CURRENT] = self._timer_path, self._only_current
        for side, triggers, is_read in zip(
            self._sides, self._triggers, self._triggers[::-1], strict=True
        ):
            self.meta[m.M_TRIGGER + side.step] = triggers
            is_searchable = side.window is not None and not side.hides
            self.meta[m.M_LISTED + side.step] = is_searchable and is_read
            if side.kind is not None and side.kind.keeps_arrival_time:
                self.meta[m.M_KEEPS + side.step] = 1
            if side.kind is not None and side.kind.is_periodic:
                self.meta[m.M_SPAN + side.step] = getattr(side.arguments[0], "value", 0) or 0

    # Rows

    def add(
        self, side: NumberedJoinInput, events: EventBatch, numbers: Longs, ranks: Longs
    ) -> None:
        """Add rows that enter the window of ``side``, with their keys.

        ``ranks``: the place of each event among all that ever arrived on both sides.
        """
        s = side.step
        keys = self._keys.number(s, Frame.of_events(events, s), events.instance)
        self._append(s, numbers, keys, events.instance, ranks)
        instances = int(events.instance.max()) + 1
        if instances > self.registers.shape[1]:
            registers = _no_registers(max(instances, 2 * self.registers.shape[1]))
            registers[:, : self.registers.shape[1]] = self.registers
            self.registers = registers
        if self.meta[m.M_SPAN + s]:
            # Its timers fire forever after the first event of an instance.
            first, at = np.unique(events.instance, return_index=True)
            new = self.registers[s, first, m.R_ARMED] < 0
            first, at = first[new], at[new]
            self.registers[s, first, m.R_ARMED] = 2 * events.clock_ms[at] + 1
            self.registers[s, first, m.R_PLACE] = ranks[at]

    def _append(self, s: int, numbers: Longs, keys: Longs, instances: Longs, ranks: Longs) -> None:
        used = int(self.meta[m.M_USED + s])
        stop = used + len(numbers)
        if stop > self.node.shape[1]:
            node = np.empty((2, max(stop, 2 * self.node.shape[1]), m.NODE_COLUMNS), dtype=np.int64)
            node[:, : self.node.shape[1]] = self.node
            self.node = node
        new = self.node[s, used:stop]
        new[:, m.ID], new[:, m.KEY], new[:, m.INSTANCE] = numbers, keys, instances
        new[:, m.NEXT] = new[:, m.BEFORE] = NIL
        new[:, m.STATE], new[:, m.RANK] = m.WAITING, ranks
        self.meta[m.M_USED + s] = stop
        if len(self._keys) > self.lists.shape[1]:
            lists = _no_lists(max(len(self._keys), 2 * self.lists.shape[1]))
            lists[:, : self.lists.shape[1]] = self.lists
            self.lists = lists

    def forget(self, instances: Longs) -> None:
        """Drop the rows of these partition instances."""
        for s in (0, 1):
            for instance in instances.tolist():
                if instance < self.registers.shape[1]:
                    m.forget_instance(self.node, self.lists, self.registers, self.meta, s, instance)
        self.meta[m.M_STEPS] += 1

    # Room

    def sweep(self) -> None:
        """Drop rows that are gone, once they are many."""
        meta = self.meta
        for side in self._sides:
            s = side.step
            used, gone = int(meta[m.M_USED + s]), int(meta[m.M_GONE + s])
            if gone < _SPARE or 2 * gone < used:
                continue
            m.compact(self.node, self.lists, meta, s)
            live = self.node[s, : meta[m.M_USED + s], m.ID]
            side.rows.release_below(int(live[0]) if len(live) else side.rows.came)
            if side.rows.count > 2 * len(live) + _SPARE:
                side.rows.keep(live.copy())
        used = int(meta[m.M_USED]) + int(meta[m.M_USED_RIGHT])
        if self._keys.is_sparse(used):
            self._renumber()

    def _renumber(self) -> None:
        """Renumber the keys: those without a row are forgotten."""
        parts = [self.node[s, : self.meta[m.M_USED + s], m.KEY] for s in (0, 1)]
        together = np.concatenate(parts)
        live_keys = np.unique(together[together >= 0])
        self._keys.renumber(live_keys)
        lists = _no_lists(max(len(live_keys), 64))
        lists[:, : len(live_keys)] = self.lists[:, live_keys]
        self.lists = lists
        for keys in parts:
            real = keys >= 0
            keys[real] = np.searchsorted(live_keys, keys[real])

    # State

    def snapshot(self) -> pa.RecordBatch:
        """The registers, a row for each partition instance."""
        places = [(s, r) for s in (0, 1) for r in range(m.REGISTERS)]
        return pa.RecordBatch.from_arrays(
            [pa.array(self.registers[s, :, r].copy()) for s, r in places],
            schema=pa.schema([pa.field(f"{s}-{r}", pa.int64()) for s, r in places]),
        )

    def restore(self, stored: pa.RecordBatch, steps: int) -> None:
        """Restore registers; the stores of both sides have been restored.

        ``steps``: the value of the counter of steps.
        """
        self.clear()
        self._keys.clear()
        self.meta[m.M_STEPS] = steps
        self.registers = np.empty((2, stored.num_rows, m.REGISTERS), dtype=np.int64)
        for s in (0, 1):
            for r in range(m.REGISTERS):
                self.registers[s, :, r] = stored.column(f"{s}-{r}").to_numpy()
        for side in self._sides:
            numbers, rows = side.rows.all()
            if len(numbers):
                instances = rows.column(INSTANCE).to_numpy()
                keys = self._keys.number(side.step, Frame.of_rows(rows, side.step), instances)
                self._append(side.step, numbers, keys, instances, np.zeros_like(numbers))
        for s in (0, 1):
            m.settle(self.node, self.lists, self.registers, self.meta, s)


def _no_registers(instances: int) -> Longs:
    return np.tile(m.NEW, (2, instances, 1))


def _no_lists(keys: int) -> Longs:
    lists = np.zeros((2, keys, m.LIST_COLUMNS), dtype=np.int64)
    lists[:, :, [m.HEAD, m.TAIL]] = NIL
    return lists


_WHOLE = (AttributeType.INT, AttributeType.LONG)
_NO_TEXT: Any = ""
#: Numbers of unused keys that are kept before all keys are numbered again.
_SPARE_KEYS = 65_536


@dataclass(frozen=True, slots=True)
class Equality:
    """``left side's expression == right side's``, of one notion of equality."""

    type: AttributeType
    sides: tuple[Evaluator, Evaluator]


def split(on: BoundExpression | None) -> tuple[list[Equality], list[BoundExpression]]:
    """The conjuncts that are equalities between the sides, and the others."""
    equal: list[Equality] = []
    rest: list[BoundExpression] = []
    for part in () if on is None else conjuncts(on):
        equality = _equality(part)
        if equality is None:
            rest.append(part)
        else:
            equal.append(equality)
    return equal, rest


def _equality(part: BoundExpression) -> Equality | None:
    if not isinstance(part, BinaryExpression) or part.operator is not BinaryOperator.EQUAL:
        return None
    steps = [_steps(side) for side in (part.left, part.right)]
    types = [side.type for side in (part.left, part.right)]
    type = types[0]
    if type is None or type is AttributeType.OBJECT or steps not in ([{0}, {1}], [{1}, {0}]):
        return None
    if type is not types[1] and not (type in _WHOLE and types[1] in _WHOLE):
        return None
    left, right = (part.left, part.right) if steps[0] == {0} else (part.right, part.left)
    return Equality(type, (compile_expression(left), compile_expression(right)))


def _steps(expression: BoundExpression) -> set[int | None]:
    """The sides with columns in it; with None among them, it may not be computed beforehand."""
    steps: set[int | None] = set()
    for part in walk(expression):
        if isinstance(part, Column):
            steps.add(part.step)
        elif isinstance(part, EventIsNull | TableCheck | FunctionCall):
            # A function may fail, or depend on more than its arguments.
            steps.add(None)
    return steps


class EquiJoinKeys:
    """The numbers in use."""

    def __init__(self, equal: Sequence[Equality]) -> None:
        self._equal = equal
        self._rows = RowNumbers(1 + len(equal))
        self._texts = self._no_texts()

    def __len__(self) -> int:
        return self._rows.count

    def _no_texts(self) -> list[TextNumbers | None]:
        return [TextNumbers() if e.type is AttributeType.STRING else None for e in self._equal]

    def number(self, side: int, frame: Frame, instance: Longs) -> Longs:
        """The number of each row of ``frame``; -1 where it can equal none."""
        length = len(instance)
        rows = np.empty((length, 1 + len(self._equal)), dtype=np.int64)
        rows[:, 0] = instance
        skip = np.zeros(length, dtype=np.bool_)
        for column, (equality, texts) in enumerate(zip(self._equal, self._texts, strict=True)):
            vector = equality.sides[side](frame).spread(length)
            skip |= vector.null_mask
            if texts is not None:
                rows[:, column + 1] = texts.number(pc.fill_null(vector.values, _NO_TEXT))
            else:
                rows[:, column + 1], nan = _bits(vector.values)
                if nan is not None:
                    skip |= nan
        return self._rows.number(rows, skip)

    def is_sparse(self, used: int) -> bool:
        """True if most numbers are unused; ``used``: how many may be in use."""
        return len(self) > 2 * used + _SPARE_KEYS

    def renumber(self, used: Longs) -> None:
        """Give the keys numbered ``used`` the numbers 0, 1 .. in that order; forget the others."""
        rows = self._rows.keys[used].copy()
        for column, texts in enumerate(self._texts):
            if texts is not None:
                new_texts = TextNumbers()
                rows[:, column + 1] = new_texts.number(texts.take(pa.array(rows[:, column + 1])))
                self._texts[column] = new_texts
        self._rows = RowNumbers(1 + len(self._equal))
        self._rows.number(rows, np.zeros(len(rows), dtype=np.bool_))

    def clear(self) -> None:
        """Forget all."""
        self._rows = RowNumbers(1 + len(self._equal))
        self._texts = self._no_texts()


def _bits(values: Any) -> tuple[Longs, Bools | None]:
    """Values as whole numbers, equal if the values are; and a mask of values that equal nothing."""
    if values.dtype.kind != "f":
        return values.astype(np.int64), None
    # Adding zero makes one of both zeros.
    wide = values.astype(np.float64) + 0.0
    return wide.view(np.int64), np.isnan(wide)
