"""A table of a stored state, for readers: columns stay in Arrow, as they are in its pieces.

To restore a ``Table`` takes time for each row, for its keys and indexes.  A reader that asks once
needs a scan of one column instead, which takes a thousandth of that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mesh.functions.vectors import from_arrow
from mesh.model.types import AttributeType
from mesh.operators.base import concat
from mesh.operators.tables.app_table import AppTable
from mesh.operators.tables.order import places_of_texts
from pyspark_nats.arrow import kernels

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mesh.functions.vectors import Vector
    from mesh.operators.base import Bools, Longs, State
    from mesh.operators.expressions import Environment
    from mesh.operators.tables.order import Key
    from mesh.plan.bound import BoundTable

_SLOT = "#slot"


class FrozenRows(AppTable):
    """The rows of a table as they were stored; they can't be changed.

    Slots are numbered without gaps, in the order of the table's.
    """

    def __init__(self, definition: BoundTable, environment: Environment, state: State) -> None:
        """The table of ``state``, a snapshot of a ``Table``; empty for an empty state."""
        super().__init__(definition, environment)
        self._rows: pa.RecordBatch = pa.RecordBatch.from_pylist([], self.schema.arrow)
        self._by_key: dict[Key, int] | None = None
        scalars = state.scalars
        if not scalars:
            return
        self._buckets = scalars["buckets"]
        names = [f"rows-{piece}-{changed}" for piece, changed in scalars["changed"]]
        stored = [state.pieces[name] for name in names if name in state.pieces]
        if stored:
            rows = concat(stored)
            slots = rows.column(_SLOT).to_numpy()
            if not (slots[1:] > slots[:-1]).all():
                rows = rows.take(np.argsort(slots))
            self._rows = rows.select(self.schema.arrow.names)

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    def vector(self, name: str, slots: Longs | None = None) -> Vector:
        """See ``Table.vector``."""
        array = self._rows.column(name)
        type_ = self._columns[name].type
        return from_arrow(array if slots is None else array.take(slots), type_)

    def slots(self) -> Longs:
        """See ``Table.slots``."""
        return np.arange(len(self))

    def alive(self) -> Bools:
        """All of them."""
        return np.ones(len(self), dtype=np.bool_)

    def by_key(self, key: Key) -> int | None:
        """See ``Table.by_key``: a scan of the key's columns."""
        parts = key if len(self.primary_key) > 1 else (key,)
        met: Bools = np.ones(len(self), dtype=np.bool_)
        for name, part in zip(self.primary_key, parts, strict=True):
            met &= self._equal(name, part)
        slots = np.flatnonzero(met)
        return int(slots[0]) if len(slots) else None

    def by_keys(self, keys: Iterable[Key]) -> Longs:
        """See ``Table.by_keys``."""
        if self._by_key is None:
            columns = [self._rows.column(name).to_pylist() for name in self.primary_key]
            row_keys = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
            self._by_key = {key: slot for slot, key in enumerate(row_keys)}
        get = self._by_key.get
        return np.array([get(key, -1) for key in keys], dtype=np.int64)

    def by_index(self, name: str, value: object) -> Longs:
        """See ``Table.by_index``: a scan of the column."""
        return np.flatnonzero(self._equal(name, value))

    def take(self, slots: Longs, names: Sequence[str] | None = None) -> pa.RecordBatch:
        """See ``Table.take``."""
        rows = self._rows if names is None else self._rows.select(list(names))
        return rows if len(slots) == len(self) and _is_whole(slots) else rows.take(slots)

    def arrange(self, slots: Longs) -> Longs:
        """See ``Table.arrange``."""
        if not self.primary_key or self._sorted or len(slots) < 2:
            return super().arrange(slots)
        if self._key_types == (AttributeType.STRING,):
            keys = self._rows.column(self.primary_key[0]).take(slots)
            places = places_of_texts(keys, self._buckets)
            if places is not None:
                return slots[np.argsort(places, kind="stable")]
        return super().arrange(slots)

    def _equal(self, name: str, value: object) -> Bools:
        array = self._rows.column(name)
        if value is None:
            mask = kernels.is_null(array)
        else:
            mask = kernels.equal(array, pa.scalar(value, array.type)).fill_null(False)
        result: Bools = mask.to_numpy(zero_copy_only=False)
        return result

    def _key_at(self, slot: int) -> Key:
        parts = tuple(self._rows.column(name)[slot].as_py() for name in self.primary_key)
        return parts[0] if len(parts) == 1 else parts


def _is_whole(slots: Longs) -> bool:
    return bool((slots == np.arange(len(slots))).all())
