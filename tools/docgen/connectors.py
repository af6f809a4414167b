"""Generated part of docs/connectors.md: the declarations of our connectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.connect import registry
from mesh.connect.registry import markdown

if TYPE_CHECKING:
    from pathlib import Path

BEGIN: Final = "<!-- connectors, made by `make docs`: begin -->"
END: Final = "<!-- connectors, made by `make docs`: end -->"


def connectors_document(root: Path) -> str:
    """Text of docs/connectors.md: the hand-written parts, and the reference of the connectors."""
    text = (root / "docs" / "connectors.md").read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{markdown(registry.builtin_specs())}\n\n{END}{after}"
