"""Messages of a stream as columns, and how frames become them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pyspark_nats import frames
from pyspark_nats.arrow import int64s, kernels, rows_at

if TYPE_CHECKING:
    import numpy.typing as npt

    from pyspark_nats.arrow import Array

    Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages of one stream in their order; every column has length n."""

    stream: str
    subject: Array
    #: Header blocks, binary; empty or null where a message has none.
    header: Array
    data: Array
    sequence: npt.NDArray[np.int64]
    #: Broker times, ns since 1970.
    time_ns: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.sequence)

    def take(self, keep: Bools) -> Messages:
        """Those where ``keep`` is true."""
        if keep.all():
            return self
        mask = pa.array(keep)
        return Messages(
            self.stream,
            self.subject.filter(mask),
            self.header.filter(mask),
            self.data.filter(mask),
            self.sequence[keep],
            self.time_ns[keep],
        )


def concatenated(parts: list[Messages]) -> Messages:
    """One value of several of the same stream; at least one."""
    if len(parts) == 1:
        return parts[0]
    return Messages(
        parts[0].stream,
        pa.concat_arrays([part.subject for part in parts]),
        pa.concat_arrays([part.header for part in parts]),
        pa.concat_arrays([part.data for part in parts]),
        np.concatenate([part.sequence for part in parts]),
        np.concatenate([part.time_ns for part in parts]),
    )


def in_order(messages: Messages) -> Messages:
    """By sequence: answers to several requests come as they like."""
    if (np.diff(messages.sequence) > 0).all():
        return messages
    order = np.argsort(messages.sequence)
    at = rows_at(order)
    return Messages(
        messages.stream,
        messages.subject.take(at),
        messages.header.take(at),
        messages.data.take(at),
        messages.sequence[order],
        messages.time_ns[order],
    )


def of_direct_get(stream: str, found: frames.Frames) -> Messages:
    """What Direct Get sent: it tells a message's place in headers."""
    texts = frames.header_values(found.header, "Nats-Time-Stamp")
    times = kernels.cast(kernels.cast(texts, pa.timestamp("ns", "UTC")), pa.int64())
    return Messages(
        stream=stream,
        subject=frames.header_values(found.header, "Nats-Subject"),
        header=found.header,
        data=found.data,
        sequence=int64s(frames.header_values(found.header, "Nats-Sequence")),
        time_ns=np.asarray(times.to_numpy(zero_copy_only=False), np.int64),
    )


@dataclass(frozen=True, slots=True)
class Delivered:
    """What a consumer sent."""

    messages: Messages
    #: The consumer's own count of the first and the last of them.
    first: int
    last: int


def of_consumer(stream: str, found: frames.Frames) -> Delivered:
    """What a consumer sent, at least one message: it tells their places in the reply subject."""
    # $JS.ACK.[domain.account.]stream.consumer.delivered.sequence.consumer_sequence.time.pending[.x]
    tokens = kernels.split_pattern(found.reply, ".")
    offsets = tokens.offsets.to_numpy()
    sequence_at = offsets[:-1] + np.where(offsets[1:] - offsets[:-1] >= 11, 7, 5)
    ends = int64s(tokens.values.take(pa.array(sequence_at[[0, -1]] + 1)))
    messages = Messages(
        stream=stream,
        subject=found.subject,
        header=found.header,
        data=found.data,
        sequence=int64s(tokens.values.take(pa.array(sequence_at))),
        time_ns=int64s(tokens.values.take(pa.array(sequence_at + 2))),
    )
    return Delivered(messages, int(ends[0]), int(ends[1]))


def is_status(found: frames.Frames) -> Bools:
    """Which frames are the server's answers and no data."""
    flags = kernels.fill_null(kernels.starts_with(found.header, pattern=b"NATS/1.0 "), False)
    return np.asarray(flags.to_numpy(zero_copy_only=False), bool)


def frames_where(found: frames.Frames, keep: Bools) -> frames.Frames:
    """The frames where ``keep`` is true."""
    if keep.all():
        return found
    mask = pa.array(keep)
    return frames.Frames(
        found.subject.filter(mask),
        found.sid[keep],
        found.reply.filter(mask),
        found.header.filter(mask),
        found.data.filter(mask),
        found.consumed,
    )
