"""Bulk reads of an object store at the speed of the wire.

nats-py needs half a second for an object of 8 MB, however it is used: a state of 100 MB would delay
the restart of an instance by many seconds.  Here the descriptions of all objects are requested at
once, then the chunks of several objects at a time, while other threads check and store those that
have arrived.

Source:
    github.com/nats-io/nats-architecture-and-design, ADR-20: subjects, metadata, digest.
"""

from __future__ import annotations

import base64
import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from mesh.errors import MeshError
from mesh.files.whole_files import naming
from pyspark_nats.protocol import jetstream
from pyspark_nats.source import direct_get, fetch
from pyspark_nats.source.ranges import Blocks, StreamRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from mesh.model.values import JsonObject
    from pyspark_nats.protocol.connection import Connection

_DIGEST: Final = "SHA-256="
#: Descriptions requested at once.
_LOOKS: Final = 256
#: Bytes requested at once.  A server drops a client that has 64 MB pending.
_REQUEST_BYTES: Final = 8 << 20
#: Above this an object is read through a consumer, which gives no more than is taken.
_LARGE_BYTES: Final = 24 << 20
#: Threads that check and write; they do it without Python's lock.
_WRITERS: Final = 2


class ObjectMissingError(Exception):
    """There is no object of this name, or it was deleted."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as its description says."""

    name: str
    #: That the chunks are on.
    subject: str
    size: int
    chunks: int
    digest: bytes
    #: Sequence of the description; those of all chunks are lower.
    sequence: int


def copy(connection: Connection, bucket: str, paths: Mapping[str, Path]) -> None:
    """Copy objects, by name, to local files.

    Raises:
        ObjectMissingError: of one.
        MeshError: MESH-S103 when the digest of one does not match.
        ConnectorError: NATS stayed unreachable.
    """
    stream = f"OBJ_{bucket}"
    writing: list[Future[None]] = []
    with ThreadPoolExecutor(_WRITERS) as pool:
        for some in _together(_described(connection, bucket, tuple(paths))):
            # The previous run is stored meanwhile; memory holds no more than these two.
            for chunks, one in zip(_read(connection, stream, some), some, strict=True):
                writing.append(pool.submit(_store, one, chunks, paths[one.name]))
            while len(writing) > 2 * len(some):
                writing.pop(0).result()
        for last in writing:
            last.result()


def _described(connection: Connection, bucket: str, names: Sequence[str]) -> Iterator[StoredObject]:
    stream = f"OBJ_{bucket}"
    for at in range(0, len(names), _LOOKS):
        some = names[at : at + _LOOKS]
        subjects = [
            f"$O.{bucket}.M.{base64.urlsafe_b64encode(name.encode()).decode()}" for name in some
        ]

        def look(subjects: list[str] = subjects) -> list[jetstream.StoredMessage | None]:
            return jetstream.last_messages(connection, [(stream, one) for one in subjects])

        messages = connection.retry_while_unavailable("looking for objects", look)
        for name, stored in zip(some, messages, strict=True):
            meta: JsonObject = orjson.loads(stored.data) if stored is not None else {}
            if stored is None or meta.get("deleted"):
                raise ObjectMissingError(name)
            digest = base64.urlsafe_b64decode(str(meta["digest"]).removeprefix(_DIGEST))
            subject = f"$O.{bucket}.C.{meta['nuid']}"
            yield StoredObject(name, subject, meta["size"], meta["chunks"], digest, stored.sequence)


def _together(objects: Iterable[StoredObject]) -> Iterator[list[StoredObject]]:
    """The objects in runs that are read at once."""
    some: list[StoredObject] = []
    for one in objects:
        if some and sum(o.size for o in some) + one.size > _REQUEST_BYTES:
            yield some
            some = []
        some.append(one)
    if some:
        yield some


def _read(
    connection: Connection, stream: str, objects: Sequence[StoredObject]
) -> list[list[bytes]]:
    """The chunks of each object."""
    runs = {
        one.name: direct_get.SubjectRun(one.subject, one.chunks, one.size)
        for one in objects
        if 0 < one.size <= _LARGE_BYTES
    }

    def read() -> list[list[bytes]]:
        return direct_get.read_runs(connection, stream, list(runs.values()))

    read_now = connection.retry_while_unavailable("reading objects", read) if runs else []
    by_name = dict(zip(runs, read_now, strict=True))
    # A replica that lags has given less than there is; the leader knows better.
    return [
        chunks
        if len(chunks := by_name.get(one.name, [])) == one.chunks
        else list(_by_range(connection, stream, one))
        for one in objects
    ]


def _by_range(connection: Connection, stream: str, one: StoredObject) -> Iterator[bytes]:
    """The chunks of an object, as the source reads a channel: from the first of them on."""

    def look() -> jetstream.StoredMessage | None:
        return jetstream.next_message(connection, stream, 1, one.subject)

    first = (
        connection.retry_while_unavailable("looking for the first chunk", look)
        if one.size
        else None
    )
    if first is None:
        return
    chunk_range = StreamRange(
        stream, first.sequence - 1, one.sequence, 0, 0, subjects=(one.subject,)
    )
    for messages in fetch.read_range(connection, chunk_range, Blocks(), is_loss_error=False):
        for chunk in messages.data:
            yield chunk.as_py()


def _store(one: StoredObject, chunks: Sequence[bytes], path: Path) -> None:
    """Check an object and write it down."""
    digest = hashlib.sha256()
    with naming(path), path.open("wb") as file:
        for chunk in chunks:
            digest.update(chunk)
            file.write(chunk)
    size = sum(map(len, chunks))
    if size != one.size or digest.digest() != one.digest:
        raise MeshError(
            "MESH-S103",
            f'piece "{one.name}" of a snapshot differs from the stored one',
            detail=f"{size} bytes came, and {one.size} were stored.",
        )
