"""Sink ``file`` whose path depends on the event; see ``mesh.receiver.types.file_sink``.

The length of each file before a write is in a journal beside the files.  A start undoes the write
that the stored position does not have.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from mesh.errors import MeshError
from mesh.receiver.access import first_root, path_of
from mesh.receiver.types.file_systems import is_of_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mesh.connect.contract import Context, Record
    from mesh.model.values import JsonMapping

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
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
