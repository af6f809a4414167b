"""Ranges of sequences between two offsets: decides what a batch reads.  Pure.

An offset is ``{stream: {"sequence": n, "time_ms": t, "created_ms": c}}``: every message up to ``n``
is read, and every message after it has a broker time of ``t`` or later.  The stream was created at
``c``.  A batch between two offsets is therefore a range of sequences and a span of time.
``created_ms`` may be absent: then the time is unknown.

An offset may also have ``newest`` and ``newest_ns``: sequence and time of the stream's last message
when the offset was made.  A sequence never gets another message, except in a stream that lost its
end: after a power failure of the server, which then numbers new messages again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

#: ``{stream: {"sequence": n, "time_ms": t, "created_ms": c}}``.
Offset = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class StreamRange:
    """The range that a batch reads of one stream."""

    stream: str
    #: Last sequence that was read before; the range starts after it.
    start: int
    #: Last sequence of the range; equal to ``start`` if it is empty.
    end: int
    #: Broker times at both ends, ms since 1970.
    start_ms: int
    end_ms: int
    #: Creation time of the stream of ``start``, and of ``end``; 0 if unknown.
    start_created_ms: int = 0
    end_created_ms: int = 0
    #: The subjects to keep; none for all.
    subjects: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the range holds no sequence."""
        return self.end <= self.start


@dataclass(frozen=True, slots=True)
class Blocks:
    """One of ``count`` readers that share a stream by blocks of ``size`` sequences."""

    size: int = 1
    index: int = 0
    count: int = 1

    def sections(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The sections (first, last), inclusive, of (start, end] that belong to this reader.

        Sequence s belongs to reader ``(s // size) % count``.
        """
        if end <= start:
            return
        if self.count == 1:
            yield start + 1, end
            return
        block = (start + 1) // self.size
        block += (self.index - block) % self.count
        while block * self.size <= end:
            yield max(start + 1, block * self.size), min(end, (block + 1) * self.size - 1)
            block += self.count

    def number_in(self, start: int, end: int) -> int:
        """Number of the sequences in (start, end] that belong to this reader."""
        return sum(last - first + 1 for first, last in self.sections(start, end))

    def owned(self, sequences: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which of ``sequences`` belong to this reader."""
        return np.asarray((sequences // self.size) % self.count == self.index)

    def first_hole(self, start: int, end: int, sequences: npt.NDArray[np.int64]) -> int | None:
        """The first of this reader's sequences in (start, end] that is not in ``sequences``.

        Args:
            start: exclusive.
            end: inclusive.
            sequences: this reader's, growing.
        """
        at = 0
        for first, last in self.sections(start, end):
            mine = sequences[at : at + last - first + 1]
            wrong = np.flatnonzero(mine != first + np.arange(len(mine)))
            if len(wrong):
                return first + int(wrong[0])
            if len(mine) <= last - first:
                return first + len(mine)
            at += len(mine)
        return None


def plan(
    partitions: Sequence[Sequence[tuple[str, tuple[str, ...]]]], start: Offset, end: Offset
) -> tuple[tuple[StreamRange, ...], ...]:
    """The ranges that each Spark partition reads.

    Every partition and every stream is present, even with nothing to read, so that a partition
    keeps its number.  A stream that is not in ``start`` begins at its first message.

    Args:
        partitions: (stream, subjects) pairs of each partition.
        start: start of the batch.
        end: end of the batch.
    """
    return tuple(
        tuple(
            _range(stream, subjects, start.get(stream, _UNKNOWN), end.get(stream, _UNKNOWN))
            for stream, subjects in pairs
        )
        for pairs in partitions
    )


def _range(
    stream: str, subjects: tuple[str, ...], start: Mapping[str, int], end: Mapping[str, int]
) -> StreamRange:
    return StreamRange(
        stream=stream,
        start=start["sequence"],
        end=end["sequence"],
        start_ms=start["time_ms"],
        end_ms=end["time_ms"],
        start_created_ms=start.get("created_ms", 0),
        end_created_ms=end.get("created_ms", 0),
        subjects=subjects,
    )


_UNKNOWN: Mapping[str, int] = {"sequence": 0, "time_ms": 0}


def split(
    groups: Sequence[Sequence[StreamRange]], partitions_min: int, records_max: int | None
) -> tuple[tuple[StreamRange, ...], ...]:
    """Divide the same ranges among more partitions, cut into pieces of equal size.

    Args:
        groups: the ranges of each partition.
        partitions_min: least number of pieces, if there are enough sequences; large ranges are cut
            into more of them than small ones.
        records_max: most sequences of a piece; None for any number.
    """
    if not partitions_min and records_max is None:
        return tuple(tuple(group) for group in groups)
    flat = [one for group in groups for one in group]
    total = sum(max(0, one.end - one.start) for one in flat)
    pieces: list[tuple[StreamRange, ...]] = []
    for one in flat:
        size = max(0, one.end - one.start)
        count = -(-size * partitions_min // total) if total else 1
        if records_max is not None:
            count = max(count, -(-size // records_max))
        count = max(1, min(count, size))
        cuts = [one.start + size * at // count for at in range(count)]
        ends = [*cuts[1:], one.end]
        pieces += [(replace(one, start=a, end=b),) for a, b in zip(cuts, ends, strict=True)]
    return tuple(pieces)


@dataclass(frozen=True, slots=True)
class StreamState:
    """A stream according to the server."""

    first: int
    last: int
    #: Creation time of the stream, ms since 1970.
    created_ms: int
    #: Whether its messages are copied from other streams, and may be older than the stream.
    is_copy: bool = False


@dataclass(frozen=True, slots=True)
class Loss:
    """Messages of a range that the stream does not have any more."""

    stream: str
    #: The missing sequences, inclusive.
    first: int
    last: int
    why: str


def is_reused(at: Mapping[str, int], last: int, stored_ns: int | None) -> bool:
    """Whether sequences up to an offset may now belong to other messages than those read.

    Args:
        at: the offset.
        last: the stream's last sequence now.
        stored_ns: time of the message that is now at ``newest``; None if it is deleted.
    """
    newest = at.get("newest", 0)
    # The end of the range is compared elsewhere while the stream is shorter than that.
    if not newest or last < at["sequence"]:
        return False
    return last < newest or stored_ns not in (None, at["newest_ns"])


_RECREATED = "the stream was deleted and made again"


def loss(span: StreamRange, state: StreamState) -> Loss | None:
    """The missing part of ``span``.  Gaps inside a stream are normal and no loss."""
    if is_another(span.end_created_ms, state.created_ms):
        return Loss(span.stream, span.start + 1, span.end, _RECREATED)
    if _start_is_of_another(span, state):
        return Loss(span.stream, 1, span.start, _RECREATED)
    if span.start > state.last or span.end > state.last:
        return Loss(
            span.stream, state.last + 1, max(span.start, span.end),
            "the stream was cut short or made again",
        )  # fmt: skip
    if not span.is_empty and state.first > span.start + 1:
        return Loss(
            span.stream, span.start + 1, min(state.first - 1, span.end),
            "they expired, or were purged, before they were read",
        )  # fmt: skip
    return None


def without_loss(span: StreamRange, state: StreamState) -> StreamRange:
    """The part of ``span`` that still exists, for readers that accept loss."""
    if is_another(span.end_created_ms, state.created_ms):
        # No message of the range is left; the next range begins with the new stream.
        return replace(span, end=span.start)
    if span.end < span.start or span.start > state.last or _start_is_of_another(span, state):
        # Created again: its present messages were never read.
        span = replace(span, start=0)
    start = max(span.start, min(state.first - 1, span.end))
    end = max(start, min(span.end, state.last))
    return replace(span, start=start, end=end)


def is_another(created_ms: int, other_ms: int) -> bool:
    """Whether two times of creation belong to two streams; 0 is an unknown time."""
    return 0 not in (created_ms, other_ms) and created_ms != other_ms


def _start_is_of_another(span: StreamRange, state: StreamState) -> bool:
    if span.start_created_ms:
        return span.start > 0 and is_another(span.start_created_ms, state.created_ms)
    # An offset without ``created_ms`` is older than the stream if its time is.
    return span.start > 0 and not state.is_copy and 0 < span.start_ms < state.created_ms


@dataclass(frozen=True, slots=True)
class Backlog:
    """Messages of a stream after an offset."""

    #: Sequences, deleted ones included.
    sequences: int
    #: Average size of a message, bytes.
    message_bytes: float


def admitted(
    backlogs: Mapping[str, Backlog], offsets_max: int | None, bytes_max: int | None
) -> dict[str, int]:
    """Number of sequences that a batch reads of each stream.

    The limits hold for all streams together and are shared by backlog, as in Spark's Kafka source.
    A stream with a backlog always gets at least one sequence.
    """
    share = 1.0
    sequences = sum(one.sequences for one in backlogs.values())
    size = sum(one.sequences * one.message_bytes for one in backlogs.values())
    if offsets_max is not None and sequences > offsets_max:
        share = offsets_max / sequences
    if bytes_max is not None and size > bytes_max:
        share = min(share, bytes_max / size)
    return {
        stream: one.sequences
        if share == 1.0
        else min(one.sequences, max(1, int(one.sequences * share)))
        for stream, one in backlogs.items()
    }
