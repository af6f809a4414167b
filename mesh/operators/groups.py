"""Numbers for the groups of ``group by``, given in the order of their first event.

Keys are compared as the reference engine does: a null string and the text ``null`` are one group,
NaN equals itself, and 0.0 and -0.0 are two.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mesh.functions.vectors import Vector, dtype_of
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.operators.base import Longs

Key = tuple[Any, ...]


class Groups:
    """The numbers given so far."""

    def __init__(self, types: Sequence[AttributeType]) -> None:
        self._types = tuple(types)
        self._numbers: dict[Key, int] = {}
        if not types:
            self._numbers[()] = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, keys: Sequence[Vector], length: int) -> Longs:
        """The group of each row; ``keys`` are the group-by columns, each of ``length`` rows."""
        if not self._types or not length:
            return np.zeros(length, dtype=np.int64)
        combined = np.zeros(length, dtype=np.int64)
        for key in keys:
            codes = _codes(key.spread(length))
            _, combined = np.unique(combined * (int(codes.max()) + 1) + codes, return_inverse=True)
        _, rows, inverse = np.unique(combined, return_index=True, return_inverse=True)
        # New groups are numbered in the order of their first row, whatever the codes are.
        numbers = np.empty(len(rows), dtype=np.int64)
        by_arrival = np.argsort(rows, kind="stable")
        taken = [_plain(key.spread(length), rows[by_arrival]) for key in keys]
        known = self._numbers
        for place, values in zip(by_arrival.tolist(), zip(*taken, strict=True), strict=True):
            numbers[place] = known.setdefault(values, len(known))
        return numbers[inverse]

    def to_arrow(self, start: int, stop: int) -> list[pa.Array[Any]]:
        """The key columns of the groups numbered ``start`` to below ``stop``, in order."""
        keys = list(islice(self._numbers, start, stop))
        columns = zip(*keys, strict=True) if keys else [()] * len(self._types)
        return [
            pa.array(column, pa.string() if t is AttributeType.STRING else pa.int64())
            for column, t in zip(columns, self._types, strict=True)
        ]

    def restore(self, columns: Sequence[pa.Array[Any]]) -> None:
        """Take over the groups of ``to_arrow``."""
        if self._types:
            keys = zip(*(column.to_pylist() for column in columns), strict=True)
            self._numbers = {key: number for number, key in enumerate(keys)}


def _codes(key: Vector) -> Longs:
    if key.type is AttributeType.STRING:
        indices = key.values.fill_null("null").dictionary_encode().indices
        return np.asarray(indices.to_numpy(zero_copy_only=False)).astype(np.int64)
    bits, nulls = _bits(key)
    _, codes = np.unique(bits, return_inverse=True)
    return np.where(nulls, 0, codes + 1)


def _bits(key: Vector) -> tuple[Longs, Any]:
    """Values as whole numbers that are equal when the values are the same for grouping."""
    values = key.values
    if values.dtype.kind == "f":
        values = np.where(np.isnan(values), np.nan, values).astype(values.dtype)
        values = values.view(np.int64 if dtype_of(key.type).itemsize == 8 else np.int32)
    return values.astype(np.int64), key.null_mask


def _plain(key: Vector, rows: Longs) -> list[Any]:
    """The values at ``rows`` as hashable Python values; numbers by their bits."""
    taken = key if len(key) == 1 else key.take(rows)
    if key.type is AttributeType.STRING:
        values: list[Any] = taken.values.fill_null("null").to_pylist()
        return values
    bits, nulls = _bits(taken)
    return [None if n else b for b, n in zip(bits.tolist(), nulls.tolist(), strict=True)]
