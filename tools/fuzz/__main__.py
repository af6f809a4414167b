"""``python -m tools.fuzz --minutes N --oracle PROGRAM``: random apps, both engines.

Each round generates cases of every category and runs them with the engine and the operators.  It
reduces each case that differs until every part of it is needed, and keeps one case of each cause.
Differences for a reason that ``explanations`` knows, because of the engine's restarts
(``restarts``) or of the order of timers (``apart``) are only counted.  The exit code is 1 if there
was any other.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mesh.testing.conformance.answers import Likeness, compact, differences, likeness
from mesh.testing.conformance.cases import lines
from tools.conformance.pool import CasePool
from tools.engine_answers import ask
from tools.fuzz import restarts
from tools.fuzz.explanations import explain
from tools.fuzz.in_stores import has_own_order, in_store
from tools.fuzz.random_cases import CATEGORIES, random_case
from tools.fuzz.reduction import outline, reduce
from tools.fuzz.timer_ties import apart

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Case = Mapping[str, Any]

#: Of every category in a round.
_CASES_PER_ROUND: Final = 15
#: A case that needs longer than this hangs in the engine; the first ones wait for its start.
_OPTIONS: Final = ("--timeout-ms", "15000")
_FOUND: Final = (Likeness.CHUNKS, Likeness.ORDER, Likeness.DIFFERENT)
#: For invalid steps: a row that only the engine accepts, a stream that doesn't exist.
_NOT_SENT: Final = ("CaseError", "DefinitionNotExistException")
#: Beside the words of ``Likeness``: different, and meant to be.
_EXPLAINED: Final = "explained"


@dataclass(slots=True)
class Search:
    """A search for differences; ``found`` holds the smallest case of each outline."""

    oracle: Path
    pool: CasePool
    streams_only: bool = False
    deadline_s: float = 0.0
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    found: dict[str, Case] = field(default_factory=dict)
    #: Number of differences that each reason explained.
    explained: Counter[str] = field(default_factory=Counter)

    def round(self, cases: Sequence[Case]) -> Iterator[tuple[Case, list[str]]]:
        """Run both engines; yields each new difference, reduced, with its description."""
        for case, (like, said) in zip(cases, self._likeness(cases, count=True), strict=True):
            category = case["name"].split()[0]
            self.counts.setdefault(category, Counter())[like] += 1
            if like not in _FOUND or self._is_known(case) or self._is_late():
                continue
            small = reduce(case, self._shows(said))
            name = outline(small)
            if name in self.found:
                continue
            self.found[name] = small
            yield small, self._likeness([small])[0][1]

    def _is_late(self) -> bool:
        return time.monotonic() > self.deadline_s

    def _is_known(self, case: Case) -> bool:
        return any(outline(known) in outline(case) for known in self.found.values())

    def _shows(self, said: Sequence[str]) -> Any:
        # A failure of ours and a wrong answer are two findings: one does not turn into the other.
        failing = any(one.startswith(("error", "crash")) for one in said)

        def shows(cases: Sequence[Case]) -> list[bool]:
            return [
                like in _FOUND and failing == any(one.startswith(("error", "crash")) for one in now)
                for like, now in self._likeness(cases)
            ]

        return shows

    def _likeness(
        self, cases: Sequence[Case], *, count: bool = False, of_ties: bool = True
    ) -> list[tuple[str, list[str]]]:
        if not cases:
            return []
        wanted = ask(self.oracle, cases, _OPTIONS)
        ours = self._ours(cases)
        found: list[tuple[str, list[str]]] = []
        reasons: list[str | None] = []
        open_: dict[int, Case] = {}
        for number, (case, a, b) in enumerate(zip(cases, ours, wanted, strict=True)):
            like, said = self._compared(a, b)
            if like is Likeness.ORDER and has_own_order(case):
                like = Likeness.SAME
            found.append((like.value, said))
            is_to_explain = like in _FOUND and a["status"] == "ok"
            reasons.append(explain(case, b) if is_to_explain else None)
            if is_to_explain and reasons[-1] is None:
                open_[number] = case
        for number in [*self._changed_by_restarts(open_, ours)]:
            reasons[number] = restarts.REASON
            del open_[number]
        if of_ties:
            ties = dict(self._of_ties(open_, wanted))
            reasons = [ties.get(n, reason) for n, reason in enumerate(reasons)]
        for number, reason in enumerate(reasons):
            if reason is not None:
                found[number] = _EXPLAINED, []
                if count:
                    self.explained[reason] += 1
        return found

    def _ours(self, cases: Sequence[Case]) -> list[dict[str, Any]]:
        with tempfile.TemporaryDirectory() as directory:
            files = (Path(directory, f"{number}.db") for number in itertools.count())
            return self.pool.answers(
                [in_store(case, file) for case, file in zip(cases, files, strict=False)]
            )

    def _changed_by_restarts(
        self, cases: Mapping[int, Case], ours: Sequence[Case]
    ) -> Iterator[int]:
        """Those of ``cases`` that agree without restarts, and where our answer needs no restart.

        Without restarts they may still differ for a reason that is known.
        """
        played = {n: restarts.without_restarts(case) for n, case in cases.items()}
        asked = {n: case for n, case in played.items() if case is not None}
        if not asked:
            return
        wanted = ask(self.oracle, [*asked.values()], _OPTIONS)
        calm = self.pool.answers([*asked.values()])
        for number, a, b in zip(asked, calm, wanted, strict=True):
            are_alike = self._compared(a, b)[0] is Likeness.SAME or explain(asked[number], b)
            is_unmoved = self._compared(ours[number], a)[0] is Likeness.SAME
            if are_alike and is_unmoved and a["status"] == "ok" == b["status"]:
                yield number

    def _of_ties(
        self, cases: Mapping[int, Case], wanted: Sequence[Case]
    ) -> Iterator[tuple[int, str]]:
        """Those of ``cases`` that agree with times apart, and why they differ as they are."""
        asked = {n: explain(case, wanted[n], of_ties=True) for n, case in cases.items()}
        tied = {n: reason for n, reason in asked.items() if reason is not None}
        shown = self._likeness([apart(cases[n]) for n in tied], of_ties=False)
        for (number, reason), (like, _) in zip(tied.items(), shown, strict=True):
            if like in (Likeness.SAME.value, _EXPLAINED):
                yield number, reason

    def _compared(self, ours: Case, wanted: Case) -> tuple[Likeness, list[str]]:
        if wanted["status"] not in ("ok", "creation_error"):
            return Likeness.UNSUPPORTED, []  # The engine itself gives no answer.
        if self.streams_only:
            ours, wanted = {**ours, "queries": {}}, {**wanted, "queries": {}}
        found, expected = compact(ours), compact(wanted)
        if expected["status"] == "creation_error" or found["status"] == "creation_error":
            # Which apps are valid is another test's subject.
            return Likeness.UNSUPPORTED, []
        if any(kind in _NOT_SENT for kind, _ in found.get("errors", ())):
            return Likeness.UNSUPPORTED, []
        return likeness(found, expected), differences(found, expected)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 1 when there was a difference."""
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--oracle", type=Path, required=True, help="program that asks the engine")
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    parser.add_argument("--only", default="", help=f"comma list of {', '.join(CATEGORIES)}")
    parser.add_argument("--keep", type=Path, help="file for the differences, a case a line")
    parser.add_argument("--streams", action="store_true", help="compare no query callbacks")
    parser.add_argument(
        "--unchecked", action="store_true", help="also run what the planner would refuse"
    )
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args(arguments)
    categories = given.only.split(",") if given.only else list(CATEGORIES)
    deadline_s = time.monotonic() + 60 * given.minutes
    with CasePool(given.jobs, unchecked=given.unchecked) as pool:
        search = Search(given.oracle, pool, given.streams, deadline_s)
        for number in itertools.count():
            first = given.seed + number * _CASES_PER_ROUND
            seeds = range(first, first + _CASES_PER_ROUND)
            cases = [random_case(category, seed) for category in categories for seed in seeds]
            for case, said in search.round(cases):
                _tell(case, said)
                if given.keep is not None:
                    given.keep.write_text(lines(search.found.values()), encoding="utf-8")
            if time.monotonic() > deadline_s:
                break
    total: Counter[str] = Counter()
    for category, counts in search.counts.items():
        total += counts
        sys.stdout.write(f"{category}: {dict(counts)}\n")
    for reason, times in search.explained.most_common():
        sys.stdout.write(f"{times} times: {reason}\n")
    sys.stdout.write(f"all: {dict(total)}; {len(search.found)} kinds of differences\n")
    return 1 if search.found else 0


def _tell(case: Case, said: Sequence[str]) -> None:
    sys.stdout.write(f"\n{case['name']}\n{case['app']}\n")
    sys.stdout.write("".join(f"    {step}\n" for step in case["inputs"]))
    sys.stdout.write("".join(f"  ! {one}\n" for one in said))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
