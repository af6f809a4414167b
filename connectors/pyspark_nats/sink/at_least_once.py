"""At-least-once publisher: pipelines messages in a window and sends them again without an ack."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_nats.arrow import kernels
from pyspark_nats.errors import RefusedError
from pyspark_nats.few_rows import as_batch
from pyspark_nats.protocol import publish_frames
from pyspark_nats.protocol.connection import DisconnectedError, Reply
from pyspark_nats.sink import messages_out

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_nats.protocol.connection import Connection
    from pyspark_nats.protocol.frames import Frames
    from pyspark_nats.sink.sink_options import SinkOptions

#: Messages that are sent at once, and share a subject for their acks.
_CHUNK_ROWS = 4000
_CHUNK_BYTES = 1 << 20
#: Messages in flight.  The server queues ten thousand for each stream, from all publishers.  If
#: that is too little, refused messages are sent again, and the window shrinks.
_WINDOW_ROWS = 8000
_ACK_TIMEOUT_S = 5.0
#: Acks to wait for together, in bytes, and the time limit for them.
_GATHER_BYTES = 128 << 10
_GATHER_S = 0.003
#: "Too many requests": the stream's queue is full.
_TOO_MANY_REQUESTS = 10167


@dataclass
class _Chunk:
    rows: pa.RecordBatch
    #: The subject of its acks; "" if it is not in flight.
    reply: str = ""
    #: Number of missing answers.
    missing: int = 0
    #: Whether the busy server refused a part of it, now and the last time.
    is_refused: bool = False
    was_refused: bool = False


class AtLeastOncePublisher:
    """Publishes the rows of one task without markers."""

    def __init__(self, connection: Connection, options: SinkOptions) -> None:
        self._connection = connection
        self._options = options
        self._pending: deque[_Chunk] = deque()
        self._window = _WINDOW_ROWS

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """None: there are no markers."""
        return ()

    def add(self, batch: pa.RecordBatch) -> None:
        """Publish rows; up to a window of them are in flight when this returns."""
        rows, at = as_batch(batch), 0
        while at < rows.num_rows:
            count = messages_out.fitting(rows, at, _CHUNK_ROWS, _CHUNK_BYTES)
            chunk = rows.slice(at, count)
            room = int(self._connection.info.get("max_payload", 1 << 20)) - messages_out.HEAD_ROOM
            messages_out.check_sizes(chunk, room)
            self._pending.append(_Chunk(chunk))
            self._settle(self._window)
            at += count

    def begin_run(self, since_ms: int) -> None:
        """Nothing depends on the age of the input."""

    def send(self) -> bool:
        """Wait for all acks; True."""
        self.finish()
        return True

    def finish(self) -> None:
        """Wait for all acks."""
        self._settle(0)

    def _settle(self, missing_max: int) -> None:
        """Continue until everything is sent, and no more than ``missing_max`` acks are missing."""
        while any(not c.reply for c in self._pending) or self._missing() > missing_max:
            self._connection.retry_while_unavailable(
                "publishing",
                lambda: self._step(missing_max),
                is_under_way=any(chunk.reply for chunk in self._pending),
            )

    def _missing(self) -> int:
        return sum(chunk.missing for chunk in self._pending)

    def _step(self, missing_max: int) -> None:
        try:
            for chunk in self._pending:
                if not chunk.reply and self._missing() + chunk.rows.num_rows <= max(
                    self._window, chunk.rows.num_rows
                ):
                    self._send(chunk)
            if self._missing() > missing_max or any(not c.reply for c in self._pending):
                self._take_acks()
        except (DisconnectedError, OSError):
            # Messages without an ack are sent again; fewer at once, if they were too many for the
            # server.
            for chunk in self._pending:
                chunk.reply, chunk.missing, chunk.is_refused = "", 0, False
            self._window = max(_CHUNK_ROWS, self._window // 2)
            raise

    def _send(self, chunk: _Chunk) -> None:
        chunk.reply = self._connection.reply_subjects(1)[0]
        chunk.missing = chunk.rows.num_rows
        header = self._options.event_time_header
        self._connection.send(publish_frames.acked_frames(chunk.rows, chunk.reply, header))

    def _take_acks(self) -> None:
        """Wait for at least one ack; if many are missing, for several of them together."""
        deadline_s = time.monotonic() + _ACK_TIMEOUT_S
        by_reply = {chunk.reply: chunk for chunk in self._pending if chunk.reply}
        if self._missing() > _CHUNK_ROWS:
            self._connection.gather(_GATHER_BYTES, _GATHER_S)
        while not self._count(by_reply):
            self._connection.receive(deadline_s)
        self._take_off()

    def _count(self, by_reply: dict[str, _Chunk]) -> bool:
        """Count the received acks; False if there is none."""
        counts = self._connection.take_acks([reply.encode() for reply in by_reply])
        if counts is not None:
            for waiting, count in zip(by_reply.values(), counts, strict=True):
                waiting.missing -= count
            return any(counts)
        replies = self._connection.take_frames()
        if not len(replies):
            return False
        taken = False
        for entry in replies.subject.value_counts():
            chunk = by_reply.get(entry["values"].as_py())
            if chunk is not None:
                chunk.missing -= entry["counts"].as_py()
                taken = True
        for subject, ack in _refusals(replies):
            if subject in by_reply:
                by_reply[subject].is_refused = True
                _check_busy(ack)
        return taken

    def _take_off(self) -> None:
        """Remove acked chunks; those that the busy server refused will be sent again."""
        for chunk in list(self._pending):
            if not chunk.reply or chunk.missing:
                continue
            if not chunk.is_refused:
                self._pending.remove(chunk)
                continue
            if chunk.was_refused:
                raise DisconnectedError("the server is busy")
            chunk.reply, chunk.is_refused, chunk.was_refused = "", False, True
            self._window = max(_CHUNK_ROWS, self._window // 2)


def _refusals(acks: Frames) -> list[tuple[str, bytes]]:
    """Acks that do not report a stored message, with their subjects."""
    is_odd = kernels.or_(
        kernels.match_substring(acks.data, '"error"'),
        kernels.equal(kernels.binary_length(acks.data), 0),
    )
    if not kernels.any(is_odd).as_py():
        return []
    odd = zip(acks.subject.filter(is_odd), acks.data.filter(is_odd), strict=True)
    return [(subject.as_py(), data.as_py()) for subject, data in odd]


def _check_busy(ack: bytes) -> None:
    """Check that a refusal is temporary.

    Raises:
        RefusedError: the server rejects the message; DisconnectedError: no stream accepts it now.
    """
    if not ack:
        raise DisconnectedError("no responders: no stream takes the subject")
    try:
        Reply(b"", ack).json()
    except RefusedError as error:
        if error.err_code != _TOO_MANY_REQUESTS:
            raise
