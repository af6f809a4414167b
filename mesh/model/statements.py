"""Statements of SQL in the texts of apps: their places for values, and the columns they give."""

from __future__ import annotations

import re
from typing import Final

from mesh.model.types import Attribute, AttributeType

#: Texts, names and comments, in which a question mark is one; and a place.
_PART: Final = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|--[^\n]*|/\*.*?\*/|\?", re.DOTALL
)
_WORD: Final = re.compile(r"(?:--[^\n]*\n|/\*.*?\*/|\s)*([A-Za-z]+)", re.DOTALL)
_COLUMN: Final = re.compile(r"\s*([A-Za-z_]\w*)\s+(\w+)\s*\Z")
_TYPES: Final = {
    **{kind.value: kind for kind in AttributeType if kind is not AttributeType.OBJECT},
    "boolean": AttributeType.BOOL,
}


def places(statement: str) -> int:
    """The number of places ``?`` for values."""
    return sum(match[0] == "?" for match in _PART.finditer(statement))


def formatted(statement: str) -> str:
    """A statement for drivers whose place is ``%s``, and ``%%`` a percent sign."""
    parts, at = [], 0
    for match in _PART.finditer(statement):
        parts.append(statement[at : match.start()].replace("%", "%%"))
        parts.append("%s" if match[0] == "?" else match[0].replace("%", "%%"))
        at = match.end()
    return "".join((*parts, statement[at:].replace("%", "%%")))


def first_word(statement: str) -> str:
    """Its command in capital letters, as in SELECT; empty for none."""
    match = _WORD.match(statement)
    return match[1].upper() if match is not None else ""


def columns_in(text: str) -> tuple[Attribute, ...]:
    """``a string, b int`` as attributes.

    Raises:
        ValueError: it has another form, or an attribute twice.
    """
    attributes: list[Attribute] = []
    for part in text.split(","):
        match = _COLUMN.match(part)
        kind = None if match is None else _TYPES.get(match[2].lower())
        if match is None or kind is None:
            raise ValueError(
                f'"{part.strip()}" is no attribute with its type, such as price double; types are '
                f"{', '.join(kind for kind in _TYPES if kind != 'boolean')}"
            )
        attributes.append(Attribute(match[1], kind))
    if len({one.name for one in attributes}) < len(attributes):
        raise ValueError("an attribute is there twice")
    return tuple(attributes)
