"""Queries: ``from .. select .. output .. insert into ..``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError
from mesh.language.expressions import parse_expression
from mesh.language.hints import clause_hint, operator_hint
from mesh.language.inputs import JOIN_WORDS, parse_join, parse_stream, sees_join
from mesh.language.outputs import parse_output, parse_rate, parse_return
from mesh.language.references import parse_variable
from mesh.language.states import continues_as_state, parse_state, starts_state
from mesh.language.syntax import (
    Annotation,
    AnonymousInput,
    Direction,
    EventElement,
    OrderBy,
    OutputAttribute,
    Query,
    QueryInput,
    SelectClause,
    Variable,
    WindowHandler,
)
from mesh.language.tokens import TokenKind

if TYPE_CHECKING:
    from mesh.language.cursor import Cursor

#: Deepest nesting of queries; functions that walk the tree recurse.
_DEPTH_MAX: Final = 100
#: Words that may follow an input, for hints at misspelt words.
_AFTER_INPUT: Final = (
    "select", "insert", "within", "output", "delete", "update", "return", "on", *JOIN_WORDS,
)  # fmt: skip


def parse_query(cursor: Cursor, annotations: tuple[Annotation, ...]) -> Query:
    """The query that starts at ``from``; its annotations are read already."""
    position = cursor.position
    cursor.expect_clause("from")
    source = _input(cursor)
    selector = parse_selector(cursor)
    if not selector.position.line:
        _check_after_input(cursor)
    rate = parse_rate(cursor)
    output = parse_output(cursor, has_rate=rate is not None)
    return Query(source, selector, output, annotations, rate, position=position)


def _check_after_input(cursor: Cursor) -> None:
    if not cursor.sees_word("insert", "output", "delete", "update", "return"):
        hint = clause_hint(cursor) or operator_hint(cursor)
        if cursor.sees_word(*JOIN_WORDS):
            hint = "A query joins two streams; join the third in a query of its own."
        cursor.fail("'select'", "'insert into'", words=_AFTER_INPUT, hint=hint)


# Inputs


def _input(cursor: Cursor) -> QueryInput:
    """The input after ``from``: inner queries, if any, around an innermost input."""
    opened = []
    while _sees_inner_query(cursor):
        opened.append((cursor.position, cursor.accept("(")))
        cursor.expect_word("from")
        if len(opened) > _DEPTH_MAX:
            raise MeshError(
                "MESH-L105",
                "queries are nested too deeply",
                detail=f"{_DEPTH_MAX} levels are possible.",
                position=cursor.position,
            )
    source = _plain_input(cursor)
    indent, cursor.indent = cursor.indent, None
    for position, has_bracket in reversed(opened):
        selector = parse_selector(cursor)
        rate = parse_rate(cursor)
        output = parse_return(cursor)
        if has_bracket:
            cursor.expect(")")
        source = AnonymousInput(source, selector, rate, output, position=position)
    cursor.indent = indent
    return source


def _sees_inner_query(cursor: Cursor) -> bool:
    if cursor.sees("("):
        return cursor.sees_word("from", ahead=1) and (
            cursor.sees_name(2) or cursor.sees("(", 2) or cursor.sees("#", 2) or cursor.sees("!", 2)
        )
    return (
        cursor.sees_word("from")
        and cursor.sees_name(1)
        and not cursor.sees_word(*_AFTER_INPUT, "as", ahead=1)
    )


def _plain_input(cursor: Cursor) -> QueryInput:
    if starts_state(cursor):
        return parse_state(cursor)
    source = parse_stream(cursor)
    has_window = any(isinstance(handler, WindowHandler) for handler in source.handlers)
    if not has_window and continues_as_state(cursor):
        first = EventElement(source.stream, None, source.handlers, position=source.position)
        return parse_state(cursor, first)
    if sees_join(cursor):
        return parse_join(cursor, source)
    if cursor.sees_word("as"):
        cursor.fail("'select'", hint=clause_hint(cursor))
    if cursor.sees(","):
        cursor.fail("'select'", hint="Two streams are joined by 'join': A join B on A.x == B.x.")
    return source


# Selection


def parse_selector(cursor: Cursor) -> SelectClause:
    """``select`` and its clauses; without ``select`` there are none."""
    if not cursor.sees_word("select"):
        return SelectClause()
    position = cursor.position
    attributes, group_by = parse_projection(cursor)
    having = parse_expression(cursor) if cursor.accept_clause("having") else None
    order_by: list[OrderBy] = []
    if cursor.accept_clause("order"):
        cursor.expect_word("by")
        order_by = cursor.listed(_order)
        _refuse_computed(cursor, "order by")
    bounds = {}
    for word in ("limit", "offset"):
        if cursor.accept_clause(word):
            bounds[word] = parse_expression(cursor)
    return SelectClause(
        attributes,
        group_by,
        having,
        tuple(order_by),
        bounds.get("limit"),
        bounds.get("offset"),
        position=position,
    )


def parse_projection(
    cursor: Cursor,
) -> tuple[tuple[OutputAttribute, ...], tuple[Variable, ...]]:
    """``select a, b group by c``."""
    cursor.expect_clause("select")
    attributes: list[OutputAttribute] = []
    if cursor.accept("*"):
        if cursor.sees(","):
            cursor.fail("'insert into'", hint="'*' is alone: name the attributes instead.")
    else:
        attributes = cursor.listed(_output_attribute)
    group_by: list[Variable] = []
    if cursor.accept_clause("group"):
        cursor.expect_word("by")
        group_by = cursor.listed(parse_variable)
        _refuse_computed(cursor, "group by")
    return tuple(attributes), tuple(group_by)


def _refuse_computed(cursor: Cursor, clause: str) -> None:
    """Refuse the rest of an expression where a clause takes attributes only."""
    if cursor.peek().kind is TokenKind.SYMBOL and not cursor.sees(";"):
        place = "in 'select'" if clause == "order by" else "with a name in an earlier query"
        cursor.fail("','", hint=f"'{clause}' takes attributes: compute it {place}.")


def _output_attribute(cursor: Cursor) -> OutputAttribute:
    position = cursor.position
    if cursor.sees("*"):
        cursor.fail("an expression", hint="'*' is alone: select *.")
    if cursor.sees_word("distinct") and cursor.sees_name(1) and not cursor.sees_word("as", ahead=1):
        cursor.fail("an expression", hint="There is no 'distinct'; use 'group by' or #unique.")
    has_bracket = cursor.sees("(")
    expression = parse_expression(cursor)
    if cursor.accept_word("as"):
        alias = cursor.expect_name("the name of the output attribute")
        return OutputAttribute(expression, alias, position=position)
    if has_bracket or not isinstance(expression, Variable):
        hint = operator_hint(cursor) or "What is computed needs a name: write 'as' and one."
        cursor.fail("'as'", words=("as",), hint=hint)
    return OutputAttribute(expression, position=position)


def _order(cursor: Cursor) -> OrderBy:
    position = cursor.position
    attribute = parse_variable(cursor)
    word = cursor.accept_word("asc", "desc")
    return OrderBy(attribute, Direction(word) if word else Direction.ASCENDING, position=position)
