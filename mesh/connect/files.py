"""Options of the source ``file`` that go together: for plans, and for the source itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

MODES: Final = ("line", "regex", "text.full", "binary.full", "binary.chunked")
#: Modes in which a file may be followed.
FOLLOWED: Final = ("line", "regex")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def mode_of(options: Mapping[str, Any]) -> str:
    """The mode, in small letters."""
    return str(options.get("mode") or "line").lower()


def is_followed(options: Mapping[str, Any]) -> bool:
    """Whether files are read on when they grow."""
    given = options.get("tailing")
    if given is None:
        return mode_of(options) in FOLLOWED
    return str(given).strip().lower() == "true"


def action_of(options: Mapping[str, Any]) -> str:
    """``keep``, ``delete`` or ``move``."""
    default = "keep" if mode_of(options) in FOLLOWED else "delete"
    return str(options.get("action.after.process") or default).lower()


def objection(options: Mapping[str, Any]) -> str | None:
    """The reason against options of a source, as they are written; None if they are valid."""
    mode, action = mode_of(options), action_of(options)
    for name in ("file.uri", "dir.uri", "move.after.process"):
        scheme = _SCHEME.match(str(options.get(name) or ""))
        if scheme is not None and scheme[1].lower() != "file":
            return f'"{name}" is a path of the worker; {scheme[1]} is not supported'
    if is_followed(options) and mode not in FOLLOWED:
        return f"tailing='true' needs the mode {' or '.join(FOLLOWED)}"
    if is_followed(options) and action != "keep":
        return f"action.after.process='{action}' needs tailing='false'"
    if action == "move" and not options.get("move.after.process"):
        return "action.after.process='move' needs move.after.process"
    if mode == "regex" and not (options.get("begin.regex") or options.get("end.regex")):
        return "the mode regex needs begin.regex or end.regex"
    return None


def sink_objection(options: Mapping[str, Any]) -> str | None:
    """The reason against options of a sink; None if they are valid."""
    uri = str(options.get("file.uri") or "")
    scheme = _SCHEME.match(uri)
    if scheme is not None and scheme[1].lower() != "file":
        return f'"file.uri" is a path of the worker; {scheme[1]} is not supported'
    if "{{" in uri and (options.get("roll.size") or options.get("roll.interval")):
        return "roll.size and roll.interval need the same path for all events"
    return None
