"""List in docs/siddhiql.md of apps whose output differs from the engine's, with reasons.

Source: ``tests/cases/conformance/differences.txt``; a test checks that it is complete for the
recorded apps.  Apps that are not supported yet are not in the list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tools.docgen.differences import bullet
from tools.engine_answers import NOT_YET

if TYPE_CHECKING:
    from pathlib import Path

_FOLDER: Final = ("tests", "cases", "conformance")
#: Most cases that are named per reason.
_NAMED_MAX: Final = 4


def behaviour_list(root: Path) -> str:
    """A list of the reasons with their cases, the most frequent reason first."""
    path = root.joinpath(*_FOLDER, "differences.txt")
    by_reason: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        name, divider, reason = line.partition(" | ")
        if divider and not line.startswith("#") and reason != NOT_YET:
            by_reason.setdefault(reason, []).append(name)
    recorded = sum(len(one.read_bytes().splitlines()) for one in path.parent.glob("*.jsonl"))
    differing = sum(map(len, by_reason.values()))
    lines = [f"Of {recorded:,} recorded apps {differing} differ.", ""]
    for reason, names in sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0])):
        more = f"; and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
        shown = "; ".join(f"`{name}`" for name in names[:_NAMED_MAX])
        lines.append(bullet(f"{reason[0].upper()}{reason[1:]}. Apps: {shown}{more}"))
    return "\n".join(lines)
