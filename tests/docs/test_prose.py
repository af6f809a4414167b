"""Prose rules: no banned idiom, and pages without long lines, walls of text or wide table cells."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.docs.prose import (
    ALLOWED,
    COVERED,
    IDIOMS,
    ROOT,
    covered_files,
    findings,
    paragraphs,
    passages,
    prose_lines,
)
from tests.support.together import together

if TYPE_CHECKING:
    from pathlib import Path

LINE_MAX = 100
CELL_MAX = 100
PARAGRAPH_LINES_MAX = 5
FILES = covered_files()
PAGES = [path for path in FILES if path.suffix == ".md"]


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@together("path", FILES, ids=_name)
def test_prose_has_no_banned_idiom(path: Path) -> None:
    assert "\n".join(map(str, findings(path))) == ""


@together(
    "sentence",
    [
        "The sink puts out what it has.",
        "The worker is told to stop.",
        "It goes on where it was.",
        "A session is started anew.",
        "Nobody reads it.",
        "Whose worker is gone has stopped.",
        "The marker stands behind the rows.",
        "Matches come and go.",
    ],
)
def test_an_idiom_is_found(sentence: str) -> None:
    assert any(re.search(pattern, sentence, re.IGNORECASE) for pattern in IDIOMS)


@together(
    "sentence",
    [
        "The sink publishes the rows and the marker.",
        "An instance whose worker died counts as stopped.",
        "The reader is 20 messages behind.",
        "Ask the user who deployed the app.",
    ],
)
def test_a_plain_sentence_passes(sentence: str) -> None:
    assert not any(re.search(pattern, sentence, re.IGNORECASE) for pattern in IDIOMS)


def test_every_covered_folder_exists() -> None:
    assert [name for name in COVERED if not (ROOT / name).exists()] == []


def test_every_exception_is_still_needed_and_has_a_reason() -> None:
    for allowed in ALLOWED:
        assert allowed.reason
        texts = [passage.text for passage in passages(ROOT / allowed.path)]
        assert any(allowed.text in text for text in texts), allowed


@together("path", PAGES, ids=_name)
def test_a_page_has_no_long_line(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    # errors.md quotes apps and messages as a user sees them.
    shown = prose_lines(page) if path.name == "errors.md" else page.splitlines()
    lines = enumerate(shown, 1)
    # The cells of a table are checked one by one; a link can't be broken.
    long = [
        f"{number}: {line[:60]}"
        for number, line in lines
        if len(line) > LINE_MAX and not line.startswith("|") and not _is_one_word(line)
    ]
    assert long == []


def _is_one_word(line: str) -> bool:
    return " " not in line.strip(" -*")


@together("path", PAGES, ids=_name)
def test_a_page_has_no_wide_cell(path: Path) -> None:
    wide = [
        f"{number}: {cell.strip()[:60]}"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if line.startswith("|")
        for cell in re.split(r"(?<!\\)\|", line)
        if len(cell.strip()) > CELL_MAX
    ]
    assert wide == []


@together("path", PAGES, ids=_name)
def test_a_page_has_no_wall_of_text(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    lines = prose_lines(page)
    long = []
    for start, text in paragraphs(page):
        count = 1
        while start + count - 1 < len(lines) and _continues(lines[start + count - 1]):
            count += 1
        if count > PARAGRAPH_LINES_MAX:
            long.append(f"{start}: {count} lines: {text[:50]}")
    assert long == []


def _continues(line: str) -> bool:
    return bool(line.strip()) and re.match(r"\s*(?:[-*] |\d+\. |\||#)", line) is None
