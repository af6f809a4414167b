"""The table of docs/compatibility.md: what ``make test-matrix`` has seen pass.

Source: ``tools/matrix.json``, which ``tools.matrix`` writes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from tools.docgen.types import BEGIN, END

if TYPE_CHECKING:
    from pathlib import Path

_HEAD: Final = (
    "| program | version | tests passed | failed | left out | day |\n|---|---|---|---|---|---|"
)


def compatibility_document(root: Path) -> str:
    """Text of docs/compatibility.md: the hand-written parts, and a row for each version."""
    text = (root / "docs" / "compatibility.md").read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    rows = json.loads((root / "tools" / "matrix.json").read_text(encoding="utf-8"))
    lines = [
        f"| {one['program']} | {one['version']} | {one['passed']:,} | {one['failed']} "
        f"| {one['skipped']} | {one['day']} |"
        for one in rows
    ]
    return f"{before}{BEGIN}\n\n" + "\n".join([_HEAD, *lines]) + f"\n\n{END}{after}"
