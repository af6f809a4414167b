"""Inputs of a query: one stream or a join of two, with their handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError
from mesh.language.expressions import parse_expression
from mesh.language.hints import clause_hint, operator_hint
from mesh.language.references import parse_stream_reference
from mesh.language.syntax import (
    Expression,
    Filter,
    Handler,
    JoinInput,
    JoinKind,
    JoinSide,
    StreamFunction,
    StreamInput,
    WindowHandler,
    WithinRange,
)

if TYPE_CHECKING:
    from mesh.errors import Position
    from mesh.language.cursor import Cursor

JOIN_WORDS: Final = ("join", "inner", "left", "right", "full", "outer", "unidirectional")
_OUTER: Final = {
    "left": JoinKind.LEFT_OUTER,
    "right": JoinKind.RIGHT_OUTER,
    "full": JoinKind.FULL_OUTER,
}


def parse_stream(cursor: Cursor) -> StreamInput:
    """A stream and its handlers, without an alias."""
    position = cursor.position
    stream = parse_stream_reference(cursor)
    return StreamInput(stream, parse_handlers(cursor), position=position)


def parse_handlers(cursor: Cursor, *, with_window: bool = True) -> tuple[Handler, ...]:
    """Filters and stream functions in any order, with at most one window among them."""
    handlers: list[Handler] = []
    has_window = False
    while True:
        if cursor.sees("[") or (cursor.sees("#") and cursor.sees("[", ahead=1)):
            handlers.append(_filter(cursor))
        elif _sees_window(cursor):
            if has_window or not with_window:
                hint = "A stream has one window; use a second query for another."
                if not with_window:
                    hint = "Events of patterns and sequences have no window, nor has this input."
                cursor.fail("a filter", "the end of the input", hint=hint)
            handlers.append(_window(cursor))
            has_window = True
        elif cursor.sees("#") and cursor.sees_name(1):
            handlers.append(_function(cursor))
        else:
            return tuple(handlers)


def _sees_window(cursor: Cursor) -> bool:
    return cursor.sees("#") and cursor.sees_word("window", ahead=1) and cursor.sees(".", ahead=2)


def _filter(cursor: Cursor) -> Filter:
    position = cursor.position
    if cursor.sees("#"):
        cursor.take_close()
    cursor.take_close()
    condition = parse_expression(cursor)
    if not cursor.sees("]"):
        cursor.fail("an operator", "']'", hint=operator_hint(cursor))
    cursor.take()
    return Filter(condition, position=position)


def _window(cursor: Cursor) -> WindowHandler:
    position = cursor.position
    cursor.take_close()
    cursor.expect_word("window")
    cursor.take()
    return parse_window_call(cursor, position)


def parse_window_call(cursor: Cursor, position: Position) -> WindowHandler:
    """``length(5)``: the name of a window and its arguments."""
    namespace, name = _name(cursor, "the name of a window")
    if not cursor.sees("("):
        cursor.fail("'('", hint=f"Its arguments are in brackets: {name}(..).")
    arguments, takes_all = _arguments(cursor)
    return WindowHandler(name, arguments, namespace, takes_all, position=position)


def _function(cursor: Cursor) -> StreamFunction:
    position = cursor.position
    cursor.take_close()
    namespace, name = _name(cursor, "the name of a stream function")
    if not cursor.sees("("):
        is_window = namespace is None and name.lower() == "window"
        hint = f"Its arguments are in brackets: {name}(..)."
        if is_window:
            hint = "A window is written #window.length(5)."
        cursor.fail("'('", hint=hint)
    arguments, takes_all = _arguments(cursor)
    return StreamFunction(name, arguments, namespace, takes_all, position=position)


def _name(cursor: Cursor, what: str) -> tuple[str | None, str]:
    name = cursor.expect_name(what)
    if not cursor.accept(":"):
        return None, name
    return name, cursor.expect_name(what)


def _arguments(cursor: Cursor) -> tuple[tuple[Expression, ...], bool]:
    """The arguments in the brackets of a call, and whether they are ``*``."""
    cursor.no_space_before()
    cursor.expect("(")
    if cursor.sees("*") and cursor.sees(")", ahead=1):
        cursor.take()
        cursor.take()
        return (), True
    arguments = [] if cursor.sees(")") else cursor.listed(parse_expression)
    if not cursor.sees(")"):
        cursor.fail("','", "')'")
    cursor.take()
    return tuple(arguments), False


# Joins


def sees_join(cursor: Cursor) -> bool:
    """Whether a join continues here, after its left side."""
    if cursor.sees_word("as"):
        return cursor.sees_name(1) and cursor.sees_word(*JOIN_WORDS, ahead=2)
    return cursor.sees_word(*JOIN_WORDS)


def parse_join(cursor: Cursor, left: StreamInput) -> JoinInput:
    """The join; its left side has been read except for the alias."""
    position = left.position
    _refuse_after_window(left)
    left = _aliased(cursor, left)
    is_left = bool(cursor.accept_word("unidirectional"))
    kind = _join_kind(cursor)
    right = parse_stream(cursor)
    _refuse_after_window(right)
    right = _aliased(cursor, right)
    is_right = False
    if cursor.sees_word("unidirectional"):
        if is_left:
            cursor.fail("'on'", hint="Only one side of a join can be unidirectional.")
        is_right = bool(cursor.accept_word("unidirectional"))
    on = parse_expression(cursor) if cursor.accept_word("on") else None
    within, per = parse_time_range(cursor)
    trigger = JoinSide.LEFT if is_left else JoinSide.RIGHT if is_right else JoinSide.BOTH
    return JoinInput(left, right, kind, trigger, on, within, per, position=position)


def _refuse_after_window(side: StreamInput) -> None:
    """Refuse handlers after the window of a join's side."""
    for before, handler in zip(side.handlers, side.handlers[1:], strict=False):
        if isinstance(before, WindowHandler):
            raise MeshError(
                "MESH-L104",
                "expected 'join', found a handler after a window",
                hint="In a join filters and stream functions precede the window.",
                position=handler.position,
            )


def _aliased(cursor: Cursor, side: StreamInput) -> StreamInput:
    if not cursor.accept_word("as"):
        return side
    alias = cursor.expect_name("an alias")
    return StreamInput(side.stream, side.handlers, alias, position=side.position)


def _join_kind(cursor: Cursor) -> JoinKind:
    if cursor.sees_word("outer"):
        cursor.fail(
            "'left'", "'right'", "'full'", hint="Write which: left, right or full outer join."
        )
    word = cursor.accept_word("inner", *_OUTER)
    if word in _OUTER:
        cursor.expect_word("outer", hint=f"Write '{word} outer join'.")
    cursor.expect_word("join", hint=clause_hint(cursor))
    return _OUTER.get(word or "", JoinKind.INNER)


def parse_time_range(cursor: Cursor) -> tuple[WithinRange | None, Expression | None]:
    """``within start, end per 'days'``; both or none."""
    position = cursor.position
    if not cursor.accept_word("within"):
        if cursor.sees_word("per"):
            cursor.fail("'within'", hint="'per' follows 'within': within '2019-**-** **:**:**'.")
        return None, None
    start = parse_expression(cursor)
    end = parse_expression(cursor) if cursor.accept(",") else None
    cursor.expect_word("per", hint="An aggregation is asked within a time, per a duration.")
    return WithinRange(start, end, position=position), parse_expression(cursor)
