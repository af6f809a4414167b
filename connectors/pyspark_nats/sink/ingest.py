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

import numpy as np

from pyspark_nats.errors import RefusedError
from pyspark_nats.protocol import frames, publish_frames
from pyspark_nats.protocol.connection import DisconnectedError, Reply
from pyspark_nats.sink import markers, messages_out, row_tags
from pyspark_nats.sink.marker import IngestBatch
from pyspark_nats.sink.open_batch import FLOW, PINGS, OpenBatch

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_nats.protocol.connection import Connection
    from pyspark_nats.sink.marker import Marker
    from pyspark_nats.sink.marker_cache import MarkerCache
    from pyspark_nats.sink.messages_out import Ints
    from pyspark_nats.sink.origin import Origin
    from pyspark_nats.sink.producer_state import Pair, ProducerState
    from pyspark_nats.sink.sink_options import SinkOptions

#: Messages that are encoded at once.
_FRAMES: Final = 4_000
#: Acks that may be outstanding.
_ACKS: Final = 2
_ANSWER_S: Final = 5.0
#: The server ends a batch without messages for ten seconds.
_BATCH_S: Final = 5.0
#: A producer begins a batch if it has published within so many seconds, or has so many rows.
_BUSY_S: Final = 4.0
_MANY_ROWS: Final = 500
#: Pause after a failure, in which a producer publishes atomic batches, seconds.
_PAUSE_S: Final = 10.0
#: Octets of rows that are kept here unconfirmed while others follow.
_KEPT_BYTES: Final = 1 << 20
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


class IngestPath:
    """Publishes the rows of one task in ingest batches."""

    def __init__(
        self, connection: Connection, options: SinkOptions, origin: Origin, cache: MarkerCache
    ) -> None:
        self._connection = connection
        self._options = options
        self._origin = origin
        self._cache = cache
        self._sent: dict[Pair, _Sent] = {}
        #: Reply subjects of markers.
        self._marked: dict[str, OpenBatch] = {}

    def takes(self, state: ProducerState, rows: pa.RecordBatch) -> bool:
        """Whether rows of a producer can be published here; its batch is over if not."""
        pair, marker, now_s = state.pair, state.marker, time.monotonic()
        info = self._cache.streams[pair[0]]
        ingest = self._cache.ingests.pop(pair, None)
        if marker is None or not marker.sequence or not (info.allow_ingest and info.keeps_recent):
            return False
        if rows.column("first_position")[0].as_py() <= self._last(state):
            return False
        if rows.num_rows > 1 and (np.diff(messages_out.positions(rows)) <= 0).any():
            # A block with several subjects is stored as a whole.
            return False
        if pair in self._sent:
            return True
        if ingest is not None and now_s - ingest.used_s < _BATCH_S and not ingest.failure:
            self._cache.ingests[pair] = ingest
            return True
        is_busy = now_s - self._cache.published_s.get(pair, -_BUSY_S) < _BUSY_S
        is_paused = now_s < self._cache.paused_s.get(pair, 0.0)
        return (is_busy or rows.num_rows >= _MANY_ROWS) and not is_paused

    def _last(self, state: ProducerState) -> int:
        """The last position of a producer that is sent."""
        sent = self._sent.get(state.pair)
        assert state.marker is not None
        return state.marker.position if sent is None else sent.last

    @property
    def is_under_way(self) -> bool:
        """Whether rows are sent and not confirmed."""
        return bool(self._sent)

    @property
    def has_room(self) -> bool:
        """Whether another run may follow before this one is confirmed, without waiting for acks."""
        return all(
            sent.ingest.sent - sent.ingest.acked < sent.ingest.flow and sent.size < _KEPT_BYTES
            for sent in self._sent.values()
        )

    def send(self, state: ProducerState, rows: pa.RecordBatch, since_ms: int) -> None:
        """Send rows of a run; the last of them may be on their way when this returns.

        Args:
            state: of their producer.
            rows: that ``takes`` has accepted.
            since_ms: the server's time before which no input of the run was stored.

        Raises:
            DisconnectedError, OSError, RefusedError: what was sent is in doubt; see ``abandon``.
        """
        sent = self._sent.get(state.pair)
        if sent is None:
            with self._cache.lock:
                ingest = self._cache.ingests.pop(state.pair, None) or OpenBatch()
                # Another publisher may use the marker only when all is confirmed.
                self._cache.markers.pop(state.pair, None)
            sent = self._sent[state.pair] = _Sent(state, ingest, [(rows, since_ms)])
            self._begin(sent)
        else:
            sent.runs.append((rows, since_ms))
            self._check(sent)
        sent.size += rows.column("data").nbytes
        sent.last = rows.column("position")[-1].as_py()
        ingest, at = sent.ingest, 0
        while at < rows.num_rows:
            # The server takes no other row if it refuses the first.
            some = rows.slice(at, _FRAMES if ingest.sent else 1)
            self._send(ingest, *self._frames(sent, some))
            at += some.num_rows
        ingest.used_s = time.monotonic()

    def _send(self, ingest: OpenBatch, octets: bytes, ends: Ints) -> None:
        """Send messages, as many at a time as the server allows."""
        at, begin = 0, 0
        while at < len(ends):
            # An ack may lower the flow.  While this waits, more rows than one flow are on their way
            # since the last ack, so another ack is due.
            while (count := min(len(ends) - at, ingest.flow)) > (
                _ACKS * ingest.flow - (ingest.sent - ingest.acked)
            ):
                self._receive()
            end = int(ends[at + count - 1])
            self._connection.send(octets[begin:end])
            ingest.sent += count
            at, begin = at + count, end

    def _check(self, sent: _Sent) -> None:
        """Check that rows can follow those of earlier runs.

        Raises:
            DisconnectedError: some of those may be lost.
        """
        if sent.connection_number != self._connection.made:
            raise DisconnectedError("the connection is not that of the rows before")
        if sent.ingest.failure:
            raise DisconnectedError(sent.ingest.failure)

    def finish(self) -> None:
        """Return when all rows are stored; errors as for ``send``."""
        if not self._sent:
            return
        for sent in self._sent.values():
            self._check(sent)
        self._connection.send(b"".join(self._ping(sent) for sent in self._sent.values()))
        while any(sent.ingest.taken < sent.ingest.sent for sent in self._sent.values()):
            self._receive()
        for pair, sent in self._sent.items():
            self._cache.stored[pair] = sent.last
            self._mark(sent, sent.last)
        while self._marked:
            self._receive()
        now_s = time.monotonic()
        for pair, sent in self._sent.items():
            state, ingest = sent.state, sent.ingest
            state.marker = self._cache.markers[pair] = self._acknowledge(sent, sent.last)
            state.sequence, state.is_verified = ingest.sequence, True
            self._cache.published_s[pair] = now_s
            self._cache.ingests[pair] = ingest
        self._sent.clear()

    def abandon(self) -> list[tuple[ProducerState, list[tuple[pa.RecordBatch, int]]]]:
        """Give up what is not confirmed, and return it: it has to be published in another way.

        Returns:
            For each producer the rows of its runs in order, with their times as for ``send``.
        """
        runs = [(sent.state, sent.runs) for sent in self._sent.values()]
        for pair in self._sent:
            self._cache.paused_s[pair] = time.monotonic() + _PAUSE_S
        self._sent.clear()
        self._marked.clear()
        return runs

    # --- sending

    def _begin(self, sent: _Sent) -> None:
        """Write the marker that names a new batch, and wait for its sequence."""
        ingest, marker = sent.ingest, sent.state.marker
        assert marker is not None
        if not self._connection.is_open:
            self._connection.retry_while_unavailable("publishing", lambda: None)
        sent.connection_number = self._connection.made
        for purpose in (_ROWS, PINGS):
            self._cache.by_inbox[ingest.reply(self._inbox(purpose))] = ingest
        if not ingest.sequence:
            ingest.sequence = marker.sequence
            self._mark(sent, marker.position)
            while self._marked:
                self._receive()
            self._acknowledge(sent, marker.position)

    def _acknowledge(self, sent: _Sent, position: int) -> Marker:
        """Remember the marker that the server has acknowledged, with the batch that follows it."""
        ingest, pair = sent.ingest, sent.state.pair
        assert sent.state.marker is not None
        stored = replace(self._marker(sent.state.marker, position), sequence=ingest.sequence)
        batch = IngestBatch(ingest.batch_id, ingest.key, ingest.sent)
        self._cache.acknowledged[pair] = replace(stored, ingest=batch)
        return stored

    def _mark(self, sent: _Sent, position: int) -> None:
        """Send a marker, which replaces the one before."""
        ingest, marker = sent.ingest, sent.state.marker
        assert marker is not None
        batch = IngestBatch(ingest.batch_id, ingest.key, ingest.sent)
        ours = replace(self._marker(marker, position), ingest=batch)
        reply = self._connection.reply_subjects(1)[0]
        self._marked[reply] = ingest
        header = markers.replacing(ingest.sequence)
        self._connection.send(
            frames.publish(self._subject(sent), markers.payload(ours), reply=reply, header=header)
        )
        self._cache.written[sent.state.pair] += 1

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

    def _frames(self, sent: _Sent, rows: pa.RecordBatch) -> tuple[bytes, Ints]:
        ingest, first = sent.ingest, sent.ingest.sent + 1
        fence = (
            f"Nats-Expected-Last-Subject-Sequence: {ingest.sequence}\r\n"
            f"Nats-Expected-Last-Subject-Sequence-Subject: {self._subject(sent)}\r\n"
        )
        return publish_frames.ingest_frames(
            rows,
            ingest.reply(self._inbox(_ROWS)),
            row_tags.line_begin(sent.state.pair[1]),
            first,
            row_tags.tags(ingest.key, first, rows.num_rows),
            self._options.event_time_header,
            fence if first == 1 else "",
        )

    def _ping(self, sent: _Sent) -> bytes:
        """A request for an answer after all rows; readers of the rows do not learn its inbox."""
        reply = f"{sent.ingest.reply(self._inbox(PINGS))}.{sent.ingest.sent}.4.$FI"
        return frames.publish(self._subject(sent), b"", reply=reply)

    def _subject(self, sent: _Sent) -> str:
        return markers.subject(self._options.marker_prefix, *sent.state.pair)

    # --- answers

    def _receive(self) -> None:
        """Process what has arrived; wait for something first."""
        deadline_s = time.monotonic() + _ANSWER_S
        while (frame := self._connection.next_frame()) is None:
            self._connection.receive(deadline_s)
        _, subject, header, data = frame
        marked = self._marked.pop(subject, None)
        if marked is not None:
            if not data:
                raise DisconnectedError(f"no responders: {header[:40]!r}")
            marked.sequence = int(Reply(header, data).json()["seq"])
            return
        inbox, *rest = subject.rsplit(".", 3)
        ingest = self._cache.by_inbox.get(inbox)
        if ingest is None:
            # A late answer, which is not needed any more.
            return
        try:
            self._acked(ingest, inbox, rest, header, data)
        except (DisconnectedError, RefusedError) as error:
            if not any(sent.ingest is ingest for sent in self._sent.values()):
                # It concerns the rows of another publisher of this thread.
                ingest.failure = str(error)
                return
            raise

    def _acked(
        self, ingest: OpenBatch, inbox: str, rest: list[str], header: bytes, data: bytes
    ) -> None:
        """Process the answer to a row or to a ping.

        Raises:
            DisconnectedError, RefusedError: the server takes no more rows of the batch.
        """
        if not data:
            raise DisconnectedError(f"no responders: {header[:40]!r}")
        try:
            told = Reply(header, data).json()
            is_ack, seq, flow = told["type"] == "ack", int(told["seq"]), int(told["msgs"])
            number, operation, _ = rest
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            # The end of the batch; or no answer of the server: readers of the rows see the inbox.
            raise DisconnectedError(f"not an ack: {data[:80]!r}") from error
        if not is_ack:
            raise DisconnectedError(f"not an ack: {told}")
        if operation == "4" and inbox == ingest.reply(self._inbox(PINGS)):
            ingest.acked = ingest.taken = int(number)
        else:
            ingest.acked = max(ingest.acked, min(seq, ingest.sent))
            ingest.flow = max(1, min(flow, FLOW))

    def _inbox(self, purpose: str) -> str:
        return self._cache.inbox(self._connection, purpose)
