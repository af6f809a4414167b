"""Canonical layout of an app: its own words in its own order, with standard spacing.

Each clause has its own line, and blank lines divide statements.  Keywords are in lower case, quotes
are the plainest possible.  Brackets and comments stay in place, so the meaning is unchanged.  The
layout depends on the tokens and comments alone, not on spaces, so formatting is idempotent.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from mesh.language.parser import parse_with_cursor
from mesh.language.print_expressions import print_name, print_string
from mesh.language.tokens import TokenKind

if TYPE_CHECKING:
    from mesh.language.cursor import Cursor
    from mesh.language.tokens import Comment, Token

#: Maximum length of a line, unless a single word is longer.
_WIDTH: Final = 100
_INDENT: Final = "    "

_EMPTY_LINE: Final = re.compile(r"[ \t\x0b]*(?:\r\n|\r|\n)[ \t\x0b]*(?:\r|\n)")

_CLOSE_BEFORE: Final = frozenset((",", ";", ")", "]", ".", ":"))
_CLOSE_BEHIND: Final = frozenset(("(", "[", ".", ":", "@", "#", "!"))


def format_app(text: str) -> str:
    """The canonical text of an app, comments kept.

    Raises:
        MeshErrors: MESH-L1xx for invalid SiddhiQL.
    """
    _, cursor = parse_with_cursor(text)
    return _Layout(cursor, text).whole()


class _Layout:
    """State of the writer for one text."""

    def __init__(self, cursor: Cursor, text: str) -> None:
        self._cursor = cursor
        self._text = text
        self._lines: list[str] = []
        #: The parts of the current line, and the indentation of its statement.
        self._line = ""
        self._indent = 0
        #: Number of open brackets: a line is divided where few are open.
        self._depth = 0
        #: Points where the line may be divided.
        self._breaks: list[int] = []
        #: Whether nothing may follow in the line, because a comment ends it.
        self._is_ended = False
        #: Whether a comment on a line of its own was written last; the blank line then precedes it.
        self._is_behind_comment = False

    def whole(self) -> str:
        comments = list(reversed(self._cursor.comments))
        for index, token in enumerate(self._cursor.tokens):
            is_behind = index > 0
            while comments and comments[-1].before == index:
                comment = comments.pop()
                is_behind = is_behind and self._is_in_line_of(index - 1, comment)
                if is_behind:
                    self._write_behind(comment)
                else:
                    self._write_alone(comment, index)
            if token.kind is not TokenKind.END:
                self._write(index, token)
        self._flush()
        return "\n".join(self._lines) + "\n"

    # Tokens

    def _write(self, index: int, token: Token) -> None:
        cursor = self._cursor
        if index in cursor.lines:
            self._start_line(index)
        elif self._is_ended:
            self._flush()
            self._line = _INDENT * (self._indent + 1)
        elif not self._is_close(index, token):
            self._line += " "
        self._is_behind_comment = False
        text = self._spelling(index, token)
        is_symbol = token.kind is TokenKind.SYMBOL
        if is_symbol and text in (")", "]"):
            self._depth -= 1
        self._line += text
        if is_symbol and text in ("(", "["):
            self._depth += 1
        if is_symbol and text == "," and self._depth <= 1:
            self._breaks.append(len(self._line))
        if index in cursor.unended:
            self._line += ";"

    def _start_line(self, index: int) -> None:
        self._flush()
        if index in self._cursor.elements and not self._is_behind_comment:
            self._blank_line(index)
        self._indent = self._cursor.lines[index]
        self._line = _INDENT * self._indent
        self._depth = 0

    def _is_close(self, index: int, token: Token) -> bool:
        """Whether the token follows the previous one without a space."""
        if index in self._cursor.close:
            return True
        before = self._cursor.tokens[index - 1]
        if token.kind is TokenKind.SYMBOL and token.text in _CLOSE_BEFORE:
            return True
        return before.kind is TokenKind.SYMBOL and before.text in _CLOSE_BEHIND

    def _spelling(self, index: int, token: Token) -> str:
        """The token in its plainest form."""
        match token.kind:
            case TokenKind.NAME if index in self._cursor.words:
                return token.text.lower()
            case TokenKind.QUOTED:
                return print_name(str(token.value))
            case TokenKind.STRING:
                return print_string(str(token.value))
            case TokenKind.LONG:
                return token.text.upper()
            case TokenKind.FLOAT | TokenKind.DOUBLE:
                return token.text.lower()
            case _:
                return token.text

    # Comments

    def _is_in_line_of(self, index: int, comment: Comment) -> bool:
        """Whether the comment is in the line where token ``index`` ends."""
        token = self._cursor.tokens[index]
        between = self._text[token.start + len(token.text) : comment.start]
        return not _has_line_end(between)

    def _write_behind(self, comment: Comment) -> None:
        """A comment that stays in the line of the token before it."""
        may_break = bool(self._breaks) and self._breaks[-1] == len(self._line)
        self._line += f" {_trimmed(comment.text)}"
        if may_break:
            self._breaks[-1] = len(self._line)
        # A comment of several lines ends its line too, as its width is not that of one line.
        self._is_ended = comment.text.startswith("--") or _has_line_end(comment.text)

    def _write_alone(self, comment: Comment, index: int) -> None:
        """A comment on a line of its own before token ``index``."""
        cursor = self._cursor
        self._flush()
        is_end = cursor.tokens[index].kind is TokenKind.END
        divides = is_end or index in cursor.elements
        if divides and not self._is_behind_comment:
            self._blank_line(index)
        indent = 0 if is_end else cursor.lines.get(index, self._indent + 1)
        self._lines.append(_INDENT * indent + _trimmed(comment.text))
        if divides and not is_end and self._is_apart(comment):
            self._blank_line(index)
        self._is_behind_comment = True
        self._is_ended = True

    def _is_apart(self, comment: Comment) -> bool:
        """Whether an empty line follows the comment."""
        rest = self._text[comment.start + len(comment.text) :]
        return _EMPTY_LINE.match(rest) is not None

    # Lines

    def _blank_line(self, index: int) -> None:
        """An empty line before token ``index``, unless it is the first of a text or partition."""
        is_first = index - 1 in self._cursor.begins and not self._is_behind_comment
        if self._lines and self._lines[-1] and not is_first:
            self._lines.append("")

    def _flush(self) -> None:
        """End the line, in parts if it is too long."""
        line, self._line = self._line, ""
        breaks, self._breaks = self._breaks, []
        self._is_ended = False
        if not line.strip():
            return
        more = _INDENT * (self._indent + 1)
        start, moved = 0, ""
        for at, following in pairwise((*breaks, len(line))):
            if len(moved) + following - start > _WIDTH:
                self._lines.append(moved + line[start:at].strip() if start else line[:at])
                start, moved = at, more
        self._lines.append(moved + line[start:].strip() if start else line)


def _has_line_end(text: str) -> bool:
    return "\n" in text or "\r" in text


def _trimmed(comment: str) -> str:
    """A line comment without trailing blanks; a block comment, closed if it is open."""
    if comment.startswith("--"):
        return comment.rstrip()
    has_end = comment.endswith("*/") and len(comment) >= len("/**/")
    return comment if has_end else f"{comment.rstrip()} */"
