"""Queries: ``from .. select .. insert into ..``."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from mesh.errors import not_supported
from mesh.language.expressions import parse_expression, parse_variable
from mesh.language.patterns import parse_pattern, starts_pattern
from mesh.language.sources import parse_filters, parse_source
from mesh.language.syntax import (
    Annotation,
    EventElement,
    EventKind,
    Expression,
    Filter,
    Handler,
    InsertInto,
    OutputAttribute,
    Query,
    QueryInput,
    Selector,
    StreamInput,
    Variable,
    WindowHandler,
)

if TYPE_CHECKING:
    from mesh.language.cursor import Cursor

_JOINS = ("join", "inner", "outer", "left", "right", "full", "unidirectional")
#: What may follow an input, for hints at misspelt words.
_AFTER_INPUT = ("select", "insert", "within", "output", "delete", "update", "return", *_JOINS)
_AFTER_SELECT = (
    "group", "having", "order", "limit", "offset", "output", "insert", "delete", "update", "return"
)  # fmt: skip


def parse_query(cursor: Cursor, annotations: tuple[Annotation, ...]) -> Query:
    """The query that starts at ``from``; its annotations are read already."""
    position = cursor.take().position
    source = _input(cursor)
    selector = _selector(cursor)
    output = _output(cursor, has_select=bool(selector.position.line))
    return Query(source, selector, output, annotations, position=position)


def _input(cursor: Cursor) -> QueryInput:
    if cursor.sees_word("from") and cursor.sees_name(1):
        raise not_supported("queries inside queries (from (from ..))", cursor.position)
    if starts_pattern(cursor):
        return parse_pattern(cursor)
    position = cursor.position
    stream = parse_source(cursor)
    handlers = _handlers(cursor)
    filters = tuple(handler for handler in handlers if isinstance(handler, Filter))
    if len(filters) == len(handlers) and _continues_as_pattern(cursor):
        return parse_pattern(cursor, EventElement(stream, None, filters, position=position))
    if cursor.sees_word(*_JOINS) or (cursor.sees_word("as") and _is_join_alias(cursor)):
        raise not_supported("joins", cursor.position)
    if cursor.sees_word("as"):
        cursor.fail("'select'", hint="Only a joined stream has an alias; leave it out.")
    return StreamInput(stream, handlers, position=position)


def _continues_as_pattern(cursor: Cursor) -> bool:
    return any(cursor.sees(symbol) for symbol in ("->", ",", "<", "*", "+", "?")) or (
        cursor.sees_word("and", "or")
    )


def _is_join_alias(cursor: Cursor) -> bool:
    return cursor.sees_name(1) and cursor.sees_word(*_JOINS, ahead=2)


def _handlers(cursor: Cursor) -> tuple[Handler, ...]:
    """Filters, with at most one window among them."""
    handlers: list[Handler] = list(parse_filters(cursor))
    if cursor.sees("#") and cursor.sees_word("window", ahead=1) and cursor.sees(".", ahead=2):
        handlers.append(_window(cursor))
        handlers.extend(parse_filters(cursor))
        if cursor.sees("#") and cursor.sees_word("window", ahead=1):
            cursor.fail("'select'", hint="A stream has one window; use a second query for another.")
    if cursor.sees("#") and cursor.sees_name(1):
        raise not_supported("stream functions (#name(..))", cursor.position)
    return tuple(handlers)


def _window(cursor: Cursor) -> WindowHandler:
    position = cursor.take().position
    cursor.take()
    cursor.take()
    namespace = None
    name = cursor.expect_name("the name of a window")
    if cursor.accept(":"):
        namespace, name = name, cursor.expect_name("the name of a window")
    cursor.expect("(")
    arguments: list[Expression] = []
    if not cursor.sees(")"):
        if cursor.sees("*"):
            raise not_supported("all attributes as arguments (*)", cursor.position)
        arguments.append(parse_expression(cursor))
        while cursor.accept(","):
            arguments.append(parse_expression(cursor))
    if not cursor.sees(")"):
        cursor.fail("','", "')'")
    cursor.take()
    return WindowHandler(name, tuple(arguments), namespace, position=position)


def _selector(cursor: Cursor) -> Selector:
    if not cursor.sees_word("select"):
        return Selector()
    position = cursor.take().position
    attributes: list[OutputAttribute] = []
    if not cursor.accept("*"):
        attributes.append(_output_attribute(cursor))
        while cursor.accept(","):
            attributes.append(_output_attribute(cursor))
    group_by: list[Variable] = []
    if cursor.accept_word("group"):
        cursor.expect_word("by")
        group_by.append(parse_variable(cursor))
        while cursor.accept(","):
            group_by.append(parse_variable(cursor))
    having = parse_expression(cursor) if cursor.accept_word("having") else None
    for word, what in (("order", "order by"), ("limit", "limit"), ("offset", "offset")):
        if cursor.sees_word(word):
            raise not_supported(what, cursor.position)
    return Selector(tuple(attributes), tuple(group_by), having, position=position)


def _output_attribute(cursor: Cursor) -> OutputAttribute:
    position = cursor.position
    expression = parse_expression(cursor)
    if cursor.accept_word("as"):
        alias = cursor.expect_name("the name of the output attribute")
        return OutputAttribute(expression, alias, position=position)
    if not isinstance(expression, Variable):
        cursor.fail(
            "'as'", words=("as",), hint="What is computed needs a name: write 'as' and one."
        )
    return OutputAttribute(expression, position=position)


def _output(cursor: Cursor, *, has_select: bool) -> InsertInto:
    if cursor.sees_word("output"):
        raise not_supported("output rates (output .. every)", cursor.position)
    if not cursor.sees_word("insert"):
        _refuse_output(cursor, has_select=has_select)
    cursor.take()
    events = EventKind.CURRENT
    if cursor.sees_word("all", "expired", "current") and cursor.sees_word("events", ahead=1):
        events = EventKind(cursor.take().text.lower())
        cursor.take()
    elif cursor.sees_word("events") and cursor.sees_word("into", ahead=1):
        cursor.take()
    cursor.expect_word("into")
    position = cursor.position
    target = parse_source(cursor)
    return InsertInto(target, events, position=position)


def _refuse_output(cursor: Cursor, *, has_select: bool) -> NoReturn:
    if cursor.sees_word("delete"):
        raise not_supported("deleting from a table (delete)", cursor.position)
    if cursor.sees_word("update"):
        raise not_supported("updating a table (update)", cursor.position)
    if cursor.sees_word("return"):
        raise not_supported("queries without a target (return)", cursor.position)
    if has_select:
        hint = "'*' stands alone: name the attributes instead." if cursor.sees(",") else None
        cursor.fail("'insert into'", words=_AFTER_SELECT, hint=hint)
    cursor.fail("'select'", "'insert into'", words=_AFTER_INPUT)
