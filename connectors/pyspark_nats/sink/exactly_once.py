"""Exactly-once publisher: atomic batches that end with the producer's marker.

The marker expects the sequence of the previous marker, so of two writers at the same position one
is refused.  Batch and marker are stored together or not at all.  So the marker shows which rows are
published, even if an answer was lost.  In any doubt it is read again.

The rows of a batch are sent before the ack of the previous batch arrives, and its marker after that
ack.  The server receives the rows while the ack is in flight, and the marker, which commits them,
expects the sequence from the ack.  So the server never waits for the client, and no sequence is
guessed.  A publisher whose process stays uses ingest batches instead, where it can (``ingest``).
"""

from __future__ import annotations

import base64
import logging
import os
import time
from collections import Counter, deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark_nats.errors import RefusedError
from pyspark_nats.few_rows import as_batch, last_of
from pyspark_nats.protocol import frames, jetstream, publish_frames
from pyspark_nats.protocol.connection import DisconnectedError, Reply
from pyspark_nats.sink import markers, messages_out, producer_markers, producer_state
from pyspark_nats.sink.ingest import IngestPath
from pyspark_nats.sink.leader_watch import LeaderWatch
from pyspark_nats.sink.marker_cache import cache_for
from pyspark_nats.sink.producer_markers import ProducerMarkers
from pyspark_nats.sink.producer_state import Pair, PendingBatch, ProducerState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from pyspark_nats.protocol.connection import Connection
    from pyspark_nats.sink.markers import Origin
    from pyspark_nats.sink.sink_options import SinkOptions


log = logging.getLogger(__name__)

#: The server accepts a thousand messages in an atomic batch; one of them is the marker.
ROWS_MAX = 999
_BYTES_MAX = 8 << 20
#: Frames up to this size are sent in one piece.
_TOGETHER_BYTES = 64 << 10
#: The server drops a batch that receives nothing for ten seconds.
_STAGED_S = 5.0
_BATCH_INCOMPLETE = 10176
_BATCH_TOO_LARGE = 10199
#: Too many open batches, in the stream or in the server; too many requests.
_PASSING = frozenset({10167, 10210, 10211})


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


class ExactlyOncePublisher:
    """Publishes the rows of one task in atomic batches, and in ingest batches where it can."""

    def __init__(
        self,
        connection: Connection,
        options: SinkOptions,
        origin: Origin,
        *,
        is_long_lived: bool,
        input_ms: Callable[[str], int] | None = None,
    ) -> None:
        """Publish over a connection.

        Args:
            connection: to a server.
            options: of the sink.
            origin: the task.
            is_long_lived: whether later tasks of its producers run in this thread, as a rule.
            input_ms: the server's time before which no input of a producer's rows was stored, ms
                since 1970, and 0 if unknown; asked for where rows are published already.
        """
        self._input_ms = input_ms
        #: Producers whose published rows are known to be of the present input.
        self._of_input: set[Pair] = set()
        self.connection = connection
        self._options = options
        self._origin = origin
        #: ``Origin.since_ms`` of the rows that are added now.
        self._since_ms = origin.since_ms
        #: Markers known to this process; those left by an earlier task may be stale.
        self._cache = cache_for(options)
        self._markers = ProducerMarkers(connection, options, origin, self._cache)
        self._states: dict[Pair, ProducerState] = {}
        is_ingested = is_long_lived and origin.batch_id is None
        self.ingest = IngestPath(connection, options, origin, self._cache) if is_ingested else None
        #: Batches without an ack, oldest first.
        self._pending: deque[PendingBatch] = deque()
        #: Most rows of an atomic batch, and the time for which its rows may wait for it, seconds.
        self.rows_max, self.staged_s = ROWS_MAX, _STAGED_S
        self._bound = USUAL

    @property
    def _is_counted(self) -> bool:
        return self._origin.batch_id is not None

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The (stream, producer) pairs with written markers."""
        return tuple(
            pair for pair, state in self._states.items() if self._is_counted or state.last[1] >= 0
        )

    def add(self, rows: pa.RecordBatch) -> None:
        """Accept rows; full atomic batches of them are sent."""
        for pair, mine in messages_out.groups(rows):
            state = self._state_of(pair)
            messages_out.check_growing(pair, state.last, mine)
            state.last = last_of(mine, "first_position"), last_of(mine, "position")
            state.waiting.append(mine)
            if sum(part.num_rows for part in state.waiting) >= self.rows_max + self._is_counted:
                self._cut(state, is_last=False)

    def begin_run(self, since_ms: int) -> None:
        """Add rows of a further run from now on; ``since_ms`` as that of the origin."""
        self._since_ms = since_ms

    def send(self) -> bool:
        """Send the rest; whether all is acknowledged: rows in ingest batches may not be."""
        for state in self._states.values():
            self._cut(state, is_last=True)
        if not self._is_deferrable() and self.ingest is not None and self.ingest.is_under_way:
            self._ingested(IngestPath.look)
        if self._is_deferrable():
            return False
        self.finish()
        return True

    def _is_deferrable(self) -> bool:
        """Whether what is sent may be confirmed later."""
        ingest = self.ingest
        is_open = ingest is not None and ingest.is_under_way and ingest.has_room
        return is_open and not self._pending

    @property
    def is_waiting(self) -> bool:
        """Whether rows wait for the beginning of their ingest batch."""
        return self.ingest is not None and self.ingest.is_beginning

    def proceed(self) -> None:
        """Send such rows."""
        if self.ingest is not None:
            self._ingested(IngestPath.proceed)
        if self._pending:
            self.finish()

    def finish(self) -> None:
        """Send the rest, and wait until all of it is acknowledged."""
        for state in self._states.values():
            self._cut(state, is_last=True)
        self._drain()
        if self._origin.batch_id is not None:
            for state in self._states.values():
                producer_state.check_whole(state, self._origin.batch_id)
        prefix = self._options.marker_prefix
        producer_markers.purge_old(self.connection, self._cache, prefix, self._states)

    def ask(self) -> bool:
        """The first step of ``finish``, without a wait; False if that will find a failure."""
        return self._ahead(IngestPath.ask)

    def mark(self) -> bool:
        """The second step, after ``ask``; no rows may follow before ``finish``."""
        return self._ahead(IngestPath.mark)

    def _ahead(self, step: Callable[[IngestPath], None]) -> bool:
        if self.ingest is None or not self.ingest.is_under_way:
            return True
        try:
            step(self.ingest)
        except (DisconnectedError, OSError, RefusedError) as error:
            self.ingest.fail(str(error))
            return False
        return True

    def out(self, pair: Pair, first: int) -> int:
        """The position up to which ``pair`` is published, according to the stream's leader.

        Args:
            pair: stream and producer.
            first: the position of the first row to come.

        Raises:
            DataLossError: it was published before the input of these rows was stored.
        """
        state = self._state_of(pair)
        if not state.is_verified:
            self._drain()
            state.marker = None
            self._retry("reading markers", lambda: self._markers.read([state]))
        assert state.marker is not None
        if self._is_unchecked(state, first):
            self._drain()
            self._retry("looking at the input", lambda: self._check_input(state))
        return state.marker.position

    def _is_unchecked(self, state: ProducerState, first: int) -> bool:
        """Whether the row at position ``first`` is published, perhaps of an earlier input."""
        marker = state.marker
        if self._input_ms is None or marker is None or state.pair in self._of_input:
            return False
        return state.is_verified and marker.time_ms > 0 and first <= marker.position

    def _check_input(self, state: ProducerState) -> None:
        """Check once that what is published of a producer is of the present input."""
        assert self._input_ms is not None
        assert state.marker is not None
        producer_state.check_input(state.pair, state.marker, self._input_ms(state.pair[1]))
        self._of_input.add(state.pair)

    def expect(self, pair: Pair) -> None:
        """Have ``finish`` record that the batch is whole for ``pair``, even without rows."""
        if self._is_counted:
            self._state_of(pair)

    def _state_of(self, pair: Pair) -> ProducerState:
        if pair not in self._states:
            if pair[0] not in self._cache.streams:
                self._drain()
            self._states[pair] = self._markers.state_of(pair)
        return self._states[pair]

    # --- cutting

    def _cut(self, state: ProducerState, *, is_last: bool) -> None:
        """Cut the waiting rows into atomic batches; the last one may wait for more rows.

        With counted positions it always waits, as the last batch records the end.
        """
        if not state.waiting:
            if is_last and self._is_counted:
                self._append(state, messages_out.NO_ROWS, is_last=True)
            return
        if self.ingest is not None and self._is_ingested(self.ingest, state):
            return
        rows = as_batch(state.whole())
        at = 0
        while at < rows.num_rows:
            count = messages_out.fitting(rows, at, self.rows_max, _BYTES_MAX)
            is_end = at + count == rows.num_rows
            if is_end and not is_last and (self._is_counted or count < self.rows_max):
                break
            self._append(state, rows.slice(at, count), is_last=is_end and is_last)
            at += count
        state.waiting = [rows.slice(at)] if at < rows.num_rows else []

    def _is_ingested(self, ingest: IngestPath, state: ProducerState) -> bool:
        """Send the waiting rows in an ingest batch if possible; whether none waits any more."""
        rows = state.whole()
        if ingest.takes(state, rows, self._since_ms):
            messages_out.check_sizes(rows, messages_out.room(self.connection))
            state.waiting = []
            self.settle()
            since_ms = self._since_ms
            self._ingested(lambda ingest: ingest.send(state, rows, since_ms))
        else:
            self._confirm()
        return not state.waiting

    def _append(self, state: ProducerState, rows: pa.RecordBatch, *, is_last: bool) -> None:
        messages_out.check_sizes(rows, messages_out.room(self.connection))
        before = state.digest
        if self._is_counted and rows.num_rows:
            state.digest = before.updated(rows)
        self._pending.append(
            PendingBatch(
                state, rows, before, state.digest, is_last=is_last, since_ms=self._since_ms
            )
        )
        self.settle(self._bound)

    # --- sending

    def _drain(self) -> None:
        """Return when everything that was sent is acknowledged."""
        self._confirm()
        self.settle()

    def _confirm(self) -> None:
        """Return when rows in ingest batches are acknowledged, or wait for an atomic one."""
        if self.ingest is not None and self.ingest.is_under_way:
            self._ingested(IngestPath.finish)

    def _ingested(self, step: Callable[[IngestPath], None]) -> None:
        """Do a step with ingest batches; after a failure their rows go into atomic ones."""
        assert self.ingest is not None
        try:
            step(self.ingest)
        except (DisconnectedError, OSError, RefusedError) as error:
            log.info("ingest batches given up: %s", error)
            # The marker shows which of their rows are stored.
            for state, runs in self.ingest.abandon():
                self._markers.forget(state)
                self._publish_again(state, runs)

    def _publish_again(self, state: ProducerState, runs: list[tuple[pa.RecordBatch, int]]) -> None:
        """Publish runs in atomic batches, before the rows that wait."""
        later, since_ms = state.waiting, self._since_ms
        for rows, self._since_ms in runs:
            state.waiting = [rows]
            self._cut(state, is_last=True)
        state.waiting, self._since_ms = later, since_ms

    def settle(self, bound: BatchBound = NONE) -> None:
        """Continue until all rows are sent, and no more batches pending than ``bound``."""
        while self._pending and not self._is_settled(bound):
            stream = self._pending[0].state.pair[0]
            self._retry(f'publishing to stream "{stream}"', lambda: self._step(bound))

    def _is_settled(self, bound: BatchBound) -> bool:
        return all(batch.batch_id for batch in self._pending) and bound.holds(self._pending)

    def _retry(self, what: str, step: Any) -> None:
        def doubting() -> None:
            try:
                step()
            except (DisconnectedError, OSError):
                # Whether open batches were stored is unknown: their markers show it.
                for batch in self._pending:
                    self._requeue(batch)
                raise

        under_way = any(batch.batch_id for batch in self._pending)
        self.connection.retry_while_unavailable(what, doubting, is_under_way=under_way)

    def _step(self, bound: BatchBound) -> None:
        self._take_answers(wait=False)
        self._send_ready()
        if not self._is_settled(bound):
            self._take_answers(wait=any(batch.reply for batch in self._pending))

    def _send_ready(self) -> None:
        """Send rows as far ahead as allowed, and a marker for each producer without an open ack."""
        waiting: list[bytes] = []
        size = 0
        for octets in self._ready():
            waiting.append(octets)
            size += len(octets)
            if size > _TOGETHER_BYTES:
                self.connection.send(b"".join(waiting))
                waiting, size = [], 0
        if waiting:
            self.connection.send(b"".join(waiting))

    def _ready(self) -> Iterator[bytes]:
        """The frames of ``_send_ready`` that may be sent together, each as it is returned."""
        waiting: set[Pair] = set()
        for batch in list(self._pending):
            was_sent = bool(batch.batch_id)
            if not was_sent:
                stream = batch.state.pair[0]
                if not self._bound.admits(stream, self._pending) or not self._has_marker(batch):
                    return
                if not producer_state.skip_published(batch, self._origin):
                    self._pending.remove(batch)
                    continue
                if batch.state.marker is None:
                    return
                yield self._rows_frames(batch)
            if batch.state.pair not in waiting and not batch.reply:
                if was_sent:
                    # The server waits for it, and it takes time to encode further rows.
                    self.connection.send(b"".join(self._marker_frames(batch)))
                else:
                    yield from self._marker_frames(batch)
            waiting.add(batch.state.pair)

    def _has_marker(self, batch: PendingBatch) -> bool:
        """Whether the marker before a batch is known; it is read if no ack is outstanding.

        Raises:
            DataLossError: rows are published already, but of an earlier input.
        """
        if batch.state.marker is None:
            if any(c.reply for c in self._pending):
                return False
            unknown = {c.state.pair: c.state for c in self._pending if c.state.marker is None}
            self._markers.read(list(unknown.values()))
        rows = batch.rows
        if rows.num_rows and self._is_unchecked(batch.state, int(messages_out.positions(rows)[0])):
            # The answer would come among acks.
            if any(c.reply for c in self._pending):
                return False
            self._check_input(batch.state)
        return True

    def _rows_frames(self, batch: PendingBatch) -> bytes:
        """A batch's rows, which its marker will commit; empty for none."""
        state, rows = batch.state, batch.rows
        # Short, because every message contains it.  Two open batches of a stream with the same name
        # would both be refused.
        batch.batch_id = base64.urlsafe_b64encode(os.urandom(4))[:6].decode()
        batch.sent_s = time.monotonic()
        state.marker = batch.marker = producer_state.next_marker(
            batch, self._options.epoch, self._origin
        )
        if not rows.num_rows:
            return b""
        header = self._options.event_time_header
        return publish_frames.atomic_frames(rows, batch.batch_id, header)

    def _marker_frames(self, batch: PendingBatch) -> Iterator[bytes]:
        """The marker that ends an atomic batch, after its rows if they have expired."""
        if time.monotonic() - batch.sent_s > self.staged_s:
            assert batch.state.marker is not None
            yield self._rows_frames(batch)
        stream, producer = batch.state.pair
        assert batch.marker is not None
        batch.reply = self.connection.reply_subjects(1)[0]
        yield frames.publish(
            markers.subject(self._options.marker_prefix, stream, producer),
            markers.payload(batch.marker),
            reply=batch.reply,
            header=markers.header(batch.batch_id, batch.rows.num_rows + 1, batch.state.sequence),
        )

    def _requeue(self, batch: PendingBatch) -> None:
        """Schedule a batch to be sent again, after the position of its marker."""
        if batch.batch_id:
            batch.batch_id = batch.reply = ""
            self._markers.forget(batch.state)

    # --- answers

    def _take_answers(self, *, wait: bool) -> None:
        """Process the received answers, or wait for at least one."""
        by_reply = {batch.reply: batch for batch in self._pending if batch.reply}
        if not by_reply:
            return
        streams = {batch.state.pair[0] for batch in by_reply.values()}
        watch = LeaderWatch(self.connection, self._cache.streams, streams)
        if not wait and self.connection.is_readable():
            watch.receive()
        while True:
            answered = False
            while (frame := self.connection.next_frame()) is not None:
                _, subject, header, data = frame
                batch = by_reply.get(subject)
                if batch is not None:
                    answered = True
                    self._answered(batch, header, data)
                else:
                    watch.take(subject, data)
            if answered or not wait:
                return
            watch.receive()

    def _answered(self, batch: PendingBatch, header: bytes, data: bytes) -> None:
        if not data:
            raise DisconnectedError(f"no responders: {header[:40]!r}")
        try:
            sequence = int(Reply(header, data).json()["seq"])
        except RefusedError as error:
            self._refused(batch, error)
            return
        state = batch.state
        self._pending.remove(batch)
        assert batch.marker is not None
        stored = replace(batch.marker, sequence=sequence)
        if state.marker is batch.marker:
            state.marker = stored
        state.sequence, state.is_verified = sequence, True
        self._cache.markers[state.pair] = self._cache.acknowledged[state.pair] = stored
        self._cache.written[state.pair] += 1
        self._cache.published_s[state.pair] = time.monotonic()
        self._cache.ingests.pop(state.pair, None)

    def _refused(self, batch: PendingBatch, error: RefusedError) -> None:
        """Handle a refused batch: it will be sent again, or the error is raised."""
        stream = batch.state.pair[0]
        for other in self._pending:
            if other.state is batch.state:
                self._requeue(other)
        if error.err_code in jetstream.WRONG_LAST_SEQUENCE:
            return
        if error.err_code == _BATCH_TOO_LARGE and self._halve(batch):
            return
        if error.err_code in _PASSING:
            self._bound = ONE
            raise DisconnectedError(error.message) from error
        if error.err_code == _BATCH_INCOMPLETE:
            # Read again by the next task: its configuration may be another one by then.
            info = self._cache.streams.pop(stream)
            producer_state.check_rows(info, batch.rows, error)
            self._cache.streams[stream] = info
            # A part of it was lost, as at a change of leader, or the server had too many open
            # batches when it began.
            self._bound = ONE
            raise DisconnectedError(error.message) from error
        raise error

    def _halve(self, batch: PendingBatch) -> bool:
        """Replace a chunk by two, as a server may be configured to accept fewer rows."""
        rows_max = batch.rows.num_rows // 2
        count = messages_out.fitting(batch.rows, 0, rows_max, _BYTES_MAX) if rows_max else 0
        if not 0 < count < batch.rows.num_rows:
            return False
        self.rows_max = rows_max
        first, rest = batch.rows.slice(0, count), batch.rows.slice(count)
        middle = batch.before
        if self._is_counted:
            middle = middle.updated(first)
        at = self._pending.index(batch)
        del self._pending[at]
        self._pending.insert(at, replace(batch, rows=rest, before=middle))
        self._pending.insert(at, replace(batch, rows=first, digest=middle, is_last=False))
        return True
