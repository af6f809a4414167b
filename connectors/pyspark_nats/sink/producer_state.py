"""State of each producer in a stream, and the rows that it has still to publish.

Pure: markers and rows are arguments, decisions are results; nothing is sent or read here.

Digest of each published batch, and the check that a replayed batch is the same.

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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from pyspark_nats.arrow import concat_batches, kernels
from pyspark_nats.errors import DataLossError, DivergedError, OrderError, RefusedError
from pyspark_nats.few_rows import as_batch
from pyspark_nats.sink import messages_out
from pyspark_nats.sink.markers import BatchRecord, Marker, replaced
from pyspark_nats.sink.messages_out import ROWS_BITS

if TYPE_CHECKING:
    from pyspark_nats.arrow import Array
    from pyspark_nats.protocol.jetstream import StreamInfo
    from pyspark_nats.sink.markers import Origin


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


Pair = tuple[str, str]

#: Greatest difference between the clocks of two servers, ms.
CLOCKS_MS: Final = 1000
#: Octets of the headers that each message of an atomic batch has, at least.
_HEADER_BYTES: Final = 59


@dataclass
class ProducerState:
    """State of one (stream, producer)."""

    pair: Pair
    #: The marker after everything that was sent is stored; None if it must be read first.
    marker: Marker | None
    #: Sequence of the stored marker, as far as known; 0 for none.
    sequence: int = 0
    #: Whether this task has read or written the marker.
    is_verified: bool = False
    #: (first position, position) of the last row received.
    last: tuple[int, int] = (-1, -1)
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    #: Of all rows cut into pending batches, if positions are counted.
    digest: BatchDigest = field(default_factory=BatchDigest)

    def whole(self) -> pa.RecordBatch:
        """The rows that wait, of which there is at least one, as one batch."""
        if len(self.waiting) == 1:
            return self.waiting[0]
        return concat_batches([as_batch(rows) for rows in self.waiting])


@dataclass
class PendingBatch:
    """Rows that are published as one atomic batch."""

    state: ProducerState
    rows: pa.RecordBatch
    #: Digest before the rows and after them.
    before: BatchDigest
    digest: BatchDigest
    #: Name of the atomic batch that carries the rows; "" if they are not sent.
    batch_id: str = ""
    #: Time at which the rows were sent, monotonic seconds.
    sent_s: float = 0.0
    #: Subject of the ack; "" if the marker is not sent.
    reply: str = ""
    #: Whether Spark's batch ends here, if positions are counted; it may then have no rows.
    is_last: bool = False
    #: The marker that ends the atomic batch.
    marker: Marker | None = None
    #: The server's time before which no input of the rows was stored, ms since 1970; 0 if unknown.
    since_ms: int = 0


def check_marker(pair: Pair, marker: Marker, epoch: int, ours: Origin) -> None:
    """Check that the writer of ``marker`` does not replace this one.

    Raises:
        StaleWriterError: it has a newer epoch than ours.
        OrderError: another partition wrote it in this run of this batch.
    """
    stream, producer = pair
    if marker.epoch > epoch:
        raise replaced(pair, marker, epoch)
    if ours.run and marker.run == ours.run and marker.task != ours.task:
        # Each of the two would mistake the other's rows for its own, and skip its own as published.
        raise OrderError(
            f'rows of producer "{producer}" come from two Spark partitions in one batch',
            detail=f'They are partitions {marker.task} and {ours.task}; stream "{stream}".',
            hint="Repartition by producer (or by _stream), do not split the source's streams with "
            'option "minPartitions", and drop "_stream" and "_sequence" from a union of a stream '
            "with itself.",
        )


def skip_published(batch: PendingBatch, ours: Origin) -> bool:
    """Drop the rows of a pending batch that the stream's marker shows as already published.

    Args:
        batch: with a known marker of its producer.
        ours: this writer.

    Returns:
        True if something remains to be sent: rows, or only the end-of-batch record.  If an earlier
        task read the marker, it may be stale: then it is reset to None and the batch is unchanged,
        so that the caller reads it first.

    Raises:
        DivergedError: the published rows are not, or not provably, the same as these rows.
        DataLossError: they were published before the input of these rows was stored.
    """
    state, marker, batch_id = batch.state, batch.state.marker, ours.batch_id
    assert marker is not None
    positions = messages_out.positions(batch.rows)
    first = int(np.searchsorted(positions, marker.position, side="right"))
    if not state.is_verified and (first > 0 or not _is_before(marker, batch_id)):
        # The stream may have been created again since an earlier task read the marker.
        state.marker = None
        return True
    if first and marker.time_ms:
        check_input(state.pair, marker, batch.since_ms)
    if batch_id is not None:
        _check_out(batch, marker, first, batch_id)
    if first == len(positions):
        batch.rows, batch.before = batch.rows.slice(first), batch.digest
        return batch.is_last and batch_id is not None and _is_open(marker, batch_id)
    rows = messages_out.trimmed(batch.rows, first, marker.position)
    if rows is None:
        raise DivergedError(
            f'another writer of producer "{state.pair[1]}" grouped rows into messages differently',
            detail=f"It is at position {marker.position}, within a message of ours.",
            hint="Run the batch again; and see that only one driver runs the query.",
        )
    if batch_id is not None and first:
        batch.before = batch.before.updated(batch.rows.slice(0, first))
    batch.rows = rows.slice(first)
    return True


def check_input(pair: Pair, marker: Marker, since_ms: int) -> None:
    """Check that rows which a marker shows as published are not those of another input.

    Args:
        pair: stream and producer.
        marker: as it was read, with its time.
        since_ms: the server's time before which no input of the rows was stored; 0 if unknown.

    Raises:
        DataLossError: that was after the marker.
    """
    if since_ms <= marker.time_ms + CLOCKS_MS:
        return
    stream, producer = pair
    raise DataLossError(
        f'stream "{stream}" holds output of producer "{producer}" whose input is lost',
        detail=f"By sequence {marker.sequence} rows are published whose input was stored "
        f"{since_ms - marker.time_ms} ms later. The input's stream was created again, or a server "
        "that lost its power used sequences again.",
        hint='Begin again with another producer, in Spark by the option "producer"; or restore a '
        "backup.",
    )


def _is_before(marker: Marker, batch_id: int | None) -> bool:
    """Whether a marker records only whole batches before this one."""
    return batch_id is None or (
        newest(marker) < batch_id and all(out.is_whole is not False for out in marker.recent)
    )


def _is_open(marker: Marker, batch_id: int) -> bool:
    """Whether the end of a completely published batch is still to be recorded."""
    if newest(marker) > batch_id:
        return False
    return not any(out.batch_id == batch_id and out.is_whole for out in marker.recent)


def _check_out(batch: PendingBatch, marker: Marker, first: int, batch_id: int) -> None:
    """Check that the published part of a batch equals the first of our rows.

    By their positions, the first rows of ``batch`` are published.  The check covers only these
    rows.
    """
    producer = batch.state.pair[1]
    out = out_of(marker, batch_id, producer)
    if out is None:
        check_turn(marker, batch_id, producer)
        out = nothing(batch_id)
    behind = batch.before.rows + first
    is_too_much = batch.is_last and out.rows > batch.digest.rows
    is_too_little = bool(out.is_whole) and out.rows < batch.digest.rows
    if is_too_much or is_too_little or out.rows < behind:
        check_same(out, batch.digest, producer)
    elif out.rows == behind:
        ours = batch.before.updated(batch.rows.slice(0, first)) if first else batch.before
        check_same(out, ours, producer)


def next_marker(batch: PendingBatch, epoch: int, ours: Origin) -> Marker:
    """The marker that ends a pending batch; its sequence is not known yet."""
    before, rows = batch.state.marker, batch.rows
    assert before is not None
    position = rows.column("position")[-1].as_py() if rows.num_rows else before.position
    recent = before.recent
    if ours.batch_id is not None:
        recent = remembered(recent, ours.batch_id, batch.digest, is_whole=batch.is_last)
    return Marker(position, epoch, 0, run=ours.run, task=ours.task, recent=recent)


def check_whole(state: ProducerState, batch_id: int) -> None:
    """Check that the published part of a batch is all of its rows, and no more.

    Raises:
        DivergedError: it is not.
    """
    assert state.marker is not None
    out = out_of(state.marker, batch_id, state.pair[1]) or nothing(batch_id)
    check_same(out, state.digest, state.pair[1])


def check_stream(info: StreamInfo, marker_prefix: str) -> None:
    """Check that a stream accepts atomic batches and holds markers.

    Raises:
        RefusedError: it does not.
    """
    hint = 'Or set option "deliveryGuarantee" to "at-least-once", which needs neither.'
    if not info.allow_atomic:
        raise RefusedError(
            f'stream "{info.name}" does not take atomic batches',
            hint=f'Set "allow_atomic" in its configuration. {hint}',
        )
    subject = f"{marker_prefix}.{info.name}.p"
    if not any(messages_out.matches(pattern, subject) for pattern in info.subjects):
        raise RefusedError(
            f'stream "{info.name}" does not hold the marker\'s subject "{subject}"',
            detail=f"Its subjects: {', '.join(info.subjects)}.",
            hint=f'Add "{marker_prefix}.{info.name}.>" to its subjects. {hint}',
        )


def check_rows(info: StreamInfo, rows: pa.RecordBatch, error: RefusedError) -> None:
    """Check that a stream which refused a batch with ``error`` holds its subjects and sizes.

    Raises:
        RefusedError: it does not hold one of them.
    """
    largest = messages_out.largest_size(rows)
    if 0 < info.message_bytes_max < largest + _HEADER_BYTES:
        raise RefusedError(
            f"a message of {largest} bytes and its headers are larger than stream "
            f'"{info.name}" takes',
            detail=f"It takes {info.message_bytes_max} bytes.",
            hint='Raise "max_msg_size" of the stream, or put fewer rows into a message.',
            err_code=error.err_code,
        ) from error
    for subject in kernels.unique(rows.column("subject")).to_pylist():
        if not any(messages_out.matches(pattern, subject) for pattern in info.subjects):
            raise RefusedError(
                f'stream "{info.name}" does not hold subject "{subject}"',
                detail=f"Its subjects: {', '.join(info.subjects)}.",
                hint="All rows of a producer go to one stream; "
                'say which with the column or option "stream".',
                err_code=error.err_code,
            ) from error
