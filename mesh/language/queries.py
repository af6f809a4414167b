"""Queries: ``from .. select .. output .. insert into ..``.

Keys of a partition: ``with (a of S, b > 5 as 'large' of U)``.

On-demand queries: read or change a table, window or aggregation once.

Output clauses of a query: the target, the kinds of events, and the rate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError
from mesh.language.expressions import parse_expression
from mesh.language.hints import clause_hint, operator_hint
from mesh.language.inputs import JOIN_WORDS, parse_join, parse_stream, parse_time_range, sees_join
from mesh.language.references import parse_stream_reference, parse_table_reference, parse_variable
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
    Literal,
    OnDemandQuery,
    OrderBy,
    OutputAttribute,
    OutputRate,
    PartitionKey,
    PartitionRange,
    Query,
    QueryInput,
    QueryOutput,
    RangePartition,
    RateKind,
    ReturnEvents,
    SelectClause,
    SetAssignment,
    StoreInput,
    StreamKind,
    StreamReference,
    UpdateTable,
    ValuePartition,
    Variable,
    WindowHandler,
)
from mesh.language.times import INT_MAX, expect_time, sees_time
from mesh.language.tokens import TokenKind
from mesh.model.types import AttributeType

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


_EVENT_KINDS: Final = tuple(EventKind)
_AFTER_SELECT: Final = (
    "group", "having", "order", "limit", "offset", "output", "insert", "delete", "update", "return",
)  # fmt: skip


def parse_rate(cursor: Cursor) -> OutputRate | None:
    """``output last every 5 events``, if present."""
    position = cursor.position
    if not cursor.accept_clause("output"):
        return None
    word = cursor.accept_word(*RateKind)
    kind = RateKind(word) if word else RateKind.ALL
    cursor.expect_word("every", hint=None if word else "Write 'output every 5 events'.")
    if sees_time(cursor) or kind is RateKind.SNAPSHOT:
        every = expect_time(cursor, "'every 5 sec'")
    else:
        every = _event_count(cursor)
    return OutputRate(kind, every, position=position)


def _event_count(cursor: Cursor) -> Literal:
    token = cursor.peek()
    position = cursor.position
    if token.kind is not TokenKind.INT:
        cursor.fail("a number of events", "a time")
    cursor.take()
    assert isinstance(token.value, int)
    if token.value > INT_MAX:
        cursor.fail("a smaller number")
    cursor.expect_word("events", hint=None if cursor.sees_word("event") else _RATE_HINT)
    return Literal(token.value, AttributeType.INT, position=position)


_RATE_HINT: Final = "Write 'every 5 events', or a time: 'every 5 sec'."


def parse_output(cursor: Cursor, *, has_rate: bool = False) -> QueryOutput:
    """``insert into S`` and the like, which must be next."""
    position = cursor.position
    if not cursor.sees_word("insert", "delete", "update", "return"):
        _fail(cursor, has_rate=has_rate)
    match cursor.expect_clause("insert", "delete", "update", "return"):
        case "insert":
            events = _events_of_insert(cursor)
            cursor.expect_word("into", hint=_into_hint(cursor))
            return InsertInto(parse_stream_reference(cursor), events, position=position)
        case "return":
            return ReturnEvents(_events(cursor), position=position)
        case "delete":
            table = _table(cursor, "delete")
            events = parse_events_after(cursor, "for") or EventKind.CURRENT
            return DeleteFrom(table, parse_on(cursor), events, position=position)
        case _:
            is_upsert = _or_insert(cursor)
            table = _table(cursor, "update or insert into" if is_upsert else "update")
            events = parse_events_after(cursor, "for") or EventKind.CURRENT
            assignments = parse_assignments(cursor)
            condition = parse_on(cursor)
            return UpdateTable(table, assignments, condition, events, is_upsert, position=position)


def _table(cursor: Cursor, verb: str) -> StreamReference:
    if (
        cursor.sees_word("from", "into")
        and cursor.sees_name(1)
        and not (cursor.sees_word("on", "set", "for", ahead=1))
    ):
        word = cursor.peek().text
        cursor.fail("the name of a table", hint=f"Write '{verb} T', without '{word}'.")
    return parse_table_reference(cursor, verb)


def parse_return(cursor: Cursor) -> ReturnEvents:
    """``return all events``, which ends an inner query."""
    position = cursor.position
    cursor.expect_word("return", hint="An inner query ends with 'return'.")
    return ReturnEvents(_events(cursor), position=position)


def _fail(cursor: Cursor, *, has_rate: bool) -> None:
    hint = clause_hint(cursor) or operator_hint(cursor)
    if cursor.sees_word("group", "having", "order", "limit", "offset"):
        hint = (
            "'output' follows it."
            if has_rate
            else "The order is: group by, having, order by, limit, offset."
        )
    elif cursor.sees("(") or cursor.sees("=") or cursor.peek().kind is TokenKind.STRING:
        hint = "Is an operator or a ',' missing before it?"
    elif cursor.sees(";") or cursor.is_at_end:
        hint = "A query says where its events go: insert into T."
    cursor.fail("'insert into'", words=_AFTER_SELECT, hint=hint)


def _into_hint(cursor: Cursor) -> str | None:
    if cursor.sees_word("overwrite", "or"):
        return "Write 'update or insert into T on ..'."
    return None


def _events_of_insert(cursor: Cursor) -> EventKind:
    """``all events`` after ``insert``."""
    if cursor.sees_word(*_EVENT_KINDS) and not cursor.sees_word("events", ahead=1):
        kind = cursor.peek().text.lower()
        cursor.skip()
        cursor.fail("'events'", hint=f"Write 'insert {kind} events into ..'.")
    return _events(cursor)


def _events(cursor: Cursor) -> EventKind:
    word = cursor.accept_word(*_EVENT_KINDS)
    if word:
        cursor.expect_word("events")
        return EventKind(word)
    cursor.accept_word("events")
    return EventKind.CURRENT


def parse_events_after(cursor: Cursor, word: str) -> EventKind | None:
    """``all events`` after a word such as ``for``; None without it."""
    if not cursor.accept_word(word):
        return None
    kind = cursor.accept_word(*_EVENT_KINDS)
    cursor.expect_word("events")
    return EventKind(kind) if kind else EventKind.CURRENT


def _or_insert(cursor: Cursor) -> bool:
    """``or insert into`` after ``update``; a table may be called "or"."""
    if not (cursor.sees_word("or") and cursor.sees_word("insert", ahead=1)):
        return False
    cursor.expect_word("or")
    cursor.expect_word("insert")
    cursor.expect_word("into", hint="Write 'update or insert into T on ..'.")
    return True


def parse_assignments(cursor: Cursor) -> tuple[SetAssignment, ...]:
    """``set T.a = b, T.c = 1``, if present."""
    return tuple(cursor.listed(_assignment)) if cursor.accept_word("set") else ()


def _assignment(cursor: Cursor) -> SetAssignment:
    position = cursor.position
    attribute = parse_variable(cursor, "an attribute of the table")
    cursor.expect("=", hint="'set' assigns by one '='." if cursor.sees("==") else None)
    return SetAssignment(attribute, parse_expression(cursor), position=position)


def parse_on(cursor: Cursor) -> Expression:
    """``on T.a == a``, which must be next."""
    hint = None
    if cursor.sees_word("where"):
        hint = "The condition follows 'on'."
    elif cursor.sees_word("for"):
        hint = "'for .. events' follows the table directly."
    elif cursor.sees(";") or cursor.is_at_end:
        hint = "Say which rows: on T.a == a; all of them are 'on true'."
    cursor.expect_word("on", hint=hint)
    return parse_expression(cursor)
