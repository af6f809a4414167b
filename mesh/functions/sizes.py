"""Bytes of the results of functions: a row whose result is too large fails, and others do not.

``rows.bounded`` is around every function that an expression calls.  Functions that may make much of
little compute the bytes before they take memory: ``check``, ``summed`` and ``joined``.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mesh.functions.objects import ValueSet
from mesh.functions.vectors import Vector
from mesh.model.types import AttributeType
from pyspark_nats.decode.result import USUAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mesh.functions.vectors import Indices

#: Most bytes of one result: as of a message when decoded.
RESULT_BYTES_MAX: Final = USUAL.bytes_max
#: Most bytes of the results of one call for a batch; Arrow's arrays of texts end at 2 GiB.
BATCH_BYTES_MAX: Final = 2 * USUAL.batch_bytes_max
#: Types whose values have any size.
SIZED: Final = frozenset({AttributeType.STRING, AttributeType.OBJECT})
#: Bytes of a number, and of a list or map besides what is in it.
_PLAIN: Final = 9
#: Begins the reason of a row that fails for its size.
TOO_LARGE: Final = "too large a result: "


class TooLargeError(ValueError):
    """A result is larger than one may be."""


def check(size: int) -> None:
    """Refuse a result of ``size`` bytes that is too large.

    Raises:
        TooLargeError: it is.
    """
    if size > RESULT_BYTES_MAX:
        raise TooLargeError(f"{TOO_LARGE}{size} bytes, more than {RESULT_BYTES_MAX}")


def summed(texts: Iterable[str]) -> Iterator[str]:
    """The texts, as long as they are not too large together; as ``check`` otherwise."""
    total = 0
    for text in texts:
        total += _text_size(text)
        if total > RESULT_BYTES_MAX:
            raise TooLargeError(f"{TOO_LARGE}more than {RESULT_BYTES_MAX} bytes")
        yield text


def joined(texts: Iterable[str]) -> str:
    """The texts as one; as ``summed``."""
    return "".join(summed(texts))


def size_of(value: object) -> int:
    """Bytes of a value as it is stored, about; no more is counted once it is too large."""
    if isinstance(value, str):
        return _text_size(value)
    total, waiting = 0, [value]
    while waiting and total <= RESULT_BYTES_MAX:
        one = waiting.pop()
        total += _PLAIN
        if isinstance(one, str):
            total += _text_size(one)
        elif isinstance(one, dict):
            waiting += one
            waiting += one.values()
        elif isinstance(one, list | tuple | ValueSet):
            waiting += one
    return total


def _text_size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


class Room:
    """Bytes of one call's results; of results that are too large together the largest fail."""

    def __init__(self, result_max: int | None = None) -> None:
        self._result_max = RESULT_BYTES_MAX if result_max is None else result_max
        self._total = 0
        self._largest: list[tuple[int, int]] = []

    def add(self, row: int, size: int, count: int = 1) -> dict[int, str]:
        """The rows that fail now, with the reasons.

        Args:
            row: number of the result.
            size: its bytes.
            count: how often it occurs.
        """
        if size > self._result_max:
            return {row: f"{TOO_LARGE}{size} bytes, more than {self._result_max}"}
        self._total += size * count
        heapq.heappush(self._largest, (-size * count, row))
        failed: dict[int, str] = {}
        while self._total > BATCH_BYTES_MAX:
            negative, place = heapq.heappop(self._largest)
            self._total += negative
            failed[place] = f"{TOO_LARGE}those of a batch have more than {BATCH_BYTES_MAX} bytes"
        return failed

    def keep(self, results: list[object], failed: dict[int, str], count: int = 1) -> None:
        """Add the last of ``results``; those that fail become None in it."""
        row = len(results) - 1
        for large, why in self.add(row, size_of(results[row]), count).items():
            results[large], failed[large] = None, why


def excess(sizes: Indices) -> dict[int, str]:
    """The rows that fail, with the reasons, by the bytes of each row's result."""
    if not len(sizes) or (sizes.max() <= RESULT_BYTES_MAX and sizes.sum() <= BATCH_BYTES_MAX):
        return {}
    room = Room()
    failed: dict[int, str] = {}
    for row, size in enumerate(sizes.tolist()):
        failed |= room.add(row, size)
    return failed


def text_sizes(texts: Sequence[Any], length: int) -> Indices:
    """int64[length], bytes of the row in all columns of texts or octets together."""
    total = np.zeros(length, dtype=np.int64)
    for column in texts:
        sizes = pc.fill_null(pc.binary_length(column), 0).cast(pa.int64())
        total += sizes.to_numpy(zero_copy_only=False)
    return total


def row_sizes(rows: pa.RecordBatch) -> Indices:
    """int64[n], bytes of each row."""
    sized = [c for c in rows.columns if pa.types.is_string(c.type) or pa.types.is_binary(c.type)]
    return text_sizes(sized, rows.num_rows) + _PLAIN * rows.num_columns


def without(texts: Vector, failed: dict[int, str]) -> Vector:
    """Texts with null in failed rows."""
    if not failed:
        return texts
    is_good = np.ones(len(texts), dtype=np.bool_)
    is_good[list(failed)] = False
    return Vector(texts.type, pc.if_else(pa.array(is_good), texts.values, None))
