"""The interpreter of the tests, for programs that start it."""

from __future__ import annotations

import sys
from pathlib import Path


def without_blanks(directory: Path) -> str:
    """The path of this interpreter, by a link in ``directory`` if it has a blank.

    Spark finds no format of a package by itself through a path with one: see docs/connector.md.
    """
    if " " not in sys.executable:
        return sys.executable
    link = directory / "environment"
    link.symlink_to(sys.prefix)
    return str(link / "bin" / Path(sys.executable).name)
