"""Store of the states of tasks on a Spark cluster: pieces and records, over the tasks' connection.

Pieces are where ``state.store`` says, records in the bucket of snapshots.  The session and the
tasks use it from any thread.

Source:
    github.com/nats-io/nats-architecture-and-design, ADR-20: subjects, metadata, digest.
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from mesh.model import names
from mesh.spark.task_states import ConflictError
from pyspark_nats.errors import RefusedError
from pyspark_nats.protocol import frames, jetstream
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.protocol.connection_options import ConnectionOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

#: The value of ``state.store`` that means JetStream; other values are paths and URIs.
_JETSTREAM: Final = "jetstream"
_CHUNK: Final = 128 * 1024
#: Bytes that wait for their acks.
_WINDOW: Final = 8 << 20
_ACK_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class JetStreamTaskStore:
    """A ``mesh.spark.task_states.TaskStore``."""

    connection: ConnectionOptions
    #: The setting ``state.store``.
    where: str = _JETSTREAM

    def read(self, key: str) -> tuple[bytes, int] | None:
        """See ``TaskStore.read``; the stream's leader answers."""
        subjects = [(f"KV_{names.SNAPSHOTS_BUCKET}", _subject(key))]
        with _connection(self.connection) as connection:
            (message,) = connection.retry_while_unavailable(
                "reading a state's record", lambda: jetstream.last_messages(connection, subjects)
            )
        return (message.data, message.sequence) if message is not None and message.data else None

    def write(self, key: str, data: bytes, revision: int) -> int:
        """See ``TaskStore.write``."""
        header = frames.header_block({"Nats-Expected-Last-Subject-Sequence": str(revision)})
        frame = (_subject(key), data, header)
        with _connection(self.connection) as connection:
            try:
                (sequence,) = connection.retry_while_unavailable(
                    "storing a state's record", lambda: _publish(connection, [frame])
                )
            except RefusedError as error:
                if error.err_code in jetstream.WRONG_LAST_SEQUENCE:
                    raise ConflictError(key) from error
                raise
        return sequence

    def put(self, pieces: Mapping[str, bytes]) -> None:
        """See ``TaskStore.put``."""
        if self.where != _JETSTREAM:
            # Only here: most clusters never need it.
            from mesh.jetstream.blob_store import DirectoryBlobStore

            directory = DirectoryBlobStore(self.where)
            for name, data in pieces.items():
                directory.put_now(name, data)
            return
        with _connection(self.connection) as connection:
            _put(connection, pieces)

    def fetch(self, paths: Mapping[str, Path]) -> None:
        """See ``TaskStore.fetch``."""
        from mesh.jetstream import objects

        if not paths:
            return
        if self.where != _JETSTREAM:
            from mesh.jetstream.blob_store import DirectoryBlobStore

            directory = DirectoryBlobStore(self.where)
            for name, path in paths.items():
                directory.fetch_now(name, path)
            return
        try:
            with _connection(self.connection) as connection:
                objects.copy(connection, names.STATE_BUCKET, paths)
        except objects.ObjectMissingError as error:
            raise FileNotFoundError(str(error)) from error


#: Open connections that no call uses, by process (a fork must not use its parent's) and options.
_idle: dict[tuple[int, ConnectionOptions], list[Connection]] = {}


@contextmanager
def _connection(options: ConnectionOptions) -> Iterator[Connection]:
    """A connection for one call, open if a call before has left one."""
    idle = _idle.setdefault((os.getpid(), options), [])
    try:
        connection = idle.pop()
    except IndexError:
        connection = Connection(options)
    try:
        yield connection
    except BaseException:
        connection.close()
        raise
    idle.append(connection)


def close_idle() -> None:
    """Close the connections of this process that no call uses."""
    for (pid, _), idle in _idle.items():
        while pid == os.getpid() and idle:
            idle.pop().close()


def _put(connection: Connection, pieces: Mapping[str, bytes]) -> None:
    waiting: list[tuple[str, bytes, bytes]] = []
    size = 0
    for name, data in pieces.items():
        for message in _object_messages(name, data):
            waiting.append(message)
            size += len(message[1])
            if size >= _WINDOW:
                _store(connection, waiting)
                waiting, size = [], 0
    if waiting:
        _store(connection, waiting)


def _subject(key: str) -> str:
    return f"$KV.{names.SNAPSHOTS_BUCKET}.{names.TASK_RECORDS}.{key}"


def _object_messages(name: str, data: bytes) -> list[tuple[str, bytes, bytes]]:
    """Subject, payload and header of an object's chunks, then of its description.

    Each has an id: of a message that is sent again because its ack was lost, the server keeps one.
    """
    number = secrets.token_hex(11)
    chunks = [data[at : at + _CHUNK] for at in range(0, len(data), _CHUNK)]
    described = {
        "name": name,
        "bucket": names.STATE_BUCKET,
        "nuid": number,
        "size": len(data),
        "chunks": len(chunks),
        "digest": "SHA-256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode(),
        "options": {"max_chunk_size": _CHUNK},
    }
    subject = f"$O.{names.STATE_BUCKET}.C.{number}"
    encoded = base64.urlsafe_b64encode(name.encode()).decode()
    meta = f"$O.{names.STATE_BUCKET}.M.{encoded}", orjson.dumps(described)
    sent = [*((subject, chunk) for chunk in chunks), meta]
    return [
        (where, what, frames.header_block({"Nats-Msg-Id": f"{number}.{n}"}))
        for n, (where, what) in enumerate(sent)
    ]


def _store(connection: Connection, messages: list[tuple[str, bytes, bytes]]) -> None:
    connection.retry_while_unavailable("storing a state", lambda: _publish(connection, messages))


def _publish(connection: Connection, messages: list[tuple[str, bytes, bytes]]) -> list[int]:
    """Publish messages and wait for all acks; their sequences."""
    replies = connection.reply_subjects(len(messages))
    connection.send(
        b"".join(
            frames.publish(subject, data, reply=reply, header=header)
            for (subject, data, header), reply in zip(messages, replies, strict=True)
        )
    )
    return [int(answer.json()["seq"]) for answer in connection.replies(replies, _ACK_S)]
