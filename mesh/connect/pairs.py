"""Options that are lists of pairs: ``'name:value','name:value'``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

#: A pair in quotes, in which two quotes are one, or without.
_PAIR: Final = re.compile(r"'((?:[^']|'')*)'|([^,']+)")


def pairs_of(text: str) -> list[tuple[str, str]]:
    """The pairs of a text; the quotes may be missing.

    Raises:
        ValueError: a part has no colon, or no name before it.
    """
    pairs = []
    for quoted, bare in _PAIR.findall(text):
        text = (quoted or bare).strip()
        if not text:
            # Blanks around a comma.
            continue
        name, colon, value = text.partition(":")
        if not colon or not name.strip():
            raise ValueError("is a list of 'name:value'")
        pairs.append((unquoted(name.strip()), unquoted(value.strip())))
    return pairs


def unquoted(text: str) -> str:
    """A text between quotes, with its own ones as they are."""
    return text.replace("''", "'")


def quoted(text: str) -> str:
    """A text that may stand between quotes."""
    return text.replace("'", "''")


def text_of(pairs: Iterable[tuple[str, str]]) -> str:
    """The text of pairs, each in quotes."""
    return ",".join(f"'{quoted(name)}:{quoted(value)}'" for name, value in pairs)
