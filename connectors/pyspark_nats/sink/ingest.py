"""Ingest batches: rows that a stream stores as they come, in their order.

A writer that stays publishes with them most of the time.  They cost the server less than atomic
batches, which it stages first.  A marker before the rows names the batch, and each run ends with
a further one:

    marker: position 41, batch b     row 42   row 43     marker: position 43, batch b     row 44 ..
        ^                               |
        '-- the first row expects it ---'  the server begins no batch of an earlier marker

The server takes a message only if it is the next of its batch.  If it refuses one, because it is
too large or there is no space, it ends the batch.  So what it has stored is always the first rows.
Some runs end with a *ping* on the marker's subject, whose answer comes after all refusals, and only
then with a marker.  Until then the rows are kept here.

The ack of a row or a ping does not mean that the row is on the disk: nats-server 2.14.0 also sends
it after an error of the file system.  After such an error the stream stores nothing more, so the
ack of the marker means that all rows are stored.

A successor that finds a marker with a batch ends the batch first (``fencing``).

Source:
    github.com/nats-io/nats-architecture-and-design, ADR-50, "fast-ingest", with gap mode "fail".
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyspark_nats.few_rows import first_of, last_of
from pyspark_nats.protocol import frames, publish_frames
from pyspark_nats.protocol.connection import DisconnectedError
from pyspark_nats.sink import markers, messages_out
from pyspark_nats.sink.marker_cache import PINGS, OpenBatch
from pyspark_nats.sink.markers import IngestBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from pyspark_nats.protocol.connection import Connection
    from pyspark_nats.sink.marker_cache import MarkerCache
    from pyspark_nats.sink.markers import Marker, Origin
    from pyspark_nats.sink.messages_out import Ints
    from pyspark_nats.sink.producer_state import Pair, ProducerState
    from pyspark_nats.sink.sink_options import SinkOptions

#: Messages that are encoded at once.
_FRAMES: Final = 4_000
#: Acks that may be outstanding.
_ACKS: Final = 2
_ANSWER_S: Final = 5.0
#: The server ends a batch without messages for ten seconds.
_BATCH_S: Final = 5.0
#: A producer begins a batch if it has published, or its input was stored, within so many seconds
#: of each other, or if it has so many rows.
_BUSY_S: Final = 4.0
_MANY_ROWS: Final = 500
#: Pause after a failure, in which a producer publishes atomic batches, seconds.
_PAUSE_S: Final = 10.0
#: Octets of rows that are kept here unconfirmed while others follow.
_HELD_BYTES: Final = 1 << 20
#: Purpose of the inbox for acks of rows.
_ROWS: Final = "rows"


@dataclass
class _Sent:
    """Rows of one producer that are sent and not confirmed."""

    state: ProducerState
    ingest: OpenBatch
    #: The rows of each run, and the server's time before which none of its input was stored.
    runs: list[tuple[pa.RecordBatch, int]]
    #: Position of the last row, and octets of all payloads.
    last: int = -1
    size: int = 0
    #: Number of the connection that they were sent over.
    connection_number: int = 0
    #: Number of the last row that a ping covers, and the reply subject of the marker after it;
    #: empty before it is sent.
    pinged: int = 0
    mark: str = ""
    #: Reply subject of the marker that names the batch, until it is acknowledged; the rows of the
    #: runs wait for that.
    begins: str = ""


class IngestPath:
    """Publishes the rows of one task in ingest batches."""

    def __init__(
        self, connection: Connection, options: SinkOptions, origin: Origin, cache: MarkerCache
    ) -> None:
        self._connection = connection
        self._options = options
        self._origin = origin
        self._cache = cache
        self.sent: dict[Pair, _Sent] = {}
        # A call of the API must not drop what other publishers of this connection wait for.
        connection.on_other = cache.acks.take

    def takes(self, state: ProducerState, rows: pa.RecordBatch, since_ms: int) -> bool:
        """Whether rows of a run can be published here; its producer's batch is over if not.

        ``since_ms`` is as for ``send``.
        """
        pair, marker, now_s = state.pair, state.marker, time.monotonic()
        info = self._cache.streams[pair[0]]
        earlier_ms = self._cache.input_ms.get(pair, 0)
        self._cache.input_ms[pair] = since_ms
        ingest = self._cache.ingests.pop(pair, None)
        if marker is None or not marker.sequence or not (info.allow_ingest and info.keeps_recent):
            return False
        if first_of(rows, "first_position") <= self._last(state):
            return False
        if rows.num_rows > 1 and not messages_out.are_growing(rows, -1):
            # A block with several subjects is stored as a whole.
            return False
        if pair in self.sent:
            return True
        if ingest is not None and now_s - ingest.used_s < _BATCH_S and not ingest.failure:
            self._cache.ingests[pair] = ingest
            return True
        # Among many busy ones a run may be late.  Atomic batches would make all of them later.
        is_busy = (
            now_s - self._cache.published_s.get(pair, -_BUSY_S) < _BUSY_S
            or 0 < earlier_ms <= since_ms < earlier_ms + _BUSY_S * 1000
        )
        is_paused = now_s < self._cache.paused_s.get(pair, 0.0)
        return (is_busy or rows.num_rows >= _MANY_ROWS) and not is_paused

    def _last(self, state: ProducerState) -> int:
        """The last position of a producer that is sent."""
        sent = self.sent.get(state.pair)
        assert state.marker is not None
        return state.marker.position if sent is None else sent.last

    @property
    def is_under_way(self) -> bool:
        """Whether rows are sent and not confirmed."""
        return bool(self.sent)

    @property
    def is_beginning(self) -> bool:
        """Whether rows wait for ``proceed``."""
        return any(sent.begins for sent in self.sent.values())

    @property
    def has_room(self) -> bool:
        """Whether another run may follow before this one is confirmed, without waiting for acks."""
        return all(
            bool(sent.begins)
            or (sent.ingest.sent - sent.ingest.acked < sent.ingest.flow and sent.size < _HELD_BYTES)
            for sent in self.sent.values()
        )

    def look(self) -> None:
        """Process the answers that have arrived; errors as for ``send``."""
        self._connection.receive_now()
        while (frame := self._connection.next_frame()) is not None:
            self._cache.acks.take(*frame[1:])

    def send(self, state: ProducerState, rows: pa.RecordBatch, since_ms: int) -> None:
        """Send rows of a run; the last of them may be on their way when this returns.

        The first ones of a batch wait for ``proceed``, or for what follows.

        Args:
            state: of their producer.
            rows: that ``takes`` has accepted.
            since_ms: the server's time before which no input of the run was stored.

        Raises:
            DisconnectedError, OSError, RefusedError: what was sent is in doubt; see ``abandon``.
        """
        sent = self.sent.get(state.pair)
        if sent is not None and sent.mark:
            # Its marker has the position of the rows before.
            self.finish()
            sent = None
        if sent is None:
            with self._cache.lock:
                ingest = self._cache.ingests.pop(state.pair, None) or OpenBatch()
                # Another publisher may use the marker only when all is confirmed.
                self._cache.markers.pop(state.pair, None)
            sent = self.sent[state.pair] = _Sent(state, ingest, [(rows, since_ms)])
            self._begin(sent)
        else:
            sent.runs.append((rows, since_ms))
            self._proceed(sent)
            self._check(sent)
        sent.size += messages_out.payload_bytes(rows)
        sent.last = last_of(rows, "position")
        if not sent.begins:
            self._send_rows(sent, rows)

    def proceed(self) -> None:
        """Wait until the batches that were begun are there, and send their rows."""
        for sent in self.sent.values():
            self._proceed(sent)

    def _proceed(self, sent: _Sent) -> None:
        if not sent.begins:
            return
        marker = sent.state.marker
        assert marker is not None
        self._await(sent, sent.begins)
        sent.begins = ""
        self._acknowledge(sent, marker.position)
        # More come after this.
        ((rows, _), *_) = sent.runs
        self._send_rows(sent, rows)

    def _send_rows(self, sent: _Sent, rows: pa.RecordBatch) -> None:
        ingest, at = sent.ingest, 0
        while at < rows.num_rows:
            # The server takes no other row if it refuses the first.
            some = rows.slice(at, _FRAMES if ingest.sent else 1)
            self._send(ingest, *self._frames(sent, some))
            at += some.num_rows
        ingest.used_s = time.monotonic()

    def _send(self, ingest: OpenBatch, octets: bytes, ends: Sequence[int] | Ints) -> None:
        """Send messages, as many at a time as the server allows."""
        at, begin = 0, 0
        while at < len(ends):
            # An ack may lower the flow.  While this waits, more rows than one flow are on their way
            # since the last ack, so another ack is due.
            while (count := min(len(ends) - at, ingest.flow)) > (
                _ACKS * ingest.flow - (ingest.sent - ingest.acked)
            ):
                self.receive()
            end = int(ends[at + count - 1])
            self._connection.send(octets[begin:end])
            ingest.sent += count
            at, begin = at + count, end

    def _check(self, sent: _Sent) -> None:
        """Check that rows can follow those of earlier runs.

        Raises:
            DisconnectedError: some of those may be lost.
        """
        if sent.connection_number != self._connection.open_count:
            raise DisconnectedError("the connection is not that of the rows before")
        self._check_taken(sent.ingest)

    def ask(self) -> None:
        """Ask the server for all rows that are sent, without waiting; errors as for ``send``."""
        self.proceed()
        for sent in self.sent.values():
            self._check(sent)
        pending = [sent for sent in self.sent.values() if sent.pinged < sent.ingest.sent]
        if pending:
            self._connection.send(b"".join(self._ping(sent) for sent in pending))
        for sent in pending:
            sent.pinged = sent.ingest.sent

    def mark(self) -> None:
        """Send markers after all rows once they are taken, without waiting for their acks.

        No rows may follow before ``finish``.  Errors are as for ``send``.
        """
        self.ask()
        while any(sent.ingest.taken < sent.ingest.sent for sent in self.sent.values()):
            self.receive()
        for pair, sent in self.sent.items():
            # Another publisher may have received what ended the batch.
            self._check(sent)
            if not sent.mark:
                self._cache.stored[pair] = sent.last
                sent.mark = self._mark(sent, sent.last)

    def finish(self) -> None:
        """Return when all rows are stored; errors as for ``send``."""
        self.mark()
        for sent in self.sent.values():
            self._await(sent, sent.mark)
        now_s = time.monotonic()
        for pair, sent in self.sent.items():
            state, ingest = sent.state, sent.ingest
            state.marker = self._cache.markers[pair] = self._acknowledge(sent, sent.last)
            state.sequence, state.is_verified = ingest.sequence, True
            self._cache.published_s[pair] = now_s
            self._cache.ingests[pair] = ingest
        self.sent.clear()

    def fail(self, reason: str) -> None:
        """Have ``finish`` find that what was sent is in doubt."""
        for sent in self.sent.values():
            sent.ingest.failure = reason

    def abandon(self) -> list[tuple[ProducerState, list[tuple[pa.RecordBatch, int]]]]:
        """Give up what is not confirmed, and return it: it has to be published in another way.

        Returns:
            For each producer the rows of its runs in order, with their times as for ``send``.
        """
        runs = [(sent.state, sent.runs) for sent in self.sent.values()]
        for pair, sent in self.sent.items():
            self._cache.paused_s[pair] = time.monotonic() + _PAUSE_S
            for reply in (sent.mark, sent.begins):
                self._cache.acks.marked.pop(reply, None)
        self.sent.clear()
        return runs

    # --- sending

    def _begin(self, sent: _Sent) -> None:
        """Send the marker that names a new batch."""
        ingest, marker = sent.ingest, sent.state.marker
        assert marker is not None
        if not self._connection.is_open:
            self._connection.retry_while_unavailable("publishing", lambda: None)
        sent.connection_number = self._connection.open_count
        ingest.pings = ingest.reply(self._inbox(PINGS))
        for inbox in (ingest.reply(self._inbox(_ROWS)), ingest.pings):
            self._cache.acks.by_inbox[inbox] = ingest
        if not ingest.sequence:
            ingest.sequence = marker.sequence
            sent.begins = self._mark(sent, marker.position)

    def _await(self, sent: _Sent, reply: str) -> None:
        """Wait for the ack of a marker."""
        while reply in self._cache.acks.marked:
            self.receive()
        # Another publisher may have received that it was refused.
        self._check(sent)

    def _acknowledge(self, sent: _Sent, position: int) -> Marker:
        """Remember the marker that the server has acknowledged, with the batch that follows it."""
        ingest, pair = sent.ingest, sent.state.pair
        assert sent.state.marker is not None
        stored = replace(self._marker(sent.state.marker, position), sequence=ingest.sequence)
        batch = IngestBatch(ingest.batch_id, ingest.key, ingest.sent)
        self._cache.acknowledged[pair] = replace(stored, ingest=batch)
        return stored

    def _mark(self, sent: _Sent, position: int) -> str:
        """Send a marker, which replaces the one before; its reply subject."""
        ingest, marker = sent.ingest, sent.state.marker
        assert marker is not None
        batch = IngestBatch(ingest.batch_id, ingest.key, ingest.sent)
        ours = replace(self._marker(marker, position), ingest=batch)
        reply = self._connection.reply_subjects(1)[0]
        self._cache.acks.marked[reply] = ingest
        header = markers.replacing(ingest.sequence)
        self._connection.send(
            frames.publish(self._subject(sent), markers.payload(ours), reply=reply, header=header)
        )
        self._cache.written[sent.state.pair] += 1
        return reply

    def _marker(self, before: Marker, position: int) -> Marker:
        return replace(
            before,
            position=position,
            epoch=self._options.epoch,
            sequence=0,
            run=self._origin.run,
            task=self._origin.task,
            time_ms=0,
        )

    def _frames(self, sent: _Sent, rows: pa.RecordBatch) -> tuple[bytes, Sequence[int] | Ints]:
        ingest, first = sent.ingest, sent.ingest.sent + 1
        fence = (
            f"Nats-Expected-Last-Subject-Sequence: {ingest.sequence}\r\n"
            f"Nats-Expected-Last-Subject-Sequence-Subject: {self._subject(sent)}\r\n"
        )
        return publish_frames.ingest_frames(
            rows,
            ingest.reply(self._inbox(_ROWS)),
            messages_out.line_begin(sent.state.pair[1]),
            first,
            messages_out.tags(ingest.key, first, rows.num_rows),
            self._options.event_time_header,
            fence if first == 1 else "",
        )

    def _ping(self, sent: _Sent) -> bytes:
        """A request for an answer after all rows; readers of the rows do not learn its inbox."""
        reply = f"{sent.ingest.pings}.{sent.ingest.sent}.4.$FI"
        return frames.publish(self._subject(sent), b"", reply=reply)

    def _subject(self, sent: _Sent) -> str:
        return markers.subject(self._options.marker_prefix, *sent.state.pair)

    # --- answers

    def receive(self) -> None:
        """Process what has arrived; wait for something first."""
        deadline_s = time.monotonic() + _ANSWER_S
        while (frame := self._connection.next_frame()) is None:
            self._connection.receive(deadline_s)
        _, subject, header, data = frame
        ingest = self._cache.acks.take(subject, header, data)
        # A failure of another publisher's batch is noted for that one.
        if ingest is not None and any(sent.ingest is ingest for sent in self.sent.values()):
            self._check_taken(ingest)

    def _check_taken(self, ingest: OpenBatch) -> None:
        if ingest.failure:
            raise DisconnectedError(ingest.failure)

    def _inbox(self, purpose: str) -> str:
        return self._cache.inbox(self._connection, purpose)
