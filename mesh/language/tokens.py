"""SiddhiQL's words: a text cut into tokens, each with its place.

Keywords are names here; the parser knows where a word is one.  A stretch that can't be read
becomes one last ``BROKEN`` token that carries its error, so that a mistake earlier in the text,
which only the parser sees, is told first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mesh.errors import MeshError, Position, not_supported


class TokenKind(StrEnum):
    """What a token is; the values are how errors call it."""

    NAME = "name"
    #: A name in backquotes, never a keyword.
    QUOTED = "quoted name"
    STRING = "string"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    SYMBOL = "symbol"
    BROKEN = "broken"
    END = "end of text"


@dataclass(frozen=True, slots=True)
class Token:
    """One word of the text."""

    kind: TokenKind
    #: As written.
    text: str
    position: Position
    #: The name without quotes, the string's content, or the number; None for the other kinds.
    value: str | int | float | None = None
    #: What is wrong with a ``BROKEN`` one.
    error: MeshError | None = None


_KEYWORDS: Final = """
    stream define function trigger table app from partition window select group by order limit
    offset asc desc having insert delete update set return events into output expired current
    snapshot for raw of as at or and in on is not within with begin end null every last all first
    join inner outer right left full unidirectional year years month months week weeks day days
    hour hours min minute minutes sec second seconds millisec millisecond milliseconds false true
    string int long float double bool object aggregation aggregate per
"""
#: Every word that the grammar uses, lower case.  All may be names; the printer quotes those.
KEYWORDS: Final = frozenset(_KEYWORDS.split())

_DIGITS_WITH_POINT = r"(?:\d+(?:\.\d*)?|\.\d+)"
_EXPONENT = r"(?:[eE][-+]?\d+)"

# The order of the number kinds makes the first match the longest: what has a suffix comes first.
# ``1.`` alone is no number: it is ``1`` and a dot, as in the reference grammar.
_TOKEN: Final = re.compile(
    rf"""
    (?P<space>[ \t\r\n\x0b]+ | --[^\r\n]* | /\*.*?(?:\*/|\Z))
  | (?P<float>{_DIGITS_WITH_POINT}{_EXPONENT}?[fF])
  | (?P<double>{_DIGITS_WITH_POINT}(?:{_EXPONENT}?[dD]|{_EXPONENT}) | \d*\.\d+)
  | (?P<long>\d+[lL])
  | (?P<int>\d+)
  | (?P<name>[A-Za-z_][A-Za-z_0-9]*)
  | (?P<quoted>`[^`\r\n]+`)
  | (?P<triple>\"\"\"(?:[^"\\\r\n]|\\[btnfr"'\\]|\\[0-3]?[0-7]{{1,2}}|\\u+[0-9a-fA-F]{{4}})*\"\"\")
  | (?P<double_quotes>(?!"{{3}})"[^\x00-\x1f"]*")
  | (?P<single_quotes>'[^\x00-\x1f'"]*')
  | (?P<symbol>->|\.\.\.|<=|>=|==|!=|[()\[\]{{}},;:.=<>*/%+\-?@\#!])
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_LINE_END = re.compile(r"\r\n|\r|\n")
_SUBSTITUTION = re.compile(r"\$\{[^}\s]*\}")
_ESCAPE = re.compile(r"\\(?:u+([0-9a-fA-F]{4})|([0-3]?[0-7]{1,2})|(.))")
_ESCAPED = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r"}


def tokenize(text: str) -> tuple[Token, ...]:
    """Cut ``text`` into tokens; the last is ``END``, or ``BROKEN`` and then ``END``."""
    places = _Places(text)
    tokens: list[Token] = []
    offset = 0
    while offset < len(text):
        match = _TOKEN.match(text, offset)
        if match is None:
            tokens.append(_broken(text, offset, places))
            break
        offset = match.end()
        if match.lastgroup != "space":
            token = _token(match, places.of(match.start(), match.end()))
            tokens.append(token)
            if token.kind is TokenKind.BROKEN:
                break
    end = places.of(len(text), len(text))
    return (*tokens, Token(TokenKind.END, "", end))


class _Places:
    """Offsets to lines and columns."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(m.end() for m in _LINE_END.finditer(text))]
        self._ends = [m.start() for m in _LINE_END.finditer(text)] + [len(text)]
        self._line = 0

    def of(self, start: int, stop: int) -> Position:
        """The place of ``text[start:stop]``; ``start`` never falls between calls."""
        while self._line + 1 < len(self._starts) and self._starts[self._line + 1] <= start:
            self._line += 1
        length = max(1, min(stop, self._ends[self._line]) - start)
        return Position(self._line + 1, start - self._starts[self._line] + 1, length)


def _token(match: re.Match[str], position: Position) -> Token:
    text = match.group()
    match match.lastgroup:
        case "name":
            return Token(TokenKind.NAME, text, position, text)
        case "quoted":
            return Token(TokenKind.QUOTED, text, position, text[1:-1])
        case "triple":
            return _string(text, _ESCAPE.sub(_unescape, text[3:-3]), position)
        case "double_quotes" | "single_quotes":
            return _string(text, text[1:-1], position)
        case "int":
            return Token(TokenKind.INT, text, position, int(text))
        case "long":
            return Token(TokenKind.LONG, text, position, int(text[:-1]))
        case "float":
            return Token(TokenKind.FLOAT, text, position, float(text[:-1]))
        case "double":
            return Token(TokenKind.DOUBLE, text, position, float(text.rstrip("dD")))
        case _:
            return Token(TokenKind.SYMBOL, text, position)


def _string(text: str, value: str, position: Position) -> Token:
    if _SUBSTITUTION.search(value):
        return _broken_token(text, not_supported("substitution of ${..}", position))
    return Token(TokenKind.STRING, text, position, value)


def _unescape(match: re.Match[str]) -> str:
    code, octal, letter = match.groups()
    if code is not None:
        return chr(int(code, 16))
    if octal is not None:
        return chr(int(octal, 8))
    return _ESCAPED.get(letter, letter)


def _broken(text: str, offset: int, places: _Places) -> Token:
    substitution = _SUBSTITUTION.match(text, offset)
    if substitution:
        position = places.of(offset, substitution.end())
        return _broken_token(substitution.group(), not_supported("substitution of ${..}", position))
    char = text[offset]
    rest_of_line = _LINE_END.split(text[offset:], maxsplit=1)[0]
    if char in "'\"":
        triple = rest_of_line.startswith('"""')
        error = MeshError(
            "MESH-L102",
            "string can't be read",
            detail="It has no end in its line, or holds what its kind of quotes doesn't allow.",
            hint=(
                'In """..""" write \\" for a quote, \\\\ for a backslash and \\n for a new line.'
                if triple
                else '\'..\' holds no quotes and ".." no double quotes; """..""" takes escapes.'
            ),
            position=places.of(offset, offset + len(rest_of_line)),
        )
        return _broken_token(rest_of_line, error)
    if char == "`":
        error = MeshError(
            "MESH-L102",
            "quoted name has no end in its line",
            hint="A name in backquotes is closed by a backquote and isn't empty.",
            position=places.of(offset, offset + len(rest_of_line)),
        )
        return _broken_token(rest_of_line, error)
    error = MeshError(
        "MESH-L101",
        f"character {char!r} has no meaning here",
        hint=_CHARACTER_HINTS.get(char),
        position=places.of(offset, offset + 1),
    )
    return _broken_token(char, error)


_CHARACTER_HINTS: Final = {
    "&": "Write 'and'.",
    "|": "Write 'or'.",
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


def _broken_token(text: str, error: MeshError) -> Token:
    position = error.position or Position(1, 1)
    return Token(TokenKind.BROKEN, text, position, error=error)
