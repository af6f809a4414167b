"""Notes about functions that give other values here; docs/siddhiql.md has the reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.language.tokens import TokenKind, tokenize
from mesh.migrate.draft import NoteKind

if TYPE_CHECKING:
    from mesh.migrate.draft import Draft

_CLOCK: Final = "gives the query's clock, the time of its events: a replay has the same value"
_PLACE: Final = "is computed from the event's place: a replay has the same value"
_COPY: Final = "returns a changed copy, and leaves its argument as it is"
#: By name, with its namespace.
_NOTES: Final = {
    "currentTimeMillis": _CLOCK, "time:currentTimestamp": _CLOCK, "time:currentTime": _CLOCK,
    "time:currentDate": _CLOCK, "time:utcTimestamp": _CLOCK, "UUID": _PLACE, "math:rand": _PLACE,
    "map:put": _COPY, "map:putAll": _COPY, "map:remove": _COPY, "list:add": _COPY,
    "list:remove": _COPY, "json:setElement": _COPY,
}  # fmt: skip


def note_calls(draft: Draft) -> None:
    """Add a note about each call of a function whose values differ."""
    tokens = tokenize(draft.text).tokens
    for at, token in enumerate(tokens[:-1]):
        if token.kind is not TokenKind.NAME or tokens[at + 1].text != "(":
            continue
        has_namespace = at > 1 and tokens[at - 1].text == ":"
        name = f"{tokens[at - 2].text}:{token.text}" if has_namespace else token.text
        if name in _NOTES:
            draft.note(NoteKind.DIFFERS, token.start, f"{name}() {_NOTES[name]}")
