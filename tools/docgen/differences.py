"""List in docs/siddhiql.md of texts on which mesh and the reference engine differ, with reasons.

Source: ``tests/cases/siddhiql/differences.txt``.  A test checks that the two agree on all other
recorded cases.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from tools.validity import cases

if TYPE_CHECKING:
    from pathlib import Path

    from tools.validity import Case

_FOLDER: Final = ("tests", "cases", "siddhiql")
#: Most cases that are named per reason.
_NAMED_MAX: Final = 4


def listed(root: Path) -> dict[str, str]:
    """Reasons by the names of the differing cases."""
    text = root.joinpath(*_FOLDER, "differences.txt").read_text(encoding="utf-8")
    pairs = [line.rpartition(" | ") for line in text.splitlines() if not line.startswith("#")]
    return {name: reason for name, _, reason in pairs if name}


def difference_list(root: Path) -> str:
    """A list of the reasons with their cases, the most frequent reason first."""
    known = {case.name: case for case in _recorded(root)}
    by_reason: dict[str, list[Case]] = {}
    for name, reason in listed(root).items():
        by_reason.setdefault(reason, []).append(known[name])
    lines = [f"Of {len(known):,} recorded texts {sum(map(len, by_reason.values()))} differ.", ""]
    for reason, differing in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        sentence = reason[0].upper() + reason[1:]
        lines.append(bullet(f"{sentence}. The engine {_verdict(differing)}: {_named(differing)}"))
    return "\n".join(lines)


def bullet(text: str, indent: str = "") -> str:
    """A list item, wrapped to the width of a page."""
    return textwrap.fill(
        text, 100, initial_indent=f"{indent}- ", subsequent_indent=f"{indent}  ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _recorded(root: Path) -> list[Case]:
    paths = sorted(root.joinpath(*_FOLDER).glob("*.txt"))
    return [case for path in paths if path.name != "differences.txt" for case in cases(path)]


def _named(differing: list[Case]) -> str:
    names = [case.name.partition("/")[2] for case in differing]
    more = f"; and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return "; ".join(names[:_NAMED_MAX]).replace("|", "\\|") + more


def _verdict(differing: list[Case]) -> str:
    verdicts = dict.fromkeys(
        "accepts" if case.verdict is not None and case.verdict.accepted else "refuses"
        for case in differing
    )
    return " or ".join(verdicts)
