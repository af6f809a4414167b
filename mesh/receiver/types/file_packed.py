"""Files packed by gzip, as the bytes that are in them; see ``mesh.receiver.types.file_systems``."""

from __future__ import annotations

import gzip
import io
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mesh.receiver.types.file_systems import Files, FileState

_SUFFIX: Final = ".gz"
#: Packed bytes that are read together.
_BLOCK: Final = 1 << 20


def is_packed(path: str) -> bool:
    """Whether a file is packed, by its name."""
    return path.lower().endswith(_SUFFIX)


class _Raw(io.RawIOBase):
    """The packed bytes, which are read while the file is open."""

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
