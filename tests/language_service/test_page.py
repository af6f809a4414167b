"""docs/editor.md and the extension of VS Code say what is true."""

from __future__ import annotations

import json
import re

from mesh.language_service.document import Document
from mesh.language_service.navigation import applied, fixes, rename
from mesh.language_service.outline import InlayNote, inferred_types, lenses
from tests.support import paths

_PAGE = (paths.ROOT / "docs" / "editor.md").read_text(encoding="utf-8")
_EXTENSION = paths.ROOT / "examples" / "editor"


def test_the_example_of_the_page_has_these_answers() -> None:
    example = _PAGE.partition("## Example")[2].partition("## Features")[0]
    text = "".join(f"{line[4:]}\n" for line in example.splitlines() if line[:4] == "    ")
    document = Document(text, "Shop")
    (error,) = document.problems
    assert f"`{error.message}` ({error.code})" in example.replace("is not\n  def", "is not def")
    (fix,) = fixes(document, 1, 9)
    assert fix.edit.text == "total"
    selected = [
        f"`{re.split(r'[ ,]', document.text[: _end(document, one)])[-1]}{one.text}`"
        for one in inferred_types(document, 1, 9)
    ]
    assert " and ".join(selected) in example
    correct = Document(applied(document, [fix.edit]), "Shop")
    assert lenses(correct)[0].text in example
    renamed = applied(correct, rename(correct, 1, text.index("item") + 1, "article"))
    assert "select article as item" in renamed
    assert "select article as item" in example


def _end(document: Document, note: InlayNote) -> int:
    position = note.position
    return document.places.offset(position.line, position.column)


def test_the_extension_reads_the_settings_that_it_declares_and_starts_the_server() -> None:
    declared = json.loads((_EXTENSION / "package.json").read_text())
    code = (_EXTENSION / declared["main"]).read_text()
    settings = declared["contributes"]["configuration"]["properties"]
    assert {f"mesh.{name}" for name in re.findall(r'settings\.get\("(\w+)"\)', code)} == set(
        settings
    )
    assert settings["mesh.command"]["default"] == "mesh"
    assert 'args: ["lsp", ' in code
    assert f"siddhiql-{declared['version']}.vsix" in _PAGE
