"""What a producer has written of each batch, and whether a batch that is run again is the same.

Positions that are counted say the batch and the number of a message in it.  They mean something
only as long as a batch that is run again has the same messages; so a marker also keeps, of the last
few batches, how many messages are out and a checksum of them.  What is behind the marker is skipped
only when it is the same by both.  A checkpoint that is older than the output, or another driver,
may cut batches differently: that is found out before anything is lost or doubled.

No I/O here: markers come in, decisions go out.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from pyspark_nats.errors import DivergedError
from pyspark_nats.outgoing import ROWS_BITS

if TYPE_CHECKING:
    from pyspark_nats.arrow import Array
    from pyspark_nats.markers import Marker

#: Batches that a marker remembers.
_RECENT_MAX: Final = 16
_HASHED: Final = ("subject", "data", "header_lines", "event_time_ms")


@dataclass(frozen=True, slots=True)
class Digest:
    """A running checksum of messages, the same however they were cut into batches."""

    rows: int = 0
    _sums: tuple[int, ...] = (0,) * (2 * len(_HASHED))

    def updated(self, rows: pa.RecordBatch) -> Digest:
        """With the messages of ``rows``, columns as ``outgoing.SCHEMA``, behind it."""
        sums: list[int] = []
        for at, name in enumerate(_HASHED):
            values, sizes = self._sums[2 * at : 2 * at + 2]
            octets, lengths = _octets(rows.column(name))
            sums += [zlib.crc32(octets, values), zlib.crc32(lengths, sizes)]
        return Digest(self.rows + rows.num_rows, tuple(sums))

    @property
    def checksum(self) -> int:
        """All of it as one number."""
        return zlib.crc32(struct.pack(f"<{len(self._sums)}I", *self._sums))


def _octets(column: Array) -> tuple[memoryview, memoryview]:
    """The bytes of a column's values, and the bytes of how long each is."""
    if pa.types.is_int64(column.type):
        values = column.fill_null(-1).to_numpy(zero_copy_only=False).astype("<i8")
        return memoryview(values.data), memoryview(b"")
    # A null counts as nothing, with others and by itself.
    if column.null_count == len(column):
        return memoryview(b""), memoryview(np.zeros(len(column), "<i4").data)
    if column.null_count:
        column = column.fill_null(b"" if pa.types.is_binary(column.type) else "")
    _, offsets, octets = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    values = memoryview(octets)[int(ends[0]) : int(ends[-1])] if octets else memoryview(b"")
    return values, memoryview(np.diff(ends).astype("<i4").data)


@dataclass(frozen=True, slots=True)
class Written:
    """What is out of one batch."""

    batch_id: int
    rows: int
    checksum: int


def nothing(batch_id: int) -> Written:
    """Nothing of a batch."""
    return Written(batch_id, 0, Digest().checksum)


def batch_of(position: int) -> int:
    """The batch that a counted position is in; -1 when there is none."""
    return position >> ROWS_BITS if position >= 0 else -1


def remembered(recent: tuple[Written, ...], batch_id: int, digest: Digest) -> tuple[Written, ...]:
    """What the next marker remembers, when ``digest`` is what is out of the newest batch."""
    earlier = tuple(written for written in recent if written.batch_id < batch_id)
    return (*earlier, Written(batch_id, digest.rows, digest.checksum))[-_RECENT_MAX:]


def out_of(marker: Marker, batch_id: int, producer: str) -> Written | None:
    """What is out of a batch, by a marker; None when nothing is.

    Raises:
        DivergedError: the marker is ahead of the batch and does not remember it.
    """
    for written in marker.recent:
        if written.batch_id == batch_id:
            return written
    newest = batch_of(marker.position)
    if newest < batch_id:
        return None
    if marker.recent and marker.recent[0].batch_id < batch_id < newest:
        return nothing(batch_id)
    raise DivergedError(
        f'batch {batch_id} of producer "{producer}" is behind its output, too far to be compared',
        detail=f"The output is at batch {newest}; the last {len(marker.recent)} are remembered.",
        hint=_HINT,
    )


def check_same(out: Written, ours: Digest, producer: str) -> None:
    """Check that as many messages of ours as are out are those that are out.

    Raises:
        DivergedError: they are not; nothing was written.
    """
    if (out.rows, out.checksum) == (ours.rows, ours.checksum):
        return
    raise DivergedError(
        f'batch {out.batch_id} of producer "{producer}" is not what was written before',
        detail=f"{out.rows} messages are out with checksum {out.checksum:08x}; ours are "
        f"{ours.rows} with {ours.checksum:08x}.",
        hint=_HINT,
    )


_HINT: Final = (
    "The checkpoint is older than the output, or two drivers run this query, or its rows come in "
    "another order each time. Keep the source's columns _stream and _sequence (and _index) in what "
    'is written: then any cut is fine. Or begin anew under another name with option "producer".'
)
