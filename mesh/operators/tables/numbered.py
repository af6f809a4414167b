"""A table in a database without a primary key: its rows have numbers, by which they are written.

A row keeps the number with which it was added, and none is given twice, so the database has as many
equal rows as the state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mesh.model.stored import ROW_NUMBER
from mesh.operators.base import State
from mesh.operators.tables.store import SLOT
from mesh.operators.tables.written import WrittenTable

if TYPE_CHECKING:
    from mesh.model.stored import StoreOptions
    from mesh.operators.base import Longs
    from mesh.operators.environment import Environment
    from mesh.plan.bound import BoundTable


class NumberedTable(WrittenTable):
    """The rows of a table in a store, with a number for each."""

    def __init__(
        self, definition: BoundTable, environment: Environment, options: StoreOptions
    ) -> None:
        super().__init__(definition, environment, options)
        #: By slot, and the number of the next row.
        self._numbers: Longs = np.zeros(0, dtype=np.int64)
        self._next = 0

    def fill(self, rows: pa.RecordBatch) -> None:
        """See ``WrittenTable``."""
        rows = rows.sort_by(ROW_NUMBER)
        first = self._slot_count
        super().fill(rows)
        numbers = rows.column(ROW_NUMBER).to_numpy()
        self._numbers[first:] = numbers
        self._next = max(self._next, int(numbers.max(initial=-1)) + 1)

    def _give(self, count: int) -> None:
        super()._give(count)
        self._numbers = np.concatenate([self._numbers, self._next + np.arange(count)])
        self._next += count

    def _pack(self) -> None:
        live, slot_count = self.slots(), self._slot_count
        super()._pack()
        if self._slot_count < slot_count:
            self._numbers = self._numbers[live]

    def _with_numbers(self, rows: pa.RecordBatch, slots: Longs) -> pa.RecordBatch:
        return rows.append_column(ROW_NUMBER, pa.array(self._numbers[slots]))

    def snapshot(self) -> State:
        """See ``Table``."""
        state = super().snapshot()
        pieces = {
            name: self._with_numbers(rows, rows.column(SLOT).to_numpy())
            for name, rows in state.pieces.items()
        }
        return State(pieces, {**state.scalars, "next": self._next})

    def restore(self, state: State) -> None:
        """See ``Table``."""
        super().restore(state)
        scalars: Any = state.scalars
        self._numbers = np.zeros(self._slot_count, dtype=np.int64)
        for rows in state.pieces.values():
            self._numbers[rows.column(SLOT).to_numpy()] = rows.column(ROW_NUMBER).to_numpy()
        self._next = scalars["next"]
