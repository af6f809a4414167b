"""Source ``fileeventlistener``: files of a directory that were created, modified or removed.

The position has the state of each file as the last stored look has found it.  A look compares the
directory with it, so that a source that was away reports the differences.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

import orjson

from mesh.connect.access import words
from mesh.connect.contract import Batch, UnavailableError
from mesh.connect.files import listener_objection
from mesh.errors import MeshError
from mesh.receiver.types.file_source import POSITION_BYTES_MAX, STATE_BYTES
from mesh.receiver.types.file_systems import LocalFiles
from mesh.receiver.types.schedule import Schedule
from mesh.receiver.types.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mesh.connect.contract import Context
    from mesh.model.values import JsonMapping

#: Events of a batch.
_TOGETHER: Final = 1000

State = list[int]


def differences(
    before: Mapping[str, Sequence[int]], now: Mapping[str, Sequence[int]], unknown: set[str]
) -> list[tuple[str, str]]:
    """Name and status of each file that differs, by name.

    Args:
        before: state of each file by name, as it was reported.
        now: the same at present.
        unknown: names of files whose state can't be read; they count as unchanged.
    """
    changes = []
    for name in sorted({*before, *now} - unknown):
        if name not in now:
            changes.append((name, "removed"))
        elif name not in before:
            changes.append((name, "created"))
        elif list(before[name]) != list(now[name]):
            changes.append((name, "modified"))
    return changes


class FileEventSource:
    """See ``mesh.connect.contract.Source``."""

    #: Why a file of the directory is passed over.
    problem: str | None = None

    async def open(self, context: Context, position: JsonMapping | None) -> None:
        """Continue after the stored look."""
        options = context.options
        reason = listener_objection(options)
        if reason:
            raise MeshError("MESH-C131", f"source fileeventlistener can't be opened: {reason}")
        self._files = LocalFiles(context.access)
        self._root = self._files.path(str(options["dir.uri"]))
        self._only = set(words(options.get("file.name.list")))
        self._schedule = Schedule(int(options["monitoring.interval"]), None)
        stored = (position or {}).get("files") or {}
        self._states: dict[str, State] = {name: list(state) for name, state in stored.items()}

    async def read(self) -> Batch | None:
        """The next differences; waits for the next look if there are none."""
        if self._schedule.is_due:
            try:
                batch = await in_thread(self._look)
            except OSError as error:
                raise UnavailableError(f"{error.filename}: {error.strerror}") from error
            if batch is not None:
                return batch
            self._schedule.end_look()
        await self._schedule.rest()
        return None

    def _look(self) -> Batch | None:
        now: dict[str, State] = {}
        unknown: set[str] = set()
        problem: str | None = None
        size = 0
        for name, path in self._paths():
            try:
                state = self._state(name, path)
            except (OSError, MeshError, UnavailableError) as error:
                closed = f"{name}{os.sep}"
                unknown |= {one for one in self._states if one == name or one.startswith(closed)}
                unknown.add(name)
                problem = problem or f"{error}"
                continue
            if state is not None:
                now[name] = state
                size += len(orjson.dumps(name)) + STATE_BYTES
        if size > POSITION_BYTES_MAX:
            raise UnavailableError(f"{self._root} has too many files for one position: {len(now)}")
        self.problem = problem
        changes = differences(self._states, now, unknown)[:_TOGETHER]
        if not changes:
            return None
        for name, status in changes:
            if status == "removed":
                del self._states[name]
            else:
                self._states[name] = now[name]
        events = [self._event(name, status) for name, status in changes]
        names = [f"{status} {name} {now.get(name)}" for name, status in changes]
        payloads = [orjson.dumps(event) for event in events]
        return Batch(payloads, {"files": dict(self._states)}, events, names)

    def _state(self, name: str, path: str) -> State | None:
        """State of a file; None for what is none.

        Raises:
            OSError, MeshError, UnavailableError: it can't be read, or is not open to connectors.
        """
        info = os.lstat(path)
        if stat.S_ISDIR(info.st_mode):
            # One that can't be listed.
            raise PermissionError(f"{path} can't be listed")
        if stat.S_ISLNK(info.st_mode):
            target = self._files.find(self._files.checked(path))
            return list(target) if target is not None else None
        if not stat.S_ISREG(info.st_mode):
            return None
        state = [info.st_ino, info.st_size, info.st_mtime_ns]
        if self._states.get(name) != state:
            self._files.checked(path)
        return state

    def _event(self, name: str, status: str) -> dict[str, str]:
        path = os.path.join(self._root, name)
        return {"filepath": path, "filename": os.path.basename(name), "status": status}

    def _paths(self) -> Iterator[tuple[str, str]]:
        """Names below the root, and paths, of files and of directories that can't be listed."""
        directories = [self._root]
        # No recursion: others make directories as deep as they like.
        while directories:
            directory = directories.pop()
            try:
                paths = self._files.paths(directory)
            except FileNotFoundError:
                if directory == self._root:
                    raise
                continue
            except OSError:
                if directory == self._root:
                    raise
                yield os.path.relpath(directory, self._root), directory
                continue
            for path in paths:
                name = os.path.relpath(path, self._root)
                if self._only and name not in self._only:
                    continue
                try:
                    # A link to a directory is not followed.
                    is_directory = stat.S_ISDIR(os.lstat(path).st_mode)
                except FileNotFoundError:
                    continue
                except OSError:
                    is_directory = False
                if is_directory:
                    directories.append(path)
                else:
                    yield name, path

    async def committed(self, position: JsonMapping) -> None:
        """Nothing is done to files."""

    async def close(self) -> None:
        """No file is open."""
