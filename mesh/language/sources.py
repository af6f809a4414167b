"""Stream names and filters, as queries and patterns have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.errors import not_supported
from mesh.language.expressions import parse_expression
from mesh.language.syntax import Filter, StreamReference

if TYPE_CHECKING:
    from mesh.language.cursor import Cursor


def parse_source(cursor: Cursor) -> StreamReference:
    """The name of a stream that is read or written."""
    if cursor.sees("#"):
        raise not_supported("inner streams (#S)", cursor.position)
    if cursor.sees("!"):
        raise not_supported("fault streams (!S)", cursor.position)
    position = cursor.position
    return StreamReference(cursor.expect_name("the name of a stream"), position=position)


def parse_filters(cursor: Cursor) -> tuple[Filter, ...]:
    """All filters that stand here, ``[..]`` or ``#[..]``."""
    filters: list[Filter] = []
    while cursor.sees("[") or (cursor.sees("#") and cursor.sees("[", ahead=1)):
        cursor.accept("#")
        position = cursor.take().position
        condition = parse_expression(cursor)
        if not cursor.sees("]"):
            cursor.fail("an operator", "']'")
        cursor.take()
        filters.append(Filter(condition, position=position))
    return tuple(filters)
