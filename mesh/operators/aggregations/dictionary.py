"""Numbers for keys: of groups, and of the values in sets; those in no use are freed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mesh.functions.vectors import Vector, dtype_of
from mesh.model.types import AttributeType
from mesh.operators.base import State
from mesh.operators.select.groups import Groups
from mesh.operators.state.range_pieces import PagedPieces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.operators.base import Longs
    from pyspark_nats.arrow import ArrowArray

#: Keys that may be in no use before all are numbered again.
_SPARE = 4096


class KeyNumbers:
    """Numbers of different keys of ``types``, from 0 on; without types there is one key, 0.

    ``nulls_are_text``: whether a null string is the same as the text ``null``.
    """

    def __init__(self, types: Sequence[AttributeType], *, nulls_are_text: bool) -> None:
        self.types = tuple(types)
        self._nulls_are_text = nulls_are_text
        self._groups = Groups(self.types, nulls_are_text=nulls_are_text)
        self._pages = PagedPieces("keys")
        #: By column the values of the first keys, made on request.
        self._values: dict[int, tuple[int, Vector]] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def number(self, keys: Sequence[Vector], count: int, version: str) -> Longs:
        """int64[count], the numbers of keys, one vector a type.

        ``version``: of the whole state after the change, here and below.
        """
        before = len(self)
        numbers = self._number(keys, count)
        if self.types and len(self) > before:
            self._pages.touch_added(before, len(self), version)
        return numbers

    def _number(self, keys: Sequence[Vector], count: int) -> Longs:
        zeros = np.zeros(count, dtype=np.int64)
        return np.ascontiguousarray(self._groups.number(keys, zeros, zeros.astype(np.int8)))

    def find(self, keys: Sequence[Vector]) -> int:
        """The number of a key, one vector of length 1 a type; -1 if there is none."""
        return self._groups.find(keys)

    def values(self, column: int) -> Vector:
        """One column of all keys, by number."""
        cached = self._values.get(column)
        if cached is None or cached[0] != len(self):
            _, *columns = self._groups.to_arrow(0, len(self))
            cached = len(self), _decoded(columns[column], self.types[column])
            self._values[column] = cached
        return cached[1]

    def renumbering(self, used: Longs, version: str) -> Longs | None:
        """New numbers by present ones, after most keys are in no use; None if that is not so.

        ``used``: the numbers that are in use, with repetitions.  The numbers of other keys have no
        meaning then.
        """
        count = len(self)
        if not self.types or count < _SPARE:
            return None
        is_used = np.zeros(count, dtype=np.bool_)
        is_used[used] = True
        live = np.flatnonzero(is_used)
        if 2 * len(live) > count:
            return None
        columns = [self.values(column).take(live) for column in range(len(self.types))]
        self._groups = Groups(self.types, nulls_are_text=self._nulls_are_text)
        self._values = {}
        new = np.full(count, -1, dtype=np.int64)
        if len(live):
            new[live] = self._number(columns, len(live))
        self._pages.touch_from(0, len(self), version)
        return new

    def snapshot(self) -> State:
        """All keys, in order."""
        if not self.types:
            return State({}, {"count": len(self)})
        pieces = self._pages.pieces(self._piece, len(self))
        return State(pieces, {"keys": self._pages.names})

    def _piece(self, start: int, stop: int) -> pa.RecordBatch:
        _, *columns = self._groups.to_arrow(start, stop)
        names = [str(column) for column in range(len(columns))]
        return pa.RecordBatch.from_arrays(columns, names=names)

    def restore(self, state: State) -> None:
        """Restore no keys to those of ``snapshot``."""
        if not self.types:
            count = state.scalars["count"]
            if count:
                self._number([], 1)
            return
        names = state.scalars["keys"]
        for piece in self._pages.restore_named(names, state.pieces):
            decoded = [
                _decoded(column, type)
                for column, type in zip(piece.columns, self.types, strict=True)
            ]
            self._number([one.spread(len(piece)) for one in decoded], len(piece))


def _decoded(column: ArrowArray, type: AttributeType) -> Vector:
    """Values from the form in which ``Groups`` has them: numbers are whole ones of equal bits."""
    if type is AttributeType.STRING:
        return Vector(type, column)
    nulls = column.is_null().to_numpy(zero_copy_only=False)
    bits = column.fill_null(0).to_numpy(zero_copy_only=False)
    dtype = dtype_of(type)
    if dtype.kind == "f":
        bits = bits.astype(np.int64 if dtype.itemsize == 8 else np.int32).view(dtype)
    return Vector(type, bits.astype(dtype), nulls if nulls.any() else None)
