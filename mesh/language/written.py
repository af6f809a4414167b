"""Annotations as they are written, with their offsets, for edits that keep the author's layout.

They are found by tokens alone, so also in texts of earlier versions of the language.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mesh.language.tokens import TokenKind, tokenize

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mesh.language.tokens import Token

#: Of a key, beside names: ``topic.list``, ``oauth-scope``.
_IN_KEY: Final = (".", ":", "-")


@dataclass(frozen=True, slots=True)
class WrittenElement:
    """An element of an annotation: ``key='text'``, or a text alone."""

    #: As written, without blanks; None for a text alone.
    key: str | None
    text: str
    start: int
    stop: int
    #: Range of the text, with its quotes.
    text_start: int


@dataclass(slots=True)
class WrittenAnnotation:
    """One annotation with its elements, by offsets into the text."""

    #: With its prefix, as in ``App:name``.
    name: str
    start: int
    #: One past its last character.
    stop: int
    #: One past its opening bracket; None without brackets.
    opened: int | None = None
    elements: list[WrittenElement] = field(default_factory=list)
    annotations: list[WrittenAnnotation] = field(default_factory=list)

    def element(self, key: str) -> WrittenElement | None:
        """The element of a key, compared without case."""
        for element in self.elements:
            if element.key is not None and element.key.lower() == key:
                return element
        return None

    def get(self, key: str) -> str | None:
        """The text of an element; None without it."""
        element = self.element(key)
        return element.text if element is not None else None

    def first(self, name: str) -> WrittenAnnotation | None:
        """The first annotation in it with a name, compared without case."""
        return next((one for one in self.annotations if one.name.lower() == name), None)


def annotations_of(text: str) -> list[WrittenAnnotation]:
    """The annotations of a text that are in no other one, in their order."""
    tokens = tokenize(text).tokens
    annotations: list[WrittenAnnotation] = []
    at = 0
    while at < len(tokens):
        if _is(tokens, at, "@"):
            annotation, at = _read(tokens, at)
            if annotation is not None:
                annotations.append(annotation)
        else:
            at += 1
    return annotations


def nested(annotations: Sequence[WrittenAnnotation]) -> Iterator[WrittenAnnotation]:
    """The annotations and all those in them."""
    pending = list(reversed(annotations))
    while pending:
        one = pending.pop()
        yield one
        pending.extend(reversed(one.annotations))


def _read(tokens: Sequence[Token], at: int) -> tuple[WrittenAnnotation | None, int]:
    """The annotation whose ``@`` is at ``at``, and the index after it; None for no annotation."""
    annotation, at = _begin(tokens, at)
    if annotation is None or annotation.opened is None:
        return annotation, at
    opened = [annotation]
    while opened and tokens[at].kind is not TokenKind.END:
        token = tokens[at]
        if _is(tokens, at, ")"):
            opened.pop().stop = token.start + 1
            at += 1
        elif _is(tokens, at, "@"):
            one, at = _begin(tokens, at)
            if one is not None:
                opened[-1].annotations.append(one)
                if one.opened is not None:
                    opened.append(one)
        elif _is(tokens, at, ","):
            at += 1
        else:
            element, at = _element(tokens, at)
            if element is not None:
                opened[-1].elements.append(element)
    return annotation, at


def _begin(tokens: Sequence[Token], at: int) -> tuple[WrittenAnnotation | None, int]:
    start = tokens[at].start
    at += 1
    name, at = _joined(tokens, at, (":",))
    if not name:
        return None, at
    annotation = WrittenAnnotation(name, start, _end(tokens[at - 1]))
    if _is(tokens, at, "("):
        annotation.opened = tokens[at].start + 1
        at += 1
    return annotation, at


def _element(tokens: Sequence[Token], at: int) -> tuple[WrittenElement | None, int]:
    start = tokens[at].start
    key: str | None = None
    if _content(tokens[at]) is None:
        key, at = _joined(tokens, at, _IN_KEY)
        if not _is(tokens, at, "="):
            return None, max(at, at + (not key))
        at += 1
    value = tokens[at]
    content = _content(value)
    if content is None:
        return None, at
    return WrittenElement(key, content, start, _end(value), value.start), at + 1


def _content(token: Token) -> str | None:
    """The content of a string, also of one with variables in it; None for another token."""
    if token.kind is TokenKind.STRING:
        return str(token.value)
    is_quoted = token.kind is TokenKind.BROKEN and len(token.text) > 1 and token.text[0] in "'\""
    return token.text.strip(token.text[0]) if is_quoted else None


def _joined(tokens: Sequence[Token], at: int, between: tuple[str, ...]) -> tuple[str, int]:
    """Names with symbols between them, as one text; a name after a name is not part of it."""
    parts: list[str] = []
    follows_name = False
    while True:
        token = tokens[at]
        is_name = token.kind in (TokenKind.NAME, TokenKind.QUOTED)
        is_between = token.kind is TokenKind.SYMBOL and token.text in between
        if not (is_between or (is_name and not follows_name)):
            return "".join(parts), at
        parts.append(str(token.value or token.text))
        follows_name = is_name
        at += 1


def _is(tokens: Sequence[Token], at: int, symbol: str) -> bool:
    return tokens[at].kind is TokenKind.SYMBOL and tokens[at].text == symbol


def _end(token: Token) -> int:
    return token.start + len(token.text)
