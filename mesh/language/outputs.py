"""Output clauses of a query: the target, the kinds of events, and the rate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.language.expressions import parse_expression
from mesh.language.hints import clause_hint, operator_hint
from mesh.language.references import parse_stream_reference, parse_table_reference, parse_variable
from mesh.language.syntax import (
    DeleteFrom,
    EventKind,
    Expression,
    InsertInto,
    Literal,
    OutputRate,
    QueryOutput,
    RateKind,
    ReturnEvents,
    SetAssignment,
    StreamReference,
    UpdateTable,
)
from mesh.language.times import INT_MAX, expect_time, sees_time
from mesh.language.tokens import TokenKind
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from mesh.language.cursor import Cursor

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
