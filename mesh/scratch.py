"""Scratch directories in the system's temporary directory, removed also after a kill.

A directory ``mesh-KIND-XXXX`` belongs to one process.  Beside its content it has a file whose lock
that process holds; the kernel drops the lock when the process ends, however it does.  A process
that makes a scratch directory first removes those whose lock is free (``sweep``).
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX: Final = "mesh-"
#: Locked by the owner; a directory without it is not ours to remove.
_LOCK: Final = ".mesh-owner"
#: Where scratch directories are made, also after ``redirect``.
SYSTEM: Final = Path(tempfile.gettempdir())


@contextmanager
def directory(kind: str) -> Iterator[Path]:
    """A new directory that is removed at the end of the context.

    Args:
        kind: what it is for; part of its name.
    """
    sweep()
    path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-", dir=SYSTEM))
    # Locked before it has its name: a sweep must not see it unlocked.
    unnamed = path / f"{_LOCK}.new"
    descriptor = os.open(unnamed, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        unnamed.rename(path / _LOCK)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def for_process(kind: str) -> Path:
    """A new directory that is removed when this process ends."""
    stack = ExitStack()
    path = stack.enter_context(directory(kind))
    atexit.register(stack.close)
    return path


def sweep() -> None:
    """Remove the scratch directories of this user whose processes have ended."""
    for lock in SYSTEM.glob(f"{_PREFIX}*/{_LOCK}"):
        with suppress(OSError):
            if lock.stat(follow_symlinks=False).st_uid == os.getuid():
                _remove_if_free(lock)


def _remove_if_free(lock: Path) -> None:
    descriptor = os.open(lock, os.O_WRONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(lock.parent, ignore_errors=True)
    finally:
        os.close(descriptor)


def redirect(path: Path) -> None:
    """Have temporary files of this process, and of those that it starts, made in ``path``."""
    path.mkdir(parents=True, exist_ok=True)
    os.environ["TMPDIR"] = str(path)
    tempfile.tempdir = str(path)
