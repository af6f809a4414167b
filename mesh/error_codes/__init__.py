"""Meaning of every error code: the text of ``mesh explain`` and of docs/errors.md.

``meanings.toml`` is hand-written.  ``shown.json`` is collected from the tests' cases and from
the code by ``tools.docgen``, so that an example shows the real message.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from mesh.errors import MeshError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Part of the system for each letter of a code.
PARTS: Final = {
    "L": "Language",
    "P": "Plan",
    "D": "Data",
    "O": "Operators",
    "S": "Spark",
    "N": "NATS",
    "C": "Control plane",
    "A": "API",
    "U": "Usage of the command line",
}
_DIVIDER: Final = "\n----\n"


@dataclass(frozen=True, slots=True)
class Example:
    """An app with the error that it gives."""

    app: str
    error: str


@dataclass(frozen=True, slots=True)
class Entry:
    """Description of one code."""

    code: str
    #: A fragment, lower-case.
    title: str
    #: A paragraph in Markdown, as stable as the code.
    meaning: str
    #: Remedy, in sentences.
    mend: str
    example: Example | None
    #: Its messages, ``{..}`` for the variable parts; empty if there is an example.
    messages: tuple[str, ...]

    @property
    def part(self) -> str:
        """The letter of the code."""
        return self.code[5]

    def to_dict(self) -> dict[str, object]:
        """The entry as JSON values."""
        example = self.example
        return {
            "code": self.code,
            "title": self.title,
            "meaning": self.meaning,
            "mend": self.mend,
            "example": {"app": example.app, "error": example.error} if example else None,
            "messages": list(self.messages),
        }


@cache
def catalogue() -> Mapping[str, Entry]:
    """The entries by code, in the order of ``PARTS`` and of their numbers."""
    shown = json.loads(_read("shown.json"))
    return make_catalogue(shown["examples"], shown["messages"])


def make_catalogue(
    examples: Mapping[str, Mapping[str, str]], messages: Mapping[str, list[str]]
) -> Mapping[str, Entry]:
    """The entries with these examples and messages.

    Args:
        examples: an ``app`` and its ``error`` for codes that are given for apps.
        messages: for the other codes.
    """
    entries = (
        _entry(code, values, examples.get(code), messages.get(code, ()))
        for code, values in tomllib.loads(_read("meanings.toml")).items()
    )
    parts = list(PARTS)
    ordered = sorted(entries, key=lambda entry: (parts.index(entry.part), entry.code))
    return {entry.code: entry for entry in ordered}


def find(text: str) -> Entry:
    """The entry of a code, written as ``MESH-L104``, ``mesh-l104`` or ``L104``.

    Raises:
        MeshError: MESH-U126 if the code does not exist.
    """
    entries = catalogue()
    code = text.strip().strip("[]").upper()
    code = code if code.startswith("MESH-") else f"MESH-{code}"
    if code in entries:
        return entries[code]
    digits = code[6:].replace("O", "0").replace("I", "1")
    near = difflib.get_close_matches(code[:6] + digits, entries, n=1, cutoff=0.6)
    raise MeshError(
        "MESH-U126",
        f'code "{text}" does not exist',
        detail="A code is MESH-, a letter and three digits, as in MESH-L104.",
        hint=f"Did you mean {near[0]}?  'mesh explain' lists all."
        if near
        else "'mesh explain' lists all.",
    )


def _entry(
    code: str,
    values: Mapping[str, Any],
    example: Mapping[str, str] | None,
    messages: list[str] | tuple[str, ...],
) -> Entry:
    if "example" in values:
        app, _, error = values["example"].strip("\n").partition(_DIVIDER)
        example = {"app": app, "error": error}
    return Entry(
        code,
        values["title"],
        values["meaning"],
        values["mend"],
        Example(**example) if example else None,
        () if example else tuple(values.get("shown", messages)),
    )


def _read(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")
