"""Values of a marker: position of a producer in a stream, and digests of its last batches."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """Published part of one batch."""

    batch_id: int
    rows: int
    checksum: int
    #: Whether the batch has no more; None when an earlier version left it, which did not say.
    is_whole: bool | None = None


@dataclass(frozen=True, slots=True)
class Marker:
    """Published position of a producer in a stream."""

    #: Position of the last row that is out; -1 when none is.
    position: int
    #: The epoch of the writer that left it; -1 when there is none.
    epoch: int
    #: The marker's own sequence, which the next one expects; 0 when there is none.
    sequence: int
    #: The run of the batch that left it; "" when it is not known.
    run: str = field(default="", compare=False)
    #: The Spark partition that left it; -1 when it is not known.
    task: int = field(default=-1, compare=False)
    #: What is out of the last batches, oldest first, when positions are counted.
    recent: tuple[BatchRecord, ...] = field(default=(), compare=False)


NONE = Marker(-1, -1, 0)
