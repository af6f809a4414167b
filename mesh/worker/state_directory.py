"""Directories of a worker's local state: ``worker.state_dir/worker-ID/session-PID-XXXX``.

``worker.state_dir`` may be a directory with other content, or one that several workers share.  So
nothing is removed but the directories of sessions that have ended (``mesh.files.scratch``).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from mesh.errors import MeshError
from mesh.files import scratch

#: Directory of a session with one for each of its instances.
INSTANCES: Final = "instances"
_SESSION: Final = "session-"


def for_worker(root: str, worker: str) -> Path:
    """The directory of a worker's sessions, which only this user can read.

    Args:
        root: the setting ``worker.state_dir``; empty for a directory of this process.
        worker: the worker's name.

    Raises:
        MeshError: MESH-S130 if it can't be made or belongs to another user.
    """
    try:
        parent = Path(root).absolute() if root else scratch.for_process("worker")
        return scratch.private(parent / f"worker-{worker}")
    except OSError as error:
        raise MeshError(
            "MESH-S130",
            f'directory "{root}" can\'t hold the local state of worker "{worker}"',
            detail=f"{error}.",
            hint="Set worker.state_dir to a directory that this user may write to.",
        ) from error


def for_session(directory: Path) -> Path:
    """A new directory for this process in that of its worker, removed when the process ends.

    Those of killed sessions are removed first.
    """
    parent = scratch.private(directory)
    return scratch.owned_by_process(parent, f"{_SESSION}{os.getpid()}-")


def instances_of(directory: Path, pid: int) -> Path | None:
    """The directory of the instances of session ``pid``; None if the session has none yet."""
    return next(directory.glob(f"{_SESSION}{pid}-*/{INSTANCES}"), None)


def remove_ended(directory: Path) -> None:
    """Remove the directories of sessions that have ended."""
    scratch.sweep(directory, _SESSION)
