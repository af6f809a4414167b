"""Index of partition instances by key: keys are texts; instances are numbered as they arrive.

A text has a stable code, so that a known key costs one look-up in one table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mesh.operators.base import NIL
from mesh.operators.select.hashing import RowNumbers, TextNumbers, more_rows

if TYPE_CHECKING:
    from mesh.operators.base import Bools, Longs
    from pyspark_nats.arrow import ArrowArray

#: Number of codes without an instance at which all codes are renumbered.
_SPARE = 65_536
NONE = NIL


class Instances:
    """Keys that have an instance."""

    def __init__(self) -> None:
        self._texts = TextNumbers()
        #: By code, the instance's number plus one, or 0.
        self._numbers: Longs = np.zeros(0, dtype=np.int64)
        #: The number of the next instance.
        self.next = 0
        #: Number of times that codes were renumbered.
        self.generation = 0

    def codes(self, texts: ArrowArray) -> Longs:
        """The code of each text; any for a null."""
        codes = self._texts.number(texts)
        self._numbers = more_rows(self._numbers, len(self._texts))
        return codes

    def of(self, codes: Longs) -> Longs:
        """The instance of each code, ``NONE`` where it has none."""
        numbers: Longs = self._numbers[codes]
        numbers -= 1
        return numbers

    def add(self, codes: Longs) -> None:
        """Number the instances of ``codes``, which have none, in their order."""
        self._numbers[codes] = np.arange(self.next + 1, self.next + 1 + len(codes))
        self.next += len(codes)

    def alive(self) -> list[int]:
        """The present numbers, growing."""
        numbers: list[int] = (np.sort(self._numbers[self._numbers > 0]) - 1).tolist()
        return numbers

    def keys(self) -> tuple[ArrowArray, list[int]]:
        """The keys and the numbers of their instances, which grow."""
        codes = np.flatnonzero(self._numbers)
        codes = codes[np.argsort(self._numbers[codes])]
        return self._texts.take(pa.array(codes)), (self._numbers[codes] - 1).tolist()

    def forget(self, numbers: Longs) -> None:
        """Drop the keys of these instances."""
        self._numbers[np.isin(self._numbers - 1, numbers)] = 0
        live = int(np.count_nonzero(self._numbers))
        if len(self._texts) > 2 * live + _SPARE:
            keys, key_numbers = self.keys()
            self.restore(keys, np.array(key_numbers, dtype=np.int64), self.next)

    def restore(self, keys: ArrowArray, numbers: Longs, next_number: int) -> None:
        """Replace all keys by ``keys``."""
        self.generation += 1
        self._texts, self._numbers = TextNumbers(), np.zeros(0, dtype=np.int64)
        codes = self.codes(keys)
        self._numbers[codes] = numbers + 1
        self.next = next_number


class IntegerKeyIndex:
    """The codes of whole numbers' texts, each text made once."""

    def __init__(self, instances: Instances) -> None:
        self._instances = instances
        self._clear()

    def _clear(self) -> None:
        self._generation = self._instances.generation
        self._rows = RowNumbers(1)
        self._codes: Longs = np.zeros(0, dtype=np.int64)

    def codes(self, values: Longs, nulls: Bools | None) -> tuple[Longs, Bools]:
        """The code of each value's text, and a mask of the values that have one."""
        if self._generation != self._instances.generation:
            self._clear()
        skip = np.zeros(len(values), dtype=np.bool_) if nulls is None else nulls
        first = self._rows.count
        numbers = self._rows.number(values.reshape(-1, 1), skip)
        count = self._rows.count
        if count > first:
            texts = pa.array(self._rows.keys[first:count, 0]).cast(pa.string())
            self._codes = more_rows(self._codes, count)
            self._codes[first:count] = self._instances.codes(texts)
        if not count:
            return numbers, ~skip
        return self._codes[numbers], ~skip
