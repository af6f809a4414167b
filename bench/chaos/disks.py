"""Small disks that a scenario can fill; needs root, for mounts."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Final

#: Size of a disk: enough for the streams of an app, and their reserved bounds.
_BYTES: Final = 1 << 30
_FILLER: Final = "filler"


def why_not() -> str:
    """The reason why there can't be any; empty if there can."""
    if os.geteuid() != 0:
        return "needs root for mounts"
    with tempfile.TemporaryDirectory() as name:
        done = _mount(Path(name))
        if done.returncode:
            return f"disks can't be mounted: {done.stderr.decode().strip()}"
        _unmount(Path(name))
    return ""


class Disks:
    """Mounted file systems of a size, each with nothing on it; use it as a context."""

    def __init__(self) -> None:
        self._mounted: list[Path] = []

    def __enter__(self) -> Disks:
        return self

    def __exit__(self, *_: object) -> None:
        for path in self._mounted:
            _unmount(path)

    def mount(self, path: Path) -> None:
        """Mount a disk on a directory, which is created."""
        path.mkdir(parents=True)
        done = _mount(path)
        if done.returncode:
            raise OSError(done.stderr.decode().strip())
        self._mounted.append(path)

    @staticmethod
    def fill(path: Path) -> None:
        """Leave no room on a disk."""
        with (path / _FILLER).open("wb") as filler:
            size = 1 << 26
            while size >= 1 << 12:
                try:
                    os.posix_fallocate(filler.fileno(), filler.seek(0, os.SEEK_END), size)
                except OSError:
                    size //= 2

    def free(self) -> None:
        """Undo ``fill`` on all disks."""
        for path in self._mounted:
            (path / _FILLER).unlink(missing_ok=True)


def _mount(path: Path) -> subprocess.CompletedProcess[bytes]:
    command = ["mount", "-t", "tmpfs", "-o", f"size={_BYTES},mode=0700", "tmpfs", str(path)]
    return subprocess.run(command, capture_output=True, check=False)


def _unmount(path: Path) -> None:
    # Lazily: a process that is about to end may still have a file open.
    subprocess.run(["umount", "-l", str(path)], capture_output=True, check=False)
