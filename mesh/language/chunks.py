"""Chunks of a text, each a statement with its ``;``: an edit of a text costs the chunks it changes.

A chunk ends with the line of its ``;``, if nothing but a comment follows in that.  Where the
tokenizer sees other borders, as in a script with many brackets, the text is cut as a whole.
"""

from __future__ import annotations

import re
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final

from mesh.language.parser import STATEMENTS_MAX
from mesh.language.substitution import Places, SubstitutedText
from mesh.language.tokens import Comment, Token, TokenKind, Tokens, tokenize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_CHUNK: Final = re.compile(
    r"""(?: [^;'"`{/\-]++ | --[^\r\n]*+ | /\*.*?(?:\*/|\Z)
          | \"\"\".*?\"\"\" | "[^"\r\n]*+" | '[^'\r\n]*+' | `[^`\r\n]++`
          | \{(?:[^{}]++|\{[^{}]*+\})*+\}
          | [^;] )*+
        (?: ;[ \t]*+(?:--[^\r\n]*+)?(?:\r\n|\r|\n)? | \Z )""",
    re.VERBOSE | re.DOTALL,
)
_LINE_ENDS: Final = ("\r", "\n")
#: Begin what is unreadable because an end is missing, which may be anywhere later in the text.
_OPEN: Final = ("{", '"""')
_made: Final[Callable[[tuple[object, ...]], Token]] = partial(tuple.__new__, Token)


def chunks_of(text: str) -> Iterator[tuple[int, str]]:
    """The chunks of a text with their offsets."""
    for match in _CHUNK.finditer(text):
        yield match.start(), match.group()


def tokenize_chunks(text: str) -> Tokens:
    """The tokens of a text as ``tokenize`` has them; chunks that were cut before are not again."""
    tokens: list[Token] = []
    comments: list[Comment] = []
    for start, chunk in chunks_of(text):
        cut = _cut(chunk, start == 0, start + len(chunk) == len(text))
        if cut is None:
            return tokenize(text)
        before = len(tokens)
        comments += [
            Comment(one.text, start + one.start, before + one.before) for one in cut.comments
        ]
        tokens += [
            _made((kind, part, start + at, value)) for kind, part, at, value in cut.tokens[:-1]
        ]
    tokens.append(Token(TokenKind.END, "", len(text)))
    places = text.places if isinstance(text, SubstitutedText) else Places(text)
    return Tokens(tuple(tokens), tuple(comments), places)


@lru_cache(maxsize=4 * STATEMENTS_MAX)
def _cut(chunk: str, is_first: bool, is_last: bool) -> Tokens | None:
    """The tokens of a chunk; None if they may depend on what follows it."""
    cut = tokenize(chunk)
    tokens = cut.tokens
    if not is_first and chunk.startswith("\ufeff"):
        return None
    if is_last:
        return cut
    broken = [one for one in tokens if one.kind is TokenKind.BROKEN]
    is_ended = len(tokens) > 1 and tokens[-2].text == ";"
    is_open = any(one.text.startswith(_OPEN) for one in broken)
    return cut if is_ended and not is_open and (not broken or chunk[-1] in _LINE_ENDS) else None
