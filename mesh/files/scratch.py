"""Scratch directories of one process each, removed also after a kill.

A directory ``mesh-KIND-XXXX`` in the system's temporary directory belongs to one process.  Beside
its content it has a file whose lock that process holds; the kernel drops the lock when the process
ends, however it does.  A process that makes a scratch directory first removes those whose lock is
free (``sweep``).  A worker's sessions have such directories in ``worker.state_dir`` (``owned``).
"""

from __future__ import annotations

import atexit
import fcntl
import glob
import os
import shutil
import stat
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

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
    with owned(SYSTEM, f"{_PREFIX}{kind}-") as path:
        yield path


@contextmanager
def owned(parent: Path, prefix: str) -> Iterator[Path]:
    """A new directory in ``parent``, with mode 0700; removed at the end of the context.

    Directories there that ended processes have left are removed first.
    """
    sweep(parent, prefix if parent != SYSTEM else _PREFIX)
    path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    # Locked before it has its name: a sweep must not see it unlocked.
    unnamed = path / f"{_LOCK}.new"
    descriptor = os.open(unnamed, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        unnamed.rename(path / _LOCK)
        yield path
    finally:
        with suppress(OSError):
            _remove(path)
        os.close(descriptor)


def is_scratch(path: str) -> bool:
    """Whether a path is in a scratch directory of a process of the mesh."""
    directory = path
    while True:
        if os.path.lexists(os.path.join(directory, _LOCK)):
            return True
        above = os.path.dirname(directory)
        if above == directory:
            return os.path.basename(path) == _LOCK
        directory = above


def for_process(kind: str) -> Path:
    """A new directory that is removed when this process ends."""
    return _until_exit(directory(kind))


def owned_by_process(parent: Path, prefix: str) -> Path:
    """As ``owned``, removed when this process ends."""
    return _until_exit(owned(parent, prefix))


def _until_exit(context: AbstractContextManager[Path]) -> Path:
    stack = ExitStack()
    path = stack.enter_context(context)
    atexit.register(stack.close)
    return path


def sweep(parent: Path | None = None, prefix: str = _PREFIX) -> None:
    """Remove directories of ended processes of this user.

    Args:
        parent: where they are; the system's temporary directory by default.  Only directories
            with an owner's lock file are removed, and only if no process holds the lock.
        prefix: of their names.
    """
    for lock in (parent or SYSTEM).glob(f"{glob.escape(prefix)}*/{_LOCK}"):
        with suppress(OSError):
            # Another user could exchange a directory of theirs while it is removed.
            if all(one.lstat().st_uid == os.getuid() for one in (lock, lock.parent)):
                _remove_if_free(lock)


def _remove_if_free(lock: Path) -> None:
    descriptor = os.open(lock, os.O_WRONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(lock.parent)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    """Remove a directory, its lock file last: a later sweep finds what could not be removed."""
    for one in path.iterdir():
        if one.name == _LOCK:
            continue
        if one.is_dir() and not one.is_symlink():
            shutil.rmtree(one, ignore_errors=True)
        else:
            one.unlink(missing_ok=True)
    # A process of a killed owner may still write.
    if all(one.name == _LOCK for one in path.iterdir()):
        shutil.rmtree(path, ignore_errors=True)


def private(path: Path) -> Path:
    """A directory of this user that no other user can write to or read; created if missing.

    Raises:
        OSError: it can't be created, is no directory, or belongs to another user.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    info = path.lstat()
    if not stat.S_ISDIR(info.st_mode):
        raise NotADirectoryError(f"{path} is a link")
    if info.st_uid != os.getuid():
        raise PermissionError(f"{path} belongs to another user")
    if info.st_mode & 0o077:
        path.chmod(0o700)
    return path


def user_cache(environment: Mapping[str, str] = os.environ) -> Path:
    """The user's directory of programs and compiled code that are kept between runs.

    That is ``CACHE_DIRECTORY``, which systemd sets for a unit, or ``mesh`` below ``XDG_CACHE_HOME``
    or ``~/.cache``.

    Raises:
        OSError: it can't be created or written, or it is not safe (``trusted``).
    """
    named = environment.get("CACHE_DIRECTORY", "").partition(":")[0]
    below = environment.get("XDG_CACHE_HOME") or Path("~", ".cache").expanduser()
    path = trusted(Path(named) if named else Path(below, "mesh"))
    with tempfile.TemporaryFile(dir=path):
        return path


def trusted(path: Path, *, beside: Path | None = None) -> Path:
    """A directory whose content may be executed: no other user can write to it; made if missing.

    Args:
        path: the directory.
        beside: a directory whose content is executed anyway; its owner and the users who may write
            to it are trusted.

    Raises:
        OSError: it can't be created, belongs to another user, or others may write to it.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    info = path.stat()
    owners, writers = {0, os.getuid()}, 0
    if beside is not None:
        also = beside.stat()
        owners, writers = owners | {also.st_uid}, also.st_mode
    if info.st_uid not in owners:
        raise PermissionError(f"{path} belongs to another user")
    if info.st_mode & 0o022 & ~writers:
        raise PermissionError(f"other users may write to {path}")
    return path


def redirect(path: Path) -> None:
    """Have temporary files of this process, and of those that it starts, made in ``path``."""
    path.mkdir(parents=True, exist_ok=True)
    os.environ["TMPDIR"] = str(path)
    tempfile.tempdir = str(path)
