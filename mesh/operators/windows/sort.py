"""``sort(n, attribute, order ..)``: the first n events in the order of their attributes.

When there are more, the last in order expires, and among equals the one that arrived last.

Source: observed on Siddhi 5.1.7.
"""

from __future__ import annotations

import struct
from bisect import insort
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mesh.operators.base import CURRENT, EXPIRED
from mesh.operators.windows.contents import BoundedContents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mesh.model.values import Json, Row
    from mesh.operators.windows.contents import Emitter
    from pyspark_nats.arrow import ArrowArray

_first = itemgetter(0)


class SortWindow(BoundedContents):
    """The n first events of one instance."""

    def __init__(self, size: int) -> None:
        self._size = size
        #: (key, row, time); sorted once the window has been full.
        self._held: list[tuple[Any, int, int]] = []
        self._sorted = False

    def take(self, row: int, time_ms: int, now_ms: int, values: Row, to: Emitter) -> None:
        """Add one event; it may be the one that expires."""
        to.emit(row, CURRENT, time_ms)
        entry = (values, row, time_ms)
        if len(self._held) < self._size:
            # The engine sorts only when one has to leave.
            self._held.append(entry)
            return
        if not self._sorted:
            self._held.sort(key=_first)
            self._sorted = True
        insort(self._held, entry, key=_first)
        _, leaving, _ = self._held.pop()
        to.emit(leaving, EXPIRED, now_ms)

    def rows(self) -> Iterable[int]:
        """The rows in it."""
        return [row for _, row, _ in self._held]

    def join_rows(self) -> Sequence[tuple[int, int]]:
        """The rows that a join finds, in the engine's order."""
        return [(row, time) for _, row, time in self._held]

    def dump(self) -> object:
        """Its state as JSON."""
        return [self._sorted, [[plain_key(key), row, time] for key, row, time in self._held]]

    def load_dump(self, state: Json) -> None:
        """Restore what ``dump`` returned."""
        self._sorted, held = state
        self._held = [(key_of(key), row, time) for key, row, time in held]


class _Descending:
    """A text that is sorted the other way round."""

    __slots__ = ("text",)

    def __init__(self, text: bytes) -> None:
        self.text = text

    def __lt__(self, other: _Descending) -> bool:
        return other.text < self.text

    def __le__(self, other: _Descending) -> bool:
        return other.text <= self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descending) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)


def plain_key(key: Row) -> list[object]:
    """A key as JSON: numbers, and texts as hexadecimal digits after their direction."""
    return [
        f"-{part.text.hex()}"
        if isinstance(part, _Descending)
        else f"+{part.hex()}"
        if isinstance(part, bytes)
        else part
        for part in key
    ]


def key_of(key: list[object]) -> Row:
    """The key that ``plain_key`` wrote."""
    return tuple(
        part
        if not isinstance(part, str)
        else _Descending(bytes.fromhex(part[1:]))
        if part[0] == "-"
        else bytes.fromhex(part[1:])
        for part in key
    )


def sort_keys(
    by: Sequence[tuple[str, bool]],
) -> Callable[[pa.RecordBatch], Sequence[Sequence[object]]]:
    """For each attribute, with whether it is sorted from high to low, values that sort so."""

    def keys(rows: pa.RecordBatch) -> Sequence[Sequence[object]]:
        return [_sortable(rows.column(name), falls) for name, falls in by]

    return keys


def _sortable(column: ArrowArray, falls: bool) -> list[object]:
    values = column.to_pylist()
    if pa.types.is_string(column.type):
        # Java compares texts by their 16 bit units.
        texts = [(value or "").encode("utf-16-be") for value in values]
        return [_Descending(text) for text in texts] if falls else texts
    if pa.types.is_floating(column.type):
        values = [None if value is None else _ordinal(value) for value in values]
    least = -(1 << 65)
    numbers = [least if value is None else value for value in values]
    return [-number for number in numbers] if falls else numbers


def _ordinal(value: float) -> int:
    """A whole number in the order of Java's doubles: -0.0 below 0.0, NaN above all."""
    if value != value:
        return 1 << 64
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return int(bits) if bits >= 0 else -(bits & 0x7FFFFFFFFFFFFFFF) - 1
