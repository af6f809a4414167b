"""Options of the source ``file`` that go together: for plans, and for the source itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mesh.connect.contract import Options


MODES: Final = ("line", "regex", "text.full", "binary.full", "binary.chunked")
#: Modes in which a file may be followed.
FOLLOWED: Final = ("line", "regex")
#: Schemes of files on servers.
SERVERS: Final = ("ftp", "ftps", "sftp")
#: Options about the last line of a file, and about the first ones only.
_ENDS: Final = ("read.only.header", "read.only.trailer", "skip.trailer")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def scheme_of(uri: object) -> str:
    """The scheme of a URI in small letters; empty for a path."""
    match = _SCHEME.match(str(uri or ""))
    return match[1].lower() if match is not None and match[1].lower() != "file" else ""


def mode_of(options: Options) -> str:
    """The mode, in small letters."""
    return str(options.get("mode") or "line").lower()


def is_followed(options: Options) -> bool:
    """Whether files are read on when they grow."""
    tailing = options.get("tailing")
    if tailing is None:
        return mode_of(options) in FOLLOWED
    return str(tailing).strip().lower() == "true"


def action_of(options: Options) -> str:
    """``keep``, ``delete`` or ``move``."""
    default = "keep" if mode_of(options) in FOLLOWED else "delete"
    action = str(options.get("action.after.process") or default).lower()
    # The original's word for a file that is followed.
    return "keep" if action == "none" else action


def objection(options: Options) -> str | None:
    """The reason against options of a source, as they are written; None if they are valid."""
    mode, uri = mode_of(options), options.get("file.uri") or options.get("dir.uri")
    for name in ("file.uri", "dir.uri", "move.after.process", "move.after.failure"):
        scheme = scheme_of(options.get(name))
        if scheme and scheme not in SERVERS:
            return _no_scheme(name, scheme)
    if is_followed(options) and mode not in FOLLOWED:
        return f"tailing='true' needs the mode {' or '.join(FOLLOWED)}"
    actions = {"process": action_of(options)}
    if options.get("action.after.failure"):
        actions["failure"] = str(options["action.after.failure"]).lower()
    for what, action in actions.items():
        target = options.get(f"move.after.{what}")
        if is_followed(options) and action != "keep":
            return (
                f"action.after.{what}='{action}' needs tailing='false': a file that is followed is "
                "never done"
            )
        if action == "move" and not target:
            return f"action.after.{what}='move' needs move.after.{what}"
        if action == "move" and scheme_of(uri) != scheme_of(target):
            return f"move.after.{what} is on another system than the files"
    for name in ("cron.expression", *_ENDS):
        is_set = str(options.get(name) or "false").lower() != "false"
        if is_set and is_followed(options):
            return f"{name} needs tailing='false'"
        if is_set and name in _ENDS and mode != "line":
            return f"{name} needs the mode line"
    if mode == "regex" and not (options.get("begin.regex") or options.get("end.regex")):
        return "the mode regex needs begin.regex or end.regex"
    return None


def listener_objection(options: Options) -> str | None:
    """The same of the source ``fileeventlistener``."""
    scheme = scheme_of(options.get("dir.uri"))
    return f"dir.uri is a directory of the worker, and not {scheme}://" if scheme else None


def _no_scheme(name: str, scheme: str) -> str:
    reason = f'"{name}" is a path of the worker, ftp:// or sftp://; {scheme} is not supported'
    return f"{reason}: mount it, and write its path"


def sink_objection(options: Options) -> str | None:
    """The reason against options of a sink; None if they are valid."""
    uri = str(options.get("file.uri") or "")
    is_rolled = options.get("roll.size") or options.get("roll.interval")
    scheme = scheme_of(uri)
    if "{{" in uri and is_rolled:
        return "roll.size and roll.interval need the same path for all events"
    if not scheme:
        return None
    if scheme not in SERVERS:
        return _no_scheme("file.uri", scheme)
    if is_rolled:
        return "roll.size and roll.interval are for files of the worker"
    if "{{" in uri.partition("://")[2].partition("/")[0]:
        return "the server of file.uri is the same for all events"
    appends = str(options.get("append", "true")).lower() != "false"
    if "{{" in uri and appends:
        return "a path with {{attribute}} on a server needs append='false'"
    return None
