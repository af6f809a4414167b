"""Files of the mesh itself that no app may use: settings, logins, keys, users, states.

Those that settings name, those of the user's commands, and the scratch directories of processes.
"""

from __future__ import annotations

import os
from dataclasses import fields
from typing import TYPE_CHECKING

from mesh import scratch

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from mesh.settings import Settings


def of_settings(settings: Settings) -> tuple[str, ...]:
    """The paths of files and directories, with links resolved."""
    entries = [str(_of_commands()), os.environ.get("CREDENTIALS_DIRECTORY", "")]
    for section in fields(settings):
        values = getattr(settings, section.name)
        for one in fields(values):
            if one.metadata["is_mesh_file"]:
                entries += str(getattr(values, one.name)).split(",")
    # A store of states may be a URI, or the word jetstream.
    paths = (one.strip().removeprefix("file://") for one in entries)
    return tuple(dict.fromkeys(os.path.realpath(p) for p in paths if _is_path(p)))


def is_protected(path: str, roots: Collection[str]) -> bool:
    """Whether a resolved path is one of the mesh's own, or below one of them."""
    return any(is_below(path, one) for one in roots) or scratch.is_scratch(path)


def is_below(path: str, directory: str) -> bool:
    """Whether a resolved path is a directory or below it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _is_path(text: str) -> bool:
    return bool(text) and text != "jetstream" and "://" not in text


def _of_commands() -> Path:
    from mesh.private_files import user_directory

    return user_directory()
