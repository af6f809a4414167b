"""Definitions: ``define stream S (a int)`` and the other five kinds.

Annotations: ``@name(key='text', 'text', @nested(..))``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError, Position
from mesh.language.hints import type_hint
from mesh.language.inputs import parse_handlers, parse_window_call
from mesh.language.queries import parse_events_after, parse_projection
from mesh.language.references import parse_plain_name, parse_stream_reference, parse_variable
from mesh.language.syntax import (
    AggregationDefinition,
    Annotation,
    AttributeDefinition,
    Definition,
    Durations,
    FunctionDefinition,
    Literal,
    SelectClause,
    StreamDefinition,
    StreamInput,
    TableDefinition,
    TimeUnit,
    TriggerDefinition,
    Variable,
    WindowDefinition,
)
from mesh.language.times import UNIT_WORDS, expect_time
from mesh.language.tokens import TokenKind
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from mesh.language.cursor import Cursor


KINDS: Final = ("stream", "table", "window", "trigger", "function", "aggregation")
_TYPES: Final = tuple(AttributeType)
_WITHOUT_ANNOTATIONS: Final = ("trigger", "function")
_SCHEDULES: Final = "Write at 'start', at every 5 min, or at '0 0 * * * ?'"
_NO_DURATIONS: Final = (TimeUnit.WEEK, TimeUnit.MILLISECOND)


def parse_definition(cursor: Cursor, annotations: tuple[Annotation, ...]) -> Definition:
    """The definition that starts at ``define``; its annotations are read already."""
    cursor.expect_clause("define")
    if not cursor.sees_word(*KINDS):
        cursor.fail(*(f"'{kind}'" for kind in KINDS), words=KINDS)
    kind = cursor.expect_word(*KINDS)
    if annotations and kind in _WITHOUT_ANNOTATIONS:
        raise MeshError(
            "MESH-L104",
            f"annotation precedes a {kind}",
            hint=f"A {kind} has none; leave it out.",
            position=annotations[0].position,
        )
    position = cursor.position
    article = "an" if kind == "aggregation" else "a"
    name = parse_plain_name(cursor, f"the name of {article} {kind}", kind)
    match kind:
        case "stream":
            return StreamDefinition(name, _attributes(cursor), annotations, position=position)
        case "table":
            return TableDefinition(name, _attributes(cursor), annotations, position=position)
        case "window":
            attributes = _attributes(cursor)
            if cursor.sees("#") or cursor.sees(";") or cursor.is_at_end:
                cursor.fail("a window", hint="Write it without '#window.': (a int) length(5).")
            window = parse_window_call(cursor, cursor.position)
            events = parse_events_after(cursor, "output")
            return WindowDefinition(
                name, attributes, window, events, annotations, position=position
            )
        case "trigger":
            return TriggerDefinition(name, _schedule(cursor), position=position)
        case "function":
            language, result, body = _function(cursor)
            return FunctionDefinition(name, language, result, body, position=position)
        case _:
            source, selector = _aggregation_query(cursor)
            aggregate_by, every = _aggregate(cursor)
            return AggregationDefinition(
                name, source, selector, aggregate_by, every, annotations, position=position
            )


# Attributes and types


def _attributes(cursor: Cursor) -> tuple[AttributeDefinition, ...]:
    cursor.expect("(")
    attributes = cursor.listed(_attribute)
    if not cursor.sees(")"):
        hint = None
        if cursor.sees("(") or cursor.sees("["):
            hint = "Types have no length."
        elif cursor.sees_word("not", "null", "default", "primary"):
            hint = "Attributes have a name and a type only; a key is @PrimaryKey('a')."
        elif cursor.sees_name():
            hint = "Is a ',' missing before it?"
        cursor.fail("','", "')'", hint=hint)
    cursor.take()
    return tuple(attributes)


def _attribute(cursor: Cursor) -> AttributeDefinition:
    position = cursor.position
    if cursor.sees(")"):
        cursor.fail("the name of an attribute", hint="One ',' too many, or no attribute at all.")
    name = cursor.expect_name("the name of an attribute")
    return AttributeDefinition(name, parse_type(cursor), position=position)


def parse_type(cursor: Cursor) -> AttributeType:
    """A type, which must be next."""
    if not cursor.sees_word(*_TYPES):
        cursor.fail("a type", words=_TYPES, hint=type_hint(cursor.peek().text))
    return AttributeType(cursor.expect_word(*_TYPES))


# Windows and triggers


def _schedule(cursor: Cursor) -> Literal:
    cursor.expect_word("at", hint=f"{_SCHEDULES}.")
    if cursor.accept_word("every"):
        return expect_time(cursor, "'at every 5 min'")
    token = cursor.peek()
    position = cursor.position
    if token.kind is not TokenKind.STRING:
        hint = f"{_SCHEDULES}; the words stand in quotes." if cursor.sees_name() else None
        cursor.fail("'every'", "a text in quotes", hint=hint)
    cursor.take()
    return Literal(str(token.value), AttributeType.STRING, position=position)


# Functions


def _function(cursor: Cursor) -> tuple[str, AttributeType, str]:
    """Language, return type and body."""
    cursor.no_space_before()
    cursor.expect("[", hint="The language is in square brackets: f[javascript].")
    cursor.refuse_keyword("a language")
    language = cursor.expect_name("a language")
    cursor.expect("]")
    cursor.expect_word("return", hint="Say what type it returns: return string { .. }.")
    result = parse_type(cursor)
    token = cursor.peek()
    if token.kind is not TokenKind.SCRIPT:
        cursor.fail("'{'", hint="The body of the function is in { }.")
    cursor.take()
    return language, result, str(token.value)


# Aggregations


def _aggregation_query(cursor: Cursor) -> tuple[StreamInput, SelectClause]:
    cursor.expect_clause("from")
    position = cursor.position
    stream = parse_stream_reference(cursor)
    handlers = parse_handlers(cursor, with_window=False)
    source = StreamInput(stream, handlers, position=position)
    select_position = cursor.position
    if not cursor.sees_word("select"):
        cursor.fail("'select'", words=("select",))
    attributes, group_by = parse_projection(cursor)
    return source, SelectClause(attributes, group_by, position=select_position)


def _aggregate(cursor: Cursor) -> tuple[Variable | None, Durations]:
    is_late = cursor.sees_word("having", "order", "limit", "offset", "insert", "output")
    hint = "An aggregation has 'select' and 'group by' only." if is_late else None
    if cursor.sees_word("by", "every"):
        hint = "Write 'aggregate by ts every sec ... year', or without 'by ts'."
    cursor.expect_clause("aggregate", hint=hint)
    by = parse_variable(cursor) if cursor.accept_word("by") else None
    cursor.expect_word("every", hint="Say for which durations: every sec ... year.")
    position = cursor.position
    units = cursor.listed(_duration)
    if len(units) == 1 and cursor.accept("..."):
        return by, Durations((*units, _duration(cursor)), is_range=True, position=position)
    if len(units) == 1 and (cursor.sees(".") or cursor.sees("-")):
        cursor.fail("','", "'...'", hint="A range has three dots: sec ... year.")
    return by, Durations(tuple(units), position=position)


def _duration(cursor: Cursor) -> TimeUnit:
    if cursor.peek().kind is TokenKind.INT:
        cursor.fail("a unit of time", hint="Durations are whole units: sec, min, hour, day, ...")
    position = cursor.position
    word = cursor.accept_word(*UNIT_WORDS)
    if word is None:
        cursor.fail("a unit of time", words=tuple(UNIT_WORDS))
    unit = UNIT_WORDS[word]
    if unit in _NO_DURATIONS:
        raise MeshError(
            "MESH-L104",
            f"nothing is aggregated by the {unit}",
            detail="Durations are sec, min, hour, day, month and year.",
            position=position,
        )
    return unit


#: Deepest nesting of annotations; functions that walk the tree recurse.
_DEPTH_MAX: Final = 100


def sees_app_annotation(cursor: Cursor) -> bool:
    """Whether ``@app:`` is next."""
    return cursor.sees("@") and cursor.sees_word("app", ahead=1) and cursor.sees(":", ahead=2)


def parse_app_annotation(cursor: Cursor) -> Annotation:
    """``@App:name('A')``; it holds no other annotations."""
    cursor.start_line()
    position = cursor.position
    cursor.expect("@")
    prefix = cursor.take().text
    cursor.expect(":")
    name = f"{prefix}:{cursor.expect_name('the name of an annotation of the app')}"
    position = cursor.since(position)
    elements: list[tuple[str | None, str]] = []
    if cursor.sees("("):
        cursor.take_close()
        elements = cursor.listed(lambda c: _element(c, "a key", "a text in quotes"))
        _close(cursor)
    return Annotation(name, tuple(elements), position=position)


@dataclass(slots=True)
class _Open:
    """An annotation with an open bracket."""

    name: str
    position: Position
    elements: list[tuple[str | None, str]] = field(default_factory=list)
    annotations: list[Annotation] = field(default_factory=list)

    @property
    def whole(self) -> Annotation:
        """The complete annotation."""
        return Annotation(
            self.name, tuple(self.elements), tuple(self.annotations), position=self.position
        )


def parse_annotation(cursor: Cursor) -> Annotation:
    """``@name``, or ``@name(key='text', 'text', @nested(..))``."""
    cursor.start_line()
    pending = [_start(cursor)]
    if not _opens(cursor):
        return pending[0].whole
    while True:
        if cursor.sees("@"):
            nested = _start(cursor)
            if _opens(cursor):
                pending.append(nested)
                _check_depth(len(pending), nested.position)
                continue
            pending[-1].annotations.append(nested.whole)
        else:
            pending[-1].elements.append(_element(cursor, "a key", "a text in quotes", "'@'"))
        while not cursor.accept(","):
            _close(cursor)
            done = pending.pop().whole
            if not pending:
                return done
            pending[-1].annotations.append(done)


def _check_depth(depth: int, position: Position) -> None:
    if depth > _DEPTH_MAX:
        raise MeshError(
            "MESH-L105",
            "annotations are nested too deeply",
            detail=f"{_DEPTH_MAX} levels are possible.",
            position=position,
        )


def _start(cursor: Cursor) -> _Open:
    position = cursor.position
    cursor.expect("@")
    name = cursor.expect_name("the name of an annotation")
    return _Open(name, cursor.since(position))


def _opens(cursor: Cursor) -> bool:
    if not cursor.sees("("):
        return False
    if cursor.sees(")", ahead=1):
        cursor.take()
        cursor.fail("a key or a text", hint="An annotation that holds nothing has no brackets.")
    cursor.take_close()
    return True


def _close(cursor: Cursor) -> None:
    if not cursor.sees(")"):
        is_next = cursor.sees_name() or cursor.sees("@") or cursor.peek().kind is TokenKind.STRING
        cursor.fail("','", "')'", hint="Is a ',' missing before it?" if is_next else None)
    cursor.take()


def _element(cursor: Cursor, *expected: str) -> tuple[str | None, str]:
    if cursor.peek().kind is TokenKind.STRING:
        text = str(cursor.take().value)
        if not cursor.sees("="):
            return None, text
        _equals(cursor)
        return text, _text(cursor)
    if not cursor.sees_name():
        cursor.refuse_keyword(*expected)
        cursor.fail(*expected)
    key = str(cursor.take().value)
    while cursor.sees(".") or cursor.sees("-") or cursor.sees(":"):
        cursor.no_space_before()
        key += cursor.take().text
        cursor.no_space_before()
        key += cursor.expect_name("the rest of the key")
    if not cursor.sees("="):
        cursor.fail("'='", hint="A text is in quotes, and a key precedes '='.")
    _equals(cursor)
    return key, _text(cursor)


def _equals(cursor: Cursor) -> None:
    cursor.take_close()
    cursor.no_space_before()


def _text(cursor: Cursor) -> str:
    if cursor.peek().kind is not TokenKind.STRING:
        cursor.fail("a text in quotes", hint="Values of annotations are in quotes.")
    return str(cursor.take().value)
