"""Names of lines, payloads that are no lines, and the action on a file that was read."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Final, overload

import numpy as np

from mesh.errors import MeshError
from mesh.functions.patterns import compiled

if TYPE_CHECKING:
    from collections.abc import Callable

    from mesh.connect.contract import Options
    from mesh.receiver.types.file_systems import Files


#: Bytes of a position, which is one message, and of a file's state in it besides its name.
POSITION_BYTES_MAX: Final = 700_000
STATE_BYTES: Final = 60
#: Most bytes of a line that continues in the next ones, and of these.
_JOINED_MAX: Final = 64 << 10


class LineNames(Sequence[str]):
    """The inode and offset of each line that is kept, however a growing file is cut."""

    def __init__(self, inode: int, offset: int, lines: Sequence[bytes], span: range) -> None:
        self._inode, self._offset, self._lines, self._span = inode, offset, lines, span

    @cached_property
    def _offsets(self) -> list[int]:
        sizes = np.array([len(line) + 1 for line in self._lines], np.int64)
        window = slice(self._span.start, self._span.stop)
        filled = [line not in (b"", b"\r") for line in self._lines[window]]
        starts = (np.cumsum(sizes) - sizes + self._offset)[window]
        offsets: list[int] = starts[np.array(filled, bool)].tolist()
        return offsets

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


def joined(
    lines: Sequence[bytes], is_open: Callable[[bytes], bool]
) -> tuple[list[bytes], list[bytes]]:
    """Lines, of which those of a value in quotes are one; and those at the end of one that is open.

    A value of more than ``_JOINED_MAX`` bytes is none, so a quote that is never closed costs its
    line.
    """
    records: list[bytes] = []
    at = 0
    while at < len(lines):
        end = at + 1
        if lines[at].count(b'"') % 2 and is_open(lines[at]):
            size = len(lines[at])
            while end < len(lines) and size <= _JOINED_MAX and lines[end].count(b'"') % 2 == 0:
                size += len(lines[end])
                end += 1
            if size > _JOINED_MAX:
                end = at + 1
            elif end == len(lines):
                return records, list(lines[at:])
            else:
                end += 1
        records.append(b"\n".join(lines[at:end]))
        at = end
    return records, []


class Matches:
    """Payloads that begin and end where regular expressions match."""

    def __init__(self, begin: str, end: str) -> None:
        # Bytes are searched as characters of Latin-1, so that places are those of the file.
        self._begin, self._end = (
            compiled(one.encode().decode("latin-1")) if one else None for one in (begin, end)
        )

    def of(self, data: bytes, *, is_end: bool, is_whole: bool) -> list[tuple[int, int]]:
        """First and last byte, exclusive, of each payload.

        Args:
            data: bytes of the file, from the end of an earlier payload.
            is_end: the file has no more bytes.
            is_whole: it will not have more.
        """
        text = data.decode("latin-1")
        begins = [m.span() for m in self._begin.finditer(text)] if self._begin else []
        if self._end is None:
            starts = [first for first, _ in begins]
            spans = list(pairwise(starts))
            return [*spans, (starts[-1], len(data))] if is_whole and starts else spans
        # A match at the end of what was read may be longer.
        ends = [m.span() for m in self._end.finditer(text) if is_end or m.end() < len(data)]
        if self._begin is None:
            bounds = [0, *(last for _, last in ends)]
            return list(pairwise(bounds))
        spans, at, which = [], 0, 0
        for first, after in begins:
            if first < at:
                continue
            while which < len(ends) and ends[which][0] < after:
                which += 1
            if which == len(ends):
                break
            at = ends[which][1]
            spans.append((first, at))
        return spans


class After:
    """The action on a file all events of which are stored; it may be repeated."""

    def __init__(self, action: str, options: Options, files: Files, what: str = "process") -> None:
        self.action = action
        self._option = f"move.after.{what}"
        self._target = str(options.get(self._option) or "")
        self._keeps_existing = str(options.get("move.if.exist.mode") or "").lower() == "keep"
        self._files = files

    def check(self, directory: str) -> None:
        """Refuse to move files to the directory from which they are read."""
        if self.action == "move" and self._files.path(self._target) == directory:
            raise MeshError(
                "MESH-C131",
                f"source file can't be opened: {self._option} is the directory that is read",
                hint="Name another directory.",
            )

    def perform(self, path: str, inode: int) -> None:
        """Delete or move a file."""
        if self.action == "delete":
            self._files.delete(path)
        elif self.action == "move":
            target = os.path.join(self._files.path(self._target), os.path.basename(path))
            state = self._files.find(path)
            if self._keeps_existing and state is not None and self._files.find(target) is not None:
                # The same name at each attempt.
                name = uuid.uuid5(uuid.NAMESPACE_URL, f"{path}/{inode}/{state.mtime_ns}")
                stem, dot = os.path.splitext(target)
                target = f"{stem}-{name}{dot}"
            self._files.move(path, target)
