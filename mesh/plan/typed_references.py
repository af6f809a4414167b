"""Types of sources and sinks that a reference has: ``@source(ref='orders', @map(..))``.

The type decides about the options, the mapper and the worker, so it is put into the text before
that becomes an app.  The other options stay where they are, in the file of the node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.language.substitution import replaced
from mesh.language.written import annotations_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_ROLES: Final = ("source", "sink")


def needs_types(text: str) -> bool:
    """Whether a text may have a reference without a type; most have no reference."""
    return "ref" in text.lower() and any(_names(text))


def with_types(text: str, types: Mapping[str, str]) -> str:
    """The text with the type of each reference that has one in ``types``, by name."""
    edits = [
        (opened, opened, f"type='{types[name]}', ")
        for opened, name in (_names(text) if "ref" in text.lower() else ())
        if types.get(name)
    ]
    return replaced(text, edits) if edits else text


def _names(text: str) -> list[tuple[int, str]]:
    """Place and name of each reference without a type."""
    return [
        (one.opened, name)
        for one in annotations_of(text)
        if one.name.lower() in _ROLES
        and one.opened is not None
        and one.get("type") is None
        and (name := one.get("ref")) is not None
    ]
