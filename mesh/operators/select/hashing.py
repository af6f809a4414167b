"""Hash tables in native code: rows of whole numbers, or texts, to small numbers.

A table uses open addressing: ``slots[h]`` is a number plus one, or 0 if empty.  It is never more
than half full, so a search ends soon; entries are never removed, the table is rebuilt instead.

Hashes depend on a random seed of the process, so that no client can send keys that collide.
Numbers, and all that is stored, depend on the order of the keys alone.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mesh.operators.native import (
    BOOL_READ1,
    LONG1,
    LONG2,
    READ1,
    READ2,
    bare,
    buffer_of,
    types,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numba.core.typing.templates import Signature

    from mesh.operators.base import Bools, Longs
    from pyspark_nats.arrow import ArrowArray

    Long: TypeAlias = int | np.int64
    #: Of an open table: by hash, a number plus one.
    Slots: TypeAlias = npt.NDArray[np.int32]
    Letters: TypeAlias = npt.NDArray[np.uint8]

T = TypeVar("T", bound=np.generic)

#: Types of these in signatures, and of the counts of numbers and of free ones.
_SLOTS: Final = types.Array(types.int32, 1, "C")
_LETTERS: Final = types.Array(types.uint8, 1, "C")
_COUNTS: Final = types.Tuple((types.int64, types.int64))  # type: ignore[no-untyped-call]

_SLOTS_MIN = 1024
#: Most bytes of the texts of an array with 32-bit offsets.
_BYTES_MAX: Final = 2**31 - 1
#: Seed of all hashes of this process, and of those that it forks.
SEED: Final = np.uint64(secrets.randbits(64))


@bare
def scatter(number: np.uint64) -> np.uint64:
    """The bits of a whole number, each of which depends on all of them."""
    mixed = np.uint64(number)
    mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return mixed ^ (mixed >> np.uint64(33))


@bare
def _hash_row(rows: Longs, at: int, seed: np.uint64) -> np.uint64:
    mixed = seed
    for column in range(rows.shape[1]):
        mixed = scatter(np.uint64(rows[at, column]) + mixed * np.uint64(31))
    return mixed


def _numbering(read: Any) -> Signature:
    """The signature of a loop that numbers rows, or values, of the type ``read``."""
    signature: Signature = _COUNTS(
        read, BOOL_READ1, types.uint64, _SLOTS, LONG2, types.int64, READ1, types.int64, LONG1
    )
    return signature


@bare(_numbering(READ2))
def _number_rows(
    rows: Longs, skip: Bools, seed: np.uint64, slots: Slots, keys: Longs, count: int, free: Longs,
    freed: int, out: Longs,
) -> tuple[int, int]:  # fmt: skip
    """Number every row of ``rows`` that is not to be skipped; -1 for the others.

    New rows get the number freed last, or the next one.  Returns the counts of numbers and of
    free numbers.
    """
    mask = np.uint64(len(slots) - 1)
    width = rows.shape[1]
    for at in range(len(rows)):
        if skip[at]:
            out[at] = -1
            continue
        slot = _hash_row(rows, at, seed) & mask
        while True:
            number: Long = np.int64(slots[slot]) - 1
            if number < 0:
                if freed:
                    freed -= 1
                    number = free[freed]
                else:
                    number = count
                    count += 1
                slots[slot] = number + 1
                for column in range(width):
                    keys[number, column] = rows[at, column]
                break
            same = True
            for column in range(width):
                if keys[number, column] != rows[at, column]:
                    same = False
                    break
            if same:
                break
            slot = (slot + np.uint64(1)) & mask
        out[at] = number
    return count, freed


@bare(_numbering(buffer_of(types.int64)))
def _number_longs(
    values: Longs, skip: Bools, seed: np.uint64, slots: Slots, keys: Longs, count: int,
    free: Longs, freed: int, out: Longs,
) -> tuple[int, int]:  # fmt: skip
    """As ``_number_rows`` for rows of zeros that end in a value."""
    mask = np.uint64(len(slots) - 1)
    last = keys.shape[1] - 1
    before = seed
    for _ in range(last):
        before = scatter(before * np.uint64(31))
    before = before * np.uint64(31)
    for at in range(len(values)):
        if skip[at]:
            out[at] = -1
            continue
        value = values[at]
        slot = scatter(np.uint64(value) + before) & mask
        while True:
            number: Long = np.int64(slots[slot]) - 1
            if number < 0:
                if freed:
                    freed -= 1
                    number = free[freed]
                else:
                    number = count
                    count += 1
                slots[slot] = number + 1
                for column in range(last):
                    keys[number, column] = 0
                keys[number, last] = value
                break
            same = keys[number, last] == value
            for column in range(last):
                same = same and keys[number, column] == 0
            if same:
                break
            slot = (slot + np.uint64(1)) & mask
        out[at] = number
    return count, freed


@bare(types.void(_SLOTS, READ2, BOOL_READ1, types.uint64))
def _enter_rows(slots: Slots, keys: Longs, live: Bools, seed: np.uint64) -> None:
    """Put the numbers of the ``live`` rows of ``keys`` into an empty table."""
    mask = np.uint64(len(slots) - 1)
    for number in range(len(live)):
        if live[number]:
            slot = _hash_row(keys, number, seed) & mask
            while slots[slot]:
                slot = (slot + np.uint64(1)) & mask
            slots[slot] = number + 1


def slots_for(count: int) -> Slots:
    """An empty table for ``count`` entries."""
    length = _SLOTS_MIN
    while length < 2 * count:
        length *= 2
    return np.zeros(length, dtype=np.int32)


def more_rows(array: npt.NDArray[T], length: int, fill: int = 0) -> npt.NDArray[T]:
    """``array`` with room for ``length`` rows, ``fill`` after its content."""
    if len(array) >= length:
        return array
    shape = (max(length, 2 * len(array)), *array.shape[1:])
    # Zeros cost nothing until they are used.
    longer = np.full(shape, fill, array.dtype) if fill else np.zeros(shape, array.dtype)
    longer[: len(array)] = array
    return longer


class RowNumbers:
    """Numbers for different rows of ``width`` whole numbers, from 0 on, the freed ones first."""

    def __init__(self, width: int) -> None:
        self._slots = slots_for(0)
        #: By number, its row.
        self.keys: Longs = np.zeros((0, width), dtype=np.int64)
        #: Numbers given, and the free ones among them, the next one to reuse last.
        self.count = 0
        self._free: Longs = np.zeros(0, dtype=np.int64)
        self._freed = 0

    @property
    def free(self) -> Longs:
        """The numbers that are free, in the order they became so."""
        return self._free[: self._freed]

    def number(self, rows: Longs, skip: Bools) -> Longs:
        """The number of each row, -1 where ``skip`` is true."""
        return self._number(_number_rows, rows, skip)

    def number_longs(self, values: Longs, skip: Bools) -> Longs:
        """The number of the row of zeros that ends in each value; -1 where ``skip`` is true."""
        return self._number(_number_longs, values, skip)

    def _number(self, loop: Callable[..., tuple[int, int]], rows: Longs, skip: Bools) -> Longs:
        needed = self.count + len(rows)
        self.keys = more_rows(self.keys, needed)
        if len(self._slots) < 2 * needed:
            self._build(needed)
        out = np.empty(len(rows), dtype=np.int64)
        self.count, self._freed = loop(
            rows, skip, SEED, self._slots, self.keys, self.count, self._free, self._freed, out
        )
        return out

    def find(self, row: Longs) -> int:
        """The number of a row, int64[width]; -1 if it has none."""
        if not self.count:
            return -1
        mask = len(self._slots) - 1
        slot = int(_hash_row(row.reshape(1, -1), 0, SEED)) & mask
        while (number := int(self._slots[slot]) - 1) >= 0:
            if (self.keys[number] == row).all():
                return number
            slot = (slot + 1) & mask
        return -1

    def forget(self, numbers: Longs) -> None:
        """Free ``numbers``, which are in use."""
        self._free = more_rows(self._free, self._freed + len(numbers))
        self._free[self._freed : self._freed + len(numbers)] = numbers
        self._freed += len(numbers)
        self._build(self.count)

    def replace(self, numbers: Longs, rows: Longs) -> None:
        """Assign other rows, all different, to the numbers in use."""
        self.keys[numbers] = rows
        self._build(self.count)

    def restore(self, keys: Longs, free: Longs) -> None:
        """Restore the rows of all numbers; the content of rows at ``free`` numbers is ignored."""
        self.keys, self.count = keys, len(keys)
        self._free, self._freed = free, len(free)
        self._build(self.count)

    def live(self) -> Bools:
        """bool[count], which numbers are in use."""
        live = np.ones(self.count, dtype=np.bool_)
        live[self.free] = False
        return live

    def _build(self, room: int) -> None:
        self._slots = slots_for(room)
        _enter_rows(self._slots, self.keys, self.live(), SEED)


@bare
def _hash_bytes(data: Letters, start: Long, stop: Long, seed: np.uint64) -> np.uint64:
    mixed = np.uint64(stop - start) + seed
    word = np.uint64(0)
    for at in range(start, stop):
        word = (word << np.uint64(8)) | np.uint64(data[at])
        if (at - start) & 7 == 7:
            mixed = scatter(mixed * np.uint64(31) + word)
            word = np.uint64(0)
    return scatter(mixed * np.uint64(31) + word)


@bare(
    types.int64(
        buffer_of(types.uint8), buffer_of(types.int32), types.int64, types.int64, types.uint64,
        _SLOTS, LONG1, _LETTERS, types.int64, LONG1,
    )
)  # fmt: skip
def _number_texts(
    data: Letters, offsets: npt.NDArray[np.int32], first: int, length: int, seed: np.uint64,
    slots: Slots, ends: Longs, arena: Letters, count: int, out: Longs,
) -> int:  # fmt: skip
    """Number each text; new ones are appended to ``arena``."""
    mask = np.uint64(len(slots) - 1)
    for row in range(length):
        start, stop = np.int64(offsets[first + row]), np.int64(offsets[first + row + 1])
        slot = _hash_bytes(data, start, stop, seed) & mask
        while True:
            number: Long = np.int64(slots[slot]) - 1
            if number < 0:
                number = count
                count += 1
                slots[slot] = number + 1
                base = ends[number]
                for at in range(start, stop):
                    arena[base + at - start] = data[at]
                ends[number + 1] = base + stop - start
                break
            base = ends[number]
            same = ends[number + 1] - base == stop - start
            if same:
                for at in range(stop - start):
                    if arena[base + at] != data[start + at]:
                        same = False
                        break
            if same:
                break
            slot = (slot + np.uint64(1)) & mask
        out[row] = number
    return count


@bare(types.void(_SLOTS, READ1, _LETTERS, types.int64, types.uint64))
def _enter_texts(slots: Slots, ends: Longs, arena: Letters, count: int, seed: np.uint64) -> None:
    mask = np.uint64(len(slots) - 1)
    for number in range(count):
        slot = _hash_bytes(arena, ends[number], ends[number + 1], seed) & mask
        while slots[slot]:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = number + 1


class TextNumbers:
    """Numbers for different texts, from 0 on, in the order of first appearance."""

    def __init__(self) -> None:
        self._slots = slots_for(0)
        #: Text n is ``arena[ends[n]:ends[n + 1]]``.
        self._ends: Longs = np.zeros(1, dtype=np.int64)
        self._arena: Letters = np.zeros(0, dtype=np.uint8)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def number(self, texts: ArrowArray) -> Longs:
        """The number of each text; undefined for a null."""
        needed = self._count + len(texts)
        self._ends = more_rows(self._ends, needed + 1)
        if not len(texts):
            return np.empty(0, dtype=np.int64)
        buffers: Any = texts.buffers()
        starts = np.frombuffer(buffers[1], dtype=np.int32)
        letters = np.frombuffer(buffers[2] or b"", dtype=np.uint8)
        first = texts.offset
        size = int(starts[first + len(texts)]) - int(starts[first])
        self._arena = more_rows(self._arena, int(self._ends[self._count]) + size)
        if len(self._slots) < 2 * needed:
            self._slots = slots_for(needed)
            _enter_texts(self._slots, self._ends, self._arena, self._count, SEED)
        out = np.empty(len(texts), dtype=np.int64)
        self._count = _number_texts(
            letters, starts, first, len(texts), SEED, self._slots, self._ends, self._arena,
            self._count, out,
        )  # fmt: skip
        return out

    def find(self, text: str) -> int:
        """The number of a text; -1 if it has none."""
        letters = np.array(bytearray(text.encode()), dtype=np.uint8)
        mask = len(self._slots) - 1
        slot = int(_hash_bytes(letters, 0, len(letters), SEED)) & mask
        while (number := int(self._slots[slot]) - 1) >= 0:
            entry = self._arena[self._ends[number] : self._ends[number + 1]]
            if len(entry) == len(letters) and (entry == letters).all():
                return number
            slot = (slot + 1) & mask
        return -1

    def take(self, numbers: ArrowArray) -> ArrowArray:
        """The texts of ``numbers``, null for null; ArrowInvalid if they exceed 2 GB."""
        ends: Any = self._ends[: self._count + 1]
        used: Any = self._arena[: int(ends[-1])]
        # 32-bit offsets would wrap around.
        is_large = int(ends[-1]) > _BYTES_MAX
        kind = pa.LargeStringArray if is_large else pa.StringArray
        buffer = pa.py_buffer(ends if is_large else ends.astype(np.int32))
        texts = kind.from_buffers(self._count, buffer, pa.py_buffer(used))
        result: ArrowArray = texts.take(numbers).cast(pa.string())
        return result
