"""Generator of the documents that follow from the code and the tests' cases.

    python -m tools.docgen

writes them in a checkout; a test compares them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.docgen import codes, compatibility, connectors, grammar, language, operations, types

if TYPE_CHECKING:
    from pathlib import Path


def documents(root: Path) -> dict[Path, str]:
    """Content of the generated files of the checkout at ``root``."""
    shown = codes.shown(root)
    return {
        root / "mesh" / "error_codes" / "shown.json": codes.shown_json(shown),
        root / "docs" / "errors.md": codes.errors_document(shown),
        root / "docs" / "cli.md": operations.cli_document(root),
        root / "docs" / "compatibility.md": compatibility.compatibility_document(root),
        root / "docs" / "connectors.md": connectors.connectors_document(root),
        root / "docs" / "siddhiql.md": language.language_document(root),
        root / "docs" / "types.md": types.types_document(root),
        root / "examples" / "editor" / "siddhiql.tmLanguage.json": grammar.grammar_json(),
    }
