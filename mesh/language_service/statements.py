"""The statement that a place is in, as far as it is written: pieces, annotations, inputs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from mesh.language.tokens import TokenKind, tokenize
from mesh.language_service.annotations import type_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mesh.language.tokens import Token
    from mesh.language_service.document import Document

READ_AFTER: Final = frozenset(("from", "join", "every", "not", "and", "or", "->", ",", "=", "("))
_ENDS_INPUT: Final = frozenset(
    ("select", "insert", "update", "delete", "return", "output", "on", "within", "per", "aggregate")
)

#: Ends of statements, and what may hold the same characters; tokens of a whole text take longer.
_BORDER: Final = re.compile(
    r"""(?P<comment>--[^\r\n]*|/\*.*?(?:\*/|\Z))
      | \"\"\".*?\"\"\" | "[^"\r\n]*" | '[^'\r\n]*' | `[^`\r\n]+`
      | \{(?:[^{}]|\{[^{}]*\})*\}
      | ; | \b(?P<word>begin|end)\b""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Piece:
    """A token with its place in the whole text."""

    token: Token
    start: int

    @property
    def kind(self) -> TokenKind:
        """The kind of the token."""
        return self.token.kind

    @property
    def text(self) -> str:
        """The token as written."""
        return self.token.text

    @property
    def word(self) -> str:
        """The text in lower case, of a name or a symbol."""
        return self.token.text.lower()

    @property
    def end(self) -> int:
        """The offset after it."""
        return self.start + len(self.token.text)

    @property
    def is_text(self) -> bool:
        """Whether it is a text in quotes, also one without an end."""
        return self.kind in (TokenKind.STRING, TokenKind.BROKEN)


@dataclass(frozen=True, slots=True)
class Statement:
    """The statement that a place is in."""

    start: int
    #: Up to the place.
    tokens: tuple[Piece, ...]
    #: The whole statement.
    whole: tuple[Piece, ...]
    in_partition: bool
    is_in_comment: bool


def statement_at(document: Document, offset: int) -> Statement:
    """The statement that an offset is in: from the last ``;`` or ``begin`` to the next ``;``."""
    text = document.text
    start, end, in_partition = 0, len(text), False
    in_comment = False
    for match in _BORDER.finditer(text):
        if match["comment"] is not None:
            is_open = match.group().startswith("--") or not match.group().endswith("*/")
            in_comment |= match.start() < offset < match.end() + is_open
        elif match[0] == ";":
            if match.start() >= offset:
                end = match.start()
                break
            start = match.end()
        elif match["word"] is not None and match.end() < offset:
            if match[0].lower() == "begin":
                start, in_partition = match.end(), True
            elif not text[start : match.start()].strip():
                in_partition = False
    return Statement(
        start,
        tuple(_pieces(text, start, offset)),
        tuple(_pieces(text, start, end)),
        in_partition,
        in_comment,
    )


def _pieces(text: str, start: int, end: int) -> Iterator[Piece]:
    for token in tokenize(text[start:end]).tokens[:-1]:
        yield Piece(token, start + token.start)


# Annotations


@dataclass(slots=True)
class OpenAnnotation:
    """An annotation whose bracket is open at the place."""

    name: str
    #: Keys and texts that it has.
    options: dict[str, str] = field(default_factory=dict)


def open_annotations(tokens: Sequence[Piece]) -> list[OpenAnnotation]:
    """The annotations whose bracket is open after ``tokens``, from the outermost."""
    stack: list[OpenAnnotation] = []
    depth = 0
    for at, piece in enumerate(tokens):
        if piece.text == "(":
            name = _annotation_before(tokens, at)
            if name and not depth:
                stack.append(OpenAnnotation(name))
            else:
                depth += 1
        elif piece.text == ")":
            if depth:
                depth -= 1
            elif stack:
                stack.pop()
        elif stack and piece.text == "=" and at + 1 < len(tokens):
            value = tokens[at + 1]
            if value.kind is TokenKind.STRING:
                stack[-1].options[key_before(tokens, at).lower()] = str(value.token.value)
    return stack


def _annotation_before(tokens: Sequence[Piece], at: int) -> str:
    """The name of the annotation whose bracket is at ``at``; empty if it is none's."""
    if at >= 2 and tokens[at - 2].text == "@":
        return tokens[at - 1].text
    if at >= 4 and tokens[at - 4].text == "@" and tokens[at - 2].text == ":":
        return f"{tokens[at - 3].text}:{tokens[at - 1].text}"
    return ""


def key_before(tokens: Sequence[Piece | Token], at: int) -> str:
    """The key that ends before ``at``: ``receiver.url``."""
    first = at
    while first > 0 and (
        tokens[first - 1].kind is TokenKind.NAME or tokens[first - 1].text in ".-:"
    ):
        first -= 1
    return "".join(piece.text for piece in tokens[first:at])


def annotation_path(tokens: Sequence[Token], index: int) -> tuple[list[str], list[str | None]]:
    """Names in lower case of the annotations around a token, and the types that they name."""
    end = index
    depth = 0
    # The type may be given after the token.
    while tokens[end].kind is not TokenKind.END and tokens[end].text != ";":
        if tokens[end].text == "(":
            depth += 1
        elif tokens[end].text == ")":
            depth -= 1
            if depth < 0:
                break
        end += 1
    first = index
    while first > 0 and tokens[first - 1].text != ";":
        first -= 1
    inside = len(open_annotations([Piece(one, one.start) for one in tokens[first:index]]))
    annotations = open_annotations([Piece(one, one.start) for one in tokens[first:end]])[:inside]
    path = [one.name.lower() for one in annotations]
    keys = [type_key(path[: depth + 1]) for depth in range(len(path))]
    return path, [
        one.options.get(key) if key else None for one, key in zip(annotations, keys, strict=True)
    ]


def defined_attributes(tokens: Sequence[Piece]) -> list[tuple[str, str]]:
    """Attributes with their types of the definition that a statement has."""
    words = [piece.word for piece in tokens]
    if "define" not in words:
        return []
    at = words.index("define") + 4
    attributes = []
    while at + 1 < len(tokens) and tokens[at - 1].text in ("(", ","):
        attributes.append((str(tokens[at].token.value), tokens[at + 1].word))
        at += 3
    return attributes


def inputs_of(statement: Statement) -> list[tuple[str, str]]:
    """Prefix and name of each input of the statement at hand, also of one that is incomplete."""
    tokens = list(statement.whole)
    words = [piece.word for piece in tokens]
    if "partition" in words and "from" not in words:
        return [
            (str(after.token.value), str(after.token.value))
            for before, after in pairwise(tokens)
            if before.word == "of"
        ]
    if "from" not in words:
        return []
    inputs: list[tuple[str, str]] = []
    tables: list[tuple[str, str]] = []
    for verb in ("update", "delete"):
        # Conditions name the attributes of a changed table with its name.
        at = words.index(verb) + 1 if verb in words else len(words)
        at += 3 if words[at : at + 3] == ["or", "insert", "into"] else 0
        if at < len(words):
            tables.append((str(tokens[at].token.value), str(tokens[at].token.value)))
    depth = 0
    before = ""
    for index in range(words.index("from"), len(tokens)):
        piece = tokens[index]
        if piece.text == "[" or (piece.text == "(" and before not in READ_AFTER):
            depth += 1
        elif piece.text == "]" or (piece.text == ")" and depth):
            depth -= 1
        elif depth == 0 and piece.word in _ENDS_INPUT and piece.kind is TokenKind.NAME:
            break
        elif depth == 0 and piece.kind in (TokenKind.NAME, TokenKind.QUOTED):
            name = str(piece.token.value)
            after = words[index + 1] if index + 1 < len(words) else ""
            mark = words[index - 1] if words[index - 1] in ("#", "!") else ""
            read_after = words[index - 2] if mark else before
            if before == "as" and inputs:
                inputs[-1] = (name, inputs[-1][1])
            elif after == "=" or piece.word in READ_AFTER:
                pass
            elif read_after in READ_AFTER:
                prefix = name
                if read_after == "=":
                    prefix = str(tokens[index - 2 - bool(mark)].token.value)
                inputs.append((prefix, f"{mark}{name}"))
        before = piece.word
    return [*inputs, *tables]
