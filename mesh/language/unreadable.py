"""Errors for parts of a text that are no token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError
from mesh.language.substitution import VARIABLE
from mesh.language.tokens import DIGITS_MAX

if TYPE_CHECKING:
    from mesh.errors import Position
    from mesh.language.places import Places
    from mesh.language.tokens import Token


def unreadable(token: Token, places: Places) -> MeshError:
    """The error of a ``BROKEN`` token."""
    text = token.text
    position = places.of(token.start, token.start + len(text))
    variable = VARIABLE.search(text)
    if variable:
        start = token.start + variable.start()
        return MeshError(
            "MESH-L108",
            f'variable "{variable.group(1)}" has no value here',
            hint=f"Give it one, or a default: ${{{variable.group(1)}:default}}.",
            position=places.of(start, start + len(variable.group())),
        )
    if text[0] in "'\"`":
        return _unclosed(text, position)
    if len(text) > DIGITS_MAX and (text[0].isdigit() or text[0] == "."):
        return MeshError("MESH-L103", "number is too long for any type", position=position)
    if text[0] == "{":
        return MeshError(
            "MESH-L102",
            "function body has no end",
            detail="Each '{' needs its '}'; those in double quotes and behind // don't count.",
            hint="Such brackets hold nothing else.",
            position=position,
        )
    return MeshError(
        "MESH-L101",
        f"character {text[0]!r} has no meaning here",
        hint=_CHARACTER_HINTS.get(text[0]),
        position=position,
    )


def _unclosed(text: str, position: Position) -> MeshError:
    """The error for a string or quoted name without an end."""
    detail = None
    if text[0] == "`":
        message = "quoted name has no end in its line"
        hint = "A name in backquotes is closed by a backquote and isn't empty."
    elif text.startswith('"""'):
        message = "string has no end"
        hint = 'A string that starts with """ ends with """.'
    elif text[0] in text[1:]:
        message = "string holds what it can't"
        detail = (
            "'..' holds no quotes of either kind, \"..\" no double quotes; a backslash is no help."
        )
        hint = 'Write """..""", which holds quotes and several lines.'
    else:
        message = "string has no end in its line"
        hint = f"Close it with {text[0]}"
    return MeshError("MESH-L102", message, detail=detail, hint=hint, position=position)


_CHARACTER_HINTS: Final = {
    "&": "Write 'and'.",
    "|": "Write 'or'.",
    "^": "There is no power operator.",
    "}": "Brackets { } enclose the body of a function only.",
    "{": "Brackets { } enclose the body of a function only.",
    "$": "A variable is written ${NAME}.",
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
