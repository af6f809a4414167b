"""Valid and invalid apps: our verdict beside the reference engine's, case by case.

``differences.txt`` lists the cases where the two differ, and why.  It is strict: a case listed
there that agrees fails too.  ``--rewrite`` writes the list again and keeps its reasons.
"""

from __future__ import annotations

import pytest

from tests.support import paths
from tests.support.together import together
from tools.validity import Case, cases, judge

FOLDER = paths.CASES / "siddhiql"
LISTED = FOLDER / "differences.txt"
CASES = [case for path in sorted(FOLDER.glob("*.txt")) if path != LISTED for case in cases(path)]
HEAD = """\
# Cases on which we and the reference engine differ: name | reason.
# "not yet" is no reason to stay; every other one is what we chose, and why.
"""


def differences() -> dict[str, str]:
    """The reasons for the listed cases, by name."""
    lines = LISTED.read_text(encoding="utf-8").splitlines() if LISTED.exists() else []
    pairs = [line.rpartition(" | ") for line in lines if line and not line.startswith("#")]
    return {name: reason for name, _, reason in pairs}


DIFFERENCES = differences()


def agrees(case: Case) -> bool:
    found = judge(case)
    assert case.verdict is not None, f"{case.name} has no verdict: record one"
    return (found.accepted, found.schemas) == (case.verdict.accepted, case.verdict.schemas)


@together("case", CASES, ids=lambda case: case.name)
def test_our_verdict_is_the_engines_unless_listed(case: Case, rewrite: bool) -> None:
    if rewrite:
        pytest.skip("the list is being written")
    if case.name in DIFFERENCES:
        assert not agrees(case), f"agrees now; take it off the list:\n{case}"
    else:
        assert agrees(case), f"{case}\n\nbut here:\n{judge(case)}"


def test_every_listed_case_exists_and_has_a_reason(rewrite: bool) -> None:
    if rewrite:
        kept = {c.name: DIFFERENCES.get(c.name, "not yet") for c in CASES if not agrees(c)}
        lines = [f"{name} | {reason}\n" for name, reason in kept.items()]
        LISTED.write_text(HEAD + "".join(lines), encoding="utf-8")
        return
    names = {case.name for case in CASES}
    assert not DIFFERENCES.keys() - names
    assert all(DIFFERENCES.values())
