"""Queries: ``from .. select .. output .. insert into ..``.

Keys of a partition: ``with (a of S, b > 5 as 'large' of U)``.

On-demand queries: read or change a table, window or aggregation once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError
from mesh.language.expressions import parse_expression
from mesh.language.hints import clause_hint, operator_hint
from mesh.language.inputs import JOIN_WORDS, parse_join, parse_stream, parse_time_range, sees_join
from mesh.language.outputs import parse_output, parse_rate, parse_return
from mesh.language.references import parse_variable
from mesh.language.states import continues_as_state, parse_state, starts_state
from mesh.language.syntax import (
    Annotation,
    AnonymousInput,
    DeleteFrom,
    Direction,
    EventElement,
    EventKind,
    Expression,
    InsertInto,
    OnDemandQuery,
    OrderBy,
    OutputAttribute,
    PartitionKey,
    PartitionRange,
    Query,
    QueryInput,
    QueryOutput,
    RangePartition,
    ReturnEvents,
    SelectClause,
    StoreInput,
    StreamKind,
    StreamReference,
    UpdateTable,
    ValuePartition,
    Variable,
    WindowHandler,
)
from mesh.language.tokens import TokenKind

if TYPE_CHECKING:
    from mesh.errors import Position
    from mesh.language.cursor import Cursor


#: Deepest nesting of queries; functions that walk the tree recurse.
_DEPTH_MAX: Final = 100
#: Words that may follow an input, for hints at misspelt words.
_AFTER_INPUT: Final = (
    "select", "insert", "within", "output", "delete", "update", "return", "on", *JOIN_WORDS,
)  # fmt: skip

_CHANGES: Final = ("insert", "delete", "update")
_STARTS: Final = ("from", "select", "delete", "update")


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


def parse_store_query(cursor: Cursor) -> OnDemandQuery:
    """The on-demand query that starts here."""
    position = cursor.position
    cursor.start_line()
    if cursor.accept_word("from"):
        return _find(cursor)
    if cursor.sees("@"):
        cursor.fail(*(f"'{word}'" for word in _STARTS), hint="It has no annotations.")
    selector = parse_selector(cursor)
    if not cursor.sees_word(*_CHANGES):
        words = _CHANGES if selector.position.line else _STARTS
        is_sql = bool(selector.position.line) and cursor.sees_word("from")
        hint = "A query starts with 'from': from T select a." if is_sql else None
        cursor.fail(*(f"'{word}'" for word in words), words=words, hint=hint)
    output = parse_output(cursor)
    _check_change(output, selector)
    return OnDemandQuery(None, selector, output, position=position)


def _find(cursor: Cursor) -> OnDemandQuery:
    position = cursor.position
    if cursor.sees("#") or cursor.sees("!"):
        cursor.fail("the name of a table, window or aggregation")
    name = cursor.expect_name("the name of a table, window or aggregation")
    store = StreamReference(name, position=position)
    if cursor.sees("[") or cursor.sees("#"):
        cursor.fail("'on'", "'select'", hint="The condition follows 'on': from T on a > 1.")
    alias = cursor.expect_name("an alias") if cursor.accept_word("as") else None
    on = parse_expression(cursor) if cursor.accept_word("on") else None
    within, per = parse_time_range(cursor)
    source = StoreInput(store, alias, on, within, per, position=position)
    selector = parse_selector(cursor)
    if cursor.sees_word(*_CHANGES):
        cursor.fail(
            "the end of the text",
            hint="One that changes a table has no 'from': select 1 as a insert into T.",
        )
    if not cursor.is_at_end and not cursor.sees(";"):
        hint = clause_hint(cursor)
        if cursor.sees_word("where"):
            hint = "The condition follows 'on': from T on a > 1."
        elif cursor.sees_word("return", "output"):
            hint = "An on-demand query ends with what it selects."
        cursor.fail(
            "'select'" if not selector.position.line else "the end of the text",
            words=("on", "within", "select"),
            hint=hint,
        )
    return OnDemandQuery(source, selector, ReturnEvents(), position=position)


def _check_change(output: QueryOutput, selector: SelectClause) -> None:
    """Refuse output clauses that are valid in an app's queries but not in on-demand queries."""
    if output.events is not EventKind.CURRENT:
        raise MeshError(
            "MESH-L104",
            "'events' mean nothing in an on-demand query",
            hint="Leave it out.",
            position=output.position,
        )
    has_select = bool(selector.position.line)
    is_bare = isinstance(output, DeleteFrom) or (
        isinstance(output, UpdateTable) and not output.inserts
    )
    if not has_select and not is_bare:
        raise MeshError(
            "MESH-L104",
            "nothing is selected to be inserted",
            hint="Write 'select 1 as a insert into T'.",
            position=output.position,
        )
    if isinstance(output, InsertInto) and output.stream.kind is not StreamKind.PLAIN:
        raise MeshError(
            "MESH-L109",
            f"'insert into' takes a table here, not '{output.stream}'",
            position=output.stream.position,
        )
