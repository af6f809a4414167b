"""Markers: the last published position of each producer in a stream, stored in that stream.

A marker is the last message of every atomic batch that the sink publishes.  Its payload holds the
position of the last row, the writer's epoch, and the run and task of the writer.  If positions are
counted, it also holds digests of the last batches.

The newest marker of a producer counts.  The sink purges the older ones now and then, with a call of
the API.  A marker does not replace them itself (``Nats-Rollup``): a stream that allows this allows
any publisher to delete all of its messages.

``Origin`` is the writer of a batch, and the values of a marker are here as well.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark_nats.errors import RefusedError, StaleWriterError
from pyspark_nats.protocol import frames, jetstream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_nats.json_types import JsonObject
    from pyspark_nats.protocol.connection import Connection, Reply
    from pyspark_nats.protocol.jetstream import StoredMessage


#: Beginning of the subjects of markers, unless the sink's ``markerPrefix`` says else.
PREFIX: Final = "mesh._marker"


@dataclass(frozen=True, slots=True)
class Origin:
    """Identity of a writer."""

    #: Name of this run of the batch; "" if unknown.
    run: str = ""
    #: The Spark partition; -1 if unknown.
    task: int = -1
    #: The batch, if positions are counted by batch and message; None for other positions.
    batch_id: int | None = None
    #: When the writer began, by a server's clock, ms since 1970: it writes to no later stream.
    began_ms: int | None = None
    #: The server's time before which no input of this run was stored, ms since 1970; 0 if unknown.
    since_ms: int = 0


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """Published part of one batch."""

    batch_id: int
    rows: int
    checksum: int
    #: Whether the batch has no more rows; None if an earlier version wrote the record without this.
    is_whole: bool | None = None


@dataclass(frozen=True, slots=True)
class IngestBatch:
    """Batch whose rows are stored as they come, after the marker that names it."""

    batch_id: str
    #: Key of the tags of its rows.
    key: bytes
    #: Number of its rows up to the marker's position.
    rows: int = 0
    #: Sequence after which its further rows are stored; 0 for the marker's own.
    since: int = 0


@dataclass(frozen=True, slots=True)
class Marker:
    """Published position of a producer in a stream."""

    #: Position of the last published row; -1 for none.
    position: int
    #: Epoch of the writer; -1 without one.
    epoch: int
    #: The marker's own sequence, which the next one expects; 0 without a marker.
    sequence: int
    #: The run of the batch that wrote it; "" if unknown.
    run: str = field(default="", compare=False)
    #: The Spark partition that wrote it; -1 if unknown.
    task: int = field(default=-1, compare=False)
    #: Records of the last batches, oldest first, if positions are counted.
    recent: tuple[BatchRecord, ...] = field(default=(), compare=False)
    #: The server's time of the marker, ms since 1970; 0 if unknown.
    time_ms: int = field(default=0, compare=False)
    #: The batch whose rows may follow; None if the marker comes after all rows.
    ingest: IngestBatch | None = field(default=None, compare=False)


NONE = Marker(-1, -1, 0)


def replaced(pair: tuple[str, str], marker: Marker, epoch: int) -> StaleWriterError:
    """The error of a writer of ``epoch`` whose (stream, producer) has a marker of a newer one."""
    stream, producer = pair
    return StaleWriterError(
        f'producer "{producer}" of stream "{stream}" has a newer writer, of epoch {marker.epoch}',
        detail=f"Our epoch is {epoch}.",
        hint="This writer was replaced; it must stop.",
    )


def subject(prefix: str, stream: str, producer: str) -> str:
    """The subject of the markers of ``producer`` in ``stream``."""
    return f"{prefix}.{stream}.{producer}"


def payload(marker: Marker) -> bytes:
    """A marker's payload, without its sequence."""
    values: JsonObject = {"position": marker.position, "epoch": marker.epoch}
    if marker.time_ms:
        values["time"] = marker.time_ms
    if marker.run:
        values |= {"run": marker.run, "task": marker.task}
    if marker.recent:
        values["recent"] = [_entry(written) for written in marker.recent]
    if marker.ingest is not None:
        one = marker.ingest
        values["ingest"] = [one.batch_id, one.key.hex(), one.rows, one.since]
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


def _ingest(batch_id: str, key: str, rows: int, since: int) -> IngestBatch:
    return IngestBatch(str(batch_id), bytes.fromhex(key), int(rows), int(since))


def _record(batch_id: int, rows: int, checksum: int, is_whole: int | None = None) -> BatchRecord:
    return BatchRecord(batch_id, rows, checksum, None if is_whole is None else bool(is_whole))


def parse(stored: StoredMessage | None) -> Marker:
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
            ingest=_ingest(*values["ingest"]) if "ingest" in values else None,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise RefusedError(
            f'message {stored.sequence} on "{stored.subject}" is not a marker',
            detail=f"It holds {stored.data[:80]!r}.",
            hint="Nothing but the sink may publish there.",
        ) from error


def read(
    connection: Connection, prefix: str, producers: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], Marker]:
    """The markers of (stream, producer) pairs according to the leaders; one round trip."""
    pairs = list(dict.fromkeys(producers))
    if not pairs:
        return {}
    requests = [(stream, subject(prefix, stream, producer)) for stream, producer in pairs]
    messages = connection.retry_while_unavailable(
        "reading markers", lambda: jetstream.last_messages(connection, requests)
    )
    return {pair: parse(stored) for pair, stored in zip(pairs, messages, strict=True)}


def purge(connection: Connection, prefix: str, producers: Sequence[tuple[str, str]]) -> None:
    """Delete all markers of (stream, producer) pairs but the newest.

    Raises:
        RefusedError: it is not permitted; DisconnectedError, OSError: no answer.
    """
    for stream, producer in producers:
        jetstream.purge(connection, stream, subject(prefix, stream, producer), keep=1)


def put(connection: Connection, calls: Sequence[tuple[str, bytes, int]]) -> list[int | None]:
    """Store markers: subject, payload, and the sequence of the marker that each one replaces.

    Returns:
        The sequence of each; None where another marker had come.
    """
    replies = connection.reply_subjects(len(calls))
    connection.send(
        b"".join(
            frames.publish(where, data, reply=reply, header=replacing(sequence))
            for (where, data, sequence), reply in zip(calls, replies, strict=True)
        )
    )
    return [_stored(answer) for answer in connection.replies(replies)]


def replacing(sequence: int) -> bytes:
    """The header block of a marker that replaces the one with a sequence; 0 for none."""
    return frames.header_block({"Nats-Expected-Last-Subject-Sequence": str(sequence)})


def _stored(answer: Reply) -> int | None:
    try:
        return int(answer.json()["seq"])
    except RefusedError as error:
        if error.err_code not in jetstream.WRONG_LAST_SEQUENCE:
            raise
        return None
