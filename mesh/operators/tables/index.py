"""Index of one attribute of a table: the slots of the rows with each value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mesh.operators.base import Longs
    from mesh.operators.tables.columns import TableColumn


class AttributeIndex:
    """Slots by the value in ``column``; ``slots``: the initial rows."""

    def __init__(self, column: TableColumn, slots: Iterable[int] = ()) -> None:
        self._column = column
        #: By value, the slots as a set that keeps their sequence.
        self._slots: dict[Any, dict[int, None]] = {}
        for slot in slots:
            self.add(slot)

    def slots(self, value: Any) -> Longs:
        """The slots of the rows with ``value``, ascending."""
        slots = self._slots.get(value, ())
        return np.sort(np.fromiter(slots, dtype=np.int64, count=len(slots)))

    def add(self, slot: int, *value: Any) -> None:
        """Enter a row under ``value``, by default the one in its column."""
        (key,) = value or (self._column.get(slot),)
        self._slots.setdefault(key, {})[slot] = None

    def remove(self, slot: int) -> None:
        """Remove a row; its column still has the value that it was entered under."""
        value = self._column.get(slot)
        del self._slots[value][slot]
        if not self._slots[value]:
            del self._slots[value]
