"""Bound on the atomic batches that are open: their rows are sent, and no ack has arrived."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_nats.sink.producer_state import PendingBatch


@dataclass(frozen=True, slots=True)
class BatchBound:
    """Most open batches in a stream, and in all; streams store theirs side by side."""

    in_stream: int
    total: int

    def admits(self, stream: str, batches: Iterable[PendingBatch]) -> bool:
        """Whether another batch may be sent to a stream; those that are not sent don't count."""
        counts = _by_stream(batch for batch in batches if batch.batch_id)
        return counts[stream] < self.in_stream and counts.total() < self.total

    def holds(self, batches: Iterable[PendingBatch]) -> bool:
        """Whether no more batches are pending than may be open."""
        counts = _by_stream(batches)
        return max(counts.values(), default=0) <= self.in_stream and counts.total() <= self.total


def _by_stream(batches: Iterable[PendingBatch]) -> Counter[str]:
    return Counter(batch.state.pair[0] for batch in batches)


NONE: Final = BatchBound(0, 0)
ONE: Final = BatchBound(1, 1)
#: The server accepts fifty in a stream, of all writers.
USUAL: Final = BatchBound(3, 8)
