"""``python -m tools.stored_conformance``: the engine's recorded cases with their rows in SQLite.

Each case with a table or an aggregation is played with ``@store``, once for each way to keep rows,
and has to give the engine's answer; where ours differs from it for a reason, that of the app
without ``@store``.  What a store does otherwise on purpose is taken out of a case that differs.
The exit code is 1 if a case differs nevertheless.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import tempfile
from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mesh.testing.conformance.answers import Likeness, compact, likeness
from mesh.testing.conformance.direct import answer
from tools import engine_answers
from tools.fuzz.in_stores import OPTIONS, STORE, comparable, has_own_order, in_store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tools.engine_answers import Recorded

CASES = Path(__file__).parents[1] / "tests/cases/conformance"
_STORED = re.compile(r"\bdefine (table|aggregation)\b")


def _goes_back(case: Mapping[str, Any]) -> bool:
    """Whether the state becomes an earlier one: that of a database stays."""
    return any("restart" in step or "restore" in step for step in case["inputs"])


class Outcome(StrEnum):
    """Comparison of the answer of an app with a store."""

    SAME = "as the engine"
    #: Nulls in keys, and the time of purges.
    PURPOSE = "as without a store, but for nulls in keys and purges"
    REFUSED = "refused"
    DIFFERENT = "different"


def cases() -> list[tuple[Recorded, str, bool]]:
    """Case, options of ``@store``, and whether ours has the engine's answer without a store."""
    reasons = engine_answers.differences(CASES)
    return [
        (case, options, case.name not in reasons)
        for case in engine_answers.load(CASES)
        if _STORED.search(case.case["app"]) and not _goes_back(case.case)
        # The options are for tables.
        for options in (OPTIONS if "define table" in case.case["app"] else OPTIONS[:1])
    ]


def outcome(case: Recorded, options: str, directory: Path, *, is_engines: bool) -> Outcome:
    """Play a case in new files of SQLite in ``directory``."""
    asked = {**case.case, STORE: options}
    wanted = case.expect if is_engines else compact(answer(case.case))
    like = _likeness(asked, wanted, directory / "first.db")
    if like is Likeness.DIFFERENT and (other := comparable(asked)) is not asked:
        like = _likeness(other, compact(answer(other)), directory / "second.db")
        return Outcome.PURPOSE if like is Likeness.SAME else Outcome.DIFFERENT
    match like:
        case Likeness.SAME:
            return Outcome.SAME
        case Likeness.UNSUPPORTED:
            return Outcome.REFUSED
        case _:
            return Outcome.DIFFERENT


def _likeness(asked: Mapping[str, Any], wanted: Mapping[str, Any], file: Path) -> Likeness:
    """Likeness of both answers; rows may be in the order of the database."""
    like = likeness(compact(answer(in_store(asked, file))), wanted)
    return Likeness.SAME if like is Likeness.ORDER and has_own_order(asked) else like


def main(arguments: Sequence[str] | None = None) -> int:
    """Play all cases, or each n-th; name those that differ, and count all."""
    parser = argparse.ArgumentParser(prog="python -m tools.stored_conformance", description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="play each n-th case only")
    given = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    counts: Counter[Outcome] = Counter()
    for case, options, is_engines in cases()[:: given.every]:
        with tempfile.TemporaryDirectory() as directory:
            found = outcome(case, options, Path(directory), is_engines=is_engines)
        counts[found] += 1
        if found is Outcome.DIFFERENT:
            sys.stdout.write(f"{case.name}{options}\n")
            sys.stdout.flush()
    for found, count in counts.most_common():
        sys.stdout.write(f"{count:6} {found}\n")
    return int(counts[Outcome.DIFFERENT] > 0)


if __name__ == "__main__":
    sys.exit(main())
