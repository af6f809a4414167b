"""``distinctCount`` and ``unionSet``: the distinct values of each group, with counts.

Nulls are values like others here.  A set that ``unionSet`` built keeps a value for good once it has
left and returned: the reference engine does not reset its count when it leaves.

Source: observed on Siddhi 5.1.7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mesh.functions.objects import ValueSet, from_binary, identity, object_array, to_binary
from mesh.functions.vectors import Vector
from mesh.model.types import AttributeType
from mesh.operators.base import CURRENT
from mesh.operators.native import njit
from mesh.operators.select.aggregates import AggregateBatch, GroupColumns
from mesh.operators.select.groups import Groups

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.operators.base import Bools, Kinds, Longs


@njit
def _distinct(
    groups: Longs, kind: Kinds, fresh: Bools, pairs: Longs, counts: Longs, epochs: Longs,
    epoch: Longs, distinct: Longs, out: Longs,
) -> None:  # fmt: skip
    for row in range(len(groups)):
        group = groups[row]
        if group < 0:
            continue
        if fresh[row]:
            distinct[group] = 0
            epoch[group] += 1
        pair = pairs[row]
        if epochs[pair] != epoch[group]:
            # Counts from before the reset of the group are void.
            epochs[pair] = epoch[group]
            counts[pair] = 0
        if kind[row] == 0:
            counts[pair] += 1
            if counts[pair] == 1:
                distinct[group] += 1
        elif counts[pair] > 0:
            counts[pair] -= 1
            if counts[pair] == 0:
                distinct[group] -= 1
        out[row] = distinct[group]


class DistinctCount:
    """``distinctCount(x)``: the number of different values, null included."""

    tells: tuple[str, ...] = ("distinct",)

    def __init__(self, type: AttributeType) -> None:
        self._type = type
        self.columns = GroupColumns(distinct=np.int64, epoch=np.int64)
        self._empty()

    def _empty(self) -> None:
        #: Pairs of a group, in the place of an instance, and a value.
        self._pairs = Groups([self._type], nulls_are_text=False)
        self._counts = GroupColumns(count=np.int64, epoch=np.int64)

    def run(self, values: Vector | None, batch: AggregateBatch) -> Vector:
        """Never null."""
        assert values is not None
        # A skipped row has no group, and needs no pair: it is treated like one that resets.
        kind = np.where(batch.groups < 0, 2, batch.kind).astype(np.int8)
        pairs = self._pairs.number([values], batch.groups, kind)
        self._counts.grow(len(self._pairs))
        out = np.zeros(len(batch), dtype=np.int64)
        _distinct(
            batch.groups, batch.kind, batch.fresh, pairs, self._counts["count"],
            self._counts["epoch"], self.columns["epoch"], self.columns["distinct"], out,
        )  # fmt: skip
        self._sweep()
        return Vector(AttributeType.LONG, out)

    def _live(self) -> tuple[Longs, Longs]:
        """The pairs that count, and their groups."""
        groups = self._pairs.instance_of(0, len(self._pairs))
        count, epoch = self._counts["count"], self._counts["epoch"]
        size = len(groups)
        live = (groups >= 0) & (count[:size] > 0)
        live[live] = epoch[:size][live] == self.columns["epoch"][groups[live]]
        pairs: Longs = np.flatnonzero(live)
        return pairs, groups[pairs]

    def _sweep(self) -> None:
        """Drop pairs that no longer count once most don't."""
        if len(self._pairs) < 1 << 16 or len(self._pairs) < 4 * self.columns["distinct"].sum():
            return
        pairs, groups = self._live()
        self.fill({0: self._piece(pairs, groups)})

    def forget(self, groups: Longs) -> None:
        """Drop the counts of ``groups``."""
        self._counts.forget(self._pairs.forget(groups))

    def _piece(self, pairs: Longs, groups: Longs) -> pa.RecordBatch:
        _, values = self._pairs.to_arrow(0, len(self._pairs))
        return pa.RecordBatch.from_pydict(
            {
                "group": pa.array(groups),
                "value": values.take(pairs),
                "count": pa.array(self._counts["count"][pairs]),
            }
        )

    def lists(self, start: int, stop: int) -> pa.RecordBatch:
        """Group, value and count, for each value that counts."""
        pairs, groups = self._live()
        within = (groups >= start) & (groups < stop)
        order = np.lexsort((pairs[within], groups[within]))
        return self._piece(pairs[within][order], groups[within][order])

    def fill(self, lists: Mapping[int, pa.RecordBatch]) -> None:
        """Replace the content by ``lists``."""
        self._empty()
        for piece in lists.values():
            if not len(piece):
                continue
            groups = piece.column("group").to_numpy()
            pairs = self._pairs.renumber(groups, piece.column("value"))
            self._counts.grow(len(self._pairs))
            self._counts["count"][pairs] = piece.column("count").to_numpy()
            self._counts["epoch"][pairs] = self.columns["epoch"][groups]


class UnionSet:
    """``unionSet(s)``: the values of all sets ``s``; those of expired ones leave it."""

    tells: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.columns = GroupColumns()
        #: By group and the identity of a value: the value, its count, whether it is in the set.
        self._values: dict[int, dict[object, tuple[object, int, bool]]] = {}

    def run(self, values: Vector | None, batch: AggregateBatch) -> Vector:
        """Never null."""
        assert values is not None
        sets = values.spread(len(batch)).values
        out = [ValueSet()] * len(batch)
        for row, group in enumerate(batch.groups.tolist()):
            if group < 0:
                continue
            if batch.fresh[row]:
                self._values.pop(group, None)
            members = self._values.setdefault(group, {})
            if sets[row] is not None:
                self._change(members, sets[row], entering=batch.kind[row] == CURRENT)
            out[row] = ValueSet(value for value, _, inside in members.values() if inside)
        return Vector(AttributeType.OBJECT, object_array(out))

    @staticmethod
    def _change(
        members: dict[object, tuple[object, int, bool]], values: Any, entering: bool
    ) -> None:
        for value in values:
            key = identity(value)
            _, count, inside = members.get(key, (None, 0, False))
            if entering:
                members[key] = (value, count + 1, True)
            elif count == 1:
                members[key] = (value, 1, False)
            elif count:
                members[key] = (value, count - 1, inside)

    def forget(self, groups: Longs) -> None:
        """Drop the sets of ``groups``."""
        for group in groups.tolist():
            self._values.pop(group, None)

    def lists(self, start: int, stop: int) -> pa.RecordBatch:
        """Group, value, count and whether it is in the set, for each value."""
        rows = [
            (group, *entry)
            for group in sorted(g for g in self._values if start <= g < stop)
            for entry in self._values[group].values()
        ]
        return pa.RecordBatch.from_pydict(
            {
                "group": pa.array([row[0] for row in rows], pa.int64()),
                "value": to_binary(object_array([row[1] for row in rows])),
                "count": pa.array([row[2] for row in rows], pa.int64()),
                "inside": pa.array([row[3] for row in rows], pa.bool_()),
            }
        )

    def fill(self, lists: Mapping[int, pa.RecordBatch]) -> None:
        """Replace the content by ``lists``."""
        self._values = {}
        for piece in lists.values():
            values = from_binary(piece.column("value"))
            columns = (piece.column(n).to_pylist() for n in ("group", "count", "inside"))
            for value, group, count, inside in zip(values, *columns, strict=True):
                self._values.setdefault(group, {})[identity(value)] = (value, count, inside)
