"""Sink ``file``: appends payloads; the position has the length, and a start cuts back to it.

A file that has reached ``roll.size`` or ``roll.interval`` gets a number in its name, and a new one
begins.  The position has the number of such files.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mesh.clock import SystemClock
from mesh.connect.contract import UnavailableError, payloads_of
from mesh.connect.files import scheme_of, sink_objection
from mesh.errors import MeshError
from mesh.receiver.access import first_root, path_of
from mesh.receiver.types.file_many import ManyFiles
from mesh.receiver.types.file_remote import RemoteFile, RemoteMany
from mesh.receiver.types.file_servers import remote_files
from mesh.receiver.types.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.connect.contract import Context, Record
    from mesh.model.values import JsonMapping, JsonObject


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
        self._file = self._opened()
        size = os.fstat(self._file).st_size
        if length is None:
            length = size if context.options.get("append") else 0
            while self._size_of(self._rolled + 1) is not None:
                self._rolled += 1
        elif self._size_of(self._rolled + 1) == length > 0:
            # The host ended after the file was renamed.
            self._rolled, self._since_ms, length = self._rolled + 1, None, 0
        elif size < length:
            self.close()
            raise OSError(0, f"it has {size} bytes, and {length} were written", self._path)
        self._length = int(length)
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

    def _is_full(self) -> bool:
        if not self._length:
            return False
        age_ms = self._clock.wall_ms() - (self._since_ms or self._clock.wall_ms())
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
