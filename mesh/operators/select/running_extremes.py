"""Minimum and maximum without the values of the window: one best value for each group.

Source: observed on Siddhi 5.1.7; tests/cases/operators/aggregates.jsonl.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mesh.functions.vectors import dtype_of
from mesh.operators.native import njit
from mesh.operators.select.aggregates import RunningAggregate

if TYPE_CHECKING:
    from mesh.model.types import AttributeType
    from mesh.operators.base import Bools, Kinds, Longs, Numbers


@njit
def _ever(
    groups: Longs, kind: Kinds, fresh: Bools, values: Numbers, nulls: Bools, counts: Longs,
    best: Numbers, larger: bool, out: Numbers, none: Bools,
) -> bool:  # fmt: skip
    any_null = len(nulls) > 0
    some = False
    for row in range(len(groups)):
        group = groups[row]
        if group < 0:
            none[row] = True
            some = True
            continue
        if fresh[row]:
            counts[group] = 0
        if not (any_null and nulls[row]):
            value = values[row]
            # No value is less or more than a NaN, so a first NaN is never replaced.
            beats = value > best[group] if larger else value < best[group]
            if counts[group] == 0 or beats:
                best[group] = value
            counts[group] = 1
        if counts[group] == 0:
            none[row] = True
            some = True
        out[row] = best[group]
    return some


class _RunningExtreme(RunningAggregate):
    def __init__(self, type: AttributeType, larger: bool, **columns: Any) -> None:
        super().__init__(type, **columns)
        self._larger = larger

    def _state(self, count: int) -> tuple[object, ...]:
        return (*super()._state(count), self._larger)


class ExtremeEver(_RunningExtreme):
    """``minForever(x)``, ``maxForever(x)``: of all values so far, expired ones included.

    ``min(x)`` is the same where nothing expires. A batch window's reset makes it start again.
    """

    _loop = staticmethod(_ever)

    def __init__(self, type: AttributeType, larger: bool) -> None:
        super().__init__(type, larger, count=np.int64, best=dtype_of(type))


@njit
def _since(
    groups: Longs, kind: Kinds, fresh: Bools, values: Numbers, nulls: Bools, is_set: Kinds,
    best: Numbers, larger: bool, out: Numbers, none: Bools,
) -> bool:  # fmt: skip
    any_null = len(nulls) > 0
    some = False
    for row in range(len(groups)):
        group = groups[row]
        if group < 0:
            none[row] = True
            some = True
            continue
        if fresh[row]:
            is_set[group] = 0
        if not (any_null and nulls[row]):
            value = values[row]
            if kind[row] == 0:
                beats = value > best[group] if larger else value < best[group]
                if not is_set[group] or beats:
                    best[group] = value
                is_set[group] = 1
            elif value == best[group] or (value != value and best[group] != best[group]):
                is_set[group] = 0
        if not is_set[group]:
            none[row] = True
            some = True
        out[row] = best[group]
    return some


class ExtremeSince(_RunningExtreme):
    """``min(x)``, ``max(x)`` without the values in the window: since the last one left.

    Where expired events are not emitted, the engine keeps no list of values for windows that it
    treats as batches: when the best value leaves, the next value is the best, regardless of the
    window's content.
    """

    tells: tuple[str, ...] = ("found",)
    _loop = staticmethod(_since)

    def __init__(self, type: AttributeType, larger: bool) -> None:
        super().__init__(type, larger, found=np.int8, best=dtype_of(type))
