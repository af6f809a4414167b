"""Reading ranges of a stream, as columns.

Short ranges are read by Direct Get, which needs no preparation; long ones by a pull consumer
without acks, which is faster once it exists.  Both skip deleted sequences.  So a range ends with a
message at or after its end, or when the stream's *leader* reports no more messages up to it.  Any
replica answers Direct Get, and one that lags would end a range early.

A range may be limited to some subjects.  A consumer can filter, at several times the cost of a
message for the server.  So if most messages are needed, all are read and the others dropped here.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pyspark_nats.errors import DataLossError, RefusedError
from pyspark_nats.protocol import frames, jetstream
from pyspark_nats.protocol.connection import DisconnectedError
from pyspark_nats.protocol.frames import header_values
from pyspark_nats.protocol.jetstream import stream_infos
from pyspark_nats.source import direct_get, messages
from pyspark_nats.source.subjects import overlap

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_nats.protocol.connection import Connection
    from pyspark_nats.source.messages import Messages
    from pyspark_nats.source.ranges import Blocks, StreamRange


#: Limit below which Direct Get is quicker: it needs no consumer to be created and deleted.
_DIRECT_MAX = 4096

#: Most messages and bytes of one request; two must fit into the server's limit for a client, 64 MB.
_REQUEST_MESSAGES = 200_000
_REQUEST_BYTES = 24 << 20
#: The next request is sent when so few messages are in flight.  The server serves two requests in
#: turns, message by message, at a higher cost.
_ASK_AT = 25_000
#: Parsing starts with so many bytes, or once nothing more is in flight.
_PARSE_BYTES = 2 << 20
_PAUSE_S = 0.005
_SILENCE_S = 2.5
#: The server drops a request after this time; a silent server is detected earlier.
_EXPIRES_NS = 30_000_000_000
#: Cost of a filter for each message, in messages read without a filter.
_FILTER_COST = 8


class Pull:
    """A consumer that is read up to a sequence.

    All requests share one subscription.  The request of a message does not matter; the messages
    still expected are counted for all requests together.
    """

    def __init__(
        self,
        connection: Connection,
        stream: str,
        first: int,
        last: int,
        subjects: tuple[str, ...] = (),
    ) -> None:
        """Create the consumer for ``subjects``, or for more if a filter is not worthwhile."""
        self._connection = connection
        self._stream = stream
        self._last = last
        reader = _reader(connection, stream, first, subjects)
        self._name = reader.name
        self._sid, self._inbox = connection.new_inbox_tree()
        #: Last received sequence.
        self._at = first - 1
        #: Number of received messages.
        self._delivered = 0
        #: Number of messages that open requests may still return.
        self._expected = 0
        self._requests = 0
        self._bytes_max = _REQUEST_BYTES
        #: False when it has no more messages.
        self.is_good = reader.pending > 0

    def some(self) -> list[Messages]:
        """Some messages up to the last; empty if the consumer has no more.

        Raises:
            DisconnectedError: as any step under ``Connection.retry_while_unavailable``; create
                another consumer then.
        """
        while self.is_good:
            self._ask()
            batch = self._received()
            is_status = batch.is_status
            data = batch.where(~is_status) if is_status.any() else batch
            self._expected -= len(data)
            for at in np.flatnonzero(is_status):
                self._ended(batch.header[int(at)].as_py(), bool(len(data)))
            if not len(data):
                continue
            got, pending = messages.of_consumer(self._stream, self._name, self._delivered, data)
            self._delivered += len(got)
            self._at = int(got.sequence[-1])
            # No message is pending after the last one: the rest of the range is deleted.
            self.is_good = self._at < self._last and pending > 0
            part = got.take(got.sequence <= self._last)
            return [part] if len(part) else []
        return []

    def _ask(self) -> None:
        """Keep requests open until they cover the range."""
        while self._expected <= _ASK_AT:
            batch = min(_REQUEST_MESSAGES, self._last - self._at - self._expected)
            if batch <= 0:
                return
            self._requests += 1
            query = {"batch": batch, "max_bytes": self._bytes_max, "expires": _EXPIRES_NS}
            self._connection.send(
                frames.publish(
                    self._connection.api(f"CONSUMER.MSG.NEXT.{self._stream}.{self._name}"),
                    json.dumps(query).encode(),
                    reply=f"{self._inbox}.{self._requests}",
                )
            )
            self._expected += batch

    def _received(self) -> frames.Frames:
        connection = self._connection
        while True:
            # Many small parses cost more than one large one.
            connection.gather(_PARSE_BYTES, _PAUSE_S)
            batch = connection.take_frames()
            if len(batch):
                return batch
            connection.receive(time.monotonic() + _SILENCE_S)

    def _ended(self, header: bytes, has_data: bool) -> None:
        """Process the status that ends a request early."""
        said = frames.status(header)
        assert said is not None
        code, text = said
        left = header_values(pa.array([header]), "Nats-Pending-Messages")[0].as_py()
        # Messages that are not known to be in flight are requested again; some may then be surplus.
        self._expected = max(0, self._expected - int(left)) if left else 0
        if code == 409 and text.startswith("Message Size") and not has_data:
            # One message may be larger than the requested size.
            self._bytes_max *= 4
        elif code == 503 or (code == 409 and not text.startswith(jetstream.SERVED)):
            # The consumer was deleted, or its leader changed: create another.
            raise DisconnectedError(f"{code} {text}")
        elif code not in (404, 408, 409):
            raise RefusedError(f"the server refused to read: {code} {text}")

    def close(self) -> None:
        """Delete the consumer; messages in flight must not be mistaken for others."""
        try:
            self._connection.unsubscribe(self._sid)
            jetstream.delete_reader(self._connection, self._stream, self._name)
        except (DisconnectedError, OSError):
            self._connection.close()


def _reader(
    connection: Connection, stream: str, first: int, subjects: tuple[str, ...]
) -> jetstream.ReadConsumer:
    """Create the cheapest consumer that reads ``subjects``."""
    if not subjects:
        return jetstream.create_reader(connection, stream, first)
    filtered = jetstream.create_reader(connection, stream, first, subjects)
    info = jetstream.stream_infos(connection, [stream])[stream]
    if filtered.pending * _FILTER_COST < min(info.messages, info.last - first + 1):
        return filtered
    jetstream.delete_reader(connection, stream, filtered.name)
    return jetstream.create_reader(connection, stream, first)


def read_range(
    connection: Connection, span: StreamRange, blocks: Blocks, *, is_loss_error: bool = True
) -> Iterator[Messages]:
    """The messages of ``span`` that belong to the reader by ``blocks``, in order, in parts.

    Temporary failures shorter than ``timeoutS`` are retried from the last emitted message.

    Args:
        connection: to a server.
        span: sequences and subjects.
        blocks: selects the reader's sequences.
        is_loss_error: whether to check, at the end, if missing messages were deleted on purpose or
            expired during the read.

    Raises:
        UnavailableError: the servers remained unavailable; RefusedError: the stream is gone;
            DataLossError: messages expired, or were purged, or the stream was created again.
    """
    if span.is_empty:
        return
    sequences = []
    for part in _parts(connection, span, blocks):
        sequences.append(part.sequence)
        messages = part.matching(span.subjects) if span.subjects else part
        if len(messages):
            yield messages
    if is_loss_error:
        came = np.concatenate(sequences) if sequences else np.zeros(0, np.int64)
        _check_whole(connection, span, blocks.first_hole(span.start, span.end, came))


def _parts(connection: Connection, span: StreamRange, blocks: Blocks) -> Iterator[Messages]:
    stretches = list(blocks.sections(span.start, span.end))
    if len(stretches) == 1 and span.end - span.start > _DIRECT_MAX:
        # The server accepts no overlapping filters; the messages are filtered again anyway.
        subjects = span.subjects
        if any(overlap(a, b) for n, a in enumerate(subjects) for b in subjects[:n]):
            subjects = ()
        yield from _by_consumer(connection, span.stream, *stretches[0], subjects)
        return
    # Every section is one request; several are in flight at a time.
    window = max(1, min(64, 16_384 // blocks.size)) if blocks.count > 1 else 1
    for at in range(0, len(stretches), window):
        some = stretches[at : at + window]

        def read(some: list[tuple[int, int]] = some) -> list[Messages]:
            try:
                return direct_get.read(connection, span.stream, some)
            except direct_get.NoDirectGetResponderError as error:
                if stream_infos(connection, [span.stream])[span.stream].allow_direct:
                    raise
                raise _NoDirectGetError from error

        try:
            parts = connection.retry_while_unavailable(f'reading stream "{span.stream}"', read)
        except _NoDirectGetError:
            yield from _sections_by_consumer(connection, span.stream, stretches)
            return
        yield from parts


class _NoDirectGetError(Exception):
    """The stream has no ``allow_direct``, as is possible for streams that others created."""


def _sections_by_consumer(
    connection: Connection, stream: str, stretches: list[tuple[int, int]]
) -> Iterator[Messages]:
    """Read sections, in order, by reading the messages between them too."""
    first, last = np.array(stretches).T
    for part in _by_consumer(connection, stream, int(first[0]), int(last[-1]), ()):
        at = np.searchsorted(first, part.sequence, side="right") - 1
        messages = part.take(part.sequence <= last[at])
        if len(messages):
            yield messages


def _by_consumer(
    connection: Connection, stream: str, first: int, last: int, subjects: tuple[str, ...]
) -> Iterator[Messages]:
    """Read first..last through consumers, with a new one after each lost connection."""
    at = first
    reader: Pull | None = None
    try:
        while at <= last:

            def step(at: int = at) -> list[Messages]:
                nonlocal reader
                if reader is None or not reader.is_good:
                    reader = None
                    reader = Pull(connection, stream, at, last, subjects)
                try:
                    return reader.some()
                except (DisconnectedError, OSError):
                    reader = None
                    raise

            parts = connection.retry_while_unavailable(
                f'reading stream "{stream}"', step, is_under_way=reader is not None
            )
            if not parts:
                # No message before the end: the rest is deleted, or this replica lags.

                def check(at: int = at) -> tuple[int, int] | None:
                    return direct_get.rest(connection, stream, at, last, subjects)

                rest = connection.retry_while_unavailable(f'reading stream "{stream}"', check)
                if rest is None:
                    return
                reader = None
                continue
            yield from parts
            at = int(parts[-1].sequence[-1]) + 1
    finally:
        if reader is not None:
            reader.close()


def _check_whole(connection: Connection, span: StreamRange, hole: int | None) -> None:
    """Find the reason why ``hole`` is missing, and check that the stream is still the same.

    A gap inside a stream consists of deleted messages, or of other subjects.  If the stream now
    begins after the gap, its messages may also have expired between planning and reading.  The
    cases can't be distinguished, and a batch that can't be read again must not count as read.
    """
    info = connection.retry_while_unavailable(
        "checking for data loss", lambda: stream_infos(connection, [span.stream])[span.stream]
    )
    if span.end_created_ms not in (0, info.created_ms):
        raise DataLossError(
            f'stream "{span.stream}" was deleted and made again while it was read',
            hint='Set option "failOnDataLoss" to "false" to continue with the existing messages.',
        )
    if hole is not None and info.first > hole:
        last = min(info.first - 1, span.end)
        raise DataLossError(
            f'stream "{span.stream}" does not hold sequences {hole} to {last} any more',
            detail="They expired, or were purged, while they were being read.",
            hint='Set option "failOnDataLoss" to "false" to continue with the existing messages.',
        )
