"""Markers: the last published position of each producer in a stream, stored in that stream.

A marker is the last message of every atomic batch that the sink publishes.  Its payload holds the
position of the last row, the writer's epoch, and the run and task of the writer.  If positions are
counted, it also holds digests of the last batches.

The newest marker of a producer counts.  The sink purges the older ones now and then, with a call of
the API.  A marker does not replace them itself (``Nats-Rollup``): a stream that allows this allows
any publisher to delete all of its messages.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark_nats.errors import RefusedError
from pyspark_nats.protocol import connection_options, frames, jetstream
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.sink.marker import NONE, PREFIX, BatchRecord, Marker, replaced

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_nats.protocol.jetstream import Stored


def subject(prefix: str, stream: str, producer: str) -> str:
    """The subject of the markers of ``producer`` in ``stream``."""
    return f"{prefix}.{stream}.{producer}"


def payload(marker: Marker) -> bytes:
    """A marker's payload, without its sequence."""
    values: dict[str, Any] = {"position": marker.position, "epoch": marker.epoch}
    if marker.time_ms:
        values["time"] = marker.time_ms
    if marker.run:
        values |= {"run": marker.run, "task": marker.task}
    if marker.recent:
        values["recent"] = [_entry(written) for written in marker.recent]
    return json.dumps(values, separators=(",", ":")).encode()


def header(batch_id: str, number: int, sequence: int) -> bytes:
    """The header block of a marker: ends an atomic batch, after one certain older marker.

    Args:
        batch_id: the atomic batch's name.
        number: index of the message in the batch, from 1.
        sequence: expected sequence of the last marker; 0 for none.
    """
    return frames.header_block(
        {
            "Nats-Batch-Id": batch_id,
            "Nats-Batch-Sequence": str(number),
            "Nats-Batch-Commit": "1",
            "Nats-Expected-Last-Subject-Sequence": str(sequence),
        }
    )


def _entry(written: BatchRecord) -> list[int]:
    values = [written.batch_id, written.rows, written.checksum]
    return values if written.is_whole is None else [*values, int(written.is_whole)]


def _record(batch_id: int, rows: int, checksum: int, is_whole: int | None = None) -> BatchRecord:
    return BatchRecord(batch_id, rows, checksum, None if is_whole is None else bool(is_whole))


def parse(stored: Stored | None) -> Marker:
    """The marker in a message; ``NONE`` for none.

    Raises:
        RefusedError: the message is not a marker.
    """
    if stored is None:
        return NONE
    try:
        values = json.loads(stored.data)
        return Marker(
            int(values["position"]),
            int(values["epoch"]),
            stored.sequence,
            # A marker stored again for a newer epoch keeps the time of its rows.
            time_ms=int(values.get("time", stored.time_ms)),
            run=str(values.get("run", "")),
            task=int(values.get("task", -1)),
            recent=tuple(_record(*map(int, entry)) for entry in values.get("recent", ())),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise RefusedError(
            f'message {stored.sequence} on "{stored.subject}" is not a marker',
            detail=f"It holds {stored.data[:80]!r}.",
            hint="Nothing but the sink may publish there.",
        ) from error


def read(
    connection: Connection, prefix: str, wanted: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], Marker]:
    """The markers of (stream, producer) pairs according to the leaders; one round trip."""
    pairs = list(dict.fromkeys(wanted))
    if not pairs:
        return {}
    asked = [(stream, subject(prefix, stream, producer)) for stream, producer in pairs]
    found = connection.retry_while_unavailable(
        "reading markers", lambda: jetstream.last_messages(connection, asked)
    )
    return {pair: parse(stored) for pair, stored in zip(pairs, found, strict=True)}


def purge(connection: Connection, prefix: str, wanted: Sequence[tuple[str, str]]) -> None:
    """Delete all markers of (stream, producer) pairs but the newest.

    Raises:
        RefusedError: it is not permitted; DisconnectedError, OSError: no answer.
    """
    for stream, producer in wanted:
        jetstream.purge(connection, stream, subject(prefix, stream, producer), keep=1)


def positions(
    given: Mapping[str, str],
    wanted: Sequence[tuple[str, str]],
    *,
    prefix: str = PREFIX,
) -> dict[tuple[str, str], Marker]:
    """The markers of producers, read over a connection of its own.

    Args:
        given: the connection's options, as for the source: ``servers``, ``user`` and so on.
        wanted: pairs of (JetStream stream, producer).
        prefix: the sink's ``markerPrefix``.

    Returns:
        The marker of each pair; ``NONE`` (position -1) for a producer that has published nothing.

    Raises:
        UnavailableError: no answer within ``timeoutS``; RefusedError: a stream does not exist.
    """
    with Connection(connection_options.connection_options(given)) as connection:
        return read(connection, prefix, wanted)


def fenced(
    given: Mapping[str, str],
    wanted: Sequence[tuple[str, str]],
    epoch: int,
    *,
    prefix: str = PREFIX,
) -> dict[tuple[str, str], Marker]:
    """The markers of producers, fenced against writers of an epoch below ``epoch``.

    Each marker of an older epoch is stored again with this epoch.  An older writer then expects the
    wrong sequence: whatever it has not stored yet is refused.

    Args:
        given: the connection's options, as for the source: ``servers``, ``user`` and so on.
        wanted: pairs of (JetStream stream, producer).
        epoch: of the calling writer.
        prefix: the sink's ``markerPrefix``.

    Raises:
        StaleWriterError: a writer with a newer epoch has written a marker.
        UnavailableError: no answer within ``timeoutS``; RefusedError: a stream does not exist.
    """
    pairs = list(dict.fromkeys(wanted))
    with Connection(connection_options.connection_options(given)) as connection:
        while True:
            found = read(connection, prefix, pairs)
            older = {pair: marker for pair, marker in found.items() if marker.epoch < epoch}
            for pair, marker in found.items():
                if marker.epoch > epoch:
                    raise replaced(pair, marker, epoch)
            if not older:
                return found
            # Reading again detects a writer in between, and a lost answer.
            calls = [
                (subject(prefix, *pair), payload(replace(marker, epoch=epoch)), marker.sequence)
                for pair, marker in older.items()
            ]
            connection.retry_while_unavailable("fencing", partial(_put, connection, calls))


def _put(connection: Connection, calls: Sequence[tuple[str, bytes, int]]) -> None:
    """Store markers, each in place of the one with the given sequence."""
    replies = connection.reply_subjects(len(calls))
    connection.send(
        b"".join(
            frames.publish(
                where,
                data,
                reply=reply,
                header=frames.header_block({"Nats-Expected-Last-Subject-Sequence": str(sequence)}),
            )
            for (where, data, sequence), reply in zip(calls, replies, strict=True)
        )
    )
    for answer in connection.replies(replies):
        try:
            answer.json()
        except RefusedError as error:
            if error.err_code not in jetstream.WRONG_LAST_SEQUENCE:
                raise
