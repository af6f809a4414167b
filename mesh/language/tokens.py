"""Tokenizer: cuts SiddhiQL text into tokens with positions.

Keywords are names here; the parser decides where a word is a keyword.  An unreadable part becomes a
``BROKEN`` token, so that errors are reported in text order and tokenizing continues after it;
``cursor`` reports its error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from mesh.errors import LINE_END
from mesh.language.substitution import VARIABLE, Places, SubstitutedText
from mesh.model.secrets import REFERENCE


class TokenKind(StrEnum):
    """Kind of a token; the values are the words of error messages."""

    NAME = "name"
    #: A name in backquotes, never a keyword.
    QUOTED = "quoted name"
    STRING = "string"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    SYMBOL = "symbol"
    #: The body of a function, in its outer brackets.
    SCRIPT = "script"
    BROKEN = "broken"
    END = "end of text"


class Token(NamedTuple):
    """One token of the text."""

    kind: TokenKind
    #: As written.
    text: str
    #: Start, as an offset into the text.
    start: int
    #: The name without quotes, the string's or script's content, or the number.
    value: str | int | float | None = None


@dataclass(frozen=True, slots=True)
class Comment:
    """``-- text`` or ``/* text */``, as written."""

    text: str
    start: int
    #: Number of tokens before the comment.
    before: int


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens and comments of a text; the last token is ``END``."""

    tokens: tuple[Token, ...]
    comments: tuple[Comment, ...]
    places: Places


_KEYWORDS: Final = """
    stream define function trigger table app from partition window select group by order limit
    offset asc desc having insert delete update set return events into output expired current
    snapshot for raw of as at or and in on is not within with begin end null every last all first
    join inner outer right left full unidirectional year years month months week weeks day days
    hour hours min minute minutes sec second seconds millisec millisecond milliseconds false true
    string int long float double bool object aggregation aggregate per
"""
#: Every word that the grammar uses, lower case.  Most may be names; the printer quotes them all.
KEYWORDS: Final = frozenset(_KEYWORDS.split())
#: Keywords that the reference grammar doesn't accept as names.
RESERVED: Final = frozenset(
    ("function", "trigger", "offset", "set", "at", "in", "aggregation", "aggregate", "per")
)

_DIGITS_WITH_POINT = r"(?:\d+(?:\.\d*)?|\.\d+)"
_EXPONENT = r"(?:[eE][-+]?\d+)"

# Blanks and a token; no token at what is unreadable, and at the end.  The number kinds are ordered
# so that the first match is the longest: kinds with a suffix are first.  ``1.`` alone is no number:
# it is ``1`` and a dot, as in the reference grammar.  The frequent kinds are first where the order
# doesn't matter: a ``mark`` starts no other token.
_TOKEN: Final = re.compile(
    rf"""
    [ \t\r\n\x0b]*+
  (?:
    (?P<name>[A-Za-z_][A-Za-z_0-9]*)
  | (?P<mark>[()\[\],;:@\#])
  | (?P<comment>--[^\r\n]* | /\*.*?(?:\*/|\Z))
  | (?P<float>{_DIGITS_WITH_POINT}{_EXPONENT}?[fF])
  | (?P<double>{_DIGITS_WITH_POINT}(?:{_EXPONENT}?[dD]|{_EXPONENT}) | \d*\.\d+)
  | (?P<long>\d+[lL])
  | (?P<int>\d+)
  | (?P<quoted>`[^`\r\n]+`)
  | (?P<triple>\"\"\".*?\"\"\")
  | (?P<double_quotes>(?!"{{3}})"[^\x00-\x1f"]*")
  | (?P<single_quotes>'[^\x00-\x1f'"]*')
  | (?P<symbol>->|\.\.\.|<=|>=|==|!=|[.=<>*/%+\-?!])
  )?
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_SCRIPT_BRACKET: Final = re.compile(r"[^{}]+|[{}]")
# Inside a script only brackets count, except those in double quotes and after ``//``.
_SCRIPT_PART: Final = re.compile(r'[^{}"/]+|"[^"]*"|//[^\r\n]*|/|[{}]')
#: A longer number exceeds every type; it isn't converted, as conversion isn't linear.
DIGITS_MAX: Final = 400

_PLAIN_KINDS: Final = {
    "name": TokenKind.NAME,
    "mark": TokenKind.SYMBOL,
    "symbol": TokenKind.SYMBOL,
}


def tokenize(text: str) -> Tokens:
    """Cut ``text`` into tokens and comments, in time linear in its length."""
    places = text.places if isinstance(text, SubstitutedText) else Places(text)
    tokens: list[Token] = []
    comments: list[Comment] = []
    # A byte order mark is ignored, at the start of the text only.
    offset = 1 if text.startswith("\ufeff") else 0
    scripts_may_end = True
    match_at = _TOKEN.match
    while offset < len(text):
        match = match_at(text, offset)
        assert match is not None, "blanks may be none, and a token as well"
        kind, offset = match.lastgroup, match.end()
        if kind in _PLAIN_KINDS:
            word = match[kind]
            tokens.append(Token(_PLAIN_KINDS[kind], word, offset - len(word), word))
        elif kind == "comment":
            comments.append(Comment(match[kind], match.start(kind), len(tokens)))
        elif kind is not None:
            tokens.append(_token(kind, match[kind], match.start(kind)))
        elif offset < len(text):
            token = None
            if text[offset] == "{" and scripts_may_end:
                token = _script(text, offset)
                # If this quote is unclosed, a search for the next one's end would scan the same
                # text again.
                scripts_may_end = token is not None
            token = token or Token(TokenKind.BROKEN, _unreadable(text, offset), offset)
            tokens.append(token)
            offset += len(token.text)
    tokens.append(Token(TokenKind.END, "", len(text)))
    return Tokens(tuple(tokens), tuple(comments), places)


def _token(kind: str, text: str, start: int) -> Token:
    match kind:
        case "quoted":
            return Token(TokenKind.QUOTED, text, start, text[1:-1])
        case "triple":
            return _string(text, text[3:-3], start)
        case "double_quotes" | "single_quotes":
            return _string(text, text[1:-1], start)
        case _:
            return _number(TokenKind(kind), text, start)


def _string(text: str, value: str, start: int) -> Token:
    if "${" in value and VARIABLE.search(REFERENCE.sub("", value)):
        return Token(TokenKind.BROKEN, text, start)
    return Token(TokenKind.STRING, text, start, value)


def _number(kind: TokenKind, text: str, start: int) -> Token:
    if len(text) > DIGITS_MAX:
        return Token(TokenKind.BROKEN, text, start)
    match kind:
        case TokenKind.INT:
            return Token(kind, text, start, int(text))
        case TokenKind.LONG:
            return Token(kind, text, start, int(text[:-1]))
        case TokenKind.FLOAT:
            return Token(kind, text, start, float(text[:-1]))
        case _:
            return Token(kind, text, start, float(text.rstrip("dD")))


def _script(text: str, start: int) -> Token | None:
    """``{ .. }``, with the brackets inside it paired; None if it has no end.

    Double quotes and ``//`` may be no string and no comment, as in ``{ http://x }``: if the
    brackets outside of them don't pair, all brackets are counted.
    """
    return _paired(text, start, _SCRIPT_PART) or _paired(text, start, _SCRIPT_BRACKET)


def _paired(text: str, start: int, pattern: re.Pattern[str]) -> Token | None:
    depth, offset = 0, start
    while offset < len(text):
        match = pattern.match(text, offset)
        if match is None:
            return None
        part = match.group()
        offset = match.end()
        if part == "{":
            depth += 1
        elif part == "}":
            depth -= 1
            if depth == 0:
                script = text[start:offset]
                return Token(TokenKind.SCRIPT, script, start, script[1:-1])
    return None


def _unreadable(text: str, start: int) -> str:
    """The longest unreadable text at ``start`` that belongs together."""
    char = text[start]
    variable = VARIABLE.match(text, start)
    if variable:
        return variable.group()
    if char in "'\"`":
        line_end = LINE_END.search(text, start)
        stretch = text[start : line_end.start() if line_end else len(text)]
        # An unclosed string most likely doesn't extend past the end of the statement.
        return stretch.rstrip("; \t)]") or char
    stop = start + 1
    while stop < len(text) and text[stop] == char:
        stop += 1
    return text[start:stop]
