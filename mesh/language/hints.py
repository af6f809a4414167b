"""Hints for users who know SQL: common SQL words and their SiddhiQL counterparts.

Texts of Siddhi 3, whose annotations Siddhi 4 replaced: recognised, and named as the cause.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError
from mesh.language.tokens import TokenKind, tokenize

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mesh.language.cursor import Cursor
    from mesh.language.tokens import Token


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
    "followed": "Events follow each other by '->': e1=S -> e2=T.",
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

#: A text without any of these is read no further.
_HINT: Final = re.compile(
    r"@\s*(?:plan\s*:|(?:import|export)\s*\(|from\s*\(\s*eventtable)|insert\s+overwrite",
    re.IGNORECASE,
)
#: The id of a stream of CEP: name:version.
STREAM_ID: Final = re.compile(r"[^:\s]+:\d+\.\d+\.\d+\Z")


def type_hint(word: str) -> str | None:
    """The type that an unknown type name probably means."""
    near = _TYPES_MEANT.get(word.lower())
    return f"Did you mean '{near}'?" if near else None


def clause_hint(cursor: Cursor) -> str | None:
    """The SiddhiQL counterpart of the clause that is next, if SiddhiQL has no such clause."""
    last_three = [cursor.peek(ahead).text.lower() for ahead in (-2, -1, 0)]
    if last_three == [",", "insert", "into"]:
        return "One ',' too many before 'insert into'."
    if last_three[1:] == ["case", "when"]:
        return _OPERATORS_MEANT["when"]
    if cursor.peek().kind is TokenKind.NAME and cursor.peek(1).text == "=":
        return "Events follow each other by '->' or ',': e1=S -> e2=T."
    return _of_next(cursor, _CLAUSES_MEANT)


def operator_hint(cursor: Cursor) -> str | None:
    """The SiddhiQL counterpart of the operator that is next, if SiddhiQL has no such operator."""
    if cursor.peek().text == "?":
        return _OPERATORS_MEANT["then"]
    if cursor.peek(-1).text.lower() == "distinct":
        return "Write distinctCount(a)."
    return _of_next(cursor, _OPERATORS_MEANT)


def element_hint(cursor: Cursor) -> str | None:
    """The SiddhiQL counterpart of the statement that starts here, if SiddhiQL has none like it."""
    return _of_next(cursor, _ELEMENTS_MEANT)


def _of_next(cursor: Cursor, meant: dict[str, str]) -> str | None:
    token = cursor.peek()
    return meant.get(token.text.lower()) if token.kind is TokenKind.NAME else None


def signs(text: str) -> Iterator[tuple[str, Token]]:
    """Constructs that only Siddhi 3 has, each with its first token."""
    if not _HINT.search(text):
        return
    tokens = tokenize(text).tokens
    for at, token in enumerate(tokens[:-4]):
        if token.text == "@" and token.kind is TokenKind.SYMBOL:
            sign = _annotation(tokens, at)
            if sign:
                yield sign, token
        elif _word(token) == "insert" and _word(tokens[at + 1]) == "overwrite":
            yield "insert overwrite", token


def refuse_siddhi3(text: str) -> None:
    """Refuse a text of Siddhi 3 as a whole; MESH-L110."""
    occurrences = list(signs(text))
    if not occurrences:
        return
    sign, token = occurrences[0]
    others = [name for name in dict.fromkeys(name for name, _ in occurrences) if name != sign]
    raise MeshError(
        "MESH-L110",
        f"the text is of Siddhi 3: it has {sign}",
        detail=f"It has {', '.join(others)} as well." if others else None,
        hint="'mesh migrate FILE' writes it in the present language; see docs/migrate.md.",
        position=tokenize(text).places.of(token.start, token.start + max(2, len(sign))),
    )


def _annotation(tokens: Sequence[Token], at: int) -> str:
    """The annotation of Siddhi 3 whose ``@`` is at ``at``; empty for another one."""
    name, after = _word(tokens[at + 1]), tokens[at + 2].text
    if name == "plan" and after == ":":
        return f"@Plan:{tokens[at + 3].text}"
    if after != "(":
        return ""
    first = tokens[at + 3]
    if name in ("import", "export"):
        is_id = first.kind is TokenKind.STRING and STREAM_ID.match(str(first.value))
        return f"@{name.capitalize()}" if is_id else ""
    return "@From(eventtable=..)" if name == "from" and _word(first) == "eventtable" else ""


def _word(token: Token) -> str:
    return token.text.lower() if token.kind is TokenKind.NAME else ""
