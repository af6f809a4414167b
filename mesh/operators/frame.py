"""Frames: the columns that an expression reads, for a batch of rows.

An expression names a column by (step, attribute); the step is that of the pattern, or the side of
the join, that the attribute is of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from mesh.functions.identifiers import splitmix64
from mesh.functions.vectors import Vector, from_arrow, from_values
from pyspark_nats.few_rows import FewRows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from mesh.functions.vectors import Indices, Mask
    from mesh.operators.base import EventBatch
    from mesh.plan.bound import Column
    from pyspark_nats.arrow import ArrowArray

#: (step, attribute) or, of an event that occurs several times, (step, attribute, index).
Key = tuple[int, str] | tuple[int, str, int]
#: A compiled expression: from a frame of length n to a vector of length n or, of a constant, 1.
Evaluator = Callable[["Frame"], Vector]


class Frame:
    """The columns an expression may name, by (step, attribute); converted when first used.

    ``failures``: by row, the message of the first expression that failed on it. Such a row has no
    meaningful values. A caller that evaluates an expression that may fail reads it afterwards.

    ``calls``: returns bool[n], the rows at which another call of the engine begins, where one call
    spans several chunks.  None: each chunk is one call.
    """

    def __init__(self, length: int, arrays: Mapping[Key, ArrowArray | list[object]]) -> None:
        self.length = length
        self.failures: dict[int, str] = {}
        #: The path of the query's timers, where all output of one event fails together, in any
        #: number of chunks.
        self.joint_path: int | None = None
        self._arrays = arrays
        self._vectors: dict[Key, Vector] = {}
        self._missing: dict[tuple[int, int | None], Mask] = {}
        self._events: EventBatch | None = None
        self.calls: Callable[[], Mask] | None = None

    @classmethod
    def of_rows(cls, rows: pa.RecordBatch, step: int = 0) -> Frame:
        """The attributes of one stream."""
        if isinstance(rows, FewRows):
            return cls(rows.num_rows, {(step, n): values for n, values in rows.lists.items()})
        names = rows.schema.names
        return cls(rows.num_rows, {(step, n): rows.column(i) for i, n in enumerate(names)})

    @classmethod
    def of_events(cls, events: EventBatch, step: int = 0) -> Frame:
        """The attributes of one stream's events, and their times."""
        return cls.of_rows(events.rows, step).timed(events)

    def timed(self, events: EventBatch) -> Frame:
        """This frame, with the times of ``events``, one for each row."""
        self._events = events
        return self

    @property
    def time_ms(self) -> Indices:
        """int64[n], the events' own times."""
        return self._timed_events.time_ms

    @property
    def clock_ms(self) -> Indices:
        """int64[n], the clock at the arrival of each event."""
        return self._timed_events.clock_ms

    @property
    def numbers(self) -> Indices:
        """int64[n], hashes of the positions in the total order; the same in a replay."""
        events = self._timed_events
        position = (events.order, events.clock_ms, events.path, events.chunk)
        return mixed_hash((*position, events.kind, events.instance))

    @property
    def _timed_events(self) -> EventBatch:
        assert self._events is not None, "a frame without times: see Frame.timed"
        return self._events

    def column(self, column: Column) -> Vector:
        """The values of ``column``, length n (or 1)."""
        key = key_of(column)
        vector = self._vectors.get(key)
        if vector is None:
            values = self._arrays[key]
            if isinstance(values, list):
                vector = from_values(values, column.type)
            else:
                vector = from_arrow(values, column.type)
            self._vectors[key] = vector
        return vector

    def add(self, step: int, name: str, vector: Vector, index: int | None = None) -> None:
        """Add a column, or replace one."""
        self._vectors[(step, name) if index is None else (step, name, index)] = vector

    def add_missing(self, step: int, missing: Mask, index: int | None = None) -> None:
        """Set the rows that have no event of ``step``; by default every row has one."""
        self._missing[(step, index)] = missing

    def missing(self, step: int, index: int | None) -> Mask:
        """bool[n], the rows that have no event of ``step``."""
        mask = self._missing.get((step, index))
        return np.zeros(self.length, dtype=np.bool_) if mask is None else mask

    def only(self, evaluate: Evaluator, needed: Mask) -> Vector:
        """The result of ``evaluate``; failures count in ``needed`` rows alone.

        The reference engine does not evaluate the operand in the others, so it can't fail there.
        """
        before, self.failures = self.failures, {}
        try:
            result = evaluate(self)
            for row, message in self.failures.items():
                if needed[row if len(needed) > 1 else 0]:
                    before.setdefault(row, message)
        finally:
            self.failures = before
        return result

    def pairs(self, mine: Indices, other: Frame, others: Indices) -> Frame:
        """Rows ``mine`` of this frame beside rows ``others`` of another; no column is in both."""
        return _PairFrame(self, mine, other, others)

    def has(self, key: Key) -> bool:
        """Whether there is a column ``key``."""
        return key in self._vectors or key in self._arrays


class _PairFrame(Frame):
    def __init__(self, left: Frame, left_rows: Indices, right: Frame, right_rows: Indices) -> None:
        super().__init__(len(left_rows), {})
        self._sides = ((left, left_rows), (right, right_rows))

    def column(self, column: Column) -> Vector:
        key = key_of(column)
        if key not in self._vectors:
            side, rows = next(s for s in self._sides if s[0].has(key))
            self._vectors[key] = side.column(column).take(rows)
        return self._vectors[key]


def key_of(column: Column) -> Key:
    """The key of ``column`` in a frame."""
    if column.index is None:
        return column.step, column.name
    return column.step, column.name, column.index


def mixed_hash(columns: Sequence[Any]) -> Indices:
    """int64[n]: a hash of each row of ``columns``; rows that are equal in all are counted.

    Rows of one chunk are adjacent, so their counts do not depend on how the input was cut.
    """
    length = len(columns[0])
    result = np.zeros(length, dtype=np.uint64)
    changes = np.zeros(length, dtype=np.bool_)
    with np.errstate(over="ignore"):
        for column in columns:
            changes[1:] |= column[1:] != column[:-1]
            result = splitmix64(result + column.astype(np.uint64))
        rows = np.arange(length)
        rows -= np.maximum.accumulate(np.where(changes, rows, 0))
        return splitmix64(result + rows.astype(np.uint64)).view(np.int64)
