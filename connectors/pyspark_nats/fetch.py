"""Reading ranges of a stream, as columns.

Short ranges are read by Direct Get, which needs no preparation; long ones by a pull consumer
without acks, which is faster once it is made.  Both skip deleted sequences, so a range ends when a
message at or behind its end has come, or when the stream's *leader* says that nothing up to there
is left: Direct Get is answered by any replica, and one that lags would end a range early.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pyspark_nats import frames, jetstream
from pyspark_nats.arrow import int64s, kernels, rows_at
from pyspark_nats.connection import DisconnectedError
from pyspark_nats.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from pyspark_nats.arrow import Array
    from pyspark_nats.connection import Connection
    from pyspark_nats.ranges import Blocks, StreamRange

#: Up to here Direct Get is quicker: it saves making and deleting a consumer.
_DIRECT_MAX = 4096
#: What one request may bring; two are under way at a time, below the server's limit of a client.
_PULL_MESSAGES = 50_000
_PULL_BYTES = 8 << 20
#: Parsing starts when so much is there, or nothing more is under way.
_PARSE_BYTES = 1 << 20
_SILENCE_S = 2.5
#: How an answer by Direct Get ends.
_ENDS = (b"NATS/1.0 204 ", b"NATS/1.0 404 ")


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

    def take(self, keep: npt.NDArray[np.bool_]) -> Messages:
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


def read_range(connection: Connection, wanted: StreamRange, blocks: Blocks) -> Iterator[Messages]:
    """The messages of ``wanted`` that are the reader's by ``blocks``, in order, in parts.

    Rides through what passes within ``timeoutS``, going on behind the last message it gave.

    Raises:
        UnavailableError: the servers stayed away; RefusedError: the stream is gone.
    """
    stretches = list(blocks.own(wanted.start, wanted.end))
    if len(stretches) == 1 and wanted.end - wanted.start > _DIRECT_MAX:
        yield from _stretch_by_consumer(connection, wanted.stream, *stretches[0])
        return
    # Every stretch is one request; several are under way at a time.
    window = max(1, min(64, 16_384 // blocks.size)) if blocks.count > 1 else 1
    for at in range(0, len(stretches), window):
        yield from _stretches_directly(connection, wanted.stream, stretches[at : at + window])


def _stretches_directly(
    connection: Connection, stream: str, stretches: list[tuple[int, int]]
) -> list[Messages]:
    def read() -> list[Messages]:
        return _direct(connection, stream, stretches)

    return connection.riding(f'reading stream "{stream}"', read)


def _direct(
    connection: Connection, stream: str, stretches: list[tuple[int, int]]
) -> list[Messages]:
    """Read a few short stretches at once; nothing is given before all of it is there."""
    parts: list[Messages] = []
    todo = stretches
    while todo:
        inboxes = connection.new_inboxes(len(todo))
        request = b"".join(
            frames.publish(
                f"$JS.API.DIRECT.GET.{stream}",
                json.dumps(
                    {"seq": first, "batch": last - first + 1, "max_bytes": _PULL_BYTES}
                ).encode(),
                reply=inbox,
            )
            for (first, last), (_, inbox) in zip(todo, inboxes, strict=True)
        )
        connection.send(request)
        sids = np.array([sid for sid, _ in inboxes], np.int64)
        received = _until_done(connection, set(sids.tolist()))
        connection.unsubscribe(*sids.tolist())
        # A request may bring messages from behind its stretch, where some of its own are deleted.
        ends = np.array([last for _, last in todo], np.int64)
        reached = np.array([first - 1 for first, _ in todo], np.int64)
        for found in received:
            messages = _direct_messages(stream, found)
            # Sids are handed out in order, so they tell the stretch.
            stretch = found.sid - sids[0]
            np.maximum.at(reached, stretch, messages.sequence)
            kept = messages.take(messages.sequence <= ends[stretch])
            if len(kept):
                parts.append(kept)
        rests = [
            _rest(connection, stream, int(at) + 1, int(end))
            for at, end in zip(reached, ends, strict=True)
            if at < end
        ]
        todo = [rest for rest in rests if rest is not None]
    return [_in_order(concatenated(parts))] if parts else []


def _in_order(messages: Messages) -> Messages:
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


def _rest(connection: Connection, stream: str, first: int, last: int) -> tuple[int, int] | None:
    """What of first..last is left to read, by the leader's word; None for nothing."""
    following = jetstream.next_message(connection, stream, first)
    if following is None or following.sequence > last:
        return None
    return following.sequence, last


def _until_done(connection: Connection, open_sids: set[int]) -> list[frames.Frames]:
    """The messages for ``open_sids``, until each has had its closing status."""
    received: list[frames.Frames] = []
    wanted = list(open_sids)
    deadline_s = time.monotonic() + _SILENCE_S
    while True:
        found = connection.take_frames()
        mine = _rows(found, np.isin(found.sid, wanted))
        is_status = _is_status(mine)
        for at in np.flatnonzero(is_status):
            _check_status(mine.header[int(at)].as_py())
            open_sids.discard(int(mine.sid[at]))
        if is_status.any():
            mine = _rows(mine, ~is_status)
        if len(mine):
            received.append(mine)
        if not open_sids:
            return received
        if len(found):
            deadline_s = time.monotonic() + _SILENCE_S
        connection.receive(deadline_s)
        # Many small parses cost more than a few large ones; but nothing comes behind the end.
        while connection.unread < _PARSE_BYTES:
            is_end = any(code in connection.unread_tail for code in _ENDS)
            if not connection.is_readable(0.0 if is_end else 0.001):
                break
            connection.receive(deadline_s)


def _check_status(header: bytes) -> None:
    """Raise what a closing status means, if it is not the plain end."""
    said = frames.status(header)
    assert said is not None
    code, text = said
    if code in (204, 404):
        return
    if code == 503:
        raise DisconnectedError("no responders: nobody serves the stream, or direct get is off")
    raise RefusedError(f"the server refused to read: {code} {text}")


def _direct_messages(stream: str, found: frames.Frames) -> Messages:
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


def _stretch_by_consumer(
    connection: Connection, stream: str, first: int, last: int
) -> Iterator[Messages]:
    """Read first..last through consumers, a new one whenever the connection broke."""
    at = first
    reader: _Pull | None = None
    try:
        while at <= last:

            def step(at: int = at) -> list[Messages]:
                nonlocal reader
                if reader is None or not reader.is_good:
                    reader = None
                    reader = _Pull(connection, stream, at, last)
                try:
                    return reader.some()
                except (DisconnectedError, OSError):
                    reader = None
                    raise

            parts = connection.riding(
                f'reading stream "{stream}"', step, is_under_way=reader is not None
            )
            if not parts:
                # Quiet before the end: the rest is deleted, or this replica lags.

                def check(at: int = at) -> tuple[int, int] | None:
                    return _rest(connection, stream, at, last)

                rest = connection.riding(f'reading stream "{stream}"', check)
                if rest is None:
                    return
                reader = None
                continue
            yield from parts
            at = int(parts[-1].sequence[-1]) + 1
    finally:
        if reader is not None:
            reader.close()


class _Pull:
    """A consumer being read, two requests under way."""

    def __init__(self, connection: Connection, stream: str, first: int, last: int) -> None:
        self._connection = connection
        self._stream = stream
        self._last = last
        self._name = jetstream.create_reader(connection, stream, first)
        #: Last sequence that came.
        self._at = first - 1
        #: Messages that each request may still bring, by the sid of its inbox: the server serves
        #: requests in turns, and says nothing when one is filled exactly.
        self._open: dict[int, int] = {}
        self._bytes_max = _PULL_BYTES
        #: False once it has nothing more to give.
        self.is_good = True

    def some(self) -> list[Messages]:
        """Some messages up to the last; none when the consumer has no more."""
        while self.is_good:
            self._ask()
            if not self._open:
                self.is_good = False
                break
            found = self._received()
            mine = _rows(found, np.isin(found.sid, list(self._open)))
            is_status = _is_status(mine)
            data = _rows(mine, ~is_status)
            for sid, count in zip(*np.unique(data.sid, return_counts=True), strict=True):
                self._open[int(sid)] -= int(count)
            for at in np.flatnonzero(is_status):
                self._ended(int(mine.sid[at]), mine.header[int(at)].as_py(), bool(len(data)))
            for sid in [sid for sid, left in self._open.items() if left <= 0]:
                self._forget(sid)
            if not len(data):
                continue
            messages = _consumer_messages(self._stream, data)
            self._at = int(messages.sequence[-1])
            self.is_good = self._has_more()
            kept = messages.take(messages.sequence <= self._last)
            return [kept] if len(kept) else []
        return []

    def _has_more(self) -> bool:
        return self._at < self._last and (self.is_good or bool(self._open))

    def _ask(self) -> None:
        """Keep two requests under way, as far as the range is not covered by them."""
        while len(self._open) < 2:
            batch = min(_PULL_MESSAGES, self._last - self._at - sum(self._open.values()))
            if batch <= 0:
                return
            sid, inbox = self._connection.new_inbox()
            query = {"batch": batch, "max_bytes": self._bytes_max, "no_wait": True}
            self._connection.send(
                frames.publish(
                    f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._name}",
                    json.dumps(query).encode(),
                    reply=inbox,
                )
            )
            self._open[sid] = batch

    def _received(self) -> frames.Frames:
        connection = self._connection
        while True:
            # Many small parses cost more than one large one.
            while connection.unread < _PARSE_BYTES and connection.is_readable():
                connection.receive(time.monotonic() + _SILENCE_S)
            found = connection.take_frames()
            if len(found):
                return found
            connection.receive(time.monotonic() + _SILENCE_S)

    def _ended(self, sid: int, header: bytes, has_data: bool) -> None:
        """Deal with the status that ends a request before it is filled."""
        said = frames.status(header)
        assert said is not None
        code, text = said
        self._forget(sid)
        if code == 409 and text.startswith(("Batch Completed", "Message Size Exceeds MaxBytes")):
            # The request is served, as far as it goes; the range is not.
            if not has_data and text.startswith("Message"):
                # One message may be larger than what was asked for.
                self._bytes_max *= 4
        elif code in (404, 408):
            self.is_good = False
        elif code in (409, 503):
            # The consumer was deleted, or its leader changed: make another.
            raise DisconnectedError(f"{code} {text}")
        else:
            raise RefusedError(f"the server refused to read: {code} {text}")

    def _forget(self, sid: int) -> None:
        del self._open[sid]
        self._connection.unsubscribe(sid)

    def close(self) -> None:
        """Give the consumer back."""
        try:
            for sid in list(self._open):
                self._forget(sid)
            jetstream.delete_reader(self._connection, self._stream, self._name)
        except (DisconnectedError, OSError):
            self._connection.close()


def _consumer_messages(stream: str, found: frames.Frames) -> Messages:
    # $JS.ACK.[domain.account.]stream.consumer.delivered.sequence.consumer_sequence.time.pending[.x]
    tokens = kernels.split_pattern(found.reply, ".")
    offsets = tokens.offsets.to_numpy()
    sequence_at = offsets[:-1] + np.where(offsets[1:] - offsets[:-1] >= 11, 7, 5)
    return Messages(
        stream=stream,
        subject=found.subject,
        header=found.header,
        data=found.data,
        sequence=int64s(tokens.values.take(pa.array(sequence_at))),
        time_ns=int64s(tokens.values.take(pa.array(sequence_at + 2))),
    )


def _is_status(found: frames.Frames) -> npt.NDArray[np.bool_]:
    flags = kernels.fill_null(kernels.starts_with(found.header, pattern=b"NATS/1.0 "), False)
    return np.asarray(flags.to_numpy(zero_copy_only=False), bool)


def _rows(found: frames.Frames, keep: npt.NDArray[np.bool_]) -> frames.Frames:
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
