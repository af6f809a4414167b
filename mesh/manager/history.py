"""An hour of samples in memory, one a second, for each app, group and node; bounded in bytes.

    samples ──▶ the present minute: rows of 32-bit floats
                     │ after 60 rows
                     ▼
                blocks: 16-bit floats, compressed; the oldest are dropped

A number keeps 8 bits of its fraction: an error of 0.8 % at most, and whole numbers up to 256 are
exact.  A minute without a change compresses to some 25 bytes.  If all blocks together exceed the
bound, the oldest minute of every series is dropped: the history becomes shorter, never thinner.
"""

from __future__ import annotations

import math
import zlib
from array import array
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

#: Age of the oldest sample, and length of a block, seconds.
KEPT_S: Final = 3600
BLOCK_S: Final = 60
#: Size of a block's Python objects besides its bytes: measured with ``tracemalloc``.
OVERHEAD_BYTES: Final = 110

#: ``app`` or ``group`` or ``node``, and a name: ``Shop``, ``Shop/sums``, ``worker/w1``.
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Series:
    """Values of one series, each the mean of ``step_s`` seconds; None where nothing is known."""

    #: Of the first value, seconds.
    start_s: int
    step_s: int
    #: By name of the field; all of one length.
    values: Mapping[str, Sequence[float | None]]


@dataclass(frozen=True, slots=True)
class _Block:
    start_s: int
    rows: int
    data: bytes


@dataclass(slots=True)
class _Track:
    """One series: blocks and the rows of the present one."""

    width: int
    start_s: int
    rows: array[float] = field(default_factory=lambda: array("f"))
    blocks: deque[_Block] = field(default_factory=deque)

    @property
    def next_s(self) -> int:
        return self.start_s + len(self.rows) // self.width

    @property
    def bytes(self) -> int:
        packed = sum(len(block.data) + OVERHEAD_BYTES for block in self.blocks)
        return packed + self.rows.itemsize * BLOCK_S * self.width + OVERHEAD_BYTES

    def add(self, at_s: int, row: Sequence[float]) -> None:
        if self.rows and (at_s < self.next_s or at_s - self.next_s >= BLOCK_S):
            self._seal()
        if not self.rows:
            self.start_s = at_s
        while self.next_s < at_s:
            self.rows.extend([math.nan] * self.width)
        self.rows.extend(row)
        if len(self.rows) >= BLOCK_S * self.width:
            self._seal()

    def drop_before(self, at_s: int) -> None:
        while self.blocks and self.blocks[0].start_s + self.blocks[0].rows <= at_s:
            self.blocks.popleft()

    def read(self, since_s: int) -> Iterator[tuple[int, Sequence[float]]]:
        """Seconds with their rows from ``since_s`` on, in order."""
        for block in self.blocks:
            if block.start_s + block.rows > since_s:
                yield from self._rows(block.start_s, _unpacked(block.data), since_s)
        yield from self._rows(self.start_s, self.rows, since_s)

    def _rows(
        self, start_s: int, flat: array[float], since_s: int
    ) -> Iterator[tuple[int, Sequence[float]]]:
        for row in range(max(0, since_s - start_s), len(flat) // self.width):
            yield start_s + row, flat[row * self.width : (row + 1) * self.width]

    def _seal(self) -> None:
        rows = len(self.rows) // self.width
        self.blocks.append(_Block(self.start_s, rows, _packed(self.rows)))
        self.start_s += rows
        del self.rows[:]


@dataclass(eq=False, repr=False)
class History:
    """Series by key."""

    #: Names of the values of each kind of key.
    _fields: Mapping[str, Sequence[str]]
    #: Bound of all series together.
    _bytes_max: int
    _tracks: dict[Key, _Track] = field(default_factory=dict)
    _swept_s: int = 0
    #: As of the last minute.
    bytes: int = 0
    #: Start of what is kept; later than an hour ago if the bound was met.
    kept_from_s: int = 0

    def add(self, at_s: int, samples: Mapping[Key, Sequence[float]]) -> None:
        """Take the samples of one second; a second that was taken already is ignored."""
        for key, row in samples.items():
            track = self._tracks.get(key)
            if track is None:
                track = self._tracks[key] = _Track(len(self._fields[key[0]]), at_s)
            if at_s >= track.next_s:
                track.add(at_s, row)
        if at_s - self._swept_s >= BLOCK_S:
            self._swept_s = at_s
            self._sweep(at_s)

    def read(self, key: Key, since_s: int, until_s: int, step_s: int) -> Series | None:
        """Means over steps from ``since_s`` to before ``until_s``; None for an unknown key."""
        track = self._tracks.get(key)
        if track is None:
            return None
        fields = self._fields[key[0]]
        start_s = since_s - since_s % step_s
        count = max(0, -(-(until_s - start_s) // step_s))
        sums = [[0.0] * count for _ in fields]
        seen = [[0] * count for _ in fields]
        for at_s, row in track.read(start_s):
            step = (at_s - start_s) // step_s
            if step >= count:
                break
            for index, value in enumerate(row):
                if not math.isnan(value):
                    sums[index][step] += value
                    seen[index][step] += 1
        values = {
            name: [
                round(added / times, 6) if times else None
                for added, times in zip(sums[index], seen[index], strict=True)
            ]
            for index, name in enumerate(fields)
        }
        return Series(start_s, step_s, values)

    def keys(self) -> list[Key]:
        """The keys of all series."""
        return list(self._tracks)

    def _sweep(self, at_s: int) -> None:
        self.kept_from_s = max(self.kept_from_s, at_s - KEPT_S)
        self._drop()
        while self.bytes > self._bytes_max and self.kept_from_s < at_s:
            self.kept_from_s += BLOCK_S
            self._drop()

    def _drop(self) -> None:
        self.bytes = 0
        for key, track in list(self._tracks.items()):
            track.drop_before(self.kept_from_s)
            if not track.blocks and track.next_s <= self.kept_from_s:
                del self._tracks[key]
            else:
                self.bytes += track.bytes


def _packed(rows: array[float]) -> bytes:
    """The upper halves of 32-bit floats, the first bytes of all before the second ones."""
    data = rows.tobytes()
    return zlib.compress(data[3::4] + data[2::4], 1)


def _unpacked(data: bytes) -> array[float]:
    halves = zlib.decompress(data)
    count = len(halves) // 2
    whole = bytearray(4 * count)
    whole[3::4] = halves[:count]
    whole[2::4] = halves[count:]
    flat = array("f")
    flat.frombytes(bytes(whole))
    return flat
