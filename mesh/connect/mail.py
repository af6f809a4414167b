"""Search terms of the source ``email``, for plans and for the source itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mesh.connect.contract import Options


_KEYS: Final = ("subject", "from", "to", "cc", "bcc")
#: Texts that a quoted string of IMAP has.
_QUOTED: Final = re.compile(r"[\x20-\x7e]*\Z")


def quoted(text: str) -> str:
    """A text as a quoted string of IMAP; ValueError for one that is not ASCII."""
    if not _QUOTED.match(text):
        raise ValueError(f'has "{text[:40]}", and IMAP takes ASCII there')
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def criteria_of(terms: str | None) -> str:
    """The criteria of IMAP of a search term, such as ``subject:Stock, from:a@x``.

    Raises:
        ValueError: it is no search term.
    """
    criteria = []
    for term in (terms or "").replace("'", "").split(","):
        key, colon, value = (part.strip() for part in term.partition(":"))
        if not term.strip():
            continue
        if key.lower() not in _KEYS or not colon or not value:
            raise ValueError(f'has "{term.strip()[:40]}" instead of one of {", ".join(_KEYS)}:text')
        criteria.append(f"{key.upper()} {quoted(value)}")
    return " ".join(criteria)


def objection(options: Options) -> str | None:
    """The reason against options as they are written; None if they are valid."""
    if str(options.get("store") or "imap").lower() != "imap":
        return "store is imap: POP3 has no place in a folder to continue from"
    action = str(options.get("action.after.processed") or "").upper()
    if action == "MOVE" and not options.get("folder.to.move"):
        return "action.after.processed='MOVE' needs folder.to.move"
    for name, check in (("search.term", criteria_of), ("folder", quoted),
                        ("folder.to.move", quoted)):  # fmt: skip
        try:
            check(str(options.get(name) or ""))
        except ValueError as error:
            return f"{name} {error}"
    return None
