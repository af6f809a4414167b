"""Document symbols, inlay hints and lenses: what an editor shows of a whole text."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from mesh.errors import Position
from mesh.language.syntax import (
    AggregationDefinition,
    FunctionDefinition,
    Partition,
    Query,
    TriggerDefinition,
)
from mesh.language.tokens import TokenKind
from mesh.language_service.symbols import queries_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mesh.language.syntax import Element
    from mesh.language_service.document import Document


class PartKind(StrEnum):
    """Kind of a part of an app."""

    STREAM = "stream"
    TABLE = "table"
    WINDOW = "window"
    TRIGGER = "trigger"
    FUNCTION = "function"
    AGGREGATION = "aggregation"
    QUERY = "query"
    PARTITION = "partition"
    ATTRIBUTE = "attribute"


@dataclass(frozen=True, slots=True)
class OutlinePart:
    """A definition, query or partition."""

    name: str
    kind: PartKind
    #: Of its name, or of its first word.
    position: Position
    #: Where it starts and ends.
    start: Position
    end: Position
    detail: str = ""
    parts: tuple[OutlinePart, ...] = ()

    def moved(self, to: Callable[[Position], Position]) -> OutlinePart:
        """The same part of a text in which its positions are others."""
        return replace(
            self,
            position=to(self.position),
            start=to(self.start),
            end=to(self.end),
            parts=tuple(part.moved(to) for part in self.parts),
        )


@dataclass(frozen=True, slots=True)
class InlayNote:
    """A text that is shown beside the text: a type after an attribute, a line above a query."""

    position: Position
    text: str


def outline(document: Document) -> list[OutlinePart]:
    """The parts of an app that can be read, in their order."""
    readable = document.readable
    if readable is None:
        return []
    numbers = _Numbers()
    parts = (_part(document, element, numbers) for element in readable.reading.app.elements)
    return [part.moved(document.in_text) for part in parts]


def inferred_types(document: Document, first: int, last: int) -> list[InlayNote]:
    """The type after each attribute that is selected in lines ``first`` to ``last``."""
    readable = document.readable
    if readable is None or readable.bound is None:
        return []
    bound = {_key(one.position): one for one in readable.bound.all_queries}
    notes: list[InlayNote] = []
    for query, _ in queries_of(readable.reading.app):
        bound_query = bound.get(_key(query.position))
        if bound_query is None or not query.selector.attributes:
            continue
        pairs = zip(query.selector.attributes, bound_query.outputs, strict=True)
        for attribute, output in pairs:
            if not first <= document.in_text(attribute.position).line <= last:
                continue
            end = _end_of_attribute(document, attribute.position)
            if end is not None:
                notes.append(InlayNote(document.in_text(end), f": {output.expression.type}"))
    return notes


def lenses(document: Document, rates: Mapping[str, float] | None = None) -> list[InlayNote]:
    """A line above each query: its group, how that is divided, and the state that it keeps.

    ``rates``: events a second that groups read, where the app runs.
    """
    notes = []
    for one in document.planned_queries:
        rate = (rates or {}).get(one.group.name)
        line = one.line if rate is None else f"{one.line} | {rate:,.1f} events/s in"
        notes.append(InlayNote(document.in_text(one.position), line))
    return notes


class _Numbers:
    """Numbers of queries and partitions without a name."""

    def __init__(self) -> None:
        self.queries = 0
        self.partitions = 0


def _part(document: Document, element: Element, numbers: _Numbers) -> OutlinePart:
    match element:
        case Query():
            numbers.queries += 1
            return _query(document, element, f"query-{numbers.queries}")
        case Partition():
            numbers.partitions += 1
            name = f"partition-{numbers.partitions}"
            inside = tuple(
                _query(document, query, f"{name}-query-{number}")
                for number, query in enumerate(element.queries, 1)
            )
            end = _end(document, element.position, "end")
            at = element.position
            return OutlinePart(name, PartKind.PARTITION, at, at, end, "", inside)
        case _:
            kind = PartKind(type(element).__name__.removesuffix("Definition").lower())
            attributes: tuple[OutlinePart, ...] = ()
            if not isinstance(
                element, TriggerDefinition | FunctionDefinition | AggregationDefinition
            ):
                attributes = tuple(
                    OutlinePart(
                        one.name,
                        PartKind.ATTRIBUTE,
                        one.position,
                        one.position,
                        one.position,
                        str(one.type),
                    )
                    for one in element.attributes
                )
            at = element.position
            start = Position(at.line, 1, 1)
            return OutlinePart(
                element.name, kind, at, start, _end(document, at, ";"), kind, attributes
            )


def _query(document: Document, query: Query, otherwise: str) -> OutlinePart:
    at = query.position
    end = _end(document, at, ";")
    return OutlinePart(query.name or otherwise, PartKind.QUERY, at, at, end, "query")


def _end(document: Document, at: Position, word: str) -> Position:
    """The first ``;`` or ``end`` after a position; the end of the text without one."""
    assert document.readable is not None, "the part was read"
    cursor = document.readable.reading.cursor
    index = document.token_index((at.line, at.column)) or 0
    while cursor.tokens[index].kind is not TokenKind.END:
        token = cursor.tokens[index]
        if token.text.lower() == word and token.kind in (TokenKind.SYMBOL, TokenKind.NAME):
            break
        index += 1
    return cursor.place(cursor.tokens[index])


def _end_of_attribute(document: Document, at: Position) -> Position | None:
    """The place after a selected attribute: before the next ``,`` or clause."""
    assert document.readable is not None, "the query was read"
    cursor = document.readable.reading.cursor
    index = document.token_index((at.line, at.column))
    depth = 0
    last = None
    while index is not None and cursor.tokens[index].kind is not TokenKind.END:
        token = cursor.tokens[index]
        if token.text in ("(", "["):
            depth += 1
        elif token.text in (")", "]"):
            depth -= 1
        elif (not depth and token.text in (",", ";")) or (
            index in cursor.layout.lines and last is not None
        ):
            break
        last = token
        index += 1
    if last is None:
        return None
    place = cursor.place(last)
    return Position(place.line, place.column + place.length, 0)


def _key(position: Position) -> tuple[int, int]:
    return position.line, position.column
