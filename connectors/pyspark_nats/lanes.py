"""What is known of each producer in a stream, and what is left of its rows to write.

Decisions only: markers and rows come in, nothing is sent or read here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from pyspark_nats import outgoing, progress
from pyspark_nats.arrow import kernels
from pyspark_nats.errors import DivergedError, OrderError, RefusedError, StaleWriterError
from pyspark_nats.markers import Marker
from pyspark_nats.progress import Digest

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_nats.jetstream import StreamInfo
    from pyspark_nats.publish import Origin

Pair = tuple[str, str]


@dataclass
class Lane:
    """What is known of one (stream, producer)."""

    pair: Pair
    #: As it will be once what was sent is stored; None when it must be read.
    marker: Marker | None
    #: Of the marker that is stored, as far as is known; 0 for none.
    sequence: int = 0
    #: Whether this task has read or written the marker.
    is_sure: bool = False
    #: (first position, position) of the last row that came.
    last: tuple[int, int] = (-1, -1)
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    #: Of all rows cut into chunks, when positions are counted.
    digest: Digest = field(default_factory=Digest)


@dataclass
class Chunk:
    """Rows that go out together."""

    lane: Lane
    rows: pa.RecordBatch
    #: Before the rows and behind them.
    before: Digest
    digest: Digest
    #: Of the atomic batch that its rows were sent in; "" when they were not.
    batch_id: str = ""
    #: When they were, monotonic seconds.
    sent_s: float = 0.0
    #: The subject that its ack comes on; "" when its marker is not on its way.
    reply: str = ""
    #: Whether the batch ends here, when positions are counted; such a chunk may have no rows.
    is_last: bool = False
    #: What its lane's marker was to be when it was sent.
    marker: Marker | None = None


def check_marker(pair: Pair, marker: Marker, epoch: int, ours: Origin) -> None:
    """Check that ``marker`` was not left by somebody who makes us superfluous.

    Raises:
        StaleWriterError: it is of a newer epoch than ours.
        OrderError: another partition left it in this run of this batch.
    """
    stream, producer = pair
    if marker.epoch > epoch:
        raise StaleWriterError(
            f'producer "{producer}" of stream "{stream}" has a newer writer',
            detail=f"Its epoch is {marker.epoch}, ours is {epoch}.",
            hint="This writer was replaced; it must stop.",
        )
    if ours.run and marker.run == ours.run and marker.task != ours.task:
        # One of the two would take the other's rows for its own, and skip its own as written.
        raise OrderError(
            f'rows of producer "{producer}" come from two Spark partitions in one batch',
            detail=f'They are partitions {marker.task} and {ours.task}; stream "{stream}".',
            hint="Repartition by producer (or by _stream), or do not split the source's "
            'streams with option "minPartitions".',
        )


def take_off(chunk: Chunk, batch_id: int | None) -> bool:
    """Take out of a chunk what is out already by its lane's marker.

    Args:
        chunk: its lane's marker is known.
        batch_id: of rows with counted positions; None for others.

    Returns:
        Whether anything is left: rows, or the word that the batch is whole.  When the marker must
        be read first, because an earlier task left it, the lane's marker becomes None and the chunk
        stays as it is.

    Raises:
        DivergedError: what is out is not, or not provably, the same as these rows.
    """
    lane, marker = chunk.lane, chunk.lane.marker
    assert marker is not None
    positions = outgoing.positions(chunk.rows)
    first = int(np.searchsorted(positions, marker.position, side="right"))
    if not lane.is_sure and (first > 0 or not _is_before(marker, batch_id)):
        # The stream may have been made anew since an earlier task knew the marker.
        lane.marker = None
        return True
    if batch_id is not None:
        _check_out(chunk, marker, first, batch_id)
    if first == len(positions):
        chunk.rows, chunk.before = chunk.rows.slice(first), chunk.digest
        return chunk.is_last and batch_id is not None and _is_open(marker, batch_id)
    rows = outgoing.trimmed(chunk.rows, first, marker.position)
    if rows is None:
        raise DivergedError(
            f'another writer of producer "{lane.pair[1]}" grouped rows into messages differently',
            detail=f"It is at position {marker.position}, within a message of ours.",
            hint="Run the batch again; and see that only one driver runs the query.",
        )
    if batch_id is not None and first:
        chunk.before = chunk.before.updated(chunk.rows.slice(0, first))
    chunk.rows = rows.slice(first)
    return True


def _is_before(marker: Marker, batch_id: int | None) -> bool:
    """Whether a marker knows of nothing but whole batches before this one."""
    return batch_id is None or (
        progress.newest(marker) < batch_id
        and all(out.is_whole is not False for out in marker.recent)
    )


def _is_open(marker: Marker, batch_id: int) -> bool:
    """Whether it must still be said that a batch, all of which is out, is whole."""
    if progress.newest(marker) > batch_id:
        return False
    return not any(out.batch_id == batch_id and out.is_whole for out in marker.recent)


def _check_out(chunk: Chunk, marker: Marker, first: int, batch_id: int) -> None:
    """Check that what is out of a batch is a beginning of ours, as far as this chunk tells.

    The first rows of the chunk are out by their positions.
    """
    producer = chunk.lane.pair[1]
    out = progress.out_of(marker, batch_id, producer)
    if out is None:
        progress.check_turn(marker, batch_id, producer)
        out = progress.nothing(batch_id)
    behind = chunk.before.rows + first
    is_too_much = chunk.is_last and out.rows > chunk.digest.rows
    is_too_little = bool(out.is_whole) and out.rows < chunk.digest.rows
    if is_too_much or is_too_little or out.rows < behind:
        progress.check_same(out, chunk.digest, producer)
    elif out.rows == behind:
        ours = chunk.before.updated(chunk.rows.slice(0, first)) if first else chunk.before
        progress.check_same(out, ours, producer)


def next_marker(chunk: Chunk, epoch: int, ours: Origin) -> Marker:
    """The marker that goes out behind a chunk, after its lane's; its sequence is not known yet."""
    before, rows = chunk.lane.marker, chunk.rows
    assert before is not None
    position = rows.column("position")[-1].as_py() if rows.num_rows else before.position
    recent = before.recent
    if ours.batch_id is not None:
        recent = progress.remembered(recent, ours.batch_id, chunk.digest, is_whole=chunk.is_last)
    return Marker(position, epoch, 0, run=ours.run, task=ours.task, recent=recent)


def check_whole(lane: Lane, batch_id: int) -> None:
    """Check that what is out of a batch is all of its rows, and no more.

    Raises:
        DivergedError: it is not.
    """
    assert lane.marker is not None
    out = progress.out_of(lane.marker, batch_id, lane.pair[1]) or progress.nothing(batch_id)
    progress.check_same(out, lane.digest, lane.pair[1])


def check_stream(info: StreamInfo, marker_prefix: str) -> None:
    """Check that a stream takes atomic batches and holds markers.

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
    if not any(outgoing.matches(pattern, subject) for pattern in info.subjects):
        raise RefusedError(
            f'stream "{info.name}" does not hold the marker\'s subject "{subject}"',
            detail=f"Its subjects: {', '.join(info.subjects)}.",
            hint=f'Add "{marker_prefix}.{info.name}.>" to its subjects. {hint}',
        )


def check_subjects(info: StreamInfo, rows: pa.RecordBatch, error: RefusedError) -> None:
    """Check that a stream which refused a batch with ``error`` holds its subjects.

    Raises:
        RefusedError: it does not hold one of them.
    """
    for subject in kernels.unique(rows.column("subject")).to_pylist():
        if not any(outgoing.matches(pattern, subject) for pattern in info.subjects):
            raise RefusedError(
                f'stream "{info.name}" does not hold subject "{subject}"',
                detail=f"Its subjects: {', '.join(info.subjects)}.",
                hint="All rows of a producer go to one stream; "
                'say which with the column or option "stream".',
                err_code=error.err_code,
            ) from error
