"""References: streams by their names, attributes by theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError
from mesh.language.syntax import EventReference, StreamKind, StreamReference, Variable
from mesh.language.times import INT_MAX
from mesh.language.tokens import TokenKind

if TYPE_CHECKING:
    from mesh.language.cursor import Cursor

#: Keywords that the reference grammar doesn't accept as names without backquotes.
_NAMED_WITHOUT_KEYWORDS: Final = ("trigger", "function", "aggregation")


def parse_stream_reference(cursor: Cursor, what: str = "the name of a stream") -> StreamReference:
    """``S``, ``#S`` or ``!S``."""
    start = cursor.position
    kind = _kind(cursor)
    name = cursor.expect_name(what)
    return StreamReference(name, kind, position=cursor.since(start))


def parse_table_reference(cursor: Cursor, verb: str) -> StreamReference:
    """The name of a table after ``verb``; inner and fault streams are refused."""
    reference = parse_stream_reference(cursor, "the name of a table")
    if reference.kind is not StreamKind.PLAIN:
        raise MeshError(
            "MESH-L109",
            f"'{verb}' takes a table, not '{reference}'",
            hint="Inner streams (#S) and fault streams (!S) are no tables.",
            position=reference.position,
        )
    return reference


def parse_plain_name(cursor: Cursor, what: str, kind: str) -> str:
    """The name in a definition, without ``#`` and ``!``."""
    if cursor.sees("#") or cursor.sees("!"):
        sign = "an inner stream" if cursor.sees("#") else "a fault stream"
        raise MeshError(
            "MESH-L109",
            f"{kind} can't be defined as {sign}",
            hint="Queries in a partition create inner streams, @OnError creates fault streams."
            if kind == "stream"
            else f"Leave the '{cursor.peek().text}' out.",
            position=cursor.position,
        )
    if kind in _NAMED_WITHOUT_KEYWORDS:
        cursor.refuse_keyword(what)
    return cursor.expect_name(what)


def _kind(cursor: Cursor) -> StreamKind:
    if cursor.accept("#"):
        cursor.no_space_before()
        return StreamKind.INNER
    if cursor.accept("!"):
        cursor.no_space_before()
        return StreamKind.FAULT
    return StreamKind.PLAIN


_NOT_HINT: Final = "'!' is the mark of a fault stream: write 'not' before a condition."


def parse_variable(cursor: Cursor, what: str = "an attribute") -> Variable:
    """A reference to an attribute: ``temp``, ``e1.temp``, ``e1[last-1].temp``."""
    reference = parse_reference(cursor, what)
    if isinstance(reference, EventReference):
        cursor.fail("'.'")
    return reference


def parse_reference(cursor: Cursor, what: str) -> Variable | EventReference:
    """Any reference that starts with a name and is no call; an event only if ``is`` follows."""
    start = cursor.position
    kind = _kind(cursor)
    if kind is StreamKind.FAULT and cursor.sees("("):
        cursor.fail(what, hint=_NOT_HINT)
    source = cursor.expect_name(what)
    index = parse_index(cursor)
    function, function_index = None, None
    if cursor.sees("#") and cursor.sees_name(1):
        cursor.take_close()
        cursor.no_space_before()
        function = cursor.expect_name("the name of a stream function")
        function_index = parse_index(cursor)
    if cursor.sees("."):
        cursor.take()
        attribute = cursor.expect_name("the name of an attribute")
        return Variable(
            attribute, source, index, kind, function, function_index, position=cursor.since(start)
        )
    if kind is StreamKind.PLAIN and index is None and function is None:
        return Variable(source, position=start)
    if function is not None or not cursor.sees_word("is"):
        hint = "An attribute's name belongs here, or 'is null'."
        if kind is StreamKind.FAULT:
            hint = _NOT_HINT
        cursor.fail("'.'", hint=hint)
    return EventReference(source, index, kind, position=cursor.since(start))


def parse_index(cursor: Cursor) -> int | None:
    """``[0]``, ``[last]``, ``[last-1]``; None if there is none."""
    if not cursor.sees("["):
        return None
    cursor.take_close()
    if cursor.accept_word("last"):
        index = -1
        if cursor.sees("-"):
            cursor.take_close()
            cursor.no_space_before()
            index -= parse_whole_number(cursor)
    elif cursor.peek().kind is TokenKind.INT:
        index = parse_whole_number(cursor)
    else:
        cursor.fail("a whole number", "'last'")
    cursor.expect("]")
    return index


def parse_whole_number(cursor: Cursor) -> int:
    """A number of type int, without a sign."""
    token = cursor.peek()
    if token.kind is not TokenKind.INT:
        cursor.fail("a whole number")
    position = cursor.position
    cursor.take()
    assert isinstance(token.value, int)
    if token.value > INT_MAX:
        raise MeshError("MESH-L103", "number is too large for type int", position=position)
    return token.value
