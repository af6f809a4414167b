"""Source ``file``: lines, matches, or whole files; it follows files as they grow.

The position has an offset and the inode for each path.  A file with another inode, or one that has
become shorter, is a new file.  Where files are deleted or moved once they are read, another one may
have the inode: those that are read whole have their time in the position as well, others a checksum
of their first bytes.
"""

from __future__ import annotations

import asyncio
import os
import re
import zlib
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, overload

import numpy as np

from mesh.connect.contract import Batch, UnavailableError
from mesh.connect.files import action_of, is_followed, mode_of, objection
from mesh.errors import MeshError
from mesh.receiver.access import path_of
from mesh.receiver.types.file_parts import After, Matches

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mesh.connect.contract import Context

#: Bytes that are read together; one line has at most as many.
_BYTES: Final = 4 << 20
#: Flags of an open file: one that has become a pipe must not hold up the host.
_OPENED: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
#: Bytes that distinguish a file from an earlier one with its name and inode.
_KNOWN_BY: Final = 1024


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


def _reason(error: Exception) -> str:
    return f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)


class FileSource:
    """See ``mesh.connect.contract.Source``."""

    #: Why a file of the directory is passed over.
    problem: str | None = None

    async def open(self, context: Context, position: Mapping[str, Any] | None) -> None:
        """Continue each file after its offset."""
        options = context.options
        self._access = context.access
        self._file, self._directory = options.get("file.uri"), options.get("dir.uri")
        self._pattern = re.compile(options.get("file.name.pattern") or ".*")
        reason = objection(options)
        try:
            begin, end = options.get("begin.regex") or "", options.get("end.regex") or ""
            self._matches = Matches(begin, end)
        except ValueError as error:
            reason = str(error)
        if reason:
            raise MeshError("MESH-C131", f"source file can't be opened: {reason}")
        self._mode, self._is_tailing = mode_of(options), is_followed(options)
        self._after = After(action_of(options), options, context.access)
        self._chunk = min(int(options.get("buffer.size") or 65536), _BYTES)
        skipped = int(options.get("header.line.count") or 1)
        self._skipped = skipped if options.get("header.present") else 0
        self._interval_s = int(options.get("file.polling.interval") or 1000) / 1000
        self._at: dict[str, list[int]] = {
            path: list(place) for path, place in ((position or {}).get("files") or {}).items()
        }
        #: Places that are stored: the action on a file follows them.
        self._stored: dict[str, list[int]] = {path: list(at) for path, at in self._at.items()}
        if self._after.action == "move":
            self._after.check(self._directory or os.path.dirname(str(self._file)))

    async def read(self) -> Batch | None:
        """Whole lines of the first file that has more; waits for the interval if none has.

        A file of a directory that can't be read is passed over, and tried again at the next look.
        """
        problem: str | None = None
        try:
            for path in self._paths():
                try:
                    batch = self._next(path)
                except (OSError, MeshError, UnavailableError) as error:
                    if self._file:
                        raise
                    problem = problem or _reason(error)
                    continue
                if batch is not None:
                    return batch
        except OSError as error:
            raise UnavailableError(_reason(error)) from error
        self.problem = problem
        await asyncio.sleep(self._interval_s)
        return None

    def _paths(self) -> Iterator[str]:
        if self._file:
            yield self._file
            return
        root = path_of(self._access, str(self._directory))
        for name in sorted(os.listdir(root)):
            if self._pattern.fullmatch(name):
                yield os.path.join(root, name)

    def _next(self, given: str) -> Batch | None:
        """The next payloads of a file."""
        # A link may lead out of the directory.
        path = path_of(self._access, given)
        # One that is deleted or moved is awaited again.
        is_awaited = not self._file or self._after.action != "keep"
        if is_awaited and not os.path.isfile(path):
            return None
        try:
            path.encode()
        except UnicodeEncodeError as error:
            # A position is JSON.
            raise UnavailableError(f"{path!a}: its name is no UTF-8") from error
        batch = self._read_lines(path) if self._mode == "line" else self._read_parts(path)
        if batch is None:
            # A host may have ended before it was done with the file.
            self._finish(path)
        return batch

    def _piece(self, path: str, size: int) -> tuple[list[int], bytes, bool]:
        """The place from which a file is to be read, up to ``size`` bytes, whether they are all.

        The place is inode, offset, number of payloads, and what the file is known by.
        """
        descriptor = os.open(path, _OPENED)
        try:
            found = os.fstat(descriptor)
            inode, offset, lines, *known = self._at.get(path, [0, 0, 0])
            mark = self._mark(descriptor, found, offset)
            is_other = bool(known) and known != mark
            if inode != found.st_ino or found.st_size < offset or is_other:
                offset, lines = 0, 0
            data = os.pread(descriptor, size, offset)
            mark = self._mark(descriptor, found, offset + len(data))
        finally:
            os.close(descriptor)
        return [found.st_ino, offset, lines, *mark], data, offset + len(data) >= found.st_size

    def _mark(self, descriptor: int, found: os.stat_result, offset: int) -> list[int]:
        if self._after.action == "keep" and not self._is_full:
            return []
        if self._is_full:
            return [found.st_mtime_ns]
        return [zlib.crc32(os.pread(descriptor, min(offset, _KNOWN_BY), 0))]

    @property
    def _is_full(self) -> bool:
        return self._mode.endswith(".full")

    def _read_lines(self, path: str) -> Batch | None:
        (inode, offset, lines, *_), data, is_end = self._piece(path, _BYTES)
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
        self._put(path, [inode, offset + whole, lines + len(payloads)])
        kept = [one.removesuffix(b"\r") for one in payloads[header:]]
        kept = [one for one in kept if one]
        properties = {"file.path": path, "file.name": os.path.basename(path)}
        names = _Names(inode, offset, payloads, header)
        return Batch(kept, self._position(), [properties] * len(kept), names)

    def _read_parts(self, path: str) -> Batch | None:
        (inode, offset, number, *known), data, is_end = self._piece(path, _BYTES)
        if not data:
            return None
        if self._is_full:
            if not is_end or offset:
                raise UnavailableError(f"{path} has more than {_BYTES} bytes")
            spans = [(0, len(data))]
        elif self._mode == "binary.chunked":
            firsts = range(0, len(data), self._chunk)
            spans = [(first, min(first + self._chunk, len(data))) for first in firsts]
            if not is_end and len(data) % self._chunk and len(spans) > 1:
                # Chunks are alike however the file is read.
                spans.pop()
        else:
            is_whole = is_end and not self._is_tailing
            spans = self._matches.of(data, is_end=is_end, is_whole=is_whole)
            if not spans and len(data) == _BYTES:
                # As a line without an end.
                spans = [(0, len(data))]
            if not spans and not is_whole:
                return None
        # What no payload follows is read as well.
        last = len(data) if is_end and not self._is_tailing else spans[-1][1]
        self._put(path, [inode, offset + last, number + len(spans), *known])
        properties = [
            {
                "file.path": path,
                "file.name": os.path.basename(path),
                "sequence.number": str(number + n),
                "content.length": str(stop - first),
                "eof": str(is_end and stop == len(data)).lower(),
            }
            for n, (first, stop) in enumerate(spans, 1)
        ]
        payloads = [data[first:stop] for first, stop in spans]
        names = [f"{inode}-{offset + first}" for first, _ in spans]
        if self._is_full:
            names = [f"{inode}-{self._at[path][3]}"]
        return Batch(payloads, self._position(), properties, names)

    def _put(self, path: str, place: list[int]) -> None:
        """Note the place up to which a file was read; of one read as a whole, with its mark."""
        if self._is_full or self._after.action == "keep":
            self._at[path] = place
            return
        descriptor = os.open(path, _OPENED)
        try:
            mark = self._mark(descriptor, os.fstat(descriptor), place[1])
        finally:
            os.close(descriptor)
        self._at[path] = [*place[:3], *mark]

    def _position(self) -> dict[str, Any]:
        return {"files": {name: list(place) for name, place in self._at.items()}}

    async def committed(self, position: Mapping[str, Any]) -> None:
        """Delete or move files that have no more; others stay."""
        self._stored = dict(position.get("files") or {})
        for path in self._stored:
            try:
                self._finish(path)
            except (OSError, MeshError) as error:
                self.problem = _reason(error)
                if self._file:
                    raise UnavailableError(self.problem) from error

    def _finish(self, path: str) -> None:
        """The action on a file that was read to its end, and is still the one that was read."""
        if self._after.action == "keep":
            return
        place = self._at.get(path)
        # A check of a source stores nothing, and so nothing happens to its files.
        if place is None or self._stored.get(path) != place:
            return
        if not os.path.exists(path):
            del self._at[path]
            return
        now, data, is_end = self._piece(path, 1)
        if data or not is_end or now[:2] != place[:2]:
            return
        self._after.perform(path, place[0])
        del self._at[path]

    async def close(self) -> None:
        """No file is open between reads."""
