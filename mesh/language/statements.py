"""Statements that were read before: an edit of a text costs the statements that it changes.

What is read is kept by the text of a statement and its place.  A ``;`` ends a statement, so nothing
after it counts; whether a statement may follow the others is for the parser to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError
from mesh.language.annotations import parse_annotation, sees_app_annotation
from mesh.language.definitions import parse_definition
from mesh.language.queries import parse_query

if TYPE_CHECKING:
    from mesh.language.cursor import Cursor, LayoutRecord
    from mesh.language.syntax import Annotation, Definition, Query

#: Maximum number of statements that are kept, the text of 7,000 lines; each has some kilobytes.
STATEMENTS_MAX: Final = 1_000
#: Longest statement that is kept; an expression of its length has 100 kilobytes.
_LENGTH_MAX: Final = 2_000


@dataclass(frozen=True, slots=True)
class ReadStatement:
    """A definition or a query outside of its text."""

    tree: Definition | Query
    layout: LayoutRecord
    #: Index of its ``;`` in the text at hand.
    stop: int


def read_statement(cursor: Cursor) -> ReadStatement | None:
    """The definition or query that is next, with its annotations, up to its ``;``.

    None for one with an error, without a ``;``, with variables in it, or very long.  The cursor
    stays.
    """
    stop = cursor.end_of_statement(_LENGTH_MAX)
    if stop is None:
        return None
    first, last = cursor.peek().start, cursor.tokens[stop].start
    origin = cursor.places.origin(first, last)
    if origin is None:
        return None
    slot = _slot(cursor.text[first:last], *origin, cursor.indent)
    if not slot:
        part = cursor.until(stop)
        try:
            tree = _parse(part)
        except MeshError:
            # The parser reports it, in view of what follows.
            return None
        if tree is None or part.at != stop - cursor.at:
            return None
        slot.append((tree, part.layout))
    tree, layout = slot[0]
    return ReadStatement(tree, layout, stop)


@lru_cache(maxsize=STATEMENTS_MAX)
def _slot(
    text: str, line: int, column: int, indent: int | None
) -> list[tuple[Definition | Query, LayoutRecord]]:
    """The place of what is read from a text at a place, empty at first."""
    return []


def _parse(cursor: Cursor) -> Definition | Query | None:
    cursor.start_element()
    annotations: list[Annotation] = []
    while cursor.sees("@") and not sees_app_annotation(cursor):
        annotations.append(parse_annotation(cursor))
    if cursor.sees_word("define"):
        return parse_definition(cursor, tuple(annotations))
    if cursor.sees_word("from"):
        return parse_query(cursor, tuple(annotations))
    return None
