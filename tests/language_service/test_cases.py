"""Answers of the language service, as cases: a text with the place ``|``, and the answer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from mesh.errors import MeshError
from mesh.language_service.completion import complete
from mesh.language_service.document import Document
from mesh.language_service.hover import hover
from mesh.language_service.navigation import applied, definition, fixes, references, rename
from mesh.language_service.outline import inferred_types, lenses, outline
from mesh.language_service.proposals import ClusterStream
from tests.support import case_files, paths

if TYPE_CHECKING:
    from collections.abc import Callable

    from mesh.errors import Position
    from mesh.language_service.outline import OutlinePart
    from mesh.language_service.proposals import Proposal

CASES = paths.CASES / "language_service"
_SHOWN_MAX = 7
_CLUSTER = (ClusterStream("Shop", "Orders", "item string, price double"),)


def _placed(given: str) -> tuple[Document, int, int]:
    """The text without ``|``, and the place where it was."""
    before, mark, after = given.partition("|")
    assert mark, "a case has a place"
    document = Document(before + after, "A")
    at = document.places.of(len(before), len(before))
    return document, at.line, at.column


def _completed(given: str) -> str:
    document, line, column = _placed(given)
    found = complete(document, line, column, _CLUSTER)
    part = document.text[found.start : document.places.offset(line, column)]
    if part:
        fitting = [p for p in found.proposals if p.label.lower().startswith(part.lower())]
        return "\n".join([f"of '{part}'", *map(_whole, fitting)])
    kinds: dict[str, list[str]] = {}
    for proposal in found.proposals:
        kinds.setdefault(proposal.kind, []).append(proposal.label)
    return "\n".join(f"{kind}: {_labels(labels)}" for kind, labels in kinds.items())


def _labels(labels: list[str]) -> str:
    # Without a number, so that a new function changes no case.
    more = " and more" if len(labels) > _SHOWN_MAX else ""
    return " ".join(labels[:_SHOWN_MAX]) + more


def _whole(proposal: Proposal) -> str:
    insert = f" as {proposal.insert}" if proposal.insert else ""
    return f"{proposal.kind} {proposal.label}{insert}: {proposal.detail} | {proposal.doc}"


def _hovered(given: str) -> str:
    found = hover(*_placed(given))
    return "nothing" if found is None else found.markdown


def _navigated(given: str) -> str:
    document, line, column = _placed(given)
    defined = definition(document, line, column)
    shown = _place(document, defined) if defined is not None else "nothing"
    places = [_place(document, one) for one in references(document, line, column)]
    return "\n".join([f"defined: {shown}", f"used: {', '.join(places)}"])


def _place(document: Document, position: Position) -> str:
    return f"{document.slice(position)} {position.line}:{position.column}"


def _renamed(given: str) -> str:
    name, _, text = given.partition("\n")
    document, line, column = _placed(text)
    assert not document.problems
    try:
        made = applied(document, rename(document, line, column, name))
    except MeshError as error:
        return error.render()
    assert not Document(made, "A").problems
    return made


def _fixed(given: str) -> str:
    document = Document(given, "A")
    lines = []
    for fix in fixes(document, 1, 999):
        made = applied(document, [fix.edit])
        left = Document(made, "A").problems
        assert str(fix.error) not in map(str, left), made
        lines += [f"{fix.title}: {fix.error}", made]
    return "\n".join(lines) or "nothing"


def _outlined(given: str) -> str:
    document = Document(given, "A")
    lines = [line for part in outline(document) for line in _part_lines(part, "")]
    lines += [f"lens {one.position.line}: {one.text}" for one in lenses(document)]
    for one in inferred_types(document, 1, 999):
        at = document.places.offset(one.position.line, one.position.column)
        written = re.split(r"[\s,]", document.text[:at])[-1]
        lines.append(f"type {one.position.line}:{one.position.column} {written}{one.text}")
    return "\n".join(lines)


def _part_lines(part: OutlinePart, indent: str) -> list[str]:
    lines = f"{part.start.line}-{part.end.line}"
    own = f"{indent}{part.kind} {part.name} {lines} {part.detail}".rstrip()
    return [own, *(line for inside in part.parts for line in _part_lines(inside, f"{indent}  "))]


_ANSWERS: dict[str, Callable[[str], str]] = {
    "completion": _completed,
    "hover": _hovered,
    "navigation": _navigated,
    "rename": _renamed,
    "fixes": _fixed,
    "outline": _outlined,
}


@pytest.mark.parametrize("feature", sorted(_ANSWERS))
def test_case_files(feature: str, rewrite: bool) -> None:
    case_files.check(CASES / f"{feature}.txt", _ANSWERS[feature], rewrite=rewrite)
