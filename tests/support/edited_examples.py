"""The eight examples as documents of an editor."""

from __future__ import annotations

from pathlib import Path

import pytest

from mesh.language_service.document import Document
from tests.support import paths

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
