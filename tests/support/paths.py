"""Directories of the tree that tests read."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
#: Files of cases, by package.
CASES: Final = ROOT / "tests" / "cases"
#: The app of the demo.
EXAMPLE: Final = ROOT / "examples" / "temperature.siddhi"
