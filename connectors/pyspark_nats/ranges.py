"""From offsets to ranges of sequences to read.  Pure; what a batch reads is decided here.

An offset is ``{stream: {"sequence": n, "time_ms": t}}``: every message up to ``n`` is read, and
every message after it has a broker time of ``t`` or later.  A batch between two offsets is
therefore a range of sequences and a span of time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

#: ``{stream: {"sequence": n, "time_ms": t}}``.
Offset = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class StreamRange:
    """What a batch reads of one stream."""

    stream: str
    #: Last sequence that was read before; the range starts behind it.
    start: int
    #: Last sequence of the range; equal to ``start`` when it is empty.
    end: int
    #: Broker times at both ends, ms since 1970.
    start_ms: int
    end_ms: int

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

    def own(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The stretches of (start, end] that are this reader's, each as (first, last), inclusive.

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


def plan(
    partitions: Sequence[Sequence[str]], start: Offset, end: Offset
) -> tuple[tuple[StreamRange, ...], ...]:
    """The ranges that each Spark partition reads.

    Every partition and every stream is there even with nothing to read, so that a partition keeps
    its number.  A stream that ``start`` does not know begins at its first message.
    """
    return tuple(
        tuple(
            StreamRange(
                stream,
                start.get(stream, _UNKNOWN)["sequence"],
                end.get(stream, _UNKNOWN)["sequence"],
                start.get(stream, _UNKNOWN)["time_ms"],
                end.get(stream, _UNKNOWN)["time_ms"],
            )
            for stream in streams
        )
        for streams in partitions
    )


_UNKNOWN: Mapping[str, int] = {"sequence": 0, "time_ms": 0}


@dataclass(frozen=True, slots=True)
class StreamState:
    """A stream as the server described it."""

    first: int
    last: int
    #: When the stream was made, ms since 1970; 0 when that says nothing (mirrors and the like).
    created_ms: int


@dataclass(frozen=True, slots=True)
class Loss:
    """Messages that a range asks for and the stream does not have any more."""

    stream: str
    #: The missing sequences, inclusive.
    first: int
    last: int
    why: str


def loss(wanted: StreamRange, state: StreamState) -> Loss | None:
    """What is missing of ``wanted``.  Gaps inside a stream are normal and no loss."""
    if wanted.start > 0 and 0 < wanted.start_ms < state.created_ms:
        return Loss(wanted.stream, 1, wanted.start, "the stream was deleted and made again")
    if wanted.start > state.last or wanted.end > state.last:
        return Loss(
            wanted.stream, state.last + 1, max(wanted.start, wanted.end),
            "the stream was cut short or made again",
        )  # fmt: skip
    if not wanted.is_empty and state.first > wanted.start + 1:
        return Loss(
            wanted.stream, wanted.start + 1, min(state.first - 1, wanted.end),
            "they expired, or were purged, before they were read",
        )  # fmt: skip
    return None


def without_loss(wanted: StreamRange, state: StreamState) -> StreamRange:
    """The part of ``wanted`` that is still there, for readers that accept loss."""
    if wanted.end < wanted.start or wanted.start > state.last:
        # Made again: what it holds now was never read.
        wanted = StreamRange(wanted.stream, 0, wanted.end, wanted.start_ms, wanted.end_ms)
    start = max(wanted.start, min(state.first - 1, wanted.end))
    end = max(start, min(wanted.end, state.last))
    return StreamRange(wanted.stream, start, end, wanted.start_ms, wanted.end_ms)
