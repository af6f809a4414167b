"""Definitions before queries: the engine refuses a definition after a query."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from mesh.language.tokens import TokenKind, tokenize

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.language.tokens import Token
    from mesh.migrate.draft import Draft

_ELEMENTS: Final = ("from", "partition")


#: The rest of the line after a statement.
_LINE: Final = re.compile(r"[ \t]*(?:--[^\r\n]*)?(?:\r\n|\r|\n)?")


def move_definitions(draft: Draft) -> None:
    """Move definitions that follow the first query before it, each with its comments."""
    statements = list(_statements(draft.text))
    first = next((one for one in statements if one[0] in _ELEMENTS), None)
    late = [
        one for one in statements if one[0] == "define" and first is not None and one[1] > first[1]
    ]
    if first is None or not late:
        return
    moved = "".join(_ended(draft.text[start:stop]) for _, start, stop in late)
    offsets = [
        one.start
        for one in draft.annotations()
        if first[1] <= one.start < first[2] and not one.name.lower().startswith("app:")
    ]
    word = next(t.start for t in _words(draft.text) if t.start >= first[1])
    at = min([word, *offsets])
    draft.change(at, at, moved, "definitions precede the first query")
    draft.edits += [(start, stop, "") for _, start, stop in late]


def _ended(text: str) -> str:
    text = text.strip()
    return f"{text}{'' if text.endswith(';') else ';'}\n"


def _words(text: str) -> Iterator[Token]:
    """The words with which queries and partitions begin."""
    for token in tokenize(text).tokens:
        if token.kind is TokenKind.NAME and token.text.lower() in _ELEMENTS:
            yield token


def _statements(text: str) -> Iterator[tuple[str, int, int]]:
    """First word after the annotations, start and end of each statement."""
    start, word, depth, brackets = 0, "", 0, 0
    for token in tokenize(text).tokens:
        lower = token.text.lower() if token.kind is TokenKind.NAME else ""
        if token.kind is TokenKind.SYMBOL and token.text in "()":
            brackets += 1 if token.text == "(" else -1
        elif brackets == 0 and not word and lower in ("define", *_ELEMENTS):
            word = lower
        elif word == "partition" and lower in ("begin", "end"):
            depth += 1 if lower == "begin" else -1
        if depth == 0 and brackets <= 0 and _ends(token):
            stop = token.start + len(token.text)
            match = _LINE.match(text, stop)
            stop = match.end() if match is not None else stop
            if word:
                yield word, start, stop
            start, word = stop, ""


def _ends(token: Token) -> bool:
    return token.kind is TokenKind.END or (token.kind is TokenKind.SYMBOL and token.text == ";")
