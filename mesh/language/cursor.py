"""The parser's hand on the text: look at the next token, take it, or say what was expected."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, NoReturn

from mesh.errors import MeshError, Position
from mesh.language.tokens import KEYWORDS, Token, TokenKind, tokenize

if TYPE_CHECKING:
    from collections.abc import Sequence


class Cursor:
    """A place in a row of tokens."""

    def __init__(self, text: str) -> None:
        self._tokens = tokenize(text)
        self._at = 0

    def __repr__(self) -> str:
        return f"<Cursor at {self.peek().text!r} {self.position}>"

    @property
    def position(self) -> Position:
        """Where the next token stands."""
        return self.peek().position

    def peek(self, ahead: int = 0) -> Token:
        """The next token, or one behind it; ``END`` for all behind the last."""
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def take(self) -> Token:
        """The next token, moving on."""
        token = self.peek()
        if token.error is not None:
            raise token.error
        self._at += 1
        return token

    def sees(self, symbol: str, ahead: int = 0) -> bool:
        """Whether the token is this symbol."""
        token = self.peek(ahead)
        return token.kind is TokenKind.SYMBOL and token.text == symbol

    def sees_word(self, *words: str, ahead: int = 0) -> bool:
        """Whether the token is one of these keywords (given in lower case)."""
        token = self.peek(ahead)
        return token.kind is TokenKind.NAME and token.text.lower() in words

    def sees_name(self, ahead: int = 0) -> bool:
        """Whether the token may be a name; keywords may."""
        return self.peek(ahead).kind in (TokenKind.NAME, TokenKind.QUOTED)

    def accept(self, symbol: str) -> bool:
        """Take the symbol if it is next."""
        found = self.sees(symbol)
        if found:
            self.take()
        return found

    def accept_word(self, *words: str) -> str | None:
        """Take one of these keywords if it is next, and say which, in lower case."""
        return self.take().text.lower() if self.sees_word(*words) else None

    def expect(self, symbol: str, hint: str | None = None) -> Token:
        """Take the symbol, which must be next."""
        if not self.sees(symbol):
            self.fail(f"'{symbol}'", hint=hint)
        return self.take()

    def expect_word(self, *words: str, hint: str | None = None) -> str:
        """Take one of these keywords, which must be next; say which, in lower case."""
        if not self.sees_word(*words):
            self.fail(*(f"'{word}'" for word in words), words=words, hint=hint)
        return self.take().text.lower()

    def expect_name(self, what: str) -> str:
        """Take a name, which must be next; ``what`` says what it is the name of."""
        if not self.sees_name():
            self.fail(what)
        return str(self.take().value)

    def fail(self, *expected: str, words: Sequence[str] = (), hint: str | None = None) -> NoReturn:
        """Refuse the next token.

        Args:
            expected: what could have stood here, in words.
            words: the keywords among them; the one nearest to what was found is hinted at.
            hint: what to do about it, when that is known.

        Raises:
            MeshError: MESH-L104, or the token's own error if it can't even be read.
        """
        token = self.peek()
        if token.error is not None:
            raise token.error
        found = "the end of the text" if token.kind is TokenKind.END else f"'{token.text}'"
        if token.kind is TokenKind.NAME and token.text.lower() not in KEYWORDS and hint is None:
            near = difflib.get_close_matches(token.text.lower(), words, n=1, cutoff=0.6)
            hint = f"Did you mean '{near[0]}'?" if near else None
        raise MeshError(
            "MESH-L104",
            f"expected {_listed(expected)}, found {found}",
            hint=hint,
            position=token.position,
        )


def _listed(items: Sequence[str]) -> str:
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} or {items[-1]}"
