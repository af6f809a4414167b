"""Numbers for the values that rows of both sides of a join must have in common.

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
from mesh.operators.expressions import compile_expression
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
    from mesh.operators.base import Bools, Longs
    from mesh.operators.expressions import Frame
    from mesh.plan.bound import BoundExpression

    Evaluator = Callable[[Frame], Vector]

_WHOLE = (AttributeType.INT, AttributeType.LONG)
_NO_TEXT: Any = ""
#: Numbers of unused keys that are kept before all keys are numbered again.
_SPARE = 65_536


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
        return len(self) > 2 * used + _SPARE

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
