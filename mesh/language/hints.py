"""Hints for users who know SQL: common SQL words and their SiddhiQL counterparts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.language.tokens import TokenKind

if TYPE_CHECKING:
    from mesh.language.cursor import Cursor

_TYPES_MEANT: Final = {
    "integer": "int",
    "smallint": "int",
    "short": "int",
    "byte": "int",
    "bigint": "long",
    "timestamp": "long",
    "datetime": "long",
    "date": "long",
    "boolean": "bool",
    "number": "double",
    "decimal": "double",
    "numeric": "double",
    "real": "double",
    "text": "string",
    "varchar": "string",
    "char": "string",
    "str": "string",
    "map": "object",
    "list": "object",
    "any": "object",
}

_CLAUSES_MEANT: Final = {
    "where": "A filter is in brackets after the stream: from S[a > 1] select .. .",
    "union": "Several queries may insert into one stream.",
    "descending": "Write 'desc'.",
    "ascending": "Write 'asc'.",
    "as": "Only the sides of a join have an alias; leave it out.",
    "when": "A filter is in brackets after the stream: from S[a > 1] select .. .",
    "partition": "A partition encloses its queries: partition with (a of S) begin .. end.",
    "window": "A window is written #window.time(1 min), after the stream.",
    "into": "Write 'insert into'.",
}

_OPERATORS_MEANT: Final = {
    "between": "Write a >= 1 and a <= 2.",
    "like": "Write regex:find(..) or str:contains(..).",
    "is": "'is null' follows a name or a call.",
    "mod": "Write '%'.",
    "div": "Write '/'.",
    "xor": "Write (a > 1) != (b > 1).",
    "then": "Write ifThenElse(condition, a, b).",
    "when": "Write ifThenElse(condition, a, b).",
}

_ELEMENTS_MEANT: Final = {
    "create": "Write 'define stream', 'define table' and so on.",
    "select": "A query starts with 'from': from S select a insert into T;",
    "insert": "A query ends with 'insert into': from S select a insert into T;",
    "stream": "Write 'define stream'.",
    "table": "Write 'define table'.",
    "window": "Write 'define window'.",
    "trigger": "Write 'define trigger'.",
    "function": "Write 'define function'.",
    "aggregation": "Write 'define aggregation'.",
    "delete": "An app changes a table by a query: from S delete T on T.a == a;",
    "update": "An app changes a table by a query: from S update T set T.b = b on T.a == a;",
    "with": "There is no 'with'; let a query insert into a stream, and read that one.",
    "end": "One 'end' too many: no partition is open here.",
}


def type_hint(word: str) -> str | None:
    """The type that an unknown type name probably means."""
    near = _TYPES_MEANT.get(word.lower())
    return f"Did you mean '{near}'?" if near else None


def clause_hint(cursor: Cursor) -> str | None:
    """The SiddhiQL counterpart of the clause that is next, if SiddhiQL has no such clause."""
    last_three = [cursor.peek(ahead).text.lower() for ahead in (-2, -1, 0)]
    if last_three == [",", "insert", "into"]:
        return "One ',' too many before 'insert into'."
    return _of_next(cursor, _CLAUSES_MEANT)


def operator_hint(cursor: Cursor) -> str | None:
    """The SiddhiQL counterpart of the operator that is next, if SiddhiQL has no such operator."""
    return _of_next(cursor, _OPERATORS_MEANT)


def element_hint(cursor: Cursor) -> str | None:
    """The SiddhiQL counterpart of the statement that starts here, if SiddhiQL has none like it."""
    return _of_next(cursor, _ELEMENTS_MEANT)


def _of_next(cursor: Cursor, meant: dict[str, str]) -> str | None:
    token = cursor.peek()
    return meant.get(token.text.lower()) if token.kind is TokenKind.NAME else None
