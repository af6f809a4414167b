"""Digest of each published batch, and the check that a replayed batch is the same.

A counted position consists of the batch and the number of a message in it.  It is meaningful only
if a replayed batch has the same messages.  So a marker also keeps, for the last batches, the number
of published messages and their checksum.  Messages up to the marker are skipped only if both agree.
A checkpoint that is older than the output, or another driver, may cut batches differently: that is
detected before a row is lost or doubled.

A writer with the same beginning may continue a batch that another writer left incomplete.  So the
last atomic batch of a Spark batch records that the batch is whole, in the same stored unit as its
rows.  From then on the batch has exactly those rows: a writer with more or fewer is refused.  A
batch without rows is recorded as whole with none.

Two drivers with different cuts can't double rows unnoticed, for one stream and producer.  A driver
reaches batch n + 1 only if its batch n was whole here with exactly its own rows: it wrote them,
compared them, or was refused.  So by induction all drivers that reach it had the same cuts until
then, and the stream holds these batches once each.  No driver continues after a batch that is
published in part, because the writer of that batch has not finished it.

This needs a record of every batch.  There is none if no task ran for the producer (a driver had
fewer Spark partitions in that batch).  Nor is there one if no row went to the stream and only rows
name the stream (by a column, or by subjects with columns).  Two concurrent drivers that differ only
in that are detected at the next batch that both write.  An ``epoch`` detects them at once, and
positions from the source need none of this.

Pure: markers are arguments, decisions are results.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from pyspark_nats.errors import DivergedError
from pyspark_nats.sink.markers import BatchRecord
from pyspark_nats.sink.messages_out import ROWS_BITS

if TYPE_CHECKING:
    from pyspark_nats.arrow import Array
    from pyspark_nats.sink.markers import Marker

#: Number of batches that a marker remembers.
_RECENT_MAX: Final = 16
_HASHED: Final = ("subject", "data", "header_lines", "event_time_ms")


@dataclass(frozen=True, slots=True)
class BatchDigest:
    """A running checksum of messages, independent of their division into batches."""

    rows: int = 0
    _sums: tuple[int, ...] = (0,) * (2 * len(_HASHED))

    def updated(self, rows: pa.RecordBatch) -> BatchDigest:
        """The digest extended by the messages of ``rows``, columns as ``messages_out.SCHEMA``."""
        sums: list[int] = []
        for at, name in enumerate(_HASHED):
            values, sizes = self._sums[2 * at : 2 * at + 2]
            octets, lengths = _octets(rows.column(name))
            sums += [zlib.crc32(octets, values), zlib.crc32(lengths, sizes)]
        return BatchDigest(self.rows + rows.num_rows, tuple(sums))

    @property
    def checksum(self) -> int:
        """The whole digest as one number."""
        return zlib.crc32(struct.pack(f"<{len(self._sums)}I", *self._sums))


def _octets(column: Array) -> tuple[memoryview, memoryview]:
    """The bytes of a column's values, and the bytes of each length."""
    if pa.types.is_int64(column.type):
        values = column.fill_null(-1).to_numpy(zero_copy_only=False).astype("<i8")
        return memoryview(values.data), memoryview(b"")
    # A null adds nothing, alone or among other values.
    if column.null_count == len(column):
        return memoryview(b""), memoryview(np.zeros(len(column), "<i4").data)
    if column.null_count:
        column = column.fill_null(b"" if pa.types.is_binary(column.type) else "")
    _, offsets, octets = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    values = memoryview(octets)[int(ends[0]) : int(ends[-1])] if octets else memoryview(b"")
    return values, memoryview(np.diff(ends).astype("<i4").data)


def nothing(batch_id: int) -> BatchRecord:
    """The record of an empty batch."""
    return BatchRecord(batch_id, 0, BatchDigest().checksum)


def batch_of(position: int) -> int:
    """The batch of a counted position; -1 without one."""
    return position >> ROWS_BITS if position >= 0 else -1


def newest(marker: Marker) -> int:
    """The newest batch in a marker; -1 for none."""
    at = batch_of(marker.position)
    return max(at, marker.recent[-1].batch_id) if marker.recent else at


def remembered(
    recent: tuple[BatchRecord, ...], batch_id: int, digest: BatchDigest, *, is_whole: bool
) -> tuple[BatchRecord, ...]:
    """The records for the next marker, with ``digest`` of the newest batch."""
    earlier = tuple(written for written in recent if written.batch_id < batch_id)
    mine = BatchRecord(batch_id, digest.rows, digest.checksum, is_whole)
    return (*earlier, mine)[-_RECENT_MAX:]


def out_of(marker: Marker, batch_id: int, producer: str) -> BatchRecord | None:
    """The published part of a batch, according to a marker; None if there is none.

    Raises:
        DivergedError: the marker is ahead of the batch and does not remember it.
    """
    for written in marker.recent:
        if written.batch_id == batch_id:
            return written
    last = newest(marker)
    if last < batch_id:
        return None
    if marker.recent and marker.recent[0].batch_id < batch_id < last:
        return nothing(batch_id)
    raise DivergedError(
        f'batch {batch_id} of producer "{producer}" is too many batches '
        "earlier than its output to be compared",
        detail=f"The output is at batch {last}; the last {len(marker.recent)} are remembered.",
        hint=_HINT,
    )


def check_same(out: BatchRecord, ours: BatchDigest, producer: str) -> None:
    """Check that our first messages equal the published ones.

    Raises:
        DivergedError: they differ; nothing was written.
    """
    if (out.rows, out.checksum) == (ours.rows, ours.checksum):
        return
    whole = ", and the batch is whole" if out.is_whole else ""
    raise DivergedError(
        f'batch {out.batch_id} of producer "{producer}" is not what was written before',
        detail=f"{out.rows} messages are out with checksum {out.checksum:08x}{whole}; "
        f"ours are {ours.rows} with {ours.checksum:08x}.",
        hint=_HINT,
    )


def check_turn(marker: Marker, batch_id: int, producer: str) -> None:
    """Check that no batch before ``batch_id`` is published only in part.

    Raises:
        DivergedError: one is; a driver that reached the next batch had finished its own.
    """
    for out in marker.recent:
        if out.batch_id < batch_id and out.is_whole is False:
            raise DivergedError(
                f'batch {out.batch_id} of producer "{producer}" is published in part, and batch '
                f"{batch_id} comes",
                detail=f"{out.rows} messages of it are out; who wrote them is not through.",
                hint=_HINT,
            )


_HINT: Final = (
    "The checkpoint is older than the output, or two drivers run this query, or its rows come in "
    "another order each time. Keep the source's columns _stream and _sequence (and _index) in what "
    'is written: then any cut is fine. Or begin anew under another name with option "producer".'
)
