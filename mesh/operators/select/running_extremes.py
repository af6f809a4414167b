"""Minimum and maximum without the values of the window: one best value for each group.

Source: observed on Siddhi 5.1.7; tests/cases/operators/aggregates.jsonl.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mesh.functions.vectors import Vector, dtype_of
from mesh.operators.native import njit
from mesh.operators.select.aggregates import Columns, native_of

if TYPE_CHECKING:
    from mesh.model.types import AttributeType
    from mesh.operators.select.aggregates import Batch


@njit
def _ever(
    groups: Any, fresh: Any, values: Any, nulls: Any, larger: bool, counts: Any, best: Any,
    out: Any, none: Any,
) -> Any:  # fmt: skip
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
            # Nothing is less or more than a NaN, so one that came first stays for ever.
            beats = value > best[group] if larger else value < best[group]
            if counts[group] == 0 or beats:
                best[group] = value
            counts[group] = 1
        if counts[group] == 0:
            none[row] = True
            some = True
        out[row] = best[group]
    return some


class ExtremeEver:
    """``minForever(x)``, ``maxForever(x)``: of all values so far, also those that have left.

    So is ``min(x)`` where nothing leaves.  A batch window's reset makes it begin anew.
    """

    tells: tuple[str, ...] = ("count",)

    def __init__(self, type: AttributeType, larger: bool) -> None:
        self._type = type
        self._larger = larger
        self.columns = Columns(count=np.int64, best=dtype_of(type))

    def run(self, values: Vector | None, batch: Batch) -> Vector:
        """Null over no values."""
        assert values is not None
        numbers, nulls = native_of(values, len(batch))
        out = np.zeros(len(batch), dtype=numbers.dtype)
        none = np.zeros(len(batch), dtype=np.bool_)
        columns = self.columns
        some = _ever(
            batch.groups, batch.fresh, numbers, nulls, self._larger, columns["count"],
            columns["best"], out, none,
        )  # fmt: skip
        return Vector(self._type, out, none if some else None)


@njit
def _since(
    groups: Any, kind: Any, fresh: Any, values: Any, nulls: Any, larger: bool, found: Any,
    best: Any, out: Any, none: Any,
) -> Any:  # fmt: skip
    any_null = len(nulls) > 0
    some = False
    for row in range(len(groups)):
        group = groups[row]
        if group < 0:
            none[row] = True
            some = True
            continue
        if fresh[row]:
            found[group] = 0
        if not (any_null and nulls[row]):
            value = values[row]
            if kind[row] == 0:
                beats = value > best[group] if larger else value < best[group]
                if not found[group] or beats:
                    best[group] = value
                found[group] = 1
            elif value == best[group] or (value != value and best[group] != best[group]):
                found[group] = 0
        if not found[group]:
            none[row] = True
            some = True
        out[row] = best[group]
    return some


class ExtremeSince:
    """``min(x)``, ``max(x)`` where the values in the window are not known: since the last one left.

    Where what leaves goes no further the engine keeps no list of them for windows that it takes for
    batches: when the best value leaves, the next that comes is the best, whatever else is there.
    """

    tells: tuple[str, ...] = ("found",)

    def __init__(self, type: AttributeType, larger: bool) -> None:
        self._type = type
        self._larger = larger
        self.columns = Columns(found=np.int8, best=dtype_of(type))

    def run(self, values: Vector | None, batch: Batch) -> Vector:
        """Null over no values."""
        assert values is not None
        numbers, nulls = native_of(values, len(batch))
        out = np.zeros(len(batch), dtype=numbers.dtype)
        none = np.zeros(len(batch), dtype=np.bool_)
        columns = self.columns
        some = _since(
            batch.groups, batch.kind, batch.fresh, numbers, nulls, self._larger, columns["found"],
            columns["best"], out, none,
        )  # fmt: skip
        return Vector(self._type, out, none if some else None)
