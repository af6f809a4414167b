"""Files of source and sink ``file``: those of the worker, and the bytes in those packed by gzip.

``file_servers`` has those of servers.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import stat
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from mesh.connect.access import path_of
from mesh.connect.contract import UnavailableError
from mesh.receiver.outcomes import OF_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from mesh.connect.contract import NodeAccess

#: Flags of an open file: one that has become a pipe must not hold up the host.
_OPENED: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
#: End of the names of packed files.
_SUFFIX: Final = ".gz"
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


def is_packed(path: str) -> bool:
    """Whether a file is packed, by its name."""
    return path.lower().endswith(_SUFFIX)


class _Raw(io.RawIOBase):
    """The packed bytes of a file, which are read while it is open."""

    def __init__(self) -> None:
        self.read_at: Callable[[int, int], bytes] = lambda size, offset: b""
        self._at = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # any buffer there
        data = self.read_at(len(buffer), self._at)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


class Unpacked:
    """Reads packed files; the last one continues where it was, without unpacking all again."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._current: tuple[str, FileState] | None = None

    @contextmanager
    def opened(self, path: str) -> Iterator[tuple[FileState, Callable[[int, int], bytes]]]:
        """As ``Files.opened``, with places of the unpacked bytes."""
        with self._files.opened(path) as (state, read):
            if self._current != (path, state):
                self._begin()
                self._current = (path, state)

            def unpacked(size: int, offset: int) -> bytes:
                self._raw.read_at = read
                if offset < self._stream.tell():
                    self._begin()
                    self._raw.read_at = read
                try:
                    while (rest := offset - self._stream.tell()) > 0:
                        if not self._stream.read(min(rest, _BLOCK)):
                            return b""
                    return self._stream.read(size)
                except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                    self._current = None
                    raise OSError(0, f"it can't be unpacked: {error}", path) from error

            yield state, unpacked

    def _begin(self) -> None:
        self._raw = _Raw()
        self._stream = gzip.GzipFile(fileobj=io.BufferedReader(self._raw, _BLOCK), mode="rb")
