"""Cases as text files: the input, ``----``, the output.

    # The subject of the case, in comment lines.
    define stream S (a int);
    from S select a insert into T;
    ----
    the expected output, of any number of lines

Cases are divided by blank lines, so neither half holds any.  With ``--rewrite`` the second halves
are replaced by the results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DIVIDER = "----"


@dataclass(frozen=True, slots=True)
class Case:
    comments: tuple[str, ...]
    given: str
    expected: str

    @property
    def text(self) -> str:
        lines = [*self.comments, self.given, DIVIDER, *([self.expected] if self.expected else [])]
        return "\n".join(lines)


def read(path: Path) -> tuple[Case, ...]:
    """The cases of a file; a block of comments alone is one without input."""
    cases = []
    for block in path.read_text(encoding="utf-8").strip("\n").split("\n\n"):
        lines = block.strip("\n").split("\n")
        comments = []
        while lines and lines[0].startswith("#"):
            comments.append(lines.pop(0))
        if not lines:
            cases.append(Case(tuple(comments), "", ""))
            continue
        assert DIVIDER in lines, f"{path.name}: a case has no {DIVIDER}:\n{block}"
        at = lines.index(DIVIDER)
        cases.append(Case(tuple(comments), "\n".join(lines[:at]), "\n".join(lines[at + 1 :])))
    return tuple(cases)


def check(path: Path, run: Callable[[str], str], *, rewrite: bool) -> None:
    """Run the cases of a file; with ``rewrite`` write the results instead of comparing them."""
    cases = read(path)
    done = [
        Case(case.comments, case.given, without_blank_lines(run(case.given)))
        if case.given
        else case
        for case in cases
    ]
    if rewrite:
        texts = [case.text if case.given else "\n".join(case.comments) for case in done]
        path.write_text("\n\n".join(texts) + "\n", encoding="utf-8")
        return
    for case, found in zip(cases, done, strict=True):
        assert found.expected == case.expected, f"{path.name}:\n{case.given}"


def without_blank_lines(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if line.strip())
