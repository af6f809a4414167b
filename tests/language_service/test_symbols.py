"""Names of the eight examples, as the binder resolves them."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mesh.plan.bound import BoundJoin, BoundPattern, BoundQuery, BoundStream, Column
from tests.support.edited_examples import document_of, each

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.language_service.document import Document


@each
def test_names_resolve_as_the_binder_resolves_them(path: Path) -> None:
    document = document_of(path)
    assert document.plan is not None
    compared = 0
    for query in document.plan.bound.all_queries:
        read = _read(query)
        for column in _columns(query.outputs):
            found = document.symbols.at(document.stable_place(*_name_place(document, column)))
            if found is None:
                # ``select *`` names nothing.
                continue
            assert found.symbol.name == column.name
            owner = found.symbol.owner.rpartition("#")[2]
            assert owner == read[column.step].lstrip("#!")
            compared += 1
    assert compared


def _read(query: BoundQuery) -> list[str]:
    match query.input:
        case BoundStream():
            return [query.input.schema.name]
        case BoundJoin():
            return [query.input.left.schema.name, query.input.right.schema.name]
        case BoundPattern():
            return [step.schema.name for step in query.input.steps]


def _columns(part: Any) -> Iterator[Column]:
    if isinstance(part, Column):
        if part.step >= 0:
            yield part
    elif isinstance(part, tuple):
        for one in part:
            yield from _columns(one)
    elif is_dataclass(part):
        for field in fields(part):
            yield from _columns(getattr(part, field.name))


def _name_place(document: Document, column: Column) -> tuple[int, int]:
    """The place of the attribute's name after its prefix."""
    at = document.in_text(column.position)
    written = document.slice(at)
    return at.line, at.column + written.rfind(".") + 1
