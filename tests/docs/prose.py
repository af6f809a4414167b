"""Prose rules as data: banned idioms, the files that they cover, and the text of those files.

docs/contributing.md, "Prose", explains the rules to a writer.  ``test_prose.py`` applies them.
"""

from __future__ import annotations

import ast
import re
import tomllib
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]

#: Folders and files whose prose follows the rules.  Extend it when a folder has been rewritten.
COVERED: Final = (
    "README.md",
    "bench",
    "connectors/README.md",
    "connectors/pyspark_nats",
    "docs",
    "examples",
    "mesh",
    "tests/docs",
    "tools",
)

#: Each banned idiom with what to write instead.  Case is ignored.
IDIOMS: Final = {
    r"\b(?:comes? and go(?:es)?|came and went|coming and going)\b": "name both events",
    r"\b(?:is|are|was|were|be|been|being) told\b": "receives, is notified, is configured",
    r"\btells? (?:of|apart|us|them)\b": "reports, distinguishes",
    r"\b(?:puts?|putting) out\b": "emits, publishes",
    r"\b(?:go(?:es)?|going|went|gone) on\b": "continues",
    r"\banew\b": "again, from the beginning",
    r"\b(?:nobody|somebody|everybody|anybody|whoever)\b": "name the process or person",
    r"\b(?:stands?|stood|standing) by for\b": "is the standby of",
    r"(?:^|(?<=[.:;] ))(?:who|whose)\b(?![^.\n]*\?)": "name the subject",
    r"\b(?:stands?|stood|lies?|lay) (?:behind|beside|before|in front)\b": "is after, is next to",
    r"\b(?:behind|in front of) (?:the|it|them|that|this|those|each|what|its|another)\b": (
        "after, later than, greater than"
    ),
    r"\bas (?:it stands|they stand)\b": "unchanged",
    r"\b(?:is|are|was|were) out (?:already|of|there)\b": "is published",
    r"\bfor want of\b": "because .. is missing",
    r"\bfor ever\b": "without limit, until ..",
    r"\bmend(?:s|ed|ing)?\b": "correct, fix",
    r"\b(?:has|have|had) (?:it|them|her|him) (?:anew|elect)\b": "asks .. to",
    r"\bcomes? to be\b": "is created",
    r"\btakes? (?:its|their) leave\b": "drains, leaves",
    r"\bturned away\b": "refused",
    r"\bat work for\b": "running",
    r"\bsets? (?:it|them) going\b": "starts",
    r"\bwhat (?:comes|came|goes|leaves|stands|lies|waits)\b": "name the thing",
}

#: A string of Python, or a comment as the group.
_STRING_OR_COMMENT: Final = re.compile(
    r"""\"{3}(?:[^\\]|\\.)*?\"{3}|'{3}(?:[^\\]|\\.)*?'{3}"""
    r"""|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|(\#[^\n]*)""",
    re.DOTALL,
)

#: The first words of a docstring that leave its subject without a name.
FIRST_WORDS: Final = ("What", "How", "Who", "Whose", "Where", "Why")


@dataclass(frozen=True, slots=True)
class Passage:
    """One piece of prose of a file, on one line."""

    path: str
    line: int
    text: str
    is_docstring: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """A banned idiom where it was found."""

    path: str
    line: int
    found: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: '{self.found}'; write: {self.instead}"


@dataclass(frozen=True, slots=True)
class Allowed:
    """An idiom that stays, with its reason."""

    path: str
    #: A part of the passage, long enough to find it.
    text: str
    reason: str


def covered_files() -> list[Path]:
    """Every file that the rules cover and that has prose."""
    found: list[Path] = []
    for name in COVERED:
        path = ROOT / name
        files = [path] if path.is_file() else sorted(path.rglob("*"))
        found += [one for one in files if one.suffix in {".md", ".py", ".siddhi", ".toml"}]
    # These files spell the idioms.
    spelling = {Path(__file__).resolve(), Path(__file__).resolve().with_name("test_prose.py")}
    return [path for path in found if path not in spelling]


def passages(path: Path) -> Iterator[Passage]:
    """The prose of one file.

    Args:
        path: a page, an app, a TOML file or a Python source.

    Returns:
        Paragraphs of pages without their code; strings of TOML; comments and strings of Python.
    """
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(ROOT).as_posix()
    match path.suffix:
        case ".md":
            for line, paragraph in paragraphs(text):
                yield Passage(name, line, re.sub(r"`[^`]*`", "`..`", paragraph))
        case ".toml":
            for code, values in tomllib.loads(text).items():
                line = text[: text.index(f"[{code}]")].count("\n") + 1
                for value in values.values():
                    yield Passage(name, line, _joined(str(value)))
        case ".py":
            yield from _python_passages(name, text)
        case _:
            for number, line_text in enumerate(text.splitlines(), 1):
                if line_text.lstrip().startswith("--"):
                    yield Passage(name, number, line_text)


def _python_passages(name: str, text: str) -> Iterator[Passage]:
    docstrings = set()
    # A node comes after the one that contains it.
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                yield Passage(name, node.lineno, _joined(node.value), node in docstrings)
        elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                docstrings.add(first.value)
    for line, comment in _comments(text):
        yield Passage(name, line, comment)


def _comments(text: str) -> Iterator[tuple[int, str]]:
    """Comments, those on consecutive lines as one."""
    lines: list[str] = []
    start = last = place = 0
    number = 1
    for match in _STRING_OR_COMMENT.finditer(text):
        if match[1] is None:
            continue
        number += text.count("\n", place, match.start())
        place = match.start()
        if lines and number != last + 1:
            yield start, " ".join(lines)
            lines = []
        start = start if lines else number
        lines.append(match[1].lstrip("#: "))
        last = number
    if lines:
        yield start, " ".join(lines)


def _joined(text: str) -> str:
    return re.sub(r"\s+", " ", text.strip())


def paragraphs(page: str) -> list[tuple[int, str]]:
    """Paragraphs, list items, headings and table rows of a page with their first lines."""
    found: list[tuple[int, str]] = []
    current: list[str] = []
    start = 0
    for number, line in enumerate([*prose_lines(page), ""], 1):
        begins = re.match(r"\s*(?:[-*] |\d+\. |\||#)", line) is not None
        if current and (begins or not line.strip()):
            found.append((start, _joined(" ".join(current))))
            current = []
        if line.strip():
            start = start if current else number
            current.append(line)
    return found


def prose_lines(page: str) -> list[str]:
    """The lines of a page; those of code and of its fences are empty."""
    found: list[str] = []
    is_fenced = False
    is_indented = False
    previous = ""
    for line in page.splitlines():
        if line.lstrip().startswith("```"):
            is_fenced = not is_fenced
            found.append("")
            continue
        starts_code = line.startswith("    ") and not previous.strip() and "- " not in line[:6]
        is_indented = line.startswith("    ") and (is_indented or starts_code)
        found.append("" if is_fenced or is_indented else line)
        previous = line
    return found


def findings(path: Path) -> list[Finding]:
    """The banned idioms of one file."""
    prose = list(passages(path))
    # One search for an idiom in all of them: most are short, and none has what is looked for.
    text = "\n".join(passage.text for passage in prose)
    starts = list(accumulate((len(passage.text) + 1 for passage in prose), initial=0))
    found: list[Finding] = []
    for pattern, instead in IDIOMS.items():
        for match in re.finditer(pattern, text, re.IGNORECASE | re.MULTILINE):
            passage = prose[bisect_right(starts, match.start()) - 1]
            if not _is_allowed(passage):
                found.append(Finding(passage.path, passage.line, match[0], instead))
    found += [
        Finding(passage.path, passage.line, passage.text[:50], "a noun phrase")
        for passage in prose
        if passage.is_docstring and passage.text.partition(" ")[0] in FIRST_WORDS
    ]
    return found


def _is_allowed(passage: Passage) -> bool:
    return any(one.path == passage.path and one.text in passage.text for one in ALLOWED)


_SHOWN: Final = "a text that the program shows"
_ASSERTED: Final = "an assertion's message"
_VIOLATED: Final = "a report of the simulator"

#: Every idiom that stays.  A test fails when an entry matches nothing any more.
ALLOWED: Final = (
    Allowed("mesh/error_codes/__init__.py", "mend", "a field of 'mesh explain --output json'"),
    Allowed("docs/operations.md", "counts of keys", "the name of a stored benchmark figure"),
    Allowed("bench/mesh/scaling.py", "counts of keys", "the name of a stored benchmark figure"),
    Allowed("mesh/operators/windows/native_window.py", "whose", "a column of stored states"),
    Allowed("mesh/manager/backups.py", "the app goes on with what comes", _SHOWN),
    Allowed("mesh/plan/changes.py", "worker stands by for each instance", _SHOWN),
    Allowed("mesh/plan/explain.py", "goes on", _SHOWN),
    Allowed("mesh/plan/explain.py", "go on", _SHOWN),
    Allowed("mesh/plan/groups.py", "Scale the groups behind it.", _SHOWN),
    Allowed("tools/conformance/__main__.py", "restore, go on", _SHOWN),
    Allowed("connectors/pyspark_nats/encode/columns.py", "tells of events", _SHOWN),
    Allowed("connectors/pyspark_nats/sink/producer_state.py", "who wrote them", _SHOWN),
    Allowed("connectors/pyspark_nats/sink/producer_state.py", "Or begin anew", _SHOWN),
    Allowed("tools/record.py", "write differences.txt anew", _SHOWN),
    Allowed("tools/fuzz/restarts.py", "what comes", "a reason that the fuzzer shows"),
    Allowed("mesh/operators/dataflow/build.py", "queries answer nobody", _ASSERTED),
    Allowed("mesh/plan/dependencies.py", "queries answer nobody", _ASSERTED),
    Allowed("mesh/plan/bind/apps.py", "has been told", _ASSERTED),
    Allowed("mesh/plan/bind/on_demand.py", "has been told", _ASSERTED),
    Allowed("mesh/spark/partition_task.py", "the executor puts out only", _ASSERTED),
    Allowed("tools/simulator/cluster.py", "nobody leads", _VIOLATED),
    Allowed("tools/simulator/cluster.py", "stands by for", _VIOLATED),
    Allowed("tools/simulator/flows.py", "goes on to", _VIOLATED),
    Allowed("tools/simulator/invariants.py", "nobody asked for it", _VIOLATED),
    Allowed("tools/simulator/invariants.py", "to go on", _VIOLATED),
)
