"""Every path that the map pages name exists: contributing.md, glossary.md and the design pages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.docs.prose import ROOT
from tests.support.together import together

if TYPE_CHECKING:
    from pathlib import Path

PAGES = [
    ROOT / "docs" / "contributing.md",
    ROOT / "docs" / "glossary.md",
    *sorted((ROOT / "docs" / "design").glob("*.md")),
]
_PATH = re.compile(r"`((?:mesh|connectors|tests|docs|conf|tools|bench|examples)(?:/[\w./-]+)?)`")
#: Questions that the map has to answer, with the folder of the answer.
QUESTIONS = {
    "where does the `time` window expire events?": "mesh/operators/windows",
    "where is a failed event recorded?": "mesh/model",
    "where does a worker stop that lost NATS?": "mesh/control",
}
ADDITIONS = ("a scalar function", "a window", "a source type", "a setting")


def _rows(page: Path) -> dict[str, str]:
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line[:2] == "| "]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return {row[0]: row[1] for row in cells}


@together("page", PAGES, ids=lambda page: page.name)
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    named = set(_PATH.findall(page.read_text(encoding="utf-8")))
    assert named
    assert sorted(path for path in named if not (ROOT / path).exists()) == []


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_map_answers_a_newcomers_question_in_a_line(question: str) -> None:
    (answer,) = _PATH.findall(_rows(PAGES[0])[question])
    assert answer.startswith(QUESTIONS[question])


@pytest.mark.parametrize("addition", ADDITIONS)
def test_the_map_says_where_an_addition_goes(addition: str) -> None:
    assert _PATH.findall(_rows(PAGES[0])[addition])


def test_every_class_that_the_glossary_names_is_in_its_file() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    named = re.findall(r"`([A-Z]\w+)`\s+\(`([\w/]+\.py)`\)", text)
    assert named
    missing = [
        f"{name} in {path}"
        for name, path in named
        if not (ROOT / path).exists()
        or f"class {name}" not in (ROOT / path).read_text(encoding="utf-8")
    ]
    assert missing == []


def test_the_glossary_defines_each_term_once() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    terms = re.findall(r"^- \*\*(.+?)\*\*", text, re.MULTILINE)
    assert terms
    assert sorted({term for term in terms if terms.count(term) > 1}) == []
