"""Sink ``file``: appends payloads; the position has the length, and a start cuts back to it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Any

from mesh.connect.contract import UnavailableError
from mesh.receiver.access import path_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.connect.contract import Context, Record


class FileSink:
    """See ``mesh.connect.contract.Sink``."""

    def __init__(self) -> None:
        self.state: Mapping[str, Any] | None = {}
        self._file: int | None = None

    async def open(self, context: Context, state: Mapping[str, Any] | None) -> None:
        """Open the file, and remove what was written after the stored length."""
        path = path_of(context.access, context.options["file.uri"])
        self._end = b"\n" if context.options.get("add.line.separator") else b""
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
            length = os.fstat(self._file).st_size
            if state:
                if length < state["length"]:
                    raise UnavailableError(
                        f"{path} has {length} bytes, and {state['length']} were written"
                    )
                length = int(state["length"])
            elif not context.options.get("append"):
                length = 0
            os.ftruncate(self._file, length)
        except OSError as error:
            raise UnavailableError(f"{path}: {error.strerror}") from error
        self._length = length
        self.state = {"length": length}

    async def check(self, context: Context) -> None:
        """Whether the file can be written; it is not opened, since that cuts it."""
        path = path_of(context.access, context.options["file.uri"])
        if not _is_writable(path):
            raise UnavailableError(f"{path} can't be written")

    async def write(self, records: Sequence[Record]) -> Sequence[str | None]:
        """Append and fsync; all records or none."""
        data = b"".join(record.payload + self._end for record in records)
        try:
            await asyncio.to_thread(self._append, data)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._length)
            raise UnavailableError(f"the file can't be written: {error.strerror}") from error
        self._length += len(data)
        self.state = {"length": self._length}
        return [None] * len(records)

    @property
    def _descriptor(self) -> int:
        assert self._file is not None
        return self._file

    def _append(self, data: bytes) -> None:
        view, at = memoryview(data), self._length
        while view:
            count = os.pwrite(self._descriptor, view, at)
            view, at = view[count:], at + count
        os.fsync(self._descriptor)

    async def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


def _is_writable(path: str) -> bool:
    return os.access(path if os.path.exists(path) else os.path.dirname(path), os.W_OK)
