"""Hover: types of names and expressions, documentation, and the plan of a query.

Functions, aggregators, windows and stream functions: the forms of their calls.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from mesh.functions.catalogue import (
    AGGREGATORS,
    DOCUMENTED_FUNCTIONS,
    DOCUMENTED_STREAM_FUNCTIONS,
    DOCUMENTED_WINDOWS,
    SCALARS,
    STREAM_FUNCTIONS,
    WINDOWS,
)
from mesh.functions.catalogue.model import TypeNamedBy, TypeOf
from mesh.functions.catalogue.resolve import describe_overload
from mesh.language.tokens import Token, TokenKind
from mesh.language_service.annotations import kind_of, options_at, spec_at, type_key, types_at
from mesh.language_service.statements import annotation_path, key_before
from mesh.language_service.symbols import SymbolKind
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.connect.spec import Option
    from mesh.errors import Position
    from mesh.functions.catalogue import Overload, Signature
    from mesh.language.cursor import Cursor
    from mesh.language_service.document import Document
    from mesh.language_service.symbols import Occurrence, Symbol


@dataclass(frozen=True, slots=True)
class Hover:
    """The answer for a place: SiddhiQL, then sentences."""

    position: Position
    #: A line or more of SiddhiQL, such as a signature; may be empty.
    code: str
    doc: str = ""

    @property
    def markdown(self) -> str:
        """Both as Markdown."""
        code = f"```siddhiql\n{self.code}\n```" if self.code else ""
        return "\n\n".join(part for part in (code, self.doc) if part)


def hover(document: Document, line: int, column: int) -> Hover | None:
    """Type, documentation or plan at a place; None without any."""
    index = document.token_at(line, column)
    if index is None or document.readable is None:
        return None
    place = document.stable_place(line, column)
    found = _at_token(document, document.readable.reading.cursor, index, place)
    return found and replace(found, position=document.in_text(found.position))


def _at_token(
    document: Document, cursor: Cursor, index: int, place: tuple[int, int]
) -> Hover | None:
    """The answer for a place in a token, in stable lines."""
    position = cursor.place(cursor.tokens[index])
    occurrence = document.symbols.at(place)
    if occurrence is not None:
        return _symbol(document, occurrence)
    path, types = annotation_path(cursor.tokens, index)
    if path:
        return _annotated(cursor, index, path, types, position)
    token = cursor.tokens[index]
    word = token.text.lower()
    if token.kind is TokenKind.NAME:
        called = _called(cursor, index, position)
        if called is not None:
            return called
        if cursor.tokens[index - 1].text == "@" and index:
            kind = kind_of(token.text, "")
            return Hover(position, f"@{kind.name}", kind.doc) if kind is not None else None
    if word in ("from", "select", "insert"):
        return _query(document, index, position)
    type_ = document.types.get((position.line, position.column))
    return Hover(position, str(type_), "Type of the expression.") if type_ else None


def _symbol(document: Document, occurrence: Occurrence) -> Hover:
    symbol = occurrence.symbol
    names = document.readable.names if document.readable is not None else None
    match symbol.kind:
        case SymbolKind.NAMED:
            mark = "#" if symbol.owner else ""
            definition = names.find(f"{mark}{symbol.name}") if names is not None else None
            schema = definition.schema if definition is not None else None
            if schema is None:
                inner = _inner(document, symbol)
                return Hover(occurrence.position, f"{mark}{symbol.name} ({inner})", "Inner stream.")
            shown = ", ".join(f"{one.name} {one.type}" for one in schema.attributes)
            kind = str(definition.kind) if definition is not None else ""
            return Hover(occurrence.position, f"{kind} {symbol.name} ({shown})")
        case SymbolKind.ATTRIBUTE:
            type_ = _type_of(document, occurrence)
            owner = symbol.owner.rpartition("#")[2] if "#" in symbol.owner else symbol.owner
            of = f"Attribute of {owner}." if owner[:1].isalpha() else "Output of the query."
            return Hover(occurrence.position, f"{symbol.name} {type_}".strip(), of)
        case SymbolKind.FUNCTION:
            types = names.vocabulary.functions.get(symbol.name) if names is not None else None
            result = types.overloads[0].result if types is not None else ""
            return Hover(
                occurrence.position, f"{symbol.name}(..) -> {result}", "Function of the app."
            )
        case SymbolKind.QUERY:
            return _named_query(document, occurrence)
        case SymbolKind.ALIAS:
            return Hover(occurrence.position, symbol.name, "Name of an input of the query.")


def _inner(document: Document, symbol: Symbol) -> str:
    """The attributes of an inner stream, with their types if its partition has no error."""
    readable = document.readable
    bound = readable.bound if readable is not None else None
    for partition in bound.partitions if bound is not None else ():
        if symbol.owner == f"{partition.position.line}:{partition.position.column}#":
            for schema in partition.inner_streams:
                if schema.name == f"#{symbol.name}":
                    return ", ".join(f"{one.name} {one.type}" for one in schema.attributes)
    return ", ".join(document.symbols.attributes.get(f"{symbol.owner}{symbol.name}", ()))


def _type_of(document: Document, occurrence: Occurrence) -> str:
    """The type of an attribute: of its definition, of the expression here, or of a schema."""
    symbol = occurrence.symbol
    names = document.readable.names if document.readable is not None else None
    definition = names.find(symbol.owner) if names is not None else None
    attribute = (
        definition.schema.get(symbol.name) if definition is not None and definition.schema else None
    )
    if attribute is not None:
        return str(attribute.type)
    at = occurrence.position
    return str(document.types.get((at.line, at.column), ""))


def _named_query(document: Document, occurrence: Occurrence) -> Hover:
    lines = [q.line for q in document.planned_queries if q.bound.name == occurrence.symbol.name]
    return Hover(occurrence.position, f"query {occurrence.symbol.name}", "".join(lines[:1]))


def _query(document: Document, index: int, position: Position) -> Hover | None:
    """The plan of the query whose keyword is at ``index``: the last one that starts before it."""
    starts = {
        document.token_index((one.position.line, one.position.column)): one
        for one in document.planned_queries
    }
    before = [start for start in starts if start is not None and start <= index]
    if not before:
        return None
    last = starts[max(before)]
    return Hover(position, f"query {last.bound.name}", last.line)


def _called(cursor: Cursor, index: int, position: Position) -> Hover | None:
    end = Token(TokenKind.END, "", 0)
    tokens = (*cursor.tokens[: index + 4], end, end, end)
    name = tokens[index].text
    first = index
    if tokens[index + 1].text == ":" and tokens[index + 2].kind is TokenKind.NAME:
        name = f"{name}:{tokens[index + 2].text}"
    elif tokens[index - 1].text == ":" and index > 1:
        name, first = f"{tokens[index - 2].text}:{name}", index - 2
    before = tokens[first - 1].text if first else ""
    is_window = before == "." and tokens[first - 2].text.lower() == "window"
    table: Mapping[str, Signature] = EXPRESSIONS
    if is_window:
        table = ALL_WINDOWS
    elif before == "#":
        table = ALL_STREAM_FUNCTIONS
    signature = table.get(name)
    follows = tokens[index + (3 if tokens[index + 1].text == ":" else 1)].text
    if signature is None and follows == "(" and before == ")":
        # ``define window W (..) length(5)``.
        signature = ALL_WINDOWS.get(name)
    if signature is None or follows != "(":
        return None
    return Hover(position, "\n".join(forms(signature)), signature.doc)


def _annotated(
    cursor: Cursor,
    index: int,
    path: list[str],
    types: list[str | None],
    position: Position,
) -> Hover | None:
    tokens = cursor.tokens
    token = tokens[index]
    if tokens[index - 1].text == "@":
        kind = kind_of(token.text, path[-1])
        return Hover(position, f"@{kind.name}", kind.doc) if kind is not None else None
    at = index
    while tokens[at].text not in ("=", ",", ")") and tokens[at].kind is not TokenKind.END:
        at += 1
    if tokens[at].text != "=":
        at = index - 1
    key = key_before(tokens, at) if tokens[at].text == "=" else ""
    if not key:
        return None
    if key.lower() == type_key(path):
        named = types[-1] or ""
        doc = types_at(path).get(named)
        return Hover(position, f"{path[-1]} {named}", doc) if doc else None
    spec = spec_at(path, types)
    options = {option.name.lower(): option for option in options_at(path, types)}
    option = (spec.option(key) if spec is not None else None) or options.get(key.lower())
    return _option(option, position) if option is not None else None


def _option(option: Option, position: Position) -> Hover:
    lines = [option.doc] if option.doc else []
    if option.choices:
        lines.append(f"One of {', '.join(option.choices)}.")
    if option.default:
        lines.append(f"Default: {option.default}.")
    if option.is_required:
        lines.append("Required.")
    if option.is_dynamic:
        lines.append("May hold {{attribute}}.")
    if option.note:
        lines.append(option.note)
    return Hover(position, f"{option.name}: {option.kind}", " ".join(lines))


#: Functions and aggregators of expressions.
EXPRESSIONS: Final[Mapping[str, Signature]] = SCALARS | AGGREGATORS | DOCUMENTED_FUNCTIONS
ALL_WINDOWS: Final[Mapping[str, Signature]] = WINDOWS | DOCUMENTED_WINDOWS
ALL_STREAM_FUNCTIONS: Final[Mapping[str, Signature]] = (
    STREAM_FUNCTIONS | DOCUMENTED_STREAM_FUNCTIONS
)


def forms(signature: Signature) -> list[str]:
    """Each form of a call with its result: ``avg(value number) -> double``."""
    return [_form(signature, overload) for overload in signature.overloads]


def _form(signature: Signature, overload: Overload) -> str:
    result = overload.result
    shown = ""
    match result:
        case AttributeType():
            shown = str(result)
        case TypeOf(_, table) if table is not None:
            shown = " or ".join(sorted({str(kind) for kind in table.values()}, reverse=True))
        case TypeOf(index):
            shown = f"type of {overload.parameters[index].name}"
        case TypeNamedBy(index):
            shown = f"the type that {overload.parameters[index].name} names"
        case None:
            shown = ", ".join(f"{one.name} {one.type}" for one in overload.adds)
    return f"{signature.name}({describe_overload(overload)})" + (f" -> {shown}" if shown else "")
