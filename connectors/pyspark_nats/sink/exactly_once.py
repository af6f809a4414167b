"""Exactly once: atomic batches whose last message is the producer's marker.

The marker expects the sequence of the marker before it, so of two writers that are at the same
place one is refused; and because batch and marker are stored together or not at all, the marker
says what is out, whatever happened to an answer.  After any doubt it is simply read again.

A batch's rows go out before the ack of the batch before it, and its marker behind that ack: the
server takes the rows in while the ack is on its way, and the marker that makes them count expects
what the ack says.  So the server never waits for us, and nothing is foretold.
"""

from __future__ import annotations

import base64
import os
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark_nats.arrow import concat_batches
from pyspark_nats.errors import ConnectorError, RefusedError, SchemaError
from pyspark_nats.protocol import frames, jetstream, publish_frames
from pyspark_nats.protocol.connection import DisconnectedError, Reply
from pyspark_nats.sink import markers, messages_out, producer_state
from pyspark_nats.sink.marker_cache import known
from pyspark_nats.sink.producer_state import Chunk, Lane, Pair

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_nats.protocol.connection import Connection
    from pyspark_nats.sink.origin import Origin
    from pyspark_nats.sink.sink_options import SinkOptions

#: The server takes a thousand messages an atomic batch; one of them is the marker.
_ROWS_MAX = 999
_BYTES_MAX = 8 << 20
_ACK_TIMEOUT_S = 5.0
#: Batches whose rows are at the server and whose acks are not here, at the most.  The server takes
#: fifty a stream, from all its writers.
_AHEAD_MAX = 3
#: The server forgets a batch that gets nothing for ten seconds.
_STAGED_S = 5.0
_BATCH_INCOMPLETE = 10176
_BATCH_TOO_LARGE = 10199
#: Too many batches under way, in the stream or in the server; too many requests.
_PASSING = frozenset({10167, 10210, 10211})


class AtomicPublisher:
    """One task's writing in atomic batches."""

    def __init__(self, connection: Connection, options: SinkOptions, origin: Origin) -> None:
        self._connection = connection
        self._options = options
        self._origin = origin
        #: Markers as this process knows them; those left by an earlier task may be outdated.
        self._known = known(options)
        self._lanes: dict[Pair, Lane] = {}
        #: Chunks that are not known to be out, oldest first.
        self._pending: deque[Chunk] = deque()
        self._rows_max = _ROWS_MAX
        self._ahead = _AHEAD_MAX

    @property
    def _is_counted(self) -> bool:
        return self._origin.batch_id is not None

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The (stream, producer) pairs that markers were written for."""
        return tuple(
            pair for pair, lane in self._lanes.items() if self._is_counted or lane.last[1] >= 0
        )

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows; whole chunks of them are sent."""
        for pair, mine in messages_out.groups(rows):
            lane = self._lane(pair)
            messages_out.check_growing(pair, lane.last, mine)
            first, last = mine.column("first_position")[-1], mine.column("position")[-1]
            lane.last = (first.as_py(), last.as_py())
            lane.waiting.append(mine)
            if sum(part.num_rows for part in lane.waiting) >= self._rows_max + self._is_counted:
                self._cut(lane, is_last=False)

    def finish(self) -> None:
        """Send the rest, and wait until all is out."""
        for lane in self._lanes.values():
            self._cut(lane, is_last=True)
        self._settle(0)
        if self._origin.batch_id is not None:
            for lane in self._lanes.values():
                producer_state.check_whole(lane, self._origin.batch_id)

    def out(self, pair: Pair) -> int:
        """The position up to which ``pair`` is out, as the stream's leader knows it."""
        lane = self._lane(pair)
        if not lane.is_sure:
            self._settle(0)
            lane.marker = None
            self._ride("reading markers", lambda: self._read_markers([lane]))
        assert lane.marker is not None
        return lane.marker.position

    def expect(self, pair: Pair) -> None:
        """Have ``finish`` say that the batch is whole for ``pair``, also when no rows come."""
        if self._is_counted:
            self._lane(pair)

    def _lane(self, pair: Pair) -> Lane:
        if pair not in self._lanes:
            if not pair[1] or set(pair[1]) & set(" *>\t\r\n"):
                raise SchemaError(
                    f'producer "{pair[1]}" can\'t stand in the subject of its marker',
                    hint="It has no white space and no wildcards.",
                )
            self._check_stream(pair)
            marker = self._known.markers.get(pair)
            self._lanes[pair] = Lane(pair, marker, sequence=marker.sequence if marker else 0)
            self._check_marker(self._lanes[pair])
        return self._lanes[pair]

    # --- cutting

    def _cut(self, lane: Lane, *, is_last: bool) -> None:
        """Cut what waits into chunks; the last one may wait for more.

        When positions are counted it always does, as the one that ends the batch says so.
        """
        if not lane.waiting:
            if is_last and self._is_counted:
                self._append(lane, messages_out.NO_ROWS, is_last=True)
            return
        whole = lane.waiting[0] if len(lane.waiting) == 1 else concat_batches(lane.waiting)
        at = 0
        while at < whole.num_rows:
            count = messages_out.fitting(whole, at, self._rows_max, _BYTES_MAX)
            is_end = at + count == whole.num_rows
            if is_end and not is_last and (self._is_counted or count < self._rows_max):
                break
            self._append(lane, whole.slice(at, count), is_last=is_end and is_last)
            at += count
        lane.waiting = [whole.slice(at)] if at < whole.num_rows else []

    def _append(self, lane: Lane, rows: pa.RecordBatch, *, is_last: bool) -> None:
        messages_out.check_sizes(rows, self._room())
        before = lane.digest
        if self._is_counted and rows.num_rows:
            lane.digest = before.updated(rows)
        self._pending.append(Chunk(lane, rows, before, lane.digest, is_last=is_last))
        self._settle(self._ahead)

    def _room(self) -> int:
        return int(self._connection.info.get("max_payload", 1 << 20)) - messages_out.HEAD_ROOM

    # --- sending

    def _settle(self, pending_max: int) -> None:
        """Go on until no more than ``pending_max`` chunks are pending, and their rows are sent."""
        while len(self._pending) > pending_max or any(not c.batch_id for c in self._pending):
            stream = self._pending[0].lane.pair[0]
            self._ride(f'publishing to stream "{stream}"', lambda: self._step(pending_max))

    def _ride(self, what: str, step: Any) -> None:
        def doubting() -> None:
            try:
                step()
            except (DisconnectedError, OSError):
                # What was on its way may be out or not: the markers will tell.
                for chunk in self._pending:
                    self._take_back(chunk)
                raise

        under_way = any(chunk.batch_id for chunk in self._pending)
        self._connection.riding(what, doubting, is_under_way=under_way)

    def _step(self, pending_max: int) -> None:
        self._take_answers(wait=False)
        self._send_what_can_be()
        is_sent = all(chunk.batch_id for chunk in self._pending)
        if self._pending and (len(self._pending) > pending_max or not is_sent):
            self._take_answers(wait=any(chunk.reply for chunk in self._pending))

    def _send_what_can_be(self) -> None:
        """Send rows as far ahead as we go, and a marker for each lane that waits for no ack."""
        ahead = sum(bool(chunk.batch_id) for chunk in self._pending)
        waiting: set[Pair] = set()
        for chunk in list(self._pending):
            if not chunk.batch_id:
                if ahead >= self._ahead or not self._knows_marker(chunk):
                    return
                if not producer_state.take_off(chunk, self._origin.batch_id):
                    self._pending.remove(chunk)
                    continue
                if chunk.lane.marker is None:
                    return
                self._send_rows(chunk)
                ahead += 1
            if chunk.lane.pair not in waiting and not chunk.reply:
                self._send_marker(chunk)
            waiting.add(chunk.lane.pair)

    def _knows_marker(self, chunk: Chunk) -> bool:
        """Whether the marker is known that a chunk comes after; it is read when nothing else is."""
        if chunk.lane.marker is None:
            if any(c.reply for c in self._pending):
                return False
            unknown = {c.lane.pair: c.lane for c in self._pending if c.lane.marker is None}
            self._read_markers(list(unknown.values()))
        return True

    def _send_rows(self, chunk: Chunk) -> None:
        """Send a chunk's rows, which count once the marker is there."""
        lane, rows = chunk.lane, chunk.rows
        # Short, because every message carries it.  Two batches with the same one would both be
        # refused, if they are under way at the same time in one stream.
        chunk.batch_id = base64.urlsafe_b64encode(os.urandom(4))[:6].decode()
        chunk.sent_s = time.monotonic()
        lane.marker = chunk.marker = producer_state.next_marker(
            chunk, self._options.epoch, self._origin
        )
        if rows.num_rows:
            header = self._options.event_time_header
            self._connection.send(publish_frames.atomic_frames(rows, chunk.batch_id, header))

    def _send_marker(self, chunk: Chunk) -> None:
        """Send what ends a chunk's atomic batch."""
        if time.monotonic() - chunk.sent_s > _STAGED_S:
            assert chunk.lane.marker is not None
            self._send_rows(chunk)
        stream, producer = chunk.lane.pair
        assert chunk.marker is not None
        chunk.reply = self._connection.reply_subjects(1)[0]
        self._connection.send(
            frames.publish(
                markers.subject(self._options.marker_prefix, stream, producer),
                markers.payload(chunk.marker),
                reply=chunk.reply,
                header=markers.header(chunk.batch_id, chunk.rows.num_rows + 1, chunk.lane.sequence),
            )
        )

    def _take_back(self, chunk: Chunk) -> None:
        """Have a chunk sent again, behind whatever the marker will say."""
        if chunk.batch_id:
            chunk.batch_id = chunk.reply = ""
            self._forget(chunk.lane)

    # --- answers

    def _take_answers(self, *, wait: bool) -> None:
        """Take the answers that are there, or wait for at least one."""
        deadline_s = time.monotonic() + _ACK_TIMEOUT_S
        by_reply = {chunk.reply: chunk for chunk in self._pending if chunk.reply}
        if not by_reply:
            return
        if not wait and self._connection.is_readable():
            self._connection.receive(deadline_s)
        while True:
            answered = False
            while (frame := self._connection.next_frame()) is not None:
                _, subject, header, data = frame
                chunk = by_reply.get(subject)
                if chunk is not None:
                    answered = True
                    self._answered(chunk, header, data)
            if answered or not wait:
                return
            self._connection.receive(deadline_s)

    def _answered(self, chunk: Chunk, header: bytes, data: bytes) -> None:
        if not data:
            raise DisconnectedError(f"no responders: {header[:40]!r}")
        try:
            sequence = int(Reply(header, data).json()["seq"])
        except RefusedError as error:
            self._refused(chunk, error)
            return
        lane = chunk.lane
        self._pending.remove(chunk)
        assert chunk.marker is not None
        stored = replace(chunk.marker, sequence=sequence)
        if lane.marker is chunk.marker:
            lane.marker = stored
        lane.sequence, lane.is_sure = sequence, True
        self._known.markers[lane.pair] = stored

    def _refused(self, chunk: Chunk, error: RefusedError) -> None:
        """Deal with a refused batch: it will be sent again, or the error is raised."""
        stream = chunk.lane.pair[0]
        for other in self._pending:
            if other.lane is chunk.lane:
                self._take_back(other)
        if error.err_code in jetstream.WRONG_LAST_SEQUENCE:
            return
        if error.err_code == _BATCH_TOO_LARGE and self._halve(chunk):
            return
        if error.err_code in _PASSING:
            self._ahead = 1
            raise DisconnectedError(error.message) from error
        if error.err_code == _BATCH_INCOMPLETE:
            producer_state.check_subjects(self._known.streams[stream], chunk.rows, error)
            # A part of it was lost on the way, as when the leader changes, or the server had too
            # many batches under way when it began.
            self._ahead = 1
            raise DisconnectedError(error.message) from error
        raise error

    def _halve(self, chunk: Chunk) -> bool:
        """Put two chunks in the place of one, as a server may be configured to take fewer rows."""
        rows_max = chunk.rows.num_rows // 2
        count = messages_out.fitting(chunk.rows, 0, rows_max, _BYTES_MAX) if rows_max else 0
        if not 0 < count < chunk.rows.num_rows:
            return False
        self._rows_max = rows_max
        first, rest = chunk.rows.slice(0, count), chunk.rows.slice(count)
        middle = chunk.before
        if self._is_counted:
            middle = middle.updated(first)
        at = self._pending.index(chunk)
        del self._pending[at]
        self._pending.insert(at, replace(chunk, rows=rest, before=middle))
        self._pending.insert(at, replace(chunk, rows=first, digest=middle, is_last=False))
        return True

    def _forget(self, lane: Lane) -> None:
        lane.marker, lane.is_sure = None, False
        self._known.markers.pop(lane.pair, None)

    # --- markers and streams

    def _read_markers(self, wanted: list[Lane]) -> None:
        """Read what the markers of ``wanted`` say; errors as ``check_marker``."""
        prefix = self._options.marker_prefix
        asked = [(lane.pair[0], markers.subject(prefix, *lane.pair)) for lane in wanted]
        stored = jetstream.last_messages(self._connection, asked)
        for lane, message in zip(wanted, stored, strict=True):
            lane.marker = self._known.markers[lane.pair] = markers.parse(message)
            lane.sequence, lane.is_sure = lane.marker.sequence, True
            self._check_marker(lane)

    def _check_marker(self, lane: Lane) -> None:
        """Check what the marker, if it is known, says of its writer; errors as ``check_marker``."""
        if lane.marker is None:
            return
        try:
            producer_state.check_marker(lane.pair, lane.marker, self._options.epoch, self._origin)
        except ConnectorError:
            self._forget(lane)
            raise

    def _check_stream(self, pair: Pair) -> None:
        """Check once that the stream takes atomic batches and holds its markers."""
        stream = pair[0]
        if stream not in self._known.streams:
            self._settle(0)
            infos = self._connection.riding(
                "looking at the stream", lambda: jetstream.stream_infos(self._connection, [stream])
            )
            producer_state.check_stream(infos[stream], self._options.marker_prefix)
            self._known.streams[stream] = infos[stream]
