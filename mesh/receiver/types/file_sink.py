"""Sink ``file``: appends payloads; the position has the length, and a start cuts back to it.

A file that has reached ``roll.size`` or ``roll.interval`` gets a number in its name, and a new one
begins.  The position has the number of such files.

A server of files can't cut a file back.  What a file has there beyond the stored position was
written by an earlier attempt: a repeat writes the same bytes, and leaves as many of them out.

The path may depend on the event.  The length of each file before a write is in a journal beside
the files then.  A start undoes the write that the stored position does not have.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from mesh.clock import SystemClock
from mesh.connect.access import first_root, path_of
from mesh.connect.contract import UnavailableError, payloads_of
from mesh.connect.files import scheme_of, sink_objection
from mesh.errors import MeshError
from mesh.files.whole_files import replacing
from mesh.receiver.types.file_servers import remote_files
from mesh.receiver.types.file_systems import is_of_path
from mesh.receiver.types.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mesh.connect.contract import Context, Record
    from mesh.model.values import JsonMapping, JsonObject
    from mesh.receiver.types.file_systems import RemoteFiles


#: Begins the names of journals.
_JOURNAL: Final = ".mesh-"


class ManyFiles:
    """Appends each payload to the file of its event, or replaces that file."""

    def __init__(self, context: Context, state: JsonMapping | None, end: bytes) -> None:
        self._access, self._end, self._header = context.access, end, context.header
        self._replaces = not context.options.get("append")
        self._number = int((state or {}).get("write") or 0)
        name = hashlib.blake2b(context.producer.encode(), digest_size=8).hexdigest()
        before = str(context.options["file.uri"]).partition("{{")[0]
        directory = path_of(context.access, os.path.dirname(before) or first_root(context.access))
        #: Where all files are: the fixed part of the path, unless that is the event's as a whole.
        self._below = directory if os.path.dirname(before) else ""
        self._journal = Path(directory) / f"{_JOURNAL}{name}"
        self._undo()

    @property
    def state(self) -> JsonMapping:
        """Number of the last write, which the journal may be ahead of."""
        return {"write": self._number}

    def _objection(self, path: str) -> str | None:
        """The reason against a path that an event has made; None for a good one."""
        if os.path.basename(path).startswith(_JOURNAL):
            return f"{path} is a name of journals"
        if self._below and os.path.commonpath([self._below, path]) != self._below:
            return f"{path} leads out of {self._below}"
        return None

    def _is_ours(self, path: str) -> bool:
        """Whether the sink may have written a path that a journal names."""
        try:
            return self._objection(path_of(self._access, path)) is None
        except MeshError:
            return False

    def _undo(self) -> None:
        try:
            noted = orjson.loads(self._journal.read_bytes())
        except FileNotFoundError:
            return
        if noted["write"] != self._number + 1:
            return
        for path, length in noted["files"].items():
            if not self._is_ours(path):
                continue
            if os.path.exists(path) and os.path.getsize(path) > length:
                os.truncate(path, length)

    def write(self, records: Sequence[Record]) -> list[str | None]:
        """Write the records; the reason for each whose path is not open.  Raises ``OSError``."""
        outcomes: list[str | None] = [None] * len(records)
        by_path: dict[str, list[bytes]] = {}
        places: dict[str, list[int]] = {}
        for at, record in enumerate(records):
            try:
                path = path_of(self._access, record.options["file.uri"])
                if not record.options["file.uri"]:
                    outcomes[at] = 'option "file.uri" is empty'
                    continue
                if (reason := self._objection(path)) is not None:
                    outcomes[at] = reason
                    continue
                if os.path.isdir(path):
                    outcomes[at] = f"{path} is a directory"
                    continue
            except (MeshError, ValueError, OSError) as error:
                outcomes[at] = str(error)
                continue
            by_path.setdefault(path, []).append(record.payload + self._end)
            places.setdefault(path, []).append(at)
        while True:
            try:
                if self._replaces:
                    self._replace(by_path)
                else:
                    self._append(by_path)
                break
            except _PathError as error:
                del by_path[error.path]
                for at in places[error.path]:
                    outcomes[at] = str(error)
        self._number += 1
        return outcomes

    def _replace(self, by_path: Mapping[str, Sequence[bytes]]) -> None:
        for path, payloads in by_path.items():
            with _of_path(path):
                _write_whole(Path(path), self._header + payloads[-1])

    def _append(self, by_path: Mapping[str, Sequence[bytes]]) -> None:
        lengths = {}
        for path in by_path:
            with _of_path(path):
                lengths[path] = os.path.getsize(path) if os.path.exists(path) else 0
        self._journal.parent.mkdir(parents=True, exist_ok=True)
        noted = {"write": self._number + 1, "files": lengths}
        _write_whole(self._journal, orjson.dumps(noted))
        try:
            for path, payloads in by_path.items():
                with _of_path(path):
                    data = b"".join(payloads if lengths[path] else [self._header, *payloads])
                    _write_more(Path(path), data)
        except OSError:
            self._undo()
            raise

    def close(self) -> None:
        """No file is open between writes."""


class _PathError(OSError):
    """An event's path can't be written, and others can."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(0, f"{path}: {reason}")
        self.path = path

    def __str__(self) -> str:
        return str(self.strerror)


@contextmanager
def _of_path(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if not is_of_path(error) and not isinstance(error, FileExistsError):
            raise
        raise _PathError(path, error.strerror or str(error)) from error


def _write_more(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _write_whole(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


class RemoteFile:
    """Appends payloads to one file."""

    def __init__(self, context: Context, state: JsonMapping | None, end: bytes) -> None:
        options = context.options
        self._files: RemoteFiles = remote_files(str(options["file.uri"]), options, context.access)
        self._end, self._header = end, context.header
        self._path = self._files.path(str(options["file.uri"]))
        #: Bytes of the file beyond the length; None if they are not known.
        self._beyond: int | None = None
        try:
            length = (state or {}).get("length")
            if length is None and not options.get("append"):
                self._files.replace(self._path, b"")
            self._length = self._size() if length is None else int(length)
            self._look()
        except OSError:
            self._files.close()
            raise

    @property
    def state(self) -> JsonMapping:
        """Length of the file, as far as the payloads are written."""
        return {"length": self._length}

    def _size(self) -> int:
        state = self._files.find(self._path)
        return state.size if state is not None else 0

    def _look(self) -> int:
        size = self._size()
        if size < self._length:
            reason = f"it has {size} bytes, and {self._length} were written"
            raise OSError(0, reason, self._path)
        self._beyond = size - self._length
        return self._beyond

    def write(self, records: Sequence[Record]) -> list[str | None]:
        """Append what the file does not have yet.  Raises ``OSError``."""
        data = b"".join(record.payload + self._end for record in records)
        if not self._length:
            data = self._header + data
        beyond = self._look() if self._beyond is None else self._beyond
        # After a failure the size says how much of it is there.
        self._beyond = None
        if data[beyond:]:
            self._files.append(self._path, data[beyond:])
        self._length += len(data)
        self._beyond = max(0, beyond - len(data))
        return [None] * len(records)

    def close(self) -> None:
        """Disconnect."""
        self._files.close()


class RemoteMany:
    """Replaces the file of each event; a repeat writes the same again."""

    def __init__(self, context: Context, state: JsonMapping | None, end: bytes) -> None:
        uri = str(context.options["file.uri"])
        self._files: RemoteFiles = remote_files(uri, context.options, context.access)
        self._end, self._header = end, context.header

    @property
    def state(self) -> JsonMapping:
        """Nothing but the position."""
        return {}

    def write(self, records: Sequence[Record]) -> list[str | None]:
        """Write the last payload of each file; the reason for each whose path is refused."""
        outcomes: list[str | None] = []
        last: dict[str, tuple[bytes, list[int]]] = {}
        for at, record in enumerate(records):
            # No URI any more: an attribute may have any character.
            path = record.options["file.uri"].partition("://")[2].partition("/")[2]
            reason = refusal(path)
            outcomes.append(reason)
            if reason is None:
                _, places = last.get(path, (b"", []))
                last[path] = record.payload, [*places, at]
        for path, (payload, places) in last.items():
            try:
                self._files.replace(path, self._header + payload + self._end)
            except OSError as error:
                if not is_of_path(error):
                    raise
                for at in places:
                    outcomes[at] = f"{path}: {error.strerror}"
        return outcomes

    def close(self) -> None:
        """Disconnect."""
        self._files.close()


def refusal(path: str) -> str | None:
    """The reason against a path that an event has made; None for a good one."""
    if any(ord(one) < 32 for one in path) or not posixpath.basename(path):
        return f"{path!a} is no path of a file"
    if ".." in path.split("/") or path.startswith("/"):
        return f"{path} leads out of the directory"
    return None


class FileSink:
    """See ``mesh.connect.contract.Sink``."""

    writes_header = True

    def __init__(self) -> None:
        self.state: JsonMapping | None = {}
        self._files: OneFile | ManyFiles | RemoteFile | RemoteMany | None = None

    async def open(self, context: Context, state: JsonMapping | None) -> None:
        """Open the file, and remove what was written after the stored position."""
        uri = str(context.options["file.uri"])
        reason = sink_objection(context.options)
        if reason:
            raise MeshError("MESH-C131", f"sink file can't be opened: {reason}")
        # A line of CSV has its end in the reference engine, with and without the option.
        is_line = context.options.get("add.line.separator") or context.content_type == "text/csv"
        end, is_dynamic = b"\n" if is_line else b"", "{{" in uri
        files: OneFile | ManyFiles | RemoteFile | RemoteMany
        try:
            if scheme_of(uri):
                remote = RemoteMany if is_dynamic else RemoteFile
                files = await in_thread(remote, context, state, end)
            else:
                files = (ManyFiles if is_dynamic else OneFile)(context, state, end)
        except ValueError as error:
            raise MeshError("MESH-C131", f"sink file can't be opened: {error}") from error
        except OSError as error:
            raise UnavailableError(f"{error.filename or uri}: {error.strerror}") from error
        self._files, self.state = files, files.state

    async def check(self, context: Context) -> None:
        """Whether the file can be written; it is not opened, since that cuts it."""
        uri = str(context.options["file.uri"]).partition("{{")[0]
        if scheme_of(uri):
            return await in_thread(_check_remote, uri, context)
        path = path_of(context.access, uri or first_root(context.access))
        if not _is_writable(path):
            raise UnavailableError(f"{path} can't be written")
        return None

    async def write(self, records: Sequence[Record]) -> Sequence[str | None]:
        """Append and fsync; all records or none."""
        assert self._files is not None
        try:
            outcomes = await in_thread(self._files.write, records)
        except OSError as error:
            raise UnavailableError(f"the file can't be written: {error.strerror}") from error
        self.state = self._files.state
        return outcomes

    async def close(self) -> None:
        """Close the file."""
        files, self._files = self._files, None
        if files is not None:
            await in_thread(files.close)


class OneFile:
    """Appends payloads to one file, which may be rolled."""

    def __init__(self, context: Context, state: JsonMapping | None, end: bytes) -> None:
        self._path, self._end = path_of(context.access, context.options["file.uri"]), end
        self._header = context.header
        self._clock = SystemClock()
        self._size_max = int(context.options.get("roll.size") or 0)
        self._age_ms_max = int(context.options.get("roll.interval") or 0)
        previous = dict(state or {})
        self._rolled, self._since_ms = int(previous.get("rolled") or 0), previous.get("since")
        length = previous.get("length")
        if length is None:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
        self._file = self._opened()
        size = os.fstat(self._file).st_size
        if length is None:
            length = size if context.options.get("append") else 0
            while self._size_of(self._rolled + 1) is not None:
                self._rolled += 1
        elif self._size_of(self._rolled + 1) == length > 0:
            # The host ended after the file was renamed.
            self._rolled, self._since_ms, length = self._rolled + 1, None, 0
        self._length = int(length)
        try:
            self._look()
        except OSError:
            self.close()
            raise
        os.ftruncate(self._file, self._length)

    @property
    def state(self) -> JsonMapping:
        """Length of the file; number of rolled ones, and the time of the first payload."""
        values: JsonObject = {"length": self._length}
        if self._size_max or self._age_ms_max or self._rolled:
            values |= {"rolled": self._rolled, "since": self._since_ms}
        return values

    def _opened(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)

    def _name(self, number: int) -> str:
        stem, suffix = os.path.splitext(self._path)
        return f"{stem}-{number:06}{suffix}"

    def _size_of(self, number: int) -> int | None:
        path = self._name(number)
        return os.path.getsize(path) if os.path.exists(path) else None

    def write(self, records: Sequence[Record]) -> list[str | None]:
        """Append and fsync; nothing stays of a write that fails.  Raises ``OSError``."""
        self._look()
        if self._is_full():
            self._roll()
        data = b"".join(payload + self._end for payload in payloads_of(records))
        if not self._length:
            data = self._header + data
        view, at = memoryview(data), self._length
        try:
            while view:
                count = os.pwrite(self._file, view, at)
                view, at = view[count:], at + count
            os.fsync(self._file)
        except OSError:
            os.ftruncate(self._file, self._length)
            raise
        self._length = at
        if self._since_ms is None:
            self._since_ms = self._clock.wall_ms()
        return [None] * len(records)

    def _look(self) -> None:
        """Refuse a file that another program has cut: zeros would be in the place of the rest."""
        size = os.fstat(self._file).st_size
        if size < self._length:
            reason = f"it has {size} bytes, and {self._length} were written"
            raise OSError(0, reason, self._path)

    def _is_full(self) -> bool:
        if not self._length:
            return False
        now_ms = self._clock.wall_ms()
        if self._since_ms is not None and self._since_ms > now_ms:
            # The clock was set back.
            self._since_ms = now_ms
        age_ms = now_ms - (self._since_ms or now_ms)
        is_old = 0 < self._age_ms_max <= age_ms
        return is_old or 0 < self._size_max <= self._length

    def _roll(self) -> None:
        """Rename the file; the position that has it is stored with the next payloads."""
        os.rename(self._path, self._name(self._rolled + 1))
        os.close(self._file)
        self._file = self._opened()
        self._rolled, self._since_ms, self._length = self._rolled + 1, None, 0

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def _check_remote(uri: str, context: Context) -> None:
    """Log in to a server of files."""
    files = remote_files(uri, context.options, context.access)
    try:
        files.find(files.path(uri))
    except OSError as error:
        raise UnavailableError(f"{error.filename}: {error.strerror}") from error
    finally:
        files.close()


def _is_writable(path: str) -> bool:
    return os.access(path if os.path.exists(path) else os.path.dirname(path), os.W_OK)
