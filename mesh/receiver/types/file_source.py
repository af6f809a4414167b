"""Source ``file``: lines of files, which it follows as they grow.

The position has an offset and the inode for each path.  A file with another inode, or one that has
become shorter, is a new file.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, overload

import numpy as np

from mesh.connect.contract import Batch, UnavailableError
from mesh.receiver.access import path_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mesh.connect.contract import Context

#: Bytes that are read together; one line has at most as many.
_BYTES: Final = 4 << 20


class _Names(Sequence[str]):
    """The inode and offset of each line that is kept, however a growing file is cut."""

    def __init__(self, inode: int, offset: int, lines: Sequence[bytes], skipped: int) -> None:
        self._inode, self._offset, self._lines, self._skipped = inode, offset, lines, skipped

    @cached_property
    def _offsets(self) -> list[int]:
        sizes = np.array([len(line) + 1 for line in self._lines], np.int64)
        kept = [
            number >= self._skipped and line.removesuffix(b"\r") != b""
            for number, line in enumerate(self._lines)
        ]
        found: list[int] = (np.cumsum(sizes) - sizes + self._offset)[kept].tolist()
        return found

    def __len__(self) -> int:
        return len(self._offsets)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...
    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        if isinstance(at, slice):
            return [f"{self._inode}-{offset}" for offset in self._offsets[at]]
        return f"{self._inode}-{self._offsets[at]}"


class FileSource:
    """See ``mesh.connect.contract.Source``."""

    async def open(self, context: Context, position: Mapping[str, Any] | None) -> None:
        """Continue each file after its offset."""
        options = context.options
        self._access = context.access
        self._file, self._directory = options.get("file.uri"), options.get("dir.uri")
        self._pattern = re.compile(options.get("file.name.pattern") or ".*")
        self._is_tailing = bool(options.get("tailing"))
        skipped = int(options.get("header.line.count") or 1)
        self._skipped = skipped if options.get("header.present") else 0
        self._interval_s = int(options.get("file.polling.interval") or 1000) / 1000
        self._at: dict[str, list[int]] = {
            path: list(place) for path, place in ((position or {}).get("files") or {}).items()
        }

    async def read(self) -> Batch | None:
        """Whole lines of the first file that has more; waits for the interval if none has."""
        try:
            for path in self._paths():
                batch = self._read_file(path)
                if batch is not None:
                    return batch
        except OSError as error:
            raise UnavailableError(f"{error.filename}: {error.strerror}") from error
        await asyncio.sleep(self._interval_s)
        return None

    def _paths(self) -> Iterator[str]:
        if self._file:
            yield path_of(self._access, self._file)
            return
        root = path_of(self._access, str(self._directory))
        for name in sorted(os.listdir(root)):
            if self._pattern.fullmatch(name):
                # A link may lead out of the directory.
                path = path_of(self._access, os.path.join(root, name))
                if os.path.isfile(path):
                    yield path

    def _read_file(self, path: str) -> Batch | None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            found = os.fstat(descriptor)
            inode, offset, lines = self._at.get(path, [0, 0, 0])
            if inode != found.st_ino or found.st_size < offset:
                inode, offset, lines = found.st_ino, 0, 0
            data = os.pread(descriptor, _BYTES, offset)
        finally:
            os.close(descriptor)
        is_end = offset + len(data) >= found.st_size
        whole = data.rfind(b"\n") + 1
        if is_end and not self._is_tailing:
            whole = len(data)
        elif not whole and len(data) == _BYTES:
            # A line without an end would stop the file: a part of it becomes an error entry.
            whole = len(data)
        if not whole:
            return None
        payloads = data[:whole].split(b"\n")
        if not payloads[-1]:
            payloads.pop()
        header = max(0, self._skipped - lines)
        self._at[path] = [inode, offset + whole, lines + len(payloads)]
        kept = [one.removesuffix(b"\r") for one in payloads[header:]]
        kept = [one for one in kept if one]
        properties = {"file.path": path, "file.name": os.path.basename(path)}
        position = {"files": {name: list(place) for name, place in self._at.items()}}
        names = _Names(inode, offset, payloads, header)
        return Batch(kept, position, [properties] * len(kept), names)

    async def committed(self, position: Mapping[str, Any]) -> None:
        """Files stay."""

    async def close(self) -> None:
        """No file is open between reads."""
