"""Messages of a stream as columns, and their conversion from frames."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

from pyspark_nats.arrow import FEW, int64s, kernels, rows_at
from pyspark_nats.protocol.connection import DisconnectedError
from pyspark_nats.protocol.frames import header_values
from pyspark_nats.source import subjects

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from pyspark_nats.arrow import Array
    from pyspark_nats.protocol import frames

    Bools = npt.NDArray[np.bool_]
    Ints = npt.NDArray[np.int64]

T = TypeVar("T")

#: A search for gaps is worthwhile if there are fewer than one in so many messages.
_GAP_DISTANCE = 64


class Messages:
    """Messages of one stream in their order; every column has length n.

    Expensive columns are computed on first use.
    """

    def __init__(
        self,
        stream: str,
        sequence: Ints,
        data: Callable[[], Array],
        header: Callable[[], Array],
        subject: Callable[[], Array],
        time_ns: Callable[[], Ints],
        some: Callable[[Bools | slice], Messages] | None = None,
        few: Callable[[], list[tuple[bytes, bytes]] | None] = lambda: None,
        few_subjects: Callable[[], list[str] | None] = lambda: None,
    ) -> None:
        """Create from the columns below, or from functions that return them.

        ``some`` gives the messages where a mask is true, or of a slice, without columns of all.
        """
        self.stream = stream
        self.sequence = sequence
        self._data = data
        self._header = header
        self._subject = subject
        self._time_ns = time_ns
        self._some = some
        self._few = few
        self._few_subjects = few_subjects

    def __len__(self) -> int:
        return len(self.sequence)

    @cached_property
    def data(self) -> Array:
        """The payloads, binary."""
        return self._data()

    @cached_property
    def few(self) -> list[tuple[bytes, bytes]] | None:
        """Header block, empty without one, and payload of each; None where only columns are."""
        return self._few()

    @cached_property
    def header(self) -> Array:
        """Header blocks, binary; empty or null for a message without headers."""
        return self._header()

    @cached_property
    def subject(self) -> Array:
        """The subjects, string."""
        return self._subject()

    @cached_property
    def time_ns(self) -> Ints:
        """Broker times, ns since 1970."""
        return self._time_ns()

    @property
    def few_subjects(self) -> list[str] | None:
        """The subjects; None where only the column is."""
        return self._few_subjects()

    def matching(self, patterns: Sequence[str]) -> Messages:
        """The messages whose subject one of the patterns matches."""
        few = self._few_subjects()
        if few is not None and all(subject in patterns for subject in few):
            return self
        return self.take(subjects.matching(self.subject if few is None else few, patterns))

    def slice(self, first: int, end: int) -> Messages:
        """The messages from index ``first`` to before ``end``."""
        if first == 0 and end == len(self):
            return self
        if self._some is not None and "data" not in self.__dict__:
            return self._some(slice(first, end))
        count = end - first
        return Messages(
            self.stream,
            self.sequence[first:end],
            lambda: self.data.slice(first, count),
            lambda: self.header.slice(first, count),
            lambda: self.subject.slice(first, count),
            lambda: self.time_ns[first:end],
        )

    def take(self, keep: Bools) -> Messages:
        """The messages where ``keep`` is true."""
        if keep.all():
            return self
        if self._some is not None and "data" not in self.__dict__:
            return self._some(keep)
        mask = pa.array(keep)
        return Messages(
            self.stream,
            self.sequence[keep],
            lambda: self.data.filter(mask),
            lambda: self.header.filter(mask),
            lambda: self.subject.filter(mask),
            lambda: self.time_ns[keep],
        )


def concatenated(parts: list[Messages]) -> Messages:
    """Join messages of the same stream into one value; needs at least one."""
    if len(parts) == 1:
        return parts[0]

    def some(which: Bools | slice) -> Messages:
        slices, begin = [], 0
        for part in parts:
            end = begin + len(part)
            if isinstance(which, slice):
                first, last = (min(max(at, begin), end) for at in (which.start, which.stop))
                slices.append(part.slice(first - begin, last - begin))
            else:
                slices.append(part.take(which[begin:end]))
            begin = end
        return concatenated([part for part in slices if len(part)] or slices[:1])

    return Messages(
        parts[0].stream,
        np.concatenate([part.sequence for part in parts]),
        lambda: pa.concat_arrays([part.data for part in parts]),
        lambda: pa.concat_arrays([part.header for part in parts]),
        lambda: pa.concat_arrays([part.subject for part in parts]),
        lambda: np.concatenate([part.time_ns for part in parts]),
        some,
        lambda: _joined([part.few for part in parts]),
        lambda: _joined([part.few_subjects for part in parts]),
    )


def _joined(parts: list[list[T] | None]) -> list[T] | None:
    """Lists as one; None if one is None."""
    joined: list[T] = []
    for part in parts:
        if part is None:
            return None
        joined += part
    return joined


def in_order(messages: Messages) -> Messages:
    """Sorted by sequence: answers to several requests arrive in any order."""
    if (np.diff(messages.sequence) > 0).all():
        return messages
    order = np.argsort(messages.sequence)
    at = rows_at(order)
    return Messages(
        messages.stream,
        messages.sequence[order],
        lambda: messages.data.take(at),
        lambda: messages.header.take(at),
        lambda: messages.subject.take(at),
        lambda: messages.time_ns[order],
    )


def of_direct_get(stream: str, batch: frames.Frames) -> Messages:
    """Messages from Direct Get, which carries their positions in headers."""

    def value(name: str) -> Array:
        return header_values(batch.header, name, is_servers=True)

    def time_ns() -> Ints:
        texts = value("Nats-Time-Stamp")
        times = kernels.cast(kernels.cast(texts, pa.timestamp("ns", "UTC")), pa.int64())
        return np.asarray(times.to_numpy(zero_copy_only=False), np.int64)

    return Messages(
        stream,
        int64s(value("Nats-Sequence")),
        lambda: batch.data,
        lambda: batch.header,
        lambda: value("Nats-Subject"),
        time_ns,
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """Fields of the reply subject of a consumer's message."""

    sequence: int
    #: The consumer's own count of its messages.
    delivered: int
    #: Broker time, ns since 1970.
    time_ns: int
    #: Number of later messages of the consumer.
    pending: int


def of_consumer(
    stream: str, consumer: str, delivered: int, batch: frames.Frames
) -> tuple[Messages, int]:
    """Messages from a consumer, which carries their positions in reply subjects.

    Args:
        stream: the stream.
        consumer: the consumer's name.
        delivered: number of earlier messages.
        batch: at least one message.

    Returns:
        The messages, and the number that remained when it sent the last of them.

    Raises:
        DisconnectedError: these are not the consumer's next messages.
    """
    count = len(batch)
    first = last = _place(stream, consumer, batch.reply_at(0))
    if count > 1:
        last = _place(stream, consumer, batch.reply_at(count - 1))
    _check_delivered(delivered, first, last, count)
    sequence = _sequences(batch, stream, consumer, first.sequence, last.sequence)
    return _delivered(stream, sequence, batch), last.pending


def of_few(
    stream: str, consumer: str, delivered: int, few: list[frames.Frame]
) -> tuple[Messages, int]:
    """``of_consumer`` for few messages."""
    places = [_place(stream, consumer, one.reply) for one in few]
    _check_delivered(delivered, places[0], places[-1], len(few))
    return _of_places(stream, few, places), places[-1].pending


def _of_places(stream: str, few: list[frames.Frame], places: list[_Place]) -> Messages:
    def some(which: Bools | slice) -> Messages:
        at = range(len(few))[which] if isinstance(which, slice) else np.flatnonzero(which).tolist()
        return _of_places(stream, [few[n] for n in at], [places[n] for n in at])

    return Messages(
        stream,
        np.array([place.sequence for place in places], np.int64),
        lambda: pa.array([one.data for one in few], pa.binary()),
        lambda: pa.array([one.header for one in few], pa.binary()),
        lambda: pa.array([one.subject for one in few], pa.string()),
        lambda: np.array([place.time_ns for place in places], np.int64),
        some,
        lambda: [(one.header, one.data) for one in few],
        lambda: [one.subject for one in few],
    )


def _check_delivered(delivered: int, first: _Place, last: _Place, count: int) -> None:
    """Check that a consumer's messages follow ``delivered`` earlier ones."""
    # Reads are not acknowledged, so no other check would detect a lost message.
    if first.delivered != delivered + 1 or last.delivered != delivered + count:
        raise DisconnectedError(
            f"messages {first.delivered} to {last.delivered} came as {count} after {delivered}"
        )


def _delivered(stream: str, sequence: Ints, batch: frames.Frames) -> Messages:
    return Messages(
        stream,
        sequence,
        lambda: batch.data,
        lambda: batch.header,
        lambda: batch.subject,
        lambda: _times_ns(batch),
        lambda which: _delivered(stream, sequence[which], batch.of(which)),
        lambda: batch.few,
        lambda: batch.few_subjects,
    )


def _place(stream: str, consumer: str, reply: bytes) -> _Place:
    # $JS.ACK.[domain.account.]stream.consumer.delivered.sequence.consumer_sequence.time.pending[.x]
    words = reply.split(b".")
    at = 7 if len(words) >= 11 else 5
    if len(words) < 9 or words[at - 3 : at - 1] != [stream.encode(), consumer.encode()]:
        raise DisconnectedError(f"a message came that is not the consumer's: {reply!r}")
    return _Place(*map(int, words[at : at + 4]))


def _sequences(batch: frames.Frames, stream: str, consumer: str, first: int, last: int) -> Ints:
    """The sequences of ``batch``: consecutive except for gaps, which are searched."""
    count = len(batch)
    sequences = np.arange(first, first + count)
    if last - first == count - 1:
        return sequences
    budget = count // _GAP_DISTANCE
    todo = [(0, count - 1, first, last)]
    while todo:
        low, high, low_sequence, high_sequence = todo.pop()
        if high_sequence - low_sequence == high - low:
            sequences[low : high + 1] = np.arange(low_sequence, high_sequence + 1)
            continue
        if high - low == 1:
            sequences[low], sequences[high] = low_sequence, high_sequence
            continue
        if budget <= 0:
            return reply_numbers(batch, 0)
        budget -= 1
        middle = (low + high) // 2
        sequence = _place(stream, consumer, batch.reply_at(middle)).sequence
        todo.append((low, middle, low_sequence, sequence))
        todo.append((middle, high, sequence, high_sequence))
    return sequences


def _times_ns(batch: frames.Frames) -> Ints:
    """Broker times of a consumer's messages."""
    times = batch.reply_times_ns() if len(batch) > FEW else None
    return reply_numbers(batch, 2) if times is None else times


def reply_numbers(batch: frames.Frames, which: int) -> Ints:
    """Number ``which`` of every reply subject, counted from the stream sequence, which is 0."""
    if len(batch) <= FEW:
        return np.array([_word(batch.reply_at(at), which) for at in range(len(batch))], np.int64)
    words = kernels.split_pattern(batch.reply, ".")
    bounds = words.offsets.to_numpy().astype(np.int64)
    at = bounds[:-1] + np.where(np.diff(bounds) >= 11, 7, 5) + which
    return int64s(words.values.take(rows_at(at)))


def _word(reply: bytes, which: int) -> int:
    words = reply.split(b".")
    return int(words[(7 if len(words) >= 11 else 5) + which])
