"""Files of source and sink ``file``: those of the worker, and the bytes in those that are packed.

``file_servers`` has those of servers.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import os
import shutil
import stat
import zlib
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Final, NamedTuple, Protocol, cast

import pyarrow as pa

from mesh.connect.access import path_of
from mesh.connect.contract import UnavailableError
from mesh.receiver.outcomes import OF_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from mesh.connect.contract import NodeAccess

#: Flags of an open file: one that has become a pipe must not hold up the host.
_OPENED: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
#: Packed bytes that are read together.
_BLOCK: Final = 1 << 20


class FileState(NamedTuple):
    """State of a file."""

    #: The same as long as a file exists, whatever its name; 0 where files have no number.
    inode: int
    size: int
    mtime_ns: int


class Files(Protocol):
    """A file system; failures are ``OSError`` with the path as ``filename``."""

    #: Its methods wait for a network.
    is_remote: bool

    def path(self, uri: str) -> str:
        """The path of an option's value; MESH-C132 if it is not open to connectors."""
        ...

    def paths(self, directory: str) -> list[str]:
        """Paths of what is in a directory, by name; not yet checked."""
        ...

    def checked(self, path: str) -> str:
        """A path of ``paths`` that is open to connectors.

        Raises:
            MeshError: MESH-C132; UnavailableError: a position can't have it.
        """
        ...

    def find(self, path: str) -> FileState | None:
        """State of a file; None if there is none, or something else."""
        ...

    def opened(
        self, path: str
    ) -> AbstractContextManager[tuple[FileState, Callable[[int, int], bytes]]]:
        """A file that exists: its state, and a function that reads a size from an offset."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file."""
        ...

    def move(self, path: str, target: str) -> None:
        """Move a file to a path, whose directory may be missing."""
        ...

    def close(self) -> None:
        """Release connections."""
        ...


class RemoteFiles(Files, Protocol):
    """Files of a server, which may be written as well."""

    def append(self, path: str, data: bytes) -> None:
        """Add to the end of a file; after a failure, some of it may be there."""
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Write a file, which others see once it is whole."""
        ...


def is_of_path(error: OSError) -> bool:
    """Whether a path of an event is at fault: another path may be written."""
    is_closed = isinstance(error, PermissionError | FileNotFoundError)
    return is_closed or error.errno in OF_NAMES


def checked_name(path: str) -> str:
    """A path that a position can have, which is JSON.  Raises ``UnavailableError``."""
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise UnavailableError(f"{path!a}: its name is no UTF-8") from error
    return path


class LocalFiles:
    """Files of the worker, below ``receiver.file_roots``."""

    is_remote = False

    def __init__(self, access: NodeAccess) -> None:
        self._access = access

    def path(self, uri: str) -> str:
        """See ``Files``."""
        return path_of(self._access, uri)

    def paths(self, directory: str) -> list[str]:
        """See ``Files``."""
        return [os.path.join(directory, name) for name in sorted(os.listdir(directory))]

    def checked(self, path: str) -> str:
        """See ``Files``."""
        # A link may lead out of the directory.
        return checked_name(path_of(self._access, path))

    def find(self, path: str) -> FileState | None:
        """See ``Files``."""
        try:
            info = os.stat(path)
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(info.st_mode):
            return None
        return FileState(info.st_ino, info.st_size, info.st_mtime_ns)

    @contextmanager
    def opened(self, path: str) -> Iterator[tuple[FileState, Callable[[int, int], bytes]]]:
        """See ``Files``."""
        descriptor = os.open(path, _OPENED)
        try:
            info = os.fstat(descriptor)
            yield (
                FileState(info.st_ino, info.st_size, info.st_mtime_ns),
                lambda size, offset: os.pread(descriptor, size, offset),
            )
        finally:
            os.close(descriptor)

    def delete(self, path: str) -> None:
        """See ``Files``."""
        os.unlink(path)

    def move(self, path: str, target: str) -> None:
        """See ``Files``."""
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.move(path, target)

    def close(self) -> None:
        """See ``Files``."""


def _of_zstd(packed: IO[bytes]) -> IO[bytes]:
    # Arrow has the library; Python has it from 3.14 on.
    stream = pa.CompressedInputStream(pa.PythonFile(cast("io.IOBase", packed), mode="r"), "zstd")
    return io.BufferedReader(cast("io.RawIOBase", stream))


#: Readers of packed files, by the end of their names.
_READERS: Final[Mapping[str, Callable[[IO[bytes]], IO[bytes]]]] = {
    ".gz": lambda packed: cast("IO[bytes]", gzip.GzipFile(fileobj=packed, mode="rb")),
    ".bz2": bz2.open,
    ".zst": _of_zstd,
}
_UNREADABLE: Final = (EOFError, OSError, zlib.error, pa.ArrowException)


def _suffix(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def is_packed(path: str) -> bool:
    """Whether a file is packed, by its name."""
    return _suffix(path) in _READERS


#: First octets of files that are no texts, and the kinds of these files.
_BINARY: Final = {
    b"PK\x03\x04": "a ZIP archive or a workbook",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "a workbook or another document of Office",
    b"\x1f\x8b\x08": "packed by gzip, and not named .gz",
    b"BZh91AY&SY": "packed by bzip2, and not named .bz2",
    b"\xfd7zXZ\x00": "packed by xz, which is not read",
    b"\x28\xb5\x2f\xfd": "packed by zstd, and not named .zst",
    b"PAR1\x15": "a Parquet file",
    b"Obj\x01": "an Avro file",
    b"SQLite format 3\x00": "a database of SQLite",
}


def objection_to_text(head: bytes, *, by_line: bool) -> str | None:
    """The reason why a file that begins with ``head`` has no text; None if it may have one."""
    if by_line and head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "is in UTF-16, which mode='text.full' reads"
    kind = next((kind for mark, kind in _BINARY.items() if head.startswith(mark)), None)
    return f"is {kind}, and no text" if kind else None


class _Raw(io.RawIOBase):
    """The packed bytes of a file, which are read while it is open."""

    def __init__(self) -> None:
        self.read_at: Callable[[int, int], bytes] = lambda size, offset: b""
        #: Of the file itself.
        self.failure: OSError | None = None
        self._at = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # any buffer there
        try:
            data = self.read_at(len(buffer), self._at)
        except OSError as error:
            self.failure = error
            raise
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


class Unpacked:
    """Reads packed files; the last one continues where it was, without unpacking all again."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._at = 0
        self._current: tuple[str, FileState] | None = None

    @contextmanager
    def opened(self, path: str) -> Iterator[tuple[FileState, Callable[[int, int], bytes]]]:
        """As ``Files.opened``, with places of the unpacked bytes."""
        with self._files.opened(path) as (state, read):

            def unpacked(size: int, offset: int) -> bytes:
                if not state.size:
                    return b""
                try:
                    if self._current != (path, state) or offset < self._at:
                        self._begin(path, read)
                        self._current = (path, state)
                    self._raw.read_at = read
                    while self._at < offset:
                        if not self._read(min(offset - self._at, _BLOCK)):
                            return b""
                    return self._read(size)
                except _UNREADABLE as error:
                    self._current = None
                    if self._raw.failure is not None:
                        raise self._raw.failure from error
                    raise OSError(0, f"it can't be unpacked: {error}", path) from error

            yield state, unpacked

    def _read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._at += len(data)
        return data

    def _begin(self, path: str, read: Callable[[int, int], bytes]) -> None:
        self._raw, self._at = _Raw(), 0
        self._raw.read_at = read
        self._stream = _READERS[_suffix(path)](io.BufferedReader(self._raw, _BLOCK))
