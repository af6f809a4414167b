"""Exactly once: atomic batches whose last message is the producer's marker.

The marker expects the sequence of the marker before it, so of two writers that are at the same
place one is refused; and because batch and marker are stored together or not at all, the marker
says what is out, whatever happened to an answer.  After any doubt it is simply read again.

Batches are sent ahead of acks as ``guards`` describes.
"""

from __future__ import annotations

import base64
import logging
import os
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark_nats import frames, jetstream, lanes, markers, outgoing, wire
from pyspark_nats.arrow import concat_batches
from pyspark_nats.connection import DisconnectedError, Reply
from pyspark_nats.errors import ConnectorError, RefusedError, SchemaError
from pyspark_nats.guards import Guard
from pyspark_nats.known import known
from pyspark_nats.lanes import Chunk, Lane, Pair

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_nats.connection import Connection
    from pyspark_nats.publish import Origin
    from pyspark_nats.sink_options import SinkOptions

log = logging.getLogger(__name__)

#: The server takes a thousand messages an atomic batch; two of them may be a guard and the marker.
_ROWS_MAX = 998
_BYTES_MAX = 8 << 20
#: Left for the head and the headers of a message, below the server's ``max_payload``.
HEAD_ROOM = 4096
_ACK_TIMEOUT_S = 5.0
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
        self._guards: dict[str, Guard] = {}
        #: Chunks that are not known to be out, oldest first; those on their way come first.
        self._pending: deque[Chunk] = deque()
        self._is_draining = False
        self._rows_max = _ROWS_MAX

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
        for pair, mine in outgoing.groups(rows):
            lane = self._lane(pair)
            outgoing.check_growing(pair, lane.last, mine)
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
                lanes.check_whole(lane, self._origin.batch_id)
        self._remove_guards()

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
            self._lanes[pair] = Lane(pair, marker)
            self._check_marker(self._lanes[pair])
        return self._lanes[pair]

    def _guard(self, stream: str) -> Guard:
        if stream not in self._guards:
            prefix = f"{self._options.marker_prefix}.{stream}._guard"
            self._guards[stream] = Guard(prefix)
        return self._guards[stream]

    # --- cutting

    def _cut(self, lane: Lane, *, is_last: bool) -> None:
        """Cut what waits into chunks; the last one may wait for more.

        When positions are counted it always does, as the one that ends the batch says so.
        """
        if not lane.waiting:
            if is_last and self._is_counted:
                self._append(lane, outgoing.NO_ROWS, is_last=True)
            return
        whole = lane.waiting[0] if len(lane.waiting) == 1 else concat_batches(lane.waiting)
        at = 0
        while at < whole.num_rows:
            count = outgoing.fitting(whole, at, self._rows_max, _BYTES_MAX)
            is_end = at + count == whole.num_rows
            if is_end and not is_last and (self._is_counted or count < self._rows_max):
                break
            self._append(lane, whole.slice(at, count), is_last=is_end and is_last)
            at += count
        lane.waiting = [whole.slice(at)] if at < whole.num_rows else []

    def _append(self, lane: Lane, rows: pa.RecordBatch, *, is_last: bool) -> None:
        outgoing.check_sizes(rows, self._room())
        before = lane.digest
        if self._is_counted and rows.num_rows:
            lane.digest = before.updated(rows)
        self._pending.append(Chunk(lane, rows, before, lane.digest, is_last=is_last))
        # Those on their way, and one that is ready while they are.
        self._settle(self._guard(lane.pair[0]).ahead + 1)

    def _room(self) -> int:
        return int(self._connection.info.get("max_payload", 1 << 20)) - HEAD_ROOM

    # --- sending

    def _settle(self, pending_max: int) -> None:
        """Go on until no more than ``pending_max`` chunks are pending, and all are on their way."""
        while len(self._pending) > pending_max or any(not c.reply for c in self._pending):
            stream = self._pending[0].lane.pair[0]
            self._ride(f'publishing to stream "{stream}"', lambda: self._step(pending_max))

    def _ride(self, what: str, step: Any) -> None:
        def guarded() -> None:
            try:
                step()
            except (DisconnectedError, OSError):
                # What was on its way may be out or not: the markers will tell.
                self._doubt()
                raise

        under_way = any(chunk.reply for chunk in self._pending)
        self._connection.riding(what, guarded, is_under_way=under_way)

    def _step(self, pending_max: int) -> None:
        self._send_what_can_be()
        replies = [chunk.reply for chunk in self._pending]
        if any(replies) and (len(replies) > pending_max or not all(replies)):
            self._take_answers()

    def _send_what_can_be(self) -> None:
        if self._is_draining and any(chunk.reply for chunk in self._pending):
            return
        self._is_draining = False
        for chunk in list(self._pending):
            if chunk.reply:
                continue
            under_way = [c for c in self._pending if c.reply]
            if chunk.lane.marker is None:
                if under_way:
                    return
                unknown = {c.lane.pair: c.lane for c in self._pending if c.lane.marker is None}
                self._read_markers(list(unknown.values()))
            in_stream = sum(c.lane.pair[0] == chunk.lane.pair[0] for c in under_way)
            if not self._guard(chunk.lane.pair[0]).may_send(in_stream):
                return
            if not lanes.take_off(chunk, self._origin.batch_id):
                self._pending.remove(chunk)
            elif chunk.lane.marker is None:
                return
            else:
                self._send(chunk, is_ahead=in_stream > 0)

    def _send(self, chunk: Chunk, *, is_ahead: bool) -> None:
        """Publish one atomic batch."""
        lane, rows, options = chunk.lane, chunk.rows, self._options
        stream, producer = lane.pair
        before = lane.marker
        assert before is not None
        guard = self._guard(stream)
        with_guard = guard.is_wanted and stream not in self._known.unguarded
        # Short, because every message carries it.  Batches that are under way at the same time in
        # one stream need different ones, and two with the same one would both be refused.
        batch_id = base64.urlsafe_b64encode(os.urandom(4))[:6].decode()
        sent = b""
        if rows.num_rows:
            sent = wire.atomic_frames(rows, batch_id, options.event_time_header)
        count = rows.num_rows + 1
        if with_guard:
            sent += frames.publish(
                guard.subject,
                b"",
                header=frames.header_block(markers.closing(batch_id, count, 0) | guard.expected),
            )
            count += 1
        marker = lanes.next_marker(chunk, options.epoch, self._origin)
        reply = self._connection.reply_subjects(1)[0]
        header = markers.closing(batch_id, count, before.sequence) | {"Nats-Batch-Commit": "1"}
        sent += frames.publish(
            markers.subject(options.marker_prefix, stream, producer),
            markers.payload(marker),
            reply=reply,
            header=frames.header_block(header),
        )
        sequence = guard.sent(count, with_guard=with_guard)
        chunk.reply, chunk.was_ahead, chunk.with_guard = reply, is_ahead, with_guard
        lane.marker = chunk.marker = replace(marker, sequence=sequence or 0)
        self._connection.send(sent)

    # --- answers

    def _take_answers(self) -> None:
        """Wait for at least one answer."""
        deadline_s = time.monotonic() + _ACK_TIMEOUT_S
        by_reply = {chunk.reply: chunk for chunk in self._pending if chunk.reply}
        while True:
            found = self._connection.take_frames()
            answered = False
            for at, subject in enumerate(found.subject.to_pylist()):
                chunk = by_reply.get(subject)
                if chunk is not None:
                    answered = True
                    self._answered(chunk, found.header[at].as_py(), found.data[at].as_py())
            if answered:
                return
            if not len(found):
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
        is_last = not any(c.reply and c.lane.pair[0] == lane.pair[0] for c in self._pending)
        self._guard(lane.pair[0]).stored(
            sequence, was_ahead=chunk.was_ahead, is_last=is_last, with_guard=chunk.with_guard
        )
        if lane.marker is not None and lane.marker is chunk.marker:
            lane.marker = replace(lane.marker, sequence=sequence)
            lane.is_sure = True
            self._known.markers[lane.pair] = lane.marker

    def _refused(self, chunk: Chunk, error: RefusedError) -> None:
        """Deal with a refused batch: it will be sent again, or the error is raised."""
        stream = chunk.lane.pair[0]
        guard = self._guard(stream)
        is_first = not self._is_draining
        self._is_draining = True
        chunk.reply = ""
        self._forget(chunk.lane)
        if error.err_code in jetstream.WRONG_LAST_SEQUENCE:
            # What follows a batch that was refused is refused too; that says nothing more.
            if is_first and chunk.was_ahead:
                guard.missed()
            elif is_first:
                guard.reset()
            return
        guard.reset()
        if error.err_code == _BATCH_TOO_LARGE and self._halve(chunk):
            return
        if error.err_code in _PASSING:
            raise DisconnectedError(error.message) from error
        if error.err_code == _BATCH_INCOMPLETE:
            lanes.check_subjects(self._known.streams[stream], chunk.rows, error)
            # A part of it was lost on the way, as when the leader changes.
            raise DisconnectedError(error.message) from error
        raise error

    def _halve(self, chunk: Chunk) -> bool:
        """Put two chunks in the place of one, as a server may be configured to take fewer rows."""
        rows_max = chunk.rows.num_rows // 2
        count = outgoing.fitting(chunk.rows, 0, rows_max, _BYTES_MAX) if rows_max else 0
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

    def _doubt(self) -> None:
        """Nothing is known of what was on its way."""
        for chunk in self._pending:
            if chunk.reply:
                chunk.reply = ""
                self._forget(chunk.lane)
                self._guard(chunk.lane.pair[0]).reset()
        self._is_draining = False

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
            lane.is_sure = True
            self._check_marker(lane)

    def _check_marker(self, lane: Lane) -> None:
        """Check what the marker, if it is known, says of its writer; errors as ``check_marker``."""
        if lane.marker is None:
            return
        try:
            lanes.check_marker(lane.pair, lane.marker, self._options.epoch, self._origin)
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
            lanes.check_stream(infos[stream], self._options.marker_prefix)
            self._known.streams[stream] = infos[stream]

    def _remove_guards(self) -> None:
        """Take our guards away; nobody needs them any more."""
        for stream, guard in self._guards.items():
            for subject in guard.used:
                try:
                    jetstream.purge(self._connection, stream, subject)
                except (RefusedError, DisconnectedError, OSError) as error:
                    # One small message is left.  Who may not purge should not leave more.
                    log.info("guards stay: %s: %s", stream, error)
                    self._known.unguarded.add(stream)
            guard.used.clear()
            guard.reset()
