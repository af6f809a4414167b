"""SiddhiQL text to its syntax tree: the app, its annotations and its definitions.

Queries are in ``queries``, expressions in ``expressions``.  All raise at the first mistake:
MESH-L1xx for what no SiddhiQL has, MESH-P900 for what this version doesn't have yet.
"""

from __future__ import annotations

from typing import NoReturn

from mesh.errors import MeshError, not_supported
from mesh.language.cursor import Cursor
from mesh.language.queries import parse_query
from mesh.language.syntax import (
    Annotation,
    App,
    AttributeDefinition,
    Element,
    Query,
    StreamDefinition,
)
from mesh.language.tokens import TokenKind
from mesh.model.types import AttributeType

_DEFINITIONS = ("stream", "table", "window", "trigger", "function", "aggregation")
_TYPES = tuple(AttributeType)
_MISSING_SEMICOLON = "Is a ';' missing before it?"


def parse(text: str) -> App:
    """The syntax tree of a whole app.

    Raises:
        MeshError: MESH-L1xx at what is not SiddhiQL, MESH-P900 at what is not supported yet.
    """
    cursor = Cursor(text)
    app_annotations: list[Annotation] = []
    while _sees_app_annotation(cursor):
        app_annotations.append(_annotation(cursor))
    elements: list[Element] = []
    while True:
        has_queries = any(isinstance(e, Query) for e in elements[-1:])
        elements.append(_element(cursor, has_queries=has_queries))
        if cursor.peek().kind is not TokenKind.END:
            starts_element = cursor.sees("@") or cursor.sees_word("define", "from", "partition")
            cursor.expect(";", hint=_MISSING_SEMICOLON if starts_element else None)
        if cursor.peek().kind is TokenKind.END:
            return App(tuple(app_annotations), tuple(elements))


def _element(cursor: Cursor, *, has_queries: bool) -> StreamDefinition | Query:
    annotations: list[Annotation] = []
    while cursor.sees("@"):
        if _sees_app_annotation(cursor):
            raise MeshError(
                "MESH-L106",
                "annotation of the app stands behind its first part",
                hint="Move @App:.. to the top of the text.",
                position=cursor.position,
            )
        annotations.append(_annotation(cursor))
    if cursor.sees_word("define"):
        if has_queries:
            raise MeshError(
                "MESH-L107",
                "definition stands behind a query",
                hint="Move the definitions before the first query.",
                position=cursor.position,
            )
        return _definition(cursor, tuple(annotations))
    if cursor.sees_word("from"):
        return parse_query(cursor, tuple(annotations))
    return _refuse_element(cursor)


def _refuse_element(cursor: Cursor) -> NoReturn:
    if cursor.sees_word("partition"):
        raise not_supported("partitions (partition with)", cursor.position)
    if cursor.sees_word("select", "update", "delete"):
        raise not_supported("on-demand queries in an app", cursor.position)
    if cursor.sees(";"):
        cursor.fail("a definition or a query", hint="One ';' too many.")
    cursor.fail("'define'", "'from'", "'@'", words=("define", "from", "partition"))


def _definition(cursor: Cursor, annotations: tuple[Annotation, ...]) -> StreamDefinition:
    position = cursor.take().position
    if not cursor.sees_word(*_DEFINITIONS):
        cursor.fail("'stream'", words=_DEFINITIONS)
    kind = cursor.take().text.lower()
    if kind != "stream":
        raise not_supported(f"{_plural(kind)} (define {kind})", position)
    if cursor.sees("#") or cursor.sees("!"):
        prefix = cursor.peek().text
        raise not_supported(f"definitions of inner and fault streams ({prefix}S)", cursor.position)
    name_position = cursor.position
    name = cursor.expect_name("the name of the stream")
    cursor.expect("(")
    attributes = [_attribute(cursor)]
    while cursor.accept(","):
        attributes.append(_attribute(cursor))
    if not cursor.sees(")"):
        cursor.fail("','", "')'")
    cursor.take()
    return StreamDefinition(name, tuple(attributes), annotations, position=name_position)


def _plural(kind: str) -> str:
    return {"window": "named windows"}.get(kind, f"{kind}s")


def _attribute(cursor: Cursor) -> AttributeDefinition:
    position = cursor.position
    name = cursor.expect_name("the name of an attribute")
    if not cursor.sees_word(*_TYPES):
        cursor.fail("a type", words=_TYPES, hint=_type_hint(cursor.peek().text))
    return AttributeDefinition(name, AttributeType(cursor.take().text.lower()), position=position)


def _type_hint(found: str) -> str | None:
    meant = {"integer": "int", "boolean": "bool", "number": "double", "text": "string"}
    near = meant.get(found.lower())
    return f"Did you mean '{near}'?" if near else None


def _sees_app_annotation(cursor: Cursor) -> bool:
    return cursor.sees("@") and cursor.sees_word("app", ahead=1) and cursor.sees(":", ahead=2)


def _annotation(cursor: Cursor) -> Annotation:
    """``@name``, or ``@name(key='text', 'text', @nested(..))``."""
    position = cursor.expect("@").position
    name = cursor.expect_name("the name of an annotation")
    if name.lower() == "app" and cursor.accept(":"):
        name = f"{name}:{cursor.expect_name('the name of an annotation of the app')}"
    if not cursor.accept("("):
        return Annotation(name, position=position)
    elements: list[tuple[str | None, str]] = []
    nested: list[Annotation] = []
    while True:
        if cursor.sees("@"):
            nested.append(_annotation(cursor))
        else:
            elements.append(_annotation_element(cursor))
        if not cursor.accept(","):
            break
    if not cursor.sees(")"):
        cursor.fail("','", "')'")
    cursor.take()
    return Annotation(name, tuple(elements), tuple(nested), position=position)


def _annotation_element(cursor: Cursor) -> tuple[str | None, str]:
    if cursor.peek().kind is TokenKind.STRING:
        text = str(cursor.take().value)
        if not cursor.accept("="):
            return None, text
        return text, _text(cursor)
    if not cursor.sees_name():
        cursor.fail("a key", "a text in quotes", "'@'")
    key = str(cursor.take().value)
    while cursor.sees(".") or cursor.sees("-") or cursor.sees(":"):
        key += cursor.take().text + cursor.expect_name("the rest of the key")
    cursor.expect("=", hint="A text stands in quotes, and a key before '='.")
    return key, _text(cursor)


def _text(cursor: Cursor) -> str:
    if cursor.peek().kind is not TokenKind.STRING:
        cursor.fail("a text in quotes", hint="Values of annotations stand in quotes.")
    return str(cursor.take().value)
