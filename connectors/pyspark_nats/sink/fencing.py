"""Fencing of the earlier writers of a producer, and what they have published.

A writer that ends without a last marker leaves an ingest batch that is newer than its marker.
A successor stores the marker again: the server begins no batch that expects the earlier one.
Then it ends the batch, and reads what the stream holds of it.  From then on nothing can be added.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark_nats.errors import RefusedError
from pyspark_nats.protocol import connection_options, frames, jetstream
from pyspark_nats.protocol.connection import Connection, DisconnectedError, Reply
from pyspark_nats.protocol.frames import header_values
from pyspark_nats.sink import markers, messages_out
from pyspark_nats.sink.markers import PREFIX, replaced
from pyspark_nats.sink.target_check import without_sequence
from pyspark_nats.source.fetch import read_range
from pyspark_nats.source.ranges import Blocks, StreamRange

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_nats.sink.markers import IngestBatch, Marker
    from pyspark_nats.sink.producer_state import Pair

#: The server takes no ingest batches, or has none of this name.
_NO_BATCH: Final = frozenset({10205, 10208})
_ANSWER_S: Final = 5.0
#: A number of a message that no batch reaches: the server ends a batch that has a gap.
_FAR: Final = 1 << 40


def positions(
    options: Mapping[str, str],
    producers: Sequence[tuple[str, str]],
    *,
    prefix: str = PREFIX,
) -> dict[tuple[str, str], Marker]:
    """The markers of producers with their last positions, read over a connection of its own.

    Args:
        options: the connection's options, as for the source: ``servers``, ``user`` and so on.
        producers: pairs of (JetStream stream, producer).
        prefix: the sink's ``markerPrefix``.

    Returns:
        The marker of each pair; ``NONE`` (position -1) for a producer that has published nothing.

    Raises:
        UnavailableError: no answer within ``timeoutS``; RefusedError: a stream does not exist.
    """
    with Connection(connection_options.connection_options(options)) as connection:
        return advanced(connection, prefix, producers)


def advanced(
    connection: Connection, prefix: str, producers: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], Marker]:
    """See ``positions``; over an open connection."""

    def read() -> dict[tuple[str, str], Marker]:
        current = markers.read(connection, prefix, producers)
        return {pair: _advanced(connection, pair[0], marker) for pair, marker in current.items()}

    return connection.retry_while_unavailable("reading markers", read)


def fenced(
    options: Mapping[str, str],
    producers: Sequence[tuple[str, str]],
    epoch: int,
    *,
    prefix: str = PREFIX,
) -> dict[tuple[str, str], Marker]:
    """The markers of producers, fenced against writers of an epoch below ``epoch``.

    Each marker of an older epoch, and each with a batch, is stored again with this epoch.  An older
    writer then expects the wrong sequence: whatever it has not stored yet is refused.

    Args:
        options: the connection's options, as for the source: ``servers``, ``user`` and so on.
        producers: pairs of (JetStream stream, producer).
        epoch: of the calling writer.
        prefix: the sink's ``markerPrefix``.

    Raises:
        StaleWriterError: a writer with a newer epoch has written a marker.
        UnavailableError: no answer within ``timeoutS``; RefusedError: a stream does not exist.
    """
    pairs = list(dict.fromkeys(producers))
    seen: dict[tuple[str, str], Marker] = {}
    with Connection(connection_options.connection_options(options)) as connection:
        while True:
            current = markers.read(connection, prefix, pairs)
            # A stream that is purged in between holds none of them any more.
            gone = {p: without_sequence(m) for p, m in seen.items() if not current[p].sequence}
            seen = current = current | gone
            for pair, marker in current.items():
                if marker.epoch > epoch:
                    raise replaced(pair, marker, epoch)
            older = {p: m for p, m in current.items() if m.epoch < epoch or m.ingest is not None}
            if not older:
                return current
            for pair, marker in older.items():
                if marker.ingest is not None:
                    older[pair] = connection.retry_while_unavailable(
                        "fencing", partial(settled, connection, prefix, pair, marker, epoch)
                    )
            # Reading again detects a writer in between, and a lost answer.
            calls = [
                (
                    markers.subject(prefix, *pair),
                    markers.payload(replace(marker, epoch=epoch)),
                    marker.sequence,
                )
                for pair, marker in older.items()
            ]
            connection.retry_while_unavailable("fencing", partial(markers.put, connection, calls))


def settled(connection: Connection, prefix: str, pair: Pair, marker: Marker, epoch: int) -> Marker:
    """The marker of a producer, with the position of its last row.

    Args:
        connection: to a server.
        prefix: of the subjects of markers.
        pair: stream and producer.
        marker: as it was read, with a batch.
        epoch: of the calling writer.

    Returns:
        The stored marker, without a batch; its position may be known by the caller alone.

    Raises:
        StaleWriterError: a writer with a newer epoch has written a marker.
        DisconnectedError, OSError: as any step under ``Connection.retry_while_unavailable``;
            RefusedError: the stream is gone.
    """
    stream, subject = pair[0], markers.subject(prefix, *pair)
    while (batch := marker.ingest) is not None:
        if marker.epoch > epoch:
            raise replaced(pair, marker, epoch)
        batch = replace(batch, since=batch.since or marker.sequence)
        fence = replace(marker, epoch=epoch, ingest=batch)
        sequence = markers.put(connection, [(subject, markers.payload(fence), marker.sequence)])[0]
        if sequence is None:
            # Its writer, or another one that continues, was faster; or the stream was purged.
            stored = jetstream.last_messages(connection, [(stream, subject)])[0]
            marker = without_sequence(marker) if stored is None else markers.parse(stored)
            continue
        end(connection, stream, subject, batch)
        return replace(_advanced(connection, stream, fence), sequence=sequence, ingest=None)
    return marker


def _advanced(connection: Connection, stream: str, marker: Marker) -> Marker:
    """A marker with the position of the last row of its batch, if it has one."""
    batch = marker.ingest
    if batch is None:
        return marker
    info = jetstream.stream_infos(connection, [stream])[stream]
    span = StreamRange(stream, batch.since or marker.sequence, info.last, 0, 0)
    rows = batch.rows
    for part in read_range(connection, span, Blocks(), is_loss_error=False):
        headers = header_values(part.header, messages_out.HEADER).to_pylist()
        last = messages_out.last_row(batch.key, rows, headers)
        if last is not None:
            rows, position, at = last
            time_ms = int(part.time_ns[at]) // 1_000_000
            marker = replace(marker, position=position, time_ms=time_ms)
    return marker


def end(connection: Connection, stream: str, subject: str, batch: IngestBatch) -> None:
    """End a batch at the server, if it has it.

    Args:
        connection: to a server.
        stream: of the batch.
        subject: of its markers, on which nothing is stored by this.
        batch: to be ended.
    """
    if not jetstream.stream_infos(connection, [stream])[stream].allow_ingest:
        return
    sid, inbox = connection.new_inbox_tree(">")
    reply = f"{inbox}.{batch.batch_id}.1.fail.{_FAR}.3.$FI"
    connection.send(frames.publish(subject, b"", reply=reply))
    deadline_s = time.monotonic() + _ANSWER_S
    while True:
        frame = connection.next_frame()
        if frame is None:
            connection.receive(deadline_s)
            continue
        got, _, header, data = frame
        if got != sid:
            continue
        if not data:
            raise DisconnectedError(f"no responders: {header[:40]!r}")
        # It reports the gap first, and then the end.
        if json.loads(data).get("type") == "gap":
            continue
        try:
            Reply(header, data).json()
        except RefusedError as error:
            if error.err_code not in _NO_BATCH:
                raise
        connection.unsubscribe(sid)
        return
