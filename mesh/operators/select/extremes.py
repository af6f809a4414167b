"""Min and max over a window's content: for each group a list of the values that can still win.

A value counts only until a smaller one (for min) arrives, so the list rises from the best to the
newest.  A leaving value removes the oldest equal value of the list, and the first of the remaining
list is the result.  The reference engine does the same, and these are its results.  Where an equal,
older value leaves after a smaller one arrived between them, the newer one is removed instead.  A
NaN, which compares as neither less nor more, hides the values after it.

Source: observed on Siddhi 5.1.7; tests/cases/operators/aggregates.jsonl.

Minimum and maximum without the values of the window: one best value for each group.

Source: observed on Siddhi 5.1.7; tests/cases/operators/aggregates.jsonl.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mesh.functions.vectors import dtype_of
from mesh.operators.native import (
    BOOL1,
    BOOL_READ1,
    BYTE1,
    BYTE_READ1,
    LONG1,
    READ1,
    bare,
    buffer_of,
    inner,
    njit,
    types,
)
from mesh.operators.select.aggregates import GroupColumns, RunningAggregate
from mesh.operators.select.hashing import more_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numba.core.typing.templates import Signature

    from mesh.model.types import AttributeType
    from mesh.operators.base import Bools, Kinds, Longs, Numbers


#: Columns of ``_links``: the neighbours of a list's element, as their numbers plus one; 0 for none.
_NEXT, _BEFORE = 0, 1
#: ``_pool``: elements ever used, the first free one plus one, whether a NaN has ever arrived.
_USED, _FREE, _NAN = 0, 1, 2


@inner
def _unlink(links: Longs, pool: Longs, heads: Longs, tails: Longs, group: int, node: int) -> None:
    after, before = links[node, 0], links[node, 1]
    if before:
        links[before - 1, 0] = after
    else:
        heads[group] = after
    if after:
        links[after - 1, 1] = before
    else:
        tails[group] = before
    links[node, 0] = pool[1]
    pool[1] = node + 1


@inner
def _append(
    values: Numbers, links: Longs, pool: Longs, heads: Longs, tails: Longs, group: int, value: float
) -> None:
    if pool[1]:
        node = pool[1] - 1
        pool[1] = links[node, 0]
    else:
        node = pool[0]
        pool[0] += 1
    values[node] = value
    last = tails[group]
    links[node, 0] = 0
    links[node, 1] = last
    if last:
        links[last - 1, 0] = node + 1
    else:
        heads[group] = node + 1
    tails[group] = node + 1


@inner
def _clear(links: Longs, pool: Longs, heads: Longs, tails: Longs, group: int) -> None:
    while heads[group]:
        _unlink(links, pool, heads, tails, group, heads[group] - 1)


@inner
def _same(a: float, b: float) -> bool:
    """Whether two values are equal as objects in Java: NaN equals itself, 0.0 is not -0.0."""
    if a != a:
        return b != b
    if a == 0 and b == 0:
        return bool(np.copysign(1.0, a) == np.copysign(1.0, b))
    return a == b


@bare
def _extremes(
    groups: Longs, kind: Kinds, fresh: Bools, came: Numbers, nulls: Bools, is_set: Kinds,
    best: Numbers, larger: bool, heads: Longs, tails: Longs, values: Numbers, links: Longs,
    pool: Longs, out: Numbers, none: Bools,
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
            _clear(links, pool, heads, tails, group)
            is_set[group] = 0
        if not (any_null and nulls[row]):
            value = came[row]
            if value != value:
                pool[2] = 1
            if kind[row] == 0:
                while tails[group]:
                    last = values[tails[group] - 1]
                    if not (last < value if larger else last > value):
                        break
                    _unlink(links, pool, heads, tails, group, tails[group] - 1)
                _append(values, links, pool, heads, tails, group, value)
                beats = value > best[group] if larger else value < best[group]
                if not is_set[group] or beats:
                    best[group] = value
                is_set[group] = 1
            else:
                node = heads[group]
                while node:
                    other = values[node - 1]
                    if _same(other, value):
                        _unlink(links, pool, heads, tails, group, node - 1)
                        break
                    # After the first worse value there is no equal one.
                    if not pool[2] and (other < value if larger else other > value):
                        break
                    node = links[node - 1, 0]
                is_set[group] = 1 if heads[group] else 0
                if heads[group]:
                    best[group] = values[heads[group] - 1]
        if is_set[group]:
            out[row] = best[group]
        else:
            none[row] = True
            some = True
    return some


@bare
def _clear_all(groups: Longs, links: Longs, pool: Longs, heads: Longs, tails: Longs) -> None:
    for group in groups:
        _clear(links, pool, heads, tails, group)


@njit
def _lists(
    start: int, stop: int, heads: Longs, values: Numbers, links: Longs, lengths: Longs
) -> Numbers:
    """The values in the lists of groups ``start`` to below ``stop``, and how many each has."""
    count = 0
    for group in range(start, stop):
        node = heads[group]
        while node:
            lengths[group - start] += 1
            count += 1
            node = links[node - 1, 0]
    out = np.empty(count, dtype=values.dtype)
    count = 0
    for group in range(start, stop):
        node = heads[group]
        while node:
            out[count] = values[node - 1]
            count += 1
            node = links[node - 1, 0]
    return out


@bare
def _fill(
    start: int, lengths: Longs, filled: Numbers, heads: Longs, tails: Longs, values: Numbers,
    links: Longs, pool: Longs,
) -> None:  # fmt: skip
    at = 0
    for index in range(len(lengths)):
        for _ in range(lengths[index]):
            if filled[at] != filled[at]:
                pool[2] = 1
            _append(values, links, pool, heads, tails, start + index, filled[at])
            at += 1


class WindowExtreme(RunningAggregate):
    """``min(x)``, ``max(x)`` over the values in the window, by group; null over none."""

    tells: tuple[str, ...] = ("found",)

    _loop = staticmethod(_extremes)

    def __init__(self, type: AttributeType, larger: bool) -> None:
        super().__init__(type, found=np.int8, best=dtype_of(type))
        self._larger = larger
        self._empty()

    def _empty(self) -> None:
        self._ends = GroupColumns(heads=np.int64, tails=np.int64)
        self._values: Numbers = np.zeros(0, dtype=dtype_of(self._type))
        self._links: Longs = np.zeros((0, 2), dtype=np.int64)
        self._pool: Longs = np.zeros(3, dtype=np.int64)

    def _state(self, count: int) -> tuple[object, ...]:
        columns, ends = super()._state(count), self._ends
        self._room(len(self.columns["best"]), count)
        lists = (ends["heads"], ends["tails"], self._values, self._links, self._pool)
        return (*columns, self._larger, *lists)

    def _room(self, groups: int, more: int) -> None:
        self._ends.grow(groups)
        needed = int(self._pool[_USED]) + more
        self._values = more_rows(self._values, needed)
        self._links = more_rows(self._links, needed)

    def forget(self, groups: Longs) -> None:
        """Drop the lists of ``groups``."""
        self._ends.grow(len(self.columns["best"]))
        ends = self._ends
        _clear_all(groups, self._links, self._pool, ends["heads"], ends["tails"])

    def lists(self, start: int, stop: int) -> pa.RecordBatch:
        """One row: the number of values of each group from ``start`` on, and all these values."""
        self._ends.grow(stop)
        lengths = np.zeros(stop - start, dtype=np.int64)
        values = _lists(start, stop, self._ends["heads"], self._values, self._links, lengths)
        return pa.RecordBatch.from_pydict(
            {
                "lengths": pa.array([lengths], pa.list_(pa.int64())),
                "values": pa.array([values], pa.list_(self._type.arrow)),
            }
        )

    def fill(self, lists: Mapping[int, pa.RecordBatch]) -> None:
        """Replace all lists, by the number of the first group."""
        self._empty()
        for start, piece in lists.items():
            columns: Any = piece.columns
            lengths, values = (column.values.to_numpy().copy() for column in columns)
            self._room(start + len(lengths), len(values))
            _fill(
                start, lengths, values, self._ends["heads"], self._ends["tails"], self._values,
                self._links, self._pool,
            )  # fmt: skip


def _running(count: Any) -> list[Signature]:
    """Signatures by the type of the values; ``count``: the type of what is kept beside them."""
    return [
        types.boolean(
            READ1, BYTE_READ1, BOOL_READ1, buffer_of(type), BOOL_READ1,
            count, types.Array(type, 1, "C"), types.boolean, types.Array(type, 1, "C"), BOOL1,
        )
        for type in (types.int32, types.int64, types.float32, types.float64)
    ]  # fmt: skip


@njit(_running(LONG1))
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


@njit(_running(BYTE1))
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
