"""Texts of Siddhi 3, whose annotations Siddhi 4 replaced: recognised, and named as the cause."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError
from mesh.language.tokens import TokenKind, tokenize

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mesh.language.tokens import Token

#: A text without any of these is read no further.
_HINT: Final = re.compile(
    r"@\s*(?:plan\s*:|(?:import|export)\s*\(|from\s*\(\s*eventtable)|insert\s+overwrite",
    re.IGNORECASE,
)
#: The id of a stream of CEP: name:version.
STREAM_ID: Final = re.compile(r"[^:\s]+:\d+\.\d+\.\d+\Z")


def signs(text: str) -> Iterator[tuple[str, Token]]:
    """Constructs that only Siddhi 3 has, each with its first token."""
    if not _HINT.search(text):
        return
    tokens = tokenize(text).tokens
    for at, token in enumerate(tokens[:-4]):
        if token.text == "@" and token.kind is TokenKind.SYMBOL:
            sign = _annotation(tokens, at)
            if sign:
                yield sign, token
        elif _word(token) == "insert" and _word(tokens[at + 1]) == "overwrite":
            yield "insert overwrite", token


def refuse_siddhi3(text: str) -> None:
    """Refuse a text of Siddhi 3 as a whole; MESH-L110."""
    occurrences = list(signs(text))
    if not occurrences:
        return
    sign, token = occurrences[0]
    others = [name for name in dict.fromkeys(name for name, _ in occurrences) if name != sign]
    raise MeshError(
        "MESH-L110",
        f"the text is of Siddhi 3: it has {sign}",
        detail=f"It has {', '.join(others)} as well." if others else None,
        hint="'mesh migrate FILE' writes it in the present language; see docs/migrate.md.",
        position=tokenize(text).places.of(token.start, token.start + max(2, len(sign))),
    )


def _annotation(tokens: Sequence[Token], at: int) -> str:
    """The annotation of Siddhi 3 whose ``@`` is at ``at``; empty for another one."""
    name, after = _word(tokens[at + 1]), tokens[at + 2].text
    if name == "plan" and after == ":":
        return f"@Plan:{tokens[at + 3].text}"
    if after != "(":
        return ""
    first = tokens[at + 3]
    if name in ("import", "export"):
        is_id = first.kind is TokenKind.STRING and STREAM_ID.match(str(first.value))
        return f"@{name.capitalize()}" if is_id else ""
    return "@From(eventtable=..)" if name == "from" and _word(first) == "eventtable" else ""


def _word(token: Token) -> str:
    return token.text.lower() if token.kind is TokenKind.NAME else ""
