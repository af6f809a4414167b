"""Keys of a partition: ``with (a of S, b > 5 as 'large' of U)``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.language.expressions import parse_expression
from mesh.language.syntax import (
    Expression,
    PartitionKey,
    PartitionRange,
    RangePartition,
    StreamReference,
    ValuePartition,
)
from mesh.language.tokens import TokenKind

if TYPE_CHECKING:
    from mesh.errors import Position
    from mesh.language.cursor import Cursor


def parse_partition_keys(cursor: Cursor) -> tuple[PartitionKey, ...]:
    """``with (a of S)``, after ``partition``."""
    cursor.expect_word("with", hint="Write 'partition with (a of S)'.")
    cursor.expect("(", hint="Write 'partition with (a of S)'.")
    keys = cursor.listed(_key)
    if not cursor.sees(")"):
        cursor.fail("','", "')'")
    cursor.take()
    return tuple(keys)


def _key(cursor: Cursor) -> PartitionKey:
    position = cursor.position
    expression = parse_expression(cursor)
    if cursor.sees_word("as"):
        return _ranges(cursor, expression, position)
    cursor.expect_word("of", hint="Say of which stream: a of S.")
    return ValuePartition(expression, _stream(cursor), position=position)


def _ranges(cursor: Cursor, condition: Expression, position: Position) -> RangePartition:
    ranges: list[PartitionRange] = []
    start = position
    while True:
        cursor.expect_word("as", hint="Each range has a name: a > 5 as 'large'.")
        if cursor.peek().kind is not TokenKind.STRING:
            cursor.fail("a text", hint="The name of a range is in quotes: as 'large'.")
        ranges.append(PartitionRange(condition, str(cursor.take().value), position=start))
        if not cursor.accept_word("or"):
            break
        start = cursor.position
        condition = parse_expression(cursor)
    cursor.expect_word("of", hint="Say of which stream: a > 5 as 'large' of S.")
    return RangePartition(tuple(ranges), _stream(cursor), position=position)


def _stream(cursor: Cursor) -> StreamReference:
    position = cursor.position
    if cursor.sees("#") or cursor.sees("!"):
        cursor.fail("the name of a stream", hint="Inner and fault streams aren't divided again.")
    return StreamReference(cursor.expect_name("the name of a stream"), position=position)
