"""Blocks of code of README.md and the pages in docs, by what they are.

A block is fenced or indented.  A passage is a part of it without blank lines, or a fenced block.
``tests/docs/test_blocks.py`` says how each is proven.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Pages that are made from the code, or quote what once was.
_MADE: Final = {"changelog.md", "errors.md"}
PAGES: Final = [
    ROOT / "README.md",
    ROOT / "connectors" / "README.md",
    ROOT / "examples" / "README.md",
    *(one for one in sorted((ROOT / "docs").rglob("*.md")) if one.name not in _MADE),
]
_DRAWN: Final = re.compile(r"[─│▶◀▼▲┌┴├┘╵]|-> |\^---|'-------")
_SIDDHI: Final = re.compile(
    r"@[A-Za-z]+[:(]|@PrimaryKey|define |from (?!.* import )\w|partition with"
)
#: First words of commands, after assignments to variables.
_PROGRAMS: Final = (
    "mesh", ".venv/bin/mesh", "/opt/mesh/bin/mesh", "/opt/mesh/bin/pip", "/opt/mesh/bin/python",
    "make", "pip", "python", "python3", "nats", "nats-server", "curl", "kubectl", "helm",
    "systemctl", "export", "set", "echo", "sed", "openssl", "docker", "apt-get", "for",
    "spark-submit", "printf", ".", "MESH_HOST_UID=$(id", "MESH_TOKEN=$(kubectl",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Passage:
    """Lines of a block without a blank one between them."""

    #: Path of the page in the tree.
    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def first(self) -> str:
        return self.text.partition("\n")[0]

    @property
    def is_drawing(self) -> bool:
        return self.language == "mermaid" or _DRAWN.search(self.text) is not None

    @property
    def is_siddhi(self) -> bool:
        return self.language != "python" and _SIDDHI.match(self.first) is not None

    @property
    def is_shell(self) -> bool:
        words = re.sub(r"^(?:[A-Z_]+=[\w.-]+ )+", "", self.first).split()
        return words[0] in _PROGRAMS

    @property
    def commands(self) -> list[str]:
        """Command lines of a shell passage, those that continue as one, without their comments."""
        joined = re.sub(r"\s*\\\n\s*|\n(?=\s)", " ", self.text)
        lines = (re.sub(r"\s+# .*$", "", line).rstrip() for line in joined.split("\n"))
        return [line for line in lines if line and not line.startswith("#")]


def passages(path: Path) -> list[Passage]:
    """The passages of a page, in order."""
    name = path.relative_to(ROOT).as_posix()
    return [
        Passage(name, line, language, textwrap.dedent(text))
        for line, language, text in _parts(path.read_text("utf-8").split("\n"))
    ]


def _parts(lines: list[str]) -> Iterator[tuple[int, str, str]]:
    """First line, language and text of each passage."""
    at = 0
    while at < len(lines):
        line = lines[at]
        start = at + 1
        if line.lstrip().startswith("```"):
            end = next(n for n in range(start, len(lines)) if lines[n].lstrip().startswith("```"))
            yield start + 1, line.strip("` "), "\n".join(lines[start:end])
            at = end + 1
        elif line.startswith("    ") and not lines[at - 1].strip() and "- " not in line[:6]:
            while at < len(lines) and lines[at].startswith("    "):
                at += 1
            yield start, "", "\n".join(lines[start - 1 : at])
            # What follows a blank line in the same block is a passage of its own.
        else:
            at += 1


def every_passage() -> list[Passage]:
    return [one for path in PAGES for one in passages(path)]
