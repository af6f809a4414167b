"""``frequent(n, attribute)`` and ``lossyFrequent(support, error, attribute)``: frequent keys.

A key is the concatenation of the attributes' values as text.  The window holds the latest event of
each key.

``frequent`` counts up to n keys (Misra and Gries): an event of a further key subtracts one from
every count, and a key whose count reaches 0 expires; if none does, the event is dropped.

``lossyFrequent`` (Manku and Motwani): an event is emitted if its key is frequent enough, and after
each bucket of 1/error events the keys that are too rare expire.

Source: observed on Siddhi 5.1.7.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mesh.functions.objects import java_text
from mesh.operators.base import CURRENT, EXPIRED
from mesh.operators.windows.contents import BoundedContents
from mesh.operators.windows.java_hash_order import spread, table_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mesh.model.values import Json, Row
    from mesh.operators.windows.contents import Emitter
    from pyspark_nats.arrow import ArrowArray


class _Counts(BoundedContents):
    """Counted keys: [count, bucket, row, time] of each, in order of arrival."""

    def __init__(self) -> None:
        self._keys: dict[str, list[int]] = {}
        self._table = table_of(0)

    def _add(self, key: str, entry: list[int]) -> None:
        self._keys[key] = entry
        self._table = table_of(len(self._keys), self._table)

    def _in_order(self) -> list[str]:
        """The keys in the order of the engine's map."""
        return sorted(self._keys, key=lambda key: spread(key) & (self._table - 1))

    def rows(self) -> Iterable[int]:
        """The rows in it."""
        return [entry[2] for entry in self._keys.values()]

    def join_rows(self) -> Sequence[tuple[int, int]]:
        """The rows that a join finds: the latest event of each key."""
        return [(self._keys[key][2], self._keys[key][3]) for key in self._in_order()]

    def dump(self) -> object:
        """Its state as JSON."""
        return [self._table, list(self._keys.items())]

    def load_dump(self, state: Json) -> None:
        """Restore what ``dump`` returned."""
        self._table, keys = state
        self._keys = {key: list(entry) for key, entry in keys}


class Frequent(_Counts):
    """The n most frequent keys of one instance."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def take(self, row: int, time_ms: int, now_ms: int, values: Row, to: Emitter) -> None:
        """Process one event."""
        (key,) = values
        entry = self._keys.get(key)
        if entry is not None:
            entry[0] += 1
            entry[2:] = row, time_ms
            to.emit(row, CURRENT, time_ms)
            return
        if len(self._keys) >= self._size:
            for other in self._in_order():
                counted = self._keys[other]
                counted[0] -= 1
                if counted[0] == 0:
                    del self._keys[other]
                    to.emit(counted[2], EXPIRED, now_ms)
            if len(self._keys) >= self._size:
                return
        self._add(key, [1, 0, row, time_ms])
        to.emit(row, CURRENT, time_ms)


class LossyFrequent(_Counts):
    """The keys that make up more than a share of the events, of one instance."""

    def __init__(self, support: float, error: float) -> None:
        super().__init__()
        self._share = support - error
        self._width = math.ceil(1 / error)
        self._total = 0

    def take(self, row: int, time_ms: int, now_ms: int, values: Row, to: Emitter) -> None:
        """Process one event."""
        (key,) = values
        self._total += 1
        bucket = 1 if self._total == 1 else math.ceil(self._total / self._width)
        entry = self._keys.get(key)
        if entry is not None:
            entry[0] += 1
            entry[2:] = row, time_ms
        else:
            entry = [1, bucket - 1, row, time_ms]
            self._add(key, entry)
        if entry[0] >= self._share * self._total:
            to.emit(row, CURRENT, time_ms)
        if self._total % self._width == 0:
            for other in self._in_order():
                count, since, its_row, _ = self._keys[other]
                if count + since <= bucket:
                    del self._keys[other]
                    to.emit(its_row, EXPIRED, now_ms)

    def dump(self) -> object:
        """Its state as JSON."""
        return [self._total, super().dump()]

    def load_dump(self, state: Json) -> None:
        """Restore what ``dump`` returned."""
        self._total, counts = state
        super().load_dump(counts)


def keys_of(names: Sequence[str | None]) -> Callable[[pa.RecordBatch], Sequence[list[str]]]:
    """The keys of rows by these attributes; one without a name yet is null in the engine."""

    def keys(rows: pa.RecordBatch) -> Sequence[list[str]]:
        nothing = ["null"] * rows.num_rows
        texts = [nothing if name is None else _texts(rows.column(name)) for name in names]
        return [["".join(parts) for parts in zip(*texts, strict=True)]]

    return keys


def _texts(column: ArrowArray) -> list[str]:
    """Values as Java writes them."""
    values = column.to_pylist()
    if pa.types.is_floating(column.type):
        number: Any = column.type.to_pandas_dtype()
        return ["null" if v is None else java_text(number(v)) for v in values]
    if pa.types.is_boolean(column.type):
        return ["null" if v is None else str(v).lower() for v in values]
    return ["null" if v is None else str(v) for v in values]
