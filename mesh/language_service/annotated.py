"""Names of attributes in annotations: keys, templates, mappings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from mesh.language.tokens import TokenKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.errors import Position
    from mesh.language.cursor import Cursor

#: Annotations whose texts are names of attributes.
LISTS: Final = ("primarykey", "index", "partitionbyid")
#: Keys whose text is the name of an attribute.
_KEYS: Final = ("partitionkey",)
_TEMPLATE: Final = re.compile(r"\{\{(\w+)\}\}")


def annotated_names(cursor: Cursor, first: int, last: int) -> Iterator[tuple[str, Position]]:
    """Names in the annotations between two tokens that may be attributes, with their places."""
    open_: list[str] = []
    tokens = cursor.tokens
    for at in range(first, last):
        token = tokens[at]
        if token.text == "(":
            open_.append(_annotation(cursor, at))
        elif token.text == ")" and open_:
            open_.pop()
        elif token.kind is TokenKind.STRING:
            content = str(token.value)
            start = token.start + (len(token.text) - len(content)) // 2
            key = tokens[at - 2].text.lower() if tokens[at - 1].text == "=" else ""
            if (open_ and open_[-1] in LISTS) or key in _KEYS:
                yield content, cursor.places.of(start, start + len(content))
            for match in _TEMPLATE.finditer(content):
                name = match[1]
                yield name, cursor.places.of(start + match.start(1), start + match.end(1))
        elif open_ and open_[-1] == "attributes" and tokens[at + 1].text == "=":
            yield str(token.value), cursor.place(token)


def _annotation(cursor: Cursor, at: int) -> str:
    """Name of the annotation whose bracket is at ``at``, in lower case."""
    return cursor.tokens[at - 1].text.lower() if at else ""
