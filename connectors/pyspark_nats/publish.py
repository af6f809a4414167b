"""Publishing rows: exactly once by atomic batches with a marker, or at least once by acks.

Exactly once: the rows of a producer go out in atomic batches whose last message is the producer's
marker.  The marker expects the sequence of the marker before it, so of two writers that are at the
same place one is refused; and because batch and marker are stored together or not at all, the
marker says what is out, whatever happened to an answer.  After any doubt it is simply read again.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pyspark_nats import frames, jetstream, markers, outgoing
from pyspark_nats.connection import DisconnectedError, refusal
from pyspark_nats.errors import OrderError, RefusedError, StaleWriterError
from pyspark_nats.markers import Marker

if TYPE_CHECKING:
    from pyspark_nats.connection import Connection
    from pyspark_nats.sink_options import SinkOptions

#: The server takes a thousand messages an atomic batch; one of them is the marker.
_ROWS_MAX = 999
_BYTES_MAX = 8 << 20
#: Left for the head and the headers of a message, below the server's ``max_payload``.
_HEAD_ROOM = 4096
_ACK_TIMEOUT_S = 5.0
_BATCH_INCOMPLETE = 10176
_BATCH_TOO_LARGE = 10199
_TOO_MANY_BATCHES = 10210

Pair = tuple[str, str]

_local = threading.local()


class Publisher:
    """One task's writing; rows of one (stream, producer) must come in the order of positions."""

    def __init__(self, connection: Connection, options: SinkOptions) -> None:
        self._connection = connection
        self._options = options
        #: Markers as they are known; one left by an earlier task may be outdated.
        self._markers = _known_markers(options)
        #: Pairs whose marker was read, or written, by this task.
        self._sure: set[Pair] = set()
        self._last: dict[Pair, int] = {}
        self._rows_max = _ROWS_MAX

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The (stream, producer) pairs written so far."""
        return tuple(self._last)

    def write(self, batch: pa.RecordBatch) -> None:
        """Publish ``batch``, columns as ``outgoing.SCHEMA``, in the order of its rows.

        Raises:
            StaleWriterError: a writer with a newer epoch was here.
            OrderError: positions do not grow.
            RefusedError: the server does not take the rows; UnavailableError: it stayed away.
        """
        for pair, rows in outgoing.groups(batch):
            if self._options.delivery == "at-least-once":
                self._last[pair] = 0
                self._publish_plainly(rows)
            else:
                self._guard(pair, rows)
                self._publish(pair, rows)

    def _guard(self, pair: Pair, rows: pa.RecordBatch) -> None:
        positions = _positions(rows)
        before = np.concatenate(([self._last.get(pair, -1)], positions[:-1]))
        wrong = np.flatnonzero(positions <= before)
        if len(wrong):
            at = int(wrong[0])
            raise OrderError(
                f'producer "{pair[1]}" gave position {positions[at]} after {before[at]}',
                detail=f'The rows are for stream "{pair[0]}".',
                hint="Positions must grow from row to row, within one Spark partition a producer.",
            )
        self._last[pair] = int(positions[-1])

    # --- exactly once

    def _publish(self, pair: Pair, rows: pa.RecordBatch) -> None:
        positions = _positions(rows)
        self._check_stream(pair)

        def step() -> bool:
            marker = self._marker(pair)
            first = int(np.searchsorted(positions, marker.position, side="right"))
            if first > 0 and pair not in self._sure:
                # The stream may have been made anew since an earlier task knew the marker.
                self._markers.pop(pair, None)
                marker = self._marker(pair)
                first = int(np.searchsorted(positions, marker.position, side="right"))
            if first == len(positions):
                return True
            whole = outgoing.trimmed(rows, first, marker.position)
            chunk = whole.slice(first, outgoing.fitting(whole, first, self._rows_max, _BYTES_MAX))
            last = first + chunk.num_rows - 1
            try:
                sequence = self._send(pair, marker, chunk, int(positions[last]))
            except RefusedError as error:
                self._refused(pair, error, chunk.num_rows)
                return False
            except (DisconnectedError, OSError):
                # It may be out or not: the marker will tell.
                self._forget(pair)
                raise
            self._markers[pair] = Marker(int(positions[last]), self._options.epoch, sequence)
            self._sure.add(pair)
            return last + 1 == len(positions)

        while not self._connection.riding(f'publishing to stream "{pair[0]}"', step):
            pass

    def _marker(self, pair: Pair) -> Marker:
        """The pair's marker, read if it is not known.

        Raises:
            StaleWriterError: it is of a newer epoch than ours.
        """
        if pair not in self._markers:
            subject = markers.subject(self._options.marker_prefix, *pair)
            stored = jetstream.last_messages(self._connection, [(pair[0], subject)])[0]
            self._markers[pair] = markers.parse(stored)
            self._sure.add(pair)
        marker = self._markers[pair]
        if marker.epoch > self._options.epoch:
            self._forget(pair)
            raise StaleWriterError(
                f'producer "{pair[1]}" of stream "{pair[0]}" has a newer writer',
                detail=f"Its epoch is {marker.epoch}, ours is {self._options.epoch}.",
                hint="This writer was replaced; it must stop.",
            )
        return marker

    def _forget(self, pair: Pair) -> None:
        self._markers.pop(pair, None)
        self._sure.discard(pair)

    def _send(self, pair: Pair, marker: Marker, rows: pa.RecordBatch, position: int) -> int:
        """Publish one atomic batch; returns the sequence of its marker."""
        connection = self._connection
        batch_id = os.urandom(12).hex()
        room = int(connection.info.get("max_payload", 1 << 20)) - _HEAD_ROOM
        outgoing.check_sizes(rows, room)
        reply = connection.reply_subjects(1)[0]
        header = {
            "Nats-Batch-Id": batch_id,
            "Nats-Batch-Sequence": str(rows.num_rows + 1),
            "Nats-Batch-Commit": "1",
            "Nats-Expected-Last-Subject-Sequence": str(marker.sequence),
            # Only the newest marker stays.
            "Nats-Rollup": "sub",
        }
        last = frames.publish(
            markers.subject(self._options.marker_prefix, *pair),
            markers.payload(position, self._options.epoch),
            reply=reply,
            header=frames.header_block(header),
        )
        connection.send(
            outgoing.atomic_frames(rows, batch_id, self._options.event_time_header) + last
        )
        ack = connection.replies([reply], _ACK_TIMEOUT_S)[0].json()
        return int(ack["seq"])

    def _refused(self, pair: Pair, error: RefusedError, row_count: int) -> None:
        """Deal with a refused batch; returns when it should be tried again."""
        self._forget(pair)
        if error.err_code in jetstream.WRONG_LAST_SEQUENCE:
            return
        if error.err_code == _BATCH_TOO_LARGE and row_count > 1:
            # A server may be configured to take fewer.
            self._rows_max = row_count // 2
            return
        if error.err_code == _TOO_MANY_BATCHES:
            raise DisconnectedError(error.message) from error
        if error.err_code == _BATCH_INCOMPLETE:
            raise RefusedError(
                f'stream "{pair[0]}" did not take a whole batch',
                detail=f"{error.message}.",
                hint="Every subject written must be one of that stream's.",
                err_code=error.err_code,
            ) from error
        raise error

    def _check_stream(self, pair: Pair) -> None:
        """Check once that the stream takes atomic batches and holds its markers."""
        if pair in self._markers:
            return
        stream, _ = pair
        info = self._connection.riding(
            "looking at the stream",
            lambda: jetstream.stream_infos(self._connection, [stream])[stream],
        )
        marker = markers.subject(self._options.marker_prefix, *pair)
        hint = 'Or set option "delivery" to "at-least-once", which needs neither.'
        if not info.allow_atomic:
            raise RefusedError(
                f'stream "{stream}" does not take atomic batches',
                hint=f'Set "allow_atomic" in its configuration. {hint}',
            )
        if not any(outgoing.matches(pattern, marker) for pattern in info.subjects):
            raise RefusedError(
                f'stream "{stream}" does not hold the marker\'s subject "{marker}"',
                detail=f"Its subjects: {', '.join(info.subjects)}.",
                hint=f'Add "{self._options.marker_prefix}.{stream}.>" to its subjects. {hint}',
            )

    # --- at least once

    def _publish_plainly(self, rows: pa.RecordBatch) -> None:
        at = 0
        while at < rows.num_rows:
            chunk = rows.slice(at, outgoing.fitting(rows, at, 4096, _BYTES_MAX))

            def step(chunk: pa.RecordBatch = chunk) -> None:
                room = int(self._connection.info.get("max_payload", 1 << 20)) - _HEAD_ROOM
                outgoing.check_sizes(chunk, room)
                sid, inbox = self._connection.new_inbox()
                self._connection.send(
                    outgoing.acked_frames(chunk, inbox, self._options.event_time_header)
                )
                self._await_acks(sid, chunk.num_rows)
                self._connection.unsubscribe(sid)

            self._connection.riding("publishing", step)
            at += chunk.num_rows

    def _await_acks(self, sid: int, count: int) -> None:
        deadline_s = time.monotonic() + _ACK_TIMEOUT_S
        while count > 0:
            found = self._connection.take_frames()
            mine = found.data.filter(pa.array(found.sid == sid))
            for text in mine.to_pylist():
                if b'"error"' in text or not text:
                    raise _bad_ack(text)
            count -= len(mine)
            if count > 0 and not len(found):
                self._connection.receive(deadline_s)


def _bad_ack(text: bytes) -> Exception:
    from pyspark_nats.connection import Reply

    if not text:
        return DisconnectedError("no responders: no stream takes the subject")
    error = Reply(b"", text)
    try:
        error.json()
    except (RefusedError, DisconnectedError) as raised:
        return raised
    return refusal({})


def _positions(rows: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.asarray(rows.column("position").to_numpy(zero_copy_only=False), np.int64)


def _known_markers(options: SinkOptions) -> dict[Pair, Marker]:
    """What this process knows of the markers, kept between tasks, which saves reading them."""
    if getattr(_local, "pid", None) != os.getpid():
        _local.pid, _local.known = os.getpid(), {}
    key = (options.connection, options.marker_prefix, options.epoch)
    known: dict[Pair, Marker] = _local.known.setdefault(key, {})
    return known
