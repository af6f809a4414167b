"""Files that their owner alone may read."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from mesh.files.whole_files import replacing


def user_directory() -> Path:
    """The directory of the user's commands, with addresses and passwords of clusters."""
    below = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(below, "mesh")


def write_private(path: Path, text: str) -> None:
    """Write a file of mode 0600; a reader never sees half of it."""
    temp_path = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    os.close(os.open(temp_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    with replacing(path, temp_path) as file:
        file.write(text.encode())
