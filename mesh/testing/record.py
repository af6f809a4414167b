"""``python -m mesh.testing.record --oracle PROGRAM [FILE ..]``: the engine's answers, anew.

Each FILE is a file of cases without answers, and its name is the category: its cases are added to
the category's file in ``tests/cases/conformance``, or take the place of those with their names.
Without a FILE every category is asked again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mesh.testing.conformance.cases import read
from mesh.testing.recorded import record

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m mesh.testing.record", description=__doc__)
    parser.add_argument("--oracle", type=Path, required=True, help="program that asks the engine")
    parser.add_argument("--into", type=Path, default=Path("tests/cases/conformance"))
    parser.add_argument("files", type=Path, nargs="*", help="cases to add, a file a category")
    given = parser.parse_args(arguments)
    sources = {path.stem: read(path) for path in given.files}
    categories = sources or {path.stem: [] for path in sorted(given.into.glob("*.jsonl"))}
    for category, new in categories.items():
        count, left_out = record(given.oracle, given.into / f"{category}.jsonl", new)
        sys.stdout.write(f"{category}: {count} cases\n")
        for name in left_out:
            sys.stdout.write(f"    the engine does not answer: {name}\n")


if __name__ == "__main__":
    main()
