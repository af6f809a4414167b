"""The page of threats: each finding of the review has a row, and each row a test that exists."""

from __future__ import annotations

import re
from typing import Final

from tests.docs.prose import ROOT

PAGE: Final = (ROOT / "docs" / "threats.md").read_text("utf-8")
#: Findings of the review of November 2026, by severity: critical, high, medium, low.
REVIEWED: Final = {"C": 9, "H": 10, "M": 20, "L": 12}
#: Findings of the second review that are answered.
SECOND: Final = {
    "N1",
    "N2",
    "N3",
    "N4",
    "N5",
    "N6",
    "N7",
    "N8",
    "N9",
    "N10",
    "N12",
    "N13",
    "N14",
    "N15",
    "N16",
    "N17",
    "N19",
    "N20",
    "N22",
    "N23",
    "N26",
    "N31",
    "N24",
    "N25",
    "N27",
    "N28",
    "N29",
}


def test_each_finding_of_the_review_is_answered() -> None:
    _, _, after = PAGE.partition("\n## Findings\n")
    found = set(re.findall(r"^\| ([CHML]\d+) \|", after.partition("\n## ")[0], re.MULTILINE))
    assert found == {f"{kind}{n}" for kind, last in REVIEWED.items() for n in range(1, last + 1)}


def test_each_finding_of_the_second_review_is_answered() -> None:
    _, _, after = PAGE.partition("\n## Findings of the second review\n")
    found = re.findall(r"^\| (N\d+) \|", after.partition("\n## ")[0], re.MULTILINE)
    assert set(found) >= SECOND


def test_each_row_names_a_test_that_exists() -> None:
    named = re.findall(r"^\|.*\| `(tests/\S+\.py)` \|$", PAGE, re.MULTILINE)
    rows = re.findall(r"^\|.*`tests/.*\|$", PAGE, re.MULTILINE)
    assert len(named) == len(rows) > 90
    missing = [
        path
        for path in set(named)
        if not (ROOT / path).exists() or "def test_" not in (ROOT / path).read_text("utf-8")
    ]
    assert missing == []
