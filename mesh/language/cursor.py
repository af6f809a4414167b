"""The parser's cursor: peek at the next token, consume it, or report what was expected.

The cursor records the layout of the text: the keywords, the tokens that start a line of their own,
and those that follow the previous token without a space.  The formatter reads these records.

It also names the parts of a text that are no token.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

from mesh.errors import MeshError, Position
from mesh.language.substitution import VARIABLE
from mesh.language.tokens import DIGITS_MAX, KEYWORDS, RESERVED, Token, TokenKind, Tokens, tokenize

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mesh.language.substitution import Places


Item = TypeVar("Item")

#: Largest lookahead of the parser, in tokens.
_AHEAD_MAX: Final = 8
_QUOTES_HINT: Final = 'Write """..""", which holds quotes and several lines.'
_ESCAPE_HINT: Final = f"A backslash doesn't escape a quote. {_QUOTES_HINT}"
_TEXT_HINT: Final = "Quotes make a text; a name has none, or backquotes."


@dataclass(slots=True)
class LayoutRecord:
    """The layout of a text as the parser has read it, by the indexes of tokens."""

    #: Keywords.
    words: set[int] = field(default_factory=set)
    #: Tokens that follow the previous one without a space.
    close: set[int] = field(default_factory=set)
    #: Tokens that start a line, with the indentation of the line.
    lines: dict[int, int] = field(default_factory=dict)
    #: Tokens that start a definition, query or partition; a blank line divides these.
    elements: set[int] = field(default_factory=set)
    #: The ``begin`` of partitions.
    begins: set[int] = field(default_factory=set)
    #: Tokens that end a statement without ``;``.
    unended: set[int] = field(default_factory=set)

    def add(self, statement: LayoutRecord, at: int) -> None:
        """Add the record of a definition or query whose first token has index ``at`` here.

        These have no ``begin``, and are ended.
        """
        self.words.update([at + index for index in statement.words])
        self.close.update([at + index for index in statement.close])
        self.lines.update({at + index: n for index, n in statement.lines.items()})
        self.elements.update([at + index for index in statement.elements])


class Cursor:
    """A position in a list of tokens."""

    def __init__(self, text: str, cut: Tokens | None = None) -> None:
        """Start at the first token of ``text``, or of ``cut``: a part of its tokens."""
        cut = tokenize(text) if cut is None else cut
        self.text = text
        self.tokens = cut.tokens
        self.comments = cut.comments
        self.places = cut.places
        self._at = 0
        self._last = len(cut.tokens) - 1
        #: The tokens, padded with as many ``END`` tokens as the largest lookahead.
        self._seen = (*cut.tokens, *(cut.tokens[-1],) * _AHEAD_MAX)
        self.layout = LayoutRecord()
        #: Indentation of lines at this point; None inside a line that isn't divided.
        self.indent: int | None = 0

    def __repr__(self) -> str:
        return f"<Cursor at {self.peek().text!r} {self.position}>"

    @property
    def at(self) -> int:
        """The index of the next token."""
        return self._at

    @property
    def position(self) -> Position:
        """The position of the next token."""
        return self.place(self.peek())

    def place(self, token: Token) -> Position:
        """The position of a token."""
        return self.places.of(token.start, token.start + len(token.text))

    def since(self, position: Position) -> Position:
        """From ``position`` to the token consumed last, if that is in the same line."""
        last = self.place(self.tokens[self._at - 1])
        if last.line != position.line:
            return position
        return Position(position.line, position.column, last.column + last.length - position.column)

    def peek(self, ahead: int = 0) -> Token:
        """The next token, or one after it; ``END`` after the last token."""
        return self._seen[self._at + ahead]

    @property
    def is_at_end(self) -> bool:
        """Whether nothing is left."""
        return self._at >= self._last

    def take(self) -> Token:
        """Consume and return the next token."""
        token = self.peek()
        if token.kind is TokenKind.BROKEN:
            raise unreadable(token, self.places)
        self._at += 1
        return token

    def take_close(self) -> Token:
        """Consume the next token, and record that it follows the previous one without a space."""
        self.no_space_before()
        return self.take()

    def skip(self) -> None:
        """Advance past the next token of any kind."""
        self._at = min(self._at + 1, self._last)

    # Statements

    def end_of_statement(self, length_max: int) -> int | None:
        """Index of the next ``;``, so many characters ahead at most.

        None if there is none, or a token before it is unreadable.
        """
        stop = self.peek().start + length_max
        for index in range(self._at, self._last):
            kind, text, start, _ = self.tokens[index]
            if start > stop:
                return None
            if text == ";" and kind is TokenKind.SYMBOL:
                return index
            if kind is TokenKind.BROKEN:
                return None
        return None

    def until(self, stop: int) -> Cursor:
        """A cursor over the tokens from the next one to that of ``stop``, with an empty record."""
        end = Token(TokenKind.END, "", self.tokens[stop].start + 1)
        tokens = (*self.tokens[self._at : stop + 1], end)
        part = Cursor(self.text, Tokens(tokens, (), self.places))
        part.indent = self.indent
        return part

    def skip_to(self, stop: int, layout: LayoutRecord) -> None:
        """Advance to the token ``stop``, over a statement with a record of its own."""
        self.layout.add(layout, self._at)
        self._at = stop

    # Lookahead

    def sees(self, symbol: str, ahead: int = 0) -> bool:
        """Whether the token is this symbol."""
        token = self._seen[self._at + ahead]
        return token.text == symbol and token.kind is TokenKind.SYMBOL

    def sees_word(self, *words: str, ahead: int = 0) -> bool:
        """Whether the token is one of these keywords (given in lower case)."""
        token = self._seen[self._at + ahead]
        return token.kind is TokenKind.NAME and token.text.lower() in words

    def sees_name(self, ahead: int = 0) -> bool:
        """Whether the token may be a name; most keywords may."""
        token = self._seen[self._at + ahead]
        return token.kind is TokenKind.QUOTED or (
            token.kind is TokenKind.NAME and token.text.lower() not in RESERVED
        )

    # Consuming

    def accept(self, symbol: str) -> bool:
        """Consume the symbol if it is next."""
        is_next = self.sees(symbol)
        if is_next:
            self._at += 1
        return is_next

    def accept_word(self, *words: str) -> str | None:
        """Consume one of these keywords if it is next, and return it in lower case."""
        return self._word() if self.sees_word(*words) else None

    def _word(self) -> str:
        self.layout.words.add(self._at)
        return self.take().text.lower()

    def expect(self, symbol: str, hint: str | None = None) -> Token:
        """Consume the symbol, which must be next."""
        if not self.sees(symbol):
            self.fail(f"'{symbol}'", hint=hint)
        return self.take()

    def expect_word(self, *words: str, hint: str | None = None) -> str:
        """Consume one of these keywords, which must be next; return it in lower case."""
        if not self.sees_word(*words):
            self.fail(*(f"'{word}'" for word in words), words=words, hint=hint)
        return self._word()

    def expect_clause(self, *words: str, hint: str | None = None) -> str:
        """Consume one of these keywords, which starts a line; as ``expect_word``."""
        self.start_line()
        return self.expect_word(*words, hint=hint)

    def accept_clause(self, word: str) -> bool:
        """Consume this keyword, which starts a line, if it is next."""
        return self.sees_word(word) and bool(self.expect_clause(word))

    def listed(self, parse: Callable[[Cursor], Item]) -> list[Item]:
        """One or more of what ``parse`` reads, with commas between."""
        items = [parse(self)]
        while self.accept(","):
            items.append(parse(self))
        return items

    def expect_name(self, what: str) -> str:
        """Consume a name, which must be next; ``what`` describes the named thing."""
        if not self.sees_name():
            self.refuse_keyword(what)
            is_text = self.peek().kind is TokenKind.STRING
            self.fail(what, hint=_TEXT_HINT if is_text else None)
        return str(self.take().value)

    def refuse_keyword(self, *expected: str) -> None:
        """Refuse a keyword that can't be a name, where a name must be next."""
        token = self.peek()
        if token.kind is TokenKind.NAME and token.text.lower() in KEYWORDS:
            hint = f"'{token.text}' is a keyword; as a name it is in backquotes."
            self.fail(*expected, hint=hint)

    # Recording the layout

    def start_line(self) -> None:
        """Record that the next token starts a line, unless the line is one that isn't divided."""
        if self.indent is not None:
            self.layout.lines[self._at] = self.indent

    def start_element(self) -> None:
        """Record that a definition, query or partition starts."""
        self.layout.elements.add(self._at)
        self.start_line()

    def no_space_before(self, ahead: int = 0) -> None:
        """Record that the next token, or one after it, follows the previous one without a space."""
        self.layout.close.add(self._at + ahead)

    # Refusing

    def fail(self, *expected: str, words: Sequence[str] = (), hint: str | None = None) -> NoReturn:
        """Refuse the next token.

        Args:
            expected: the alternatives that are valid here, in words.
            words: the keywords among them; the hint names the one nearest to the token found.
            hint: a remedy, if one is known.

        Raises:
            MeshError: MESH-L104, or the token's own error if the token is not readable.
        """
        token = self.peek()
        hint = self._hint_of_join() or hint
        if token.kind is TokenKind.BROKEN:
            raise unreadable(token, self.places, self._hint_of_join())
        actual = "the end of the text" if token.kind is TokenKind.END else f"'{token.text[:80]}'"
        is_misspelt = token.kind is TokenKind.NAME and token.text.lower() not in KEYWORDS
        if is_misspelt and hint is None and len(token.text) < 80:
            near = difflib.get_close_matches(token.text.lower(), words, n=1, cutoff=0.6)
            hint = f"Did you mean '{near[0]}'?" if near else None
        raise MeshError(
            "MESH-L104",
            f"expected {_listed(expected)}, found {actual}",
            hint=hint,
            position=self.position,
        )

    def _hint_of_join(self) -> str | None:
        """The remedy if the next token and the one before it are meant as one literal."""
        token, last = self.peek(), self.peek(-1)
        if self._at == 0 or last.start + len(last.text) != token.start:
            return None
        if last.kind is TokenKind.STRING and last.text[-2] == "\\":
            return _ESCAPE_HINT
        if last.kind is TokenKind.INT and token.text == ".":
            return f"A point has digits after it: write {last.text}.0."
        return None


def _listed(items: Sequence[str]) -> str:
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} or {items[-1]}"


def unreadable(token: Token, places: Places, hint: str | None = None) -> MeshError:
    """The error of a ``BROKEN`` token, with ``hint`` if it is a string."""
    text = token.text
    position = places.of(token.start, token.start + len(text))
    variable = VARIABLE.search(text)
    if variable:
        start = token.start + variable.start()
        return MeshError(
            "MESH-L108",
            f'variable "{variable.group(1)}" has no value here',
            hint=f"Give it one, or a default: ${{{variable.group(1)}:default}}.",
            position=places.of(start, start + len(variable.group())),
        )
    if text[0] in "'\"`":
        return _unclosed(text, position, hint)
    if len(text) > DIGITS_MAX and (text[0].isdigit() or text[0] == "."):
        return MeshError("MESH-L103", "number is too long for any type", position=position)
    if text[0] == "{":
        return MeshError(
            "MESH-L102",
            "function body has no end",
            detail="Each '{' needs its '}'; those in double quotes and behind // don't count.",
            hint="Such brackets hold nothing else.",
            position=position,
        )
    hint = _CHARACTER_HINTS.get(text[0])
    if hint is None and text[0].isalpha():
        hint = "A name with letters beside A to Z is in backquotes."
    return MeshError(
        "MESH-L101",
        f"character {text[0]!r} has no meaning here",
        hint=hint,
        position=position,
    )


def _unclosed(text: str, position: Position, hint: str | None) -> MeshError:
    """The error for a string or quoted name without an end."""
    detail = None
    if hint is not None:
        message = "string has no end in its line"
    elif text[0] == "`":
        message = "quoted name has no end in its line"
        hint = "A name in backquotes is closed by a backquote and isn't empty."
    elif text.startswith('"""'):
        message = "string has no end"
        hint = 'A string that starts with """ ends with """.'
    elif text[0] in text[1:]:
        message = "string holds what it can't"
        detail = (
            "'..' holds no quotes of either kind, \"..\" no double quotes; a backslash is no help."
        )
        hint = _QUOTES_HINT
    else:
        message = "string has no end in its line"
        hint = f"Close it with {text[0]}"
    return MeshError("MESH-L102", message, detail=detail, hint=hint, position=position)


_CHARACTER_HINTS: Final = {
    "&": "Write 'and'.",
    "|": "Write 'or'; texts are joined by str:concat(a, b).",
    "^": "There is no power operator.",
    "}": "Brackets { } enclose the body of a function only.",
    "{": "Brackets { } enclose the body of a function only.",
    "$": "A variable is written ${NAME}.",
    "\N{LEFT SINGLE QUOTATION MARK}": "Use the plain quotes.",
    "\N{RIGHT SINGLE QUOTATION MARK}": "Use the plain quotes.",
    "\N{LEFT DOUBLE QUOTATION MARK}": "Use the plain quotes.",
    "\N{RIGHT DOUBLE QUOTATION MARK}": "Use the plain quotes.",
    "\N{NO-BREAK SPACE}": "This is a no-break space; use a plain one.",
    "\N{RIGHTWARDS ARROW}": "Write '->'.",
    "\N{GREATER-THAN OR EQUAL TO}": "Write '>='.",
    "\N{LESS-THAN OR EQUAL TO}": "Write '<='.",
    "\N{NOT EQUAL TO}": "Write '!='.",
}
