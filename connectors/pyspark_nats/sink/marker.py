"""Values of a marker: position of a producer in a stream, and digests of its last batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pyspark_nats.errors import StaleWriterError

#: Beginning of the subjects of markers, unless the sink's ``markerPrefix`` says else.
PREFIX: Final = "mesh._marker"


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """Published part of one batch."""

    batch_id: int
    rows: int
    checksum: int
    #: Whether the batch has no more rows; None if an earlier version wrote the record without this.
    is_whole: bool | None = None


@dataclass(frozen=True, slots=True)
class IngestBatch:
    """Batch whose rows are stored as they come, after the marker that names it."""

    batch_id: str
    #: Key of the tags of its rows.
    key: bytes
    #: Number of its rows up to the marker's position.
    rows: int = 0
    #: Sequence after which its further rows are stored; 0 for the marker's own.
    since: int = 0


@dataclass(frozen=True, slots=True)
class Marker:
    """Published position of a producer in a stream."""

    #: Position of the last published row; -1 for none.
    position: int
    #: Epoch of the writer; -1 without one.
    epoch: int
    #: The marker's own sequence, which the next one expects; 0 without a marker.
    sequence: int
    #: The run of the batch that wrote it; "" if unknown.
    run: str = field(default="", compare=False)
    #: The Spark partition that wrote it; -1 if unknown.
    task: int = field(default=-1, compare=False)
    #: Records of the last batches, oldest first, if positions are counted.
    recent: tuple[BatchRecord, ...] = field(default=(), compare=False)
    #: The server's time of the marker, ms since 1970; 0 if unknown.
    time_ms: int = field(default=0, compare=False)
    #: The batch whose rows may follow; None if the marker comes after all rows.
    ingest: IngestBatch | None = field(default=None, compare=False)


NONE = Marker(-1, -1, 0)


def replaced(pair: tuple[str, str], marker: Marker, epoch: int) -> StaleWriterError:
    """The error of a writer of ``epoch`` whose (stream, producer) has a marker of a newer one."""
    stream, producer = pair
    return StaleWriterError(
        f'producer "{producer}" of stream "{stream}" has a newer writer, of epoch {marker.epoch}',
        detail=f"Our epoch is {epoch}.",
        hint="This writer was replaced; it must stop.",
    )
