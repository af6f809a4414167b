"""Options of the source ``file`` that go together: for plans, and for the source itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

MODES: Final = ("line", "regex", "text.full", "binary.full", "binary.chunked")
#: Modes in which a file may be followed.
FOLLOWED: Final = ("line", "regex")
#: Schemes of files on FTP servers.
FTP: Final = ("ftp", "ftps")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def scheme_of(uri: object) -> str:
    """The scheme of a URI in small letters; empty for a path."""
    found = _SCHEME.match(str(uri or ""))
    return found[1].lower() if found is not None and found[1].lower() != "file" else ""


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
        scheme = scheme_of(options.get(name))
        if scheme and scheme not in FTP:
            return f'"{name}" is a path of the worker, or ftp://; {scheme} is not supported'
    uri = options.get("file.uri") or options.get("dir.uri")
    if action == "move" and scheme_of(uri) != scheme_of(options.get("move.after.process") or uri):
        return "move.after.process is on another system than the files"
    if is_followed(options) and mode not in FOLLOWED:
        return f"tailing='true' needs the mode {' or '.join(FOLLOWED)}"
    if is_followed(options) and action != "keep":
        return f"action.after.process='{action}' needs tailing='false'"
    if is_followed(options) and options.get("cron.expression"):
        return "cron.expression needs tailing='false'"
    if action == "move" and not options.get("move.after.process"):
        return "action.after.process='move' needs move.after.process"
    if mode == "regex" and not (options.get("begin.regex") or options.get("end.regex")):
        return "the mode regex needs begin.regex or end.regex"
    return None


def sink_objection(options: Mapping[str, Any]) -> str | None:
    """The reason against options of a sink; None if they are valid."""
    uri = str(options.get("file.uri") or "")
    scheme = scheme_of(uri)
    if scheme:
        return f'"file.uri" is a path of the worker; {scheme} is not supported'
    if "{{" in uri and (options.get("roll.size") or options.get("roll.interval")):
        return "roll.size and roll.interval need the same path for all events"
    return None
