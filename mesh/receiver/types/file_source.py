"""Source ``file``: lines, matches, or whole files; it follows files as they grow.

The position has an offset and the inode for each path.  A file with another inode, or one that has
become shorter, is a new file.  Another file may have the inode of one that is gone: those that are
read whole have their time in the position as well, others a checksum of their first bytes.  A file
that is followed and renamed, as logs are, continues under its new name.
"""

from __future__ import annotations

import os
import re
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, TypeGuard, TypeVar, overload
from zlib import crc32

import numpy as np
import orjson

from mesh.clock import SystemClock
from mesh.connect.contract import Batch, UnavailableError
from mesh.connect.files import SERVERS, action_of, is_followed, mode_of, objection, scheme_of
from mesh.errors import MeshError
from mesh.functions.patterns import compiled
from mesh.receiver.types.file_servers import remote_files
from mesh.receiver.types.file_systems import (
    LocalFiles,
    Unpacked,
    is_packed,
    objection_to_text,
)
from mesh.receiver.types.schedule import Schedule
from mesh.receiver.types.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from mesh.connect.contract import Context, Options
    from mesh.model.values import JsonMapping, JsonObject
    from mesh.receiver.types.file_systems import Files, FileState


T = TypeVar("T")

#: Bytes that are read together; one line has at most as many.
_BYTES: Final = 4 << 20
#: Bytes that distinguish a file from an earlier one with its name and inode.
_HEAD_BYTES: Final = 1024


#: Bytes of a position, which is one message, and of a file's state in it besides its name.
POSITION_BYTES_MAX: Final = 700_000
STATE_BYTES: Final = 60
#: Age of a file's last change from which on another one gives it another time.
_SETTLED_MS: Final = 2000
_CLOCK: Final = SystemClock()
#: Bytes and payloads after which a batch has no more files: a position costs more than small ones.
_TOGETHER_BYTES: Final = 1 << 20
_TOGETHER: Final = 10_000
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


def _is_settled(state: FileState | None) -> TypeGuard[FileState]:
    """Whether any later change of a local file will show in its state."""
    if state is None:
        return False
    return _CLOCK.wall_ms() - state.mtime_ns // 1_000_000 > _SETTLED_MS


def _reason(error: Exception) -> str:
    return f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)


class _Piece(NamedTuple):
    """Payloads of one file, which follow each other in it."""

    payloads: Sequence[bytes]
    properties: Sequence[Mapping[str, str]]
    names: Sequence[str]


@dataclass(slots=True)
class _Look:
    """One pass over the files of a directory, which may have many batches."""

    paths: Sequence[str]
    #: Those that may have more.
    left: deque[str]
    #: Bytes that are left in the position, about.
    room: int
    is_full: bool = False
    #: Why a file is passed over.
    problem: str | None = None


class FileSource:
    """See ``mesh.connect.contract.Source``."""

    #: Why a file of the directory is passed over.
    problem: str | None = None

    def __init__(self) -> None:
        self._files: Files | None = None

    async def open(self, context: Context, position: JsonMapping | None) -> None:
        """Continue each file after its offset."""
        options = context.options
        uri = str(options.get("file.uri") or options.get("dir.uri") or "")
        self._pattern = re.compile(options.get("file.name.pattern") or "(?s:.*)")
        reason = objection(options)
        try:
            begin, end = options.get("begin.regex") or "", options.get("end.regex") or ""
            self._matches = Matches(begin, end)
            files = self._files = (
                remote_files(uri, options, context.access)
                if scheme_of(uri) in SERVERS
                else LocalFiles(context.access)
            )
            self._root = files.path(uri)
            self._after = After(action_of(options), options, files)
            failure = str(options.get("action.after.failure") or "").lower()
            #: On files with payloads that can't be read.
            self._otherwise = After(failure, options, files, "failure") if failure else self._after
            for after in (self._after, self._otherwise):
                after.check(os.path.dirname(self._root) if options["file.uri"] else self._root)
        except ValueError as error:
            reason = str(error)
        if reason:
            raise MeshError("MESH-C131", f"source file can't be opened: {reason}")
        #: State of local files of which everything was read: none of them is opened until it has
        #: another.
        self._unchanged: dict[str, FileState] = {}
        #: The look that the next read continues; None between looks.
        self._look: _Look | None = None
        self._is_open = context.is_open
        self._is_directory = not options.get("file.uri")
        self._unpacked = Unpacked(files)
        self._mode, self._is_tailing = mode_of(options), is_followed(options)
        self._chunk = min(int(options.get("buffer.size") or 65536), _BYTES)
        skipped = int(options.get("header.line.count") or 1)
        self._skipped = skipped if options.get("header.present") else 0
        self._only_first = skipped if options.get("read.only.header") else 0
        self._only_last = bool(options.get("read.only.trailer"))
        self._without_last = bool(options.get("skip.trailer"))
        self._schedule = Schedule(
            int(options.get("file.polling.interval") or 1000), options.get("cron.expression")
        )
        self._at: dict[str, list[int]] = {
            path: list(place) for path, place in ((position or {}).get("files") or {}).items()
        }
        #: Files that were renamed while they were followed.
        self._renamed = set((position or {}).get("renamed") or ())
        #: Files with payloads that can't be read.
        self._failed = set((position or {}).get("failed") or ())
        #: Places that are stored: the action on a file follows them.
        self._stored: dict[str, list[int]] = {path: list(at) for path, at in self._at.items()}

    async def read(self) -> Batch | None:
        """Payloads of the first file that has more; waits for the next look if none has.

        A file of a directory that can't be read is passed over, and tried again at the next look.
        """
        if self._schedule.is_due:
            batch = await self._call(self._next)
            if batch is not None:
                return batch
            self._schedule.end_look()
        await self._schedule.rest()
        return None

    async def check(self, context: Context) -> Batch | None:
        """The first payloads, whenever the next look is due."""
        try:
            await self.open(context, None)
            return await self._call(self._next)
        finally:
            await self.close()

    async def _call(self, call: Callable[..., T], *arguments: object) -> T:
        try:
            if self._system.is_remote:
                return await in_thread(call, *arguments)
            return call(*arguments)
        except OSError as error:
            raise UnavailableError(_reason(error)) from error

    @property
    def _system(self) -> Files:
        assert self._files is not None
        return self._files

    def _next(self) -> Batch | None:
        # A file that is followed may be renamed at any time.
        look = self._look if self._look is not None and not self._follow() else None
        # An error of all files ends the look.
        self._look = None
        batch = self._next_in(look) if look is not None else None
        if batch is None:
            # Others may have come meanwhile.
            look = self._begun_look()
            batch = self._next_in(look)
        if batch is not None:
            self._look = look
        elif look is not None:
            self.problem = look.problem
        return batch

    def _next_in(self, look: _Look) -> Batch | None:
        """The next payloads of a file, and those of the next ones while they are few."""
        pieces: list[_Piece] = []
        size = count = 0
        while look.left and size < _TOGETHER_BYTES and count < _TOGETHER:
            try:
                piece = self._next_of(look.left[0], look)
            except (OSError, MeshError, UnavailableError) as error:
                self._pass_over(error)
                look.problem = look.problem or _reason(error)
                piece = None
            if piece is None:
                look.left.popleft()
                continue
            pieces.append(piece)
            size += sum(map(len, piece.payloads))
            count += len(piece.payloads)
        return self._batch_of(pieces) if pieces else None

    def _batch_of(self, pieces: Sequence[_Piece]) -> Batch:
        if len(pieces) == 1:
            # Of a large file, whose names are not needed in general.
            first = pieces[0]
            return Batch(first.payloads, self._position(), first.properties, first.names)
        return Batch(
            [one for piece in pieces for one in piece.payloads],
            self._position(),
            [one for piece in pieces for one in piece.properties],
            [one for piece in pieces for one in piece.names],
        )

    def _begun_look(self) -> _Look:
        paths = self._paths()
        self._unchanged = {p: self._unchanged[p] for p in paths if p in self._unchanged}
        room = self._room(paths) if self._is_directory else POSITION_BYTES_MAX
        return _Look(paths, deque(paths), room)

    def _pass_over(self, error: Exception) -> None:
        """Raise an error that concerns more than one file of a directory."""
        is_of_file = not isinstance(error, OSError) or isinstance(error, PermissionError)
        if not self._is_directory or (self._system.is_remote and not is_of_file):
            raise error

    def _room(self, paths: Collection[str]) -> int:
        """Bytes of the position that are left, perhaps in place of files that are gone.

        While there is room it keeps these: they may come back, as when a volume is mounted again.
        """
        if self._size() > POSITION_BYTES_MAX:
            gone = self._at.keys() - set(paths)
            for path in [path for path in gone if self._system.find(path) is None]:
                del self._at[path]
                self._failed.discard(path)
        return POSITION_BYTES_MAX - self._size()

    def _takes(self, path: str, look: _Look) -> bool:
        """Whether the position has room for a new file, which is taken from the rest of it."""
        if look.room < 0 and not look.is_full:
            look.room = self._room(look.paths)
            look.is_full = look.room < 0
        look.room -= len(path.encode(errors="replace")) + STATE_BYTES
        return not look.is_full

    def _size(self) -> int:
        """Bytes of the position, about."""
        names = [*self._at, *self._renamed, *self._failed]
        return len(orjson.dumps(names)) + STATE_BYTES * len(self._at)

    def _next_of(self, candidate: str, look: _Look) -> _Piece | None:
        """The next payloads of a file."""
        state = self._system.find(candidate) if not self._system.is_remote else None
        if state is not None and self._unchanged.get(candidate) == state:
            return None
        path = self._system.checked(candidate)
        if self._is_directory and path not in self._at and not self._takes(path, look):
            raise UnavailableError(
                f"{self._root} has more files than a position holds, {len(self._at)}: delete or "
                "move those that were read"
            )
        # One that is deleted or moved is awaited again.
        is_awaited = self._is_directory or not self._keeps_files
        if is_awaited and self._system.find(path) is None:
            return None
        piece = self._read_lines(path) if self._mode == "line" else self._read_parts(path)
        if piece is None:
            # A host may have ended before it was done with the file.
            self._finish(path)
            if self._after_of(path).action == "keep" and _is_settled(state):
                self._unchanged[candidate] = state
        return piece

    def _paths(self) -> list[str]:
        if self._is_directory:
            every = self._system.paths(self._root)
            paths = [p for p in every if self._pattern.fullmatch(os.path.basename(p))]
        else:
            paths = [self._root]
        if self._is_tailing and not self._system.is_remote:
            self._follow()
            # Lines that were written before the file was renamed may not have been read.
            self._renamed = {p for p in self._renamed if self._system.find(p) is not None}
            paths += sorted(self._renamed.difference(paths))
        return paths

    def _follow(self) -> bool:
        """Note the new paths of files that were renamed; whether there are any."""
        if not self._is_tailing or self._system.is_remote:
            return False
        renamed = follow(self._system, self._at)
        self._renamed = (self._renamed - renamed.keys()) | set(renamed.values())
        self._at = {renamed.get(path, path): place for path, place in self._at.items()}
        return bool(renamed)

    def _piece(self, path: str, size: int) -> tuple[list[int], bytes, bool]:
        """The place from which a file is to be read, up to ``size`` bytes, whether they are all.

        The place is inode, offset, number of payloads, and what the file is known by.
        """
        packed = is_packed(path)
        with (self._unpacked if packed else self._system).opened(path) as (state, read):
            inode, offset, lines, *old_mark = self._at.get(path, [0, 0, 0])
            is_same = inode == state.inode and (packed or state.size >= offset)
            if is_same and self._system.is_remote and state.size == offset and not self._is_full:
                return [inode, offset, lines, *old_mark], b"", True
            head = b"" if self._is_full else read(_HEAD_BYTES, 0)
            if not is_same or (old_mark and old_mark != self._mark(state, head, offset)):
                offset, lines = 0, 0
            data = read(size, offset)
        if not offset and not self._mode.startswith("binary."):
            by_line = self._mode != "text.full"
            if reason := objection_to_text(data[:_HEAD_BYTES], by_line=by_line):
                raise UnavailableError(f"{path} {reason}")
        self._head, self._state = head, state
        mark = self._mark(state, head, offset + len(data))
        # The size of a packed file is not that of its contents.
        is_end = len(data) < size if packed else offset + len(data) >= state.size
        return [state.inode, offset, lines, *mark], data, is_end

    def _mark(self, state: FileState, head: bytes, offset: int) -> list[int]:
        return [state.mtime_ns] if self._is_full else [crc32(head[:offset])]

    @property
    def _is_full(self) -> bool:
        return self._mode.endswith(".full")

    def _is_complete(self, path: str) -> bool:
        """Whether a file does not grow: one that is packed never does."""
        return not self._is_tailing or is_packed(path)

    def _read_lines(self, path: str) -> _Piece | None:
        (inode, offset, lines, *_), data, is_end = self._piece(path, _BYTES)
        whole = data.rfind(b"\n") + 1
        is_last = is_end and self._is_complete(path)
        if is_last:
            whole = len(data)
        elif not whole and len(data) == _BYTES:
            # A line without an end would stop the file: a part of it becomes an error entry.
            whole = len(data)
        if not whole:
            return None
        payloads = data[:whole].split(b"\n")
        if not payloads[-1]:
            payloads.pop()
        if self._is_open is not None and b'"' in data:
            payloads, waiting = joined(payloads, self._is_open)
            if is_last:
                payloads += waiting
            else:
                whole -= sum(len(line) + 1 for line in waiting)
            if not payloads:
                return None
        self._put(path, [inode, offset + whole, lines + len(payloads)])
        span = self._payload_span(payloads, lines, is_last=is_last)
        bodies = [one.removesuffix(b"\r") for one in payloads[span.start : span.stop]]
        bodies = [one for one in bodies if one]
        shared = {"file.path": path, "file.name": os.path.basename(path), "eof": "false"}
        properties = [shared] * len(bodies)
        if bodies and is_last:
            properties[-1] = {**shared, "eof": "true"}
        return _Piece(bodies, properties, LineNames(inode, offset, payloads, span))

    def _payload_span(self, lines: Sequence[bytes], before: int, *, is_last: bool) -> range:
        """The lines of a piece that are payloads, after ``before`` earlier lines of the file."""
        first, stop = min(len(lines), max(0, self._skipped - before)), len(lines)
        if self._only_first:
            return range(min(stop, max(0, self._only_first - before)))
        if self._only_last or self._without_last:
            filled = (n for n in reversed(range(stop)) if is_last and lines[n].strip(b"\r"))
            last = next(filled, stop)
            return range(last, stop) if self._only_last else range(first, max(first, last))
        return range(first, stop)

    def _read_parts(self, path: str) -> _Piece | None:
        (inode, offset, number, *mark), data, is_end = self._piece(path, _BYTES)
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
            is_whole = is_end and self._is_complete(path)
            spans = self._matches.of(data, is_end=is_end, is_whole=is_whole)
            if not spans and len(data) == _BYTES:
                # As a line without an end.
                spans = [(0, len(data))]
            if not spans and not is_whole:
                return None
        # What no payload follows is read as well.
        last = len(data) if is_end and self._is_complete(path) else spans[-1][1]
        self._put(path, [inode, offset + last, number + len(spans), *mark])
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
        return _Piece(payloads, properties, names)

    def _put(self, path: str, place: list[int]) -> None:
        """Note the place up to which the last piece of a file was taken."""
        self._at[path] = [*place[:3], *self._mark(self._state, self._head, place[1])]

    def _position(self) -> JsonObject:
        files = {name: list(place) for name, place in self._at.items()}
        position = {"files": files, "renamed": sorted(self._renamed)}
        return position | ({"failed": sorted(self._failed)} if self._failed else {})

    def failed(self, batch: Batch, numbers: Collection[int]) -> Batch:
        """See ``mesh.connect.contract.Source``."""
        if self._otherwise is not self._after:
            properties = batch.properties or ()
            self._failed |= {properties[number]["file.path"] for number in numbers}
        return replace(batch, position=self._position())

    async def committed(self, position: JsonMapping) -> None:
        """Delete or move files that have no more; others stay."""
        self._stored = dict(position.get("files") or {})
        if not self._keeps_files:
            await self._call(self._finish_all)

    @property
    def _keeps_files(self) -> bool:
        """Whether all files stay where they are."""
        return self._after.action == "keep" and not self._failed

    def _finish_all(self) -> None:
        for path in self._stored:
            try:
                self._finish(path)
            except (OSError, MeshError) as error:
                self.problem = _reason(error)
                self._pass_over(error)

    def _after_of(self, path: str) -> After:
        return self._otherwise if path in self._failed else self._after

    def _finish(self, path: str) -> None:
        """The action on a file that was read to its end, and is still the one that was read."""
        after = self._after_of(path)
        place = self._at.get(path)
        if after.action == "keep":
            return
        # A check of a source stores nothing, and so nothing happens to its files.
        if place is None or self._stored.get(path) != place:
            return
        if self._system.find(path) is None:
            del self._at[path]
            return
        now, data, is_end = self._piece(path, 1)
        if data or not is_end or now[:2] != place[:2]:
            return
        after.perform(path, place[0])
        del self._at[path]
        self._failed.discard(path)

    async def close(self) -> None:
        """Close connections; no file is open between reads."""
        files, self._files = self._files, None
        if files is not None:
            files.close()


def follow(files: Files, places: Mapping[str, list[int]]) -> dict[str, str]:
    """Present paths of files that were renamed in their directory, by the earlier ones."""
    new_paths: dict[str, str] = {}
    beside: dict[str, dict[int, str]] = {}
    for path, place in places.items():
        now = files.find(path)
        if now is not None and now.inode == place[0]:
            continue
        directory = os.path.dirname(path)
        if directory not in beside:
            every = ((one, files.find(one)) for one in files.paths(directory))
            beside[directory] = {state.inode: one for one, state in every if state is not None}
        target = beside[directory].get(place[0])
        if target is None or (target in places and places[target][0] == place[0]):
            continue
        if _is_same_file(files, target, place):
            new_paths[path] = target
    return new_paths


def _is_same_file(files: Files, path: str, place: list[int]) -> bool:
    """Whether a file begins as the one of a place; another one may have its inode."""
    with files.opened(path) as (_, read):
        return place[3:] == [crc32(read(_HEAD_BYTES, 0)[: place[1]])]
