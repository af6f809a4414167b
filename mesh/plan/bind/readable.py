"""Binding of a text that can't be read in full: a syntax error hides no error of another statement.

A statement with a syntax error may define names and create streams.  These are known to exist, as
those of a statement with an error of its names or types are, so nothing is reported about them.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshErrors, Position
from mesh.language.parser import read_app
from mesh.language.tokens import Token, TokenKind
from mesh.plan.bind.apps import bind_app
from mesh.plan.bind.names import AppNames, NamedDefinition
from mesh.plan.bound import SourceKind
from mesh.plan.diagnostics import Diagnostics, TooManyErrors, place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.errors import MeshError
    from mesh.language.parser import PartialParse
    from mesh.language.syntax import App
    from mesh.language.tokens import Tokens
    from mesh.plan.bound import BoundApp

_UNKNOWN_NAME: Final = ("MESH-L205", "MESH-L217")
_MARKS: Final = ("#", "!")


@dataclass(frozen=True, slots=True)
class Readable:
    """The parts of an app that can be read, with the errors of all its parts."""

    reading: PartialParse
    #: The parts without an error; None after too many errors.
    bound: BoundApp | None
    names: AppNames
    #: In the order of the text.
    errors: tuple[MeshError, ...]


def bind_readable(text: str, cut: Tokens | None = None) -> Readable:
    """Parse ``text``, and bind the statements that can be parsed; ``cut``: see ``read_app``."""
    reading = read_app(text, cut)
    names, problems = AppNames(), Diagnostics()
    unread = list(_named(reading))
    for kind, name, position in unread:
        _declare(names, kind, name, position)
    bound = None
    with contextlib.suppress(TooManyErrors):
        bound = bind_app(reading.app, names, problems)
    # Functions and tables have one name each, which their errors quote.
    quoted = [f'"{name}"' for _, name, _ in unread]
    of_names = [
        error
        for error in problems.errors
        if not (error.code in _UNKNOWN_NAME and any(name in error.message for name in quoted))
    ]
    errors = sorted((*reading.errors, *of_names), key=place_of)
    return Readable(reading, bound, names, tuple(errors))


def parse_bindable(text: str) -> App:
    """The syntax tree of a text.

    Raises:
        MeshErrors: MESH-L1xx for statements that are not SiddhiQL, together with the MESH-L2xx of
            the others.
    """
    reading = read_app(text)
    if reading.errors:
        raise MeshErrors(bind_readable(text).errors)
    return reading.app


def _named(reading: PartialParse) -> Iterator[tuple[str, str, Position]]:
    """Kind, name with its mark and position of what the unread statements may define."""
    for tokens in reading.unread:
        padded = (*tokens, Token(TokenKind.END, "", 0))
        has_fault = any(token.text.lower() == "onerror" for token in tokens)
        for at, (before, token) in enumerate(pairwise(padded)):
            word = before.text.lower() if before.kind is TokenKind.NAME else ""
            if word == "define":
                after = padded[min(at + 2, len(padded) - 1)]
                if _is_name(after):
                    yield token.text.lower(), str(after.value), reading.cursor.place(after)
                    if has_fault:
                        yield "stream", f"!{after.value}", reading.cursor.place(after)
            elif word == "into":
                mark = token.text if token.text in _MARKS else ""
                target = padded[min(at + 2, len(padded) - 1)] if mark else token
                if _is_name(target):
                    yield "stream", f"{mark}{target.value}", reading.cursor.place(target)


def _is_name(token: Token) -> bool:
    return token.kind in (TokenKind.NAME, TokenKind.QUOTED)


def _declare(names: AppNames, kind: str, name: str, position: Position) -> None:
    """Declare a name whose definition has an error."""
    match kind:
        case "table":
            names.tables[name] = NamedDefinition(SourceKind.TABLE, None, position)
        case "window":
            names.windows[name] = NamedDefinition(SourceKind.WINDOW, None, position)
        case "aggregation":
            names.aggregations[name] = NamedDefinition(SourceKind.AGGREGATION, None, position)
        case "stream" | "trigger":
            names.streams.setdefault(name, NamedDefinition(SourceKind.STREAM, None, position))
        case _:
            pass
