"""The list in docs/siddhiql.md of the apps with another output than the engine's, and the reasons.

Generated from ``tests/cases/conformance/differences.txt``; a test checks that it is complete for
the recorded apps.  Unfinished parts are not in the list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tools.engine_answers import NOT_YET

if TYPE_CHECKING:
    from pathlib import Path

_FOLDER: Final = ("tests", "cases", "conformance")
#: Maximum number of named cases of one reason.
_NAMED_MAX: Final = 4


def behaviour_table(root: Path) -> str:
    """The differences by reason, the most frequent reason first."""
    path = root.joinpath(*_FOLDER, "differences.txt")
    by_reason: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        name, divider, reason = line.partition(" | ")
        if divider and not line.startswith("#") and reason != NOT_YET:
            by_reason.setdefault(reason, []).append(name)
    lines = ["| apps | why it is otherwise here |", "| --- | --- |"]
    for reason, names in sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0])):
        more = f"; and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
        shown = "; ".join(names[:_NAMED_MAX]).replace("|", "\\|")
        lines.append(f"| {shown}{more} | {reason} |")
    return "\n".join(lines)
