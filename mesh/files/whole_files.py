"""Files that are written as a whole: readers see all of one or nothing, and so does a full disk."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Errors of a disk, or of a quota, that is full.
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def replacing(path: Path, temporary: Path) -> Iterator[IO[bytes]]:
    """A new file that takes the place of ``path`` at the end of the context.

    After a failure there is nothing of it, so that it does not keep a disk full.

    Raises:
        OSError: it names ``path``.
    """
    try:
        with naming(path):
            with temporary.open("wb") as file:
                yield file
            temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Have an ``OSError`` of the context name ``path``, as those of writes name nothing."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


def is_full(error: BaseException) -> bool:
    """Whether an error says that a disk of this machine is full."""
    return isinstance(error, OSError) and error.errno in _FULL
