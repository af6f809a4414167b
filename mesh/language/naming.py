"""The name of an app whose text has none: the engine takes such a text, and draws a name.

Every way by which a text becomes an app calls ``named``.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final

from mesh.language.print_expressions import print_string
from mesh.language.substitution import Places, SubstitutedText

if TYPE_CHECKING:
    from mesh.errors import Position

_SPACE: Final = r"(?:\s|--[^\r\n]*+|/\*.*?(?:\*/|\Z))*+"
_QUOTED: Final = r"\"\"\".*?\"\"\"|\"[^\"\r\n]*+\"|'[^'\r\n]*+'"
#: An annotation of the app, with its name; these come before everything else.
_APP_ANNOTATION: Final = re.compile(
    rf"{_SPACE}@{_SPACE}app{_SPACE}:{_SPACE}`?(\w+)`?{_SPACE}(?:\((?:{_QUOTED}|[^'\")])*+\))?",
    re.DOTALL | re.IGNORECASE,
)
_DRAWN_LENGTH: Final = 12


class NamedText(SubstitutedText):
    """A text with a name that is not in the original, to which positions refer."""

    __slots__ = ("name", "original")

    #: The text without the name.
    original: str
    name: str


class _After(Places):
    """Positions in an original text, by offsets into one that has ``length`` characters before."""

    def __init__(self, original: Places, length: int) -> None:
        self._original = original
        self._length = length

    def of(self, start: int, stop: int) -> Position:
        """The position of a range of the longer text."""
        return self._original.of(max(0, start - self._length), max(1, stop - self._length))

    def at(self, offset: int) -> tuple[int, int]:
        """The line and column of an offset in the original."""
        return self._original.at(max(0, offset - self._length))

    def origin(self, start: int, stop: int) -> tuple[int, int] | None:
        """The place of a range after the name; see ``Places``."""
        if start < self._length:
            return None
        return self._original.origin(start - self._length, stop - self._length)

    def line(self, offset: int) -> int:
        """The original line of an offset."""
        return self._original.line(max(0, offset - self._length))


def has_name(text: str) -> bool:
    """Whether a text has ``@App:name``; its beginning alone is read, without a parser."""
    at = 0
    while (match := _APP_ANNOTATION.match(text, at)) is not None:
        if match[1].lower() == "name":
            return True
        at = match.end()
    return False


def named(text: str, name: str = "") -> str:
    """The text with the name of its app in a line before it; unchanged if it has one.

    Args:
        text: SiddhiQL.
        name: the name, as the stem of the file; without it, one from the digest of the text.
    """
    if has_name(text):
        return text
    if not name:
        name = f"app-{hashlib.sha256(text.encode()).hexdigest()[:_DRAWN_LENGTH]}"
    before = f"@App:name({print_string(name)})\n"
    result = NamedText(before + text)
    places = text.places if isinstance(text, SubstitutedText) else Places(text)
    result.places = _After(places, len(before))
    result.original, result.name = str(text), name
    return result
