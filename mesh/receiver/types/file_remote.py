"""Sink ``file`` on a server of files; see ``mesh.receiver.types.file_sink``.

Such a server can't cut a file back.  What a file has beyond the stored position was written by an
earlier attempt: a repeat writes the same bytes, and leaves as many of them out.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from mesh.receiver.types.file_servers import remote_files
from mesh.receiver.types.file_systems import is_of_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.connect.contract import Context, Record
    from mesh.model.values import JsonMapping
    from mesh.receiver.types.file_systems import RemoteFiles


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
