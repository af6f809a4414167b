"""The eight examples as documents of an editor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mesh.language_service.document import Document
from tests.support import paths

if TYPE_CHECKING:
    from mesh.language_service.symbols import Occurrence

EXAMPLES = sorted(
    path
    for path in paths.ROOT.joinpath("examples").glob("*.siddhi")
    if not path.name.endswith(".engine.siddhi")
)
each = pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)


def document_of(path: Path) -> Document:
    document = Document(path.read_text(), path.stem)
    assert not document.problems
    return document


def names_in(document: Document) -> list[Occurrence]:
    """The names of a document, with their positions in its text."""
    return [
        replace(one, position=document.in_text(one.position))
        for one in document.symbols.occurrences
    ]
