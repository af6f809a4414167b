"""Canonical form of a text whose ``${NAME}`` have no values yet.

A variable may be a name, a number, a time or a part of a string, and only its value would show
which.  So each is parsed as a name first, and if that is an error, as a number and then as a time.
The canonical text has it as it was written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError, MeshErrors, all_errors
from mesh.language.layout import format_app
from mesh.language.substitution import VARIABLE, substitute

if TYPE_CHECKING:
    from collections.abc import Iterator

#: A number of ten digits that is still an int.
_FIRST_NUMBER: Final = 1_100_000_000


def canonical(text: str) -> str:
    """Format ``text`` with its comments and its variables.

    Raises:
        MeshErrors: MESH-L1xx at text that is not SiddhiQL.
    """
    if VARIABLE.search(text) is None:
        return format_app(text)
    occurrences = _Occurrences()
    substitute(text, occurrences)
    stand_ins = [
        _StandIn(written, _forms(index, written, text))
        for index, written in enumerate(occurrences.written)
    ]
    while True:
        filled = substitute(text, _Occurrences([stand_in.text for stand_in in stand_ins]))
        try:
            output = format_app(str(filled))
        except MeshError as error:
            errors = all_errors(error)
            advanced = [_advance(stand_ins, filled, one) for one in errors]
            if not any(advanced):
                break
        else:
            return _restored(output, stand_ins)
    for one in errors:
        for stand_in in _near(stand_ins, filled, one):
            stand_in.tried = 0
    try:
        values = [stand_in.text for stand_in in stand_ins]
        return _restored(format_app(substitute(text, _Occurrences(values))), stand_ins)
    except MeshError as error:
        raise MeshErrors([_at_original(one, stand_ins) for one in all_errors(error)]) from None


class _Occurrences(dict[str, str]):
    """Values for variables, by their positions in the text, not by their names.

    ``substitute`` reads them in the order of the text.
    """

    def __init__(self, values: list[str] | None = None) -> None:
        super().__init__()
        #: The requested variables, as written.
        self.written: list[str] = []
        self._values = values

    def get(self, name: str, default: str | None = None) -> str:  # type: ignore[override]
        self.written.append(f"${{{name}}}" if default is None else f"${{{name}:{default}}}")
        return "" if self._values is None else self._values[len(self.written) - 1]


@dataclass(slots=True)
class _StandIn:
    """Placeholder of a variable while its text is formatted."""

    variable: str
    forms: tuple[str, ...]
    tried: int = 0

    @property
    def text(self) -> str:
        return self.forms[self.tried]


def _forms(index: int, written: str, text: str) -> tuple[str, ...]:
    """A name, a number and a time that ``text`` doesn't hold; the name as wide as the variable."""
    name = f"_{index}_"
    while name in text:
        name = f"_{name}"
    number = _FIRST_NUMBER + index
    while str(number) in text:
        number += 10_000_000
    return name.ljust(len(written), "_"), str(number), f"{number} sec"


def _advance(stand_ins: list[_StandIn], filled: str, error: MeshError) -> bool:
    """Try the next form of the variable that ``error`` is about, if it is about one."""
    for stand_in in _near(stand_ins, filled, error):
        if stand_in.tried + 1 < len(stand_in.forms):
            stand_in.tried += 1
            return True
    return False


def _near(stand_ins: list[_StandIn], filled: str, error: MeshError) -> Iterator[_StandIn]:
    """The placeholders at the position of the error, or directly before."""
    at = error.position
    if at is None:
        return
    lines = filled.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    line = lines[at.line - 1] if at.line <= len(lines) else ""
    marked, before = line[at.column - 1 : at.column - 1 + at.length], line[: at.column - 1]
    for stand_in in stand_ins:
        mark = stand_in.text.partition(" ")[0]
        if mark in marked or before.rstrip().endswith((mark, stand_in.text)):
            yield stand_in


def _restored(text: str, stand_ins: list[_StandIn]) -> str:
    variables = {stand_in.text: stand_in.variable for stand_in in stand_ins}
    pattern = "|".join(map(re.escape, variables))
    return re.sub(pattern, lambda match: variables[match[0]], text) if pattern else text


def _at_original(error: MeshError, stand_ins: list[_StandIn]) -> MeshError:
    """The error with the variables instead of their placeholders."""
    return MeshError(
        error.code,
        _restored(error.message, stand_ins),
        detail=error.detail,
        hint=error.hint,
        position=error.position,
    )
