"""Leftovers of a worker's processes in a directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def inside(directory: Path) -> list[Path]:
    """The content but for the agent's own file of settings, which goes with the agent."""
    found = directory.iterdir() if directory.exists() else ()
    return [one for one in found if not one.name.startswith("mesh-stores-")]
