"""Blob stores for snapshots and backups: a JetStream object store, or a directory.

A piece is an immutable blob whose name contains ``/``, so copies are interchangeable.  A manifest
makes pieces a snapshot.  It is in a key-value bucket, wherever the pieces are: there the server
refuses a writer that was overtaken.

Directories are those of ``pyarrow.fs``: a path that all workers reach, or a URI such as
``file:///mnt/state``, ``s3://bucket/state`` or ``hdfs://host/state``.  Their files begin with a
checksum, and local ones are on disk when ``put`` returns: a manifest never names a piece that a
power failure may take.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote, unquote

import orjson
from nats.js.errors import NotFoundError

from mesh.errors import MeshError
from mesh.files.whole_files import is_full, naming, replacing
from mesh.jetstream import kv
from mesh.model import names

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping, Sequence
    from datetime import datetime

    from nats.js import JetStreamContext
    from nats.js.object_store import ObjectStore

#: The value of ``state.store`` that means JetStream.
JETSTREAM: Final = "jetstream"
_STREAM: Final = f"OBJ_{names.STATE_BUCKET}"
#: Pieces fetched from a directory at once: on S3 each has a latency of its own.
_FETCHES: Final = 16
#: Objects deleted at once.
_DELETIONS: Final = 16
#: A file begins with this and the SHA-256 of its content.
_MAGIC: Final = b"MESHPIECE1\n"
_HEAD: Final = len(_MAGIC) + 32


class BlobMissingError(Exception):
    """There is no piece of this name: a newer snapshot has replaced it, or it never was."""


class BlobStore(Protocol):
    """A store of pieces.  Calls are for one event loop."""

    async def put(self, name: str, data: bytes) -> None:
        """Store a piece."""
        ...

    async def fetch(self, paths: Mapping[str, Path]) -> None:
        """Copy pieces, by name, to local files; BlobMissingError when there is none of one."""
        ...

    async def delete(self, name: str) -> None:
        """Drop a piece, if it exists."""
        ...

    async def drop(self, prefix: str) -> None:
        """Drop all pieces whose names start with ``prefix``, which ends with ``/``."""
        ...

    async def listed(self) -> list[str]:
        """The names of all pieces."""
        ...

    async def stored_ms(self, name: str) -> int | None:
        """When a piece was stored, ms since 1970; None if there is none."""
        ...

    async def created_at(self) -> datetime | None:
        """When the store was made; another one has none of the earlier pieces."""
        ...


async def together(calls: Iterable[Coroutine[object, object, None]], at_once: int) -> None:
    """Make calls, at most ``at_once`` of them at a time.

    Raises:
        Exception: that of the first call that failed, after all have ended.
    """
    gate = asyncio.Semaphore(at_once)

    async def make(call: Coroutine[object, object, None]) -> None:
        async with gate:
            await call

    for failure in await asyncio.gather(*map(make, calls), return_exceptions=True):
        if failure is not None:
            raise failure


def open_blob_store(js: JetStreamContext, store: str, reading: Mapping[str, str]) -> BlobStore:
    """The store that the setting ``state.store`` names; MESH-S120 for a path that can't be used.

    Args:
        js: the connection.
        store: the setting's value.
        reading: options of the connections that pieces are read from JetStream over.
    """
    return JetStreamBlobStore(js, reading) if store == JETSTREAM else DirectoryBlobStore(store)


class JetStreamBlobStore:
    """Pieces in the object store ``mesh_state``."""

    def __init__(self, js: JetStreamContext, reading: Mapping[str, str]) -> None:
        self._js = js
        self._reading = reading
        #: The object store; to open it takes a request.
        self._store: ObjectStore | None = None

    async def put(self, name: str, data: bytes) -> None:
        """See ``BlobStore.put``."""
        if self._store is None:
            try:
                self._store = await self._js.object_store(names.STATE_BUCKET)
            except NotFoundError as error:
                raise kv.BucketMissingError(names.STATE_BUCKET) from error
        await self._store.put(name, data)

    async def fetch(self, paths: Mapping[str, Path]) -> None:
        """See ``BlobStore.fetch``."""
        if paths:
            await asyncio.to_thread(self._fetch, paths)

    def _fetch(self, paths: Mapping[str, Path]) -> None:
        # Only here: it brings Spark's Python along, which agents and managers should not wait for.
        from mesh.jetstream import objects
        from pyspark_nats.errors import UnavailableError
        from pyspark_nats.protocol.connection import Connection
        from pyspark_nats.protocol.connection_options import connection_options

        with Connection(connection_options(self._reading)) as connection:
            try:
                objects.copy(connection, names.STATE_BUCKET, paths)
            except objects.ObjectMissingError as error:
                raise BlobMissingError(str(error)) from error
            except UnavailableError as error:
                raise TimeoutError(str(error)) from error

    async def delete(self, name: str) -> None:
        """See ``BlobStore.delete``."""
        encoded = base64.urlsafe_b64encode(name.encode()).decode()
        await self._purge(f"$O.{names.STATE_BUCKET}.M.{encoded}")

    async def drop(self, prefix: str) -> None:
        """See ``BlobStore.drop``."""
        gate = asyncio.Semaphore(_DELETIONS)
        start = f"$O.{names.STATE_BUCKET}.M."

        async def purge(subject: str) -> None:
            async with gate:
                await self._purge(subject)

        async with asyncio.TaskGroup() as deletions:
            for subject in await kv.subjects_of(self._js, _STREAM, f"{start}>"):
                name = base64.urlsafe_b64decode(subject.removeprefix(start))
                if name.startswith(prefix.encode()):
                    deletions.create_task(purge(subject))

    async def listed(self) -> list[str]:
        """See ``BlobStore.listed``."""
        start = f"$O.{names.STATE_BUCKET}.M."
        subjects = await kv.subjects_of(self._js, _STREAM, f"{start}>")
        encoded = [one.removeprefix(start) for one in subjects]
        return [base64.urlsafe_b64decode(one).decode() for one in encoded]

    async def stored_ms(self, name: str) -> int | None:
        """See ``BlobStore.stored_ms``."""
        encoded = base64.urlsafe_b64encode(name.encode()).decode()
        subject = f"$O.{names.STATE_BUCKET}.M.{encoded}"
        try:
            message = await self._js.get_last_msg(_STREAM, subject)
        except NotFoundError:
            return None
        return int(message.time.timestamp() * 1000) if message.time is not None else None

    async def created_at(self) -> datetime | None:
        """See ``BlobStore.created_at``."""
        try:
            return (await self._js.stream_info(_STREAM)).created
        except NotFoundError as error:
            raise kv.BucketMissingError(names.STATE_BUCKET) from error

    async def _purge(self, subject: str) -> None:
        """Remove the chunks and the description of an object, with the message of a deletion.

        nats-py's deletion leaves a description that says so.  Names are unique, so it would stay.
        """
        try:
            described = await self._js.get_last_msg(_STREAM, subject)
        except NotFoundError:
            return
        chunks = orjson.loads(described.data or b"{}")["nuid"]
        await self._js.purge_stream(_STREAM, subject=f"$O.{names.STATE_BUCKET}.C.{chunks}")
        await self._js.purge_stream(_STREAM, subject=subject)


class DirectoryBlobStore:
    """Pieces as files below a directory that every worker and every manager reaches."""

    def __init__(self, where: str) -> None:
        # Only here: most clusters never need it.
        from pyarrow import ArrowException, fs

        try:
            self._files, self._root = (
                fs.FileSystem.from_uri(where)
                if "://" in where
                else (fs.LocalFileSystem(), where.rstrip("/"))
            )
        except (ArrowException, OSError, ValueError) as error:
            raise _unusable(where, error) from error
        self._where = where
        self._is_local = isinstance(self._files, fs.LocalFileSystem)

    async def put(self, name: str, data: bytes) -> None:
        """See ``BlobStore.put``."""
        await self._call(self.put_now, name, data)

    async def fetch(self, paths: Mapping[str, Path]) -> None:
        """See ``BlobStore.fetch``."""

        async def fetch(name: str, path: Path) -> None:
            try:
                await self._call(self.fetch_now, name, path)
            except FileNotFoundError as error:
                raise BlobMissingError(name) from error

        # All have ended after a failure, so a cleanup removes all of them.
        await together((fetch(name, path) for name, path in paths.items()), _FETCHES)

    async def delete(self, name: str) -> None:
        """See ``BlobStore.delete``."""
        try:
            await self._call(self._files.delete_file, self._path(name))
        except FileNotFoundError:
            return

    async def drop(self, prefix: str) -> None:
        """See ``BlobStore.drop``."""
        try:
            await self._call(self._files.delete_dir, self._path(prefix.rstrip("/")))
        except FileNotFoundError:
            return

    async def listed(self) -> list[str]:
        """See ``BlobStore.listed``."""
        listing: list[str] = []
        await self._call(self._list, listing)
        return listing

    async def stored_ms(self, name: str) -> int | None:
        """See ``BlobStore.stored_ms``."""
        return await asyncio.to_thread(self._stored_ms, name)

    async def created_at(self) -> datetime | None:
        """See ``BlobStore.created_at``: a directory is not looked at."""
        return None

    def _list(self, listing: list[str]) -> None:
        from pyarrow import fs

        selector = fs.FileSelector(self._root, allow_not_found=True, recursive=True)
        for one in self._files.get_file_info(selector):
            if one.type == fs.FileType.File and not one.path.endswith(".tmp"):
                parts = one.path.removeprefix(self._root).strip("/").split("/")
                listing.append("/".join(map(unquote, parts)))

    def _stored_ms(self, name: str) -> int | None:
        stored_ns = self._files.get_file_info(self._path(name)).mtime_ns
        return stored_ns // 1_000_000 if stored_ns is not None else None

    async def _call(self, do: Any, *arguments: object) -> None:
        try:
            await asyncio.to_thread(do, *arguments)
        except FileNotFoundError:
            raise
        except (ValueError, OSError) as error:
            # A full disk to which a piece is copied is none of the store.
            path = str(getattr(error, "filename", None) or self._root)
            if is_full(error) and not path.startswith(self._root):
                raise
            raise _unusable(self._where, error) from error

    def put_now(self, name: str, data: bytes) -> None:
        """Store a piece; blocks."""
        path = self._path(name)
        head = _MAGIC + hashlib.sha256(data).digest()
        if self._is_local:
            put_durably(Path(path), (head, data))
            return
        self._files.create_dir(path.rpartition("/")[0], recursive=True)
        # A file is complete or absent, where the file system can rename.
        temporary = f"{path}.tmp"
        with self._files.open_output_stream(temporary) as out:
            out.write(head)
            out.write(data)
        self._files.move(temporary, path)

    def fetch_now(self, name: str, path: Path) -> None:
        """Copy a piece to a local file; blocks.  FileNotFoundError for a missing one."""
        with self._files.open_input_file(self._path(name)) as source:
            data = checked(name, source.read_buffer())
        with naming(path):
            path.write_bytes(data)

    def _path(self, name: str) -> str:
        parts = (quote(part, safe="") for part in name.split("/"))
        return "/".join((self._root, *parts))


def checked(name: str, stored: Any) -> memoryview:
    """The content of a stored file.

    Args:
        name: of the piece.
        stored: the file's bytes.

    Raises:
        MeshError: MESH-S103 if the file is cut off or damaged.
    """
    view = memoryview(stored)
    data = view[_HEAD:]
    if bytes(view[:_HEAD]) != _MAGIC + hashlib.sha256(data).digest():
        raise MeshError(
            "MESH-S103",
            f'piece "{name}" of a snapshot differs from the stored one',
            detail=f"Its file has {len(view)} bytes and another checksum.",
        )
    return data


def put_durably(path: Path, parts: Sequence[bytes]) -> None:
    """Write a file that a power failure leaves complete, or absent until this returns."""
    new_dirs = [one for one in path.parents if not one.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, path.with_name(f"{path.name}.tmp")) as out:
        for part in parts:
            out.write(part)
        out.flush()
        os.fsync(out.fileno())
    # A directory's entry is stored with the directory that holds it.
    for directory in (path.parent, *(one.parent for one in new_dirs)):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _unusable(where: str, error: Exception) -> MeshError:
    return MeshError(
        "MESH-S120",
        f'state store "{where}" can\'t be used',
        detail=f"{error}.",
        hint="state.store is 'jetstream', or a directory that all workers and managers can write.",
    )
