"""``python -m tools.record --oracle PROGRAM [FILE ..]``: record the engine's answers again.

Each FILE is a file of cases without answers, and its name is the category: its cases are added to
the category's file in ``tests/cases/conformance``, or replace those with their names. Without a
FILE every category is recorded again.

``--not-yet`` uses no engine: it runs the cases, and lists those on which we differ without a
recorded reason, as ``not yet`` in ``differences.txt``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mesh.testing.conformance.answers import Likeness, compact, likeness
from mesh.testing.conformance.cases import read
from tools.conformance.__main__ import answer_all
from tools.engine_answers import NOT_YET, differences, load, record

if TYPE_CHECKING:
    from collections.abc import Sequence

_HEAD: Final = (
    "# Cases on which we and the reference engine differ: category/name | reason.\n"
    '# "not yet" is no reason to stay; every other one is what we chose, and why.'
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.record", description=__doc__)
    parser.add_argument("--oracle", type=Path, help="program that asks the engine")
    parser.add_argument("--into", type=Path, default=Path("tests/cases/conformance"))
    parser.add_argument("files", type=Path, nargs="*", help="cases to add, a file a category")
    parser.add_argument("--not-yet", action="store_true", help="write differences.txt anew")
    parser.add_argument("--jobs", type=int, default=1, help="processes, for --not-yet")
    given = parser.parse_args(arguments)
    if given.not_yet:
        sys.stdout.write(f"{list_not_yet(given.into, given.jobs)} cases differ\n")
        return
    if given.oracle is None:
        parser.error("--oracle or --not-yet")
    sources = {path.stem: read(path) for path in given.files}
    categories = sources or {path.stem: [] for path in sorted(given.into.glob("*.jsonl"))}
    for category, new in categories.items():
        count, left_out = record(given.oracle, given.into / f"{category}.jsonl", new)
        sys.stdout.write(f"{category}: {count} cases\n")
        for name in left_out:
            sys.stdout.write(f"    the engine does not answer: {name}\n")


def list_not_yet(directory: Path, jobs: int) -> int:
    """Write ``differences.txt`` from the results of the cases; returns the number of differences.

    Recorded reasons stay; ``not yet`` is computed.
    """
    cases = load(directory)
    answered = answer_all([dict(case.case) for case in cases], jobs)
    reasons = differences(directory)
    kept = {}
    for case, ours in zip(cases, answered, strict=True):
        if likeness(compact(ours), case.expect) is not Likeness.SAME:
            kept[case.name] = reasons.get(case.name, NOT_YET)
    path = directory / "differences.txt"
    head = [line for line in _lines(path) if line.startswith("#")] or [_HEAD]
    named = [f"{name} | {kept[name]}" for name in sorted(kept)]
    path.write_text("\n".join([*head, *named]) + "\n", encoding="utf-8")
    return len(kept)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


if __name__ == "__main__":
    main()
