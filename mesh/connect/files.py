"""Declarations of the source and the sink ``file``, and their options that go together."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from mesh.connect.parts import SINK, SOURCE, TLS, file, ignored, secret
from mesh.connect.places import OptionPlace
from mesh.connect.spec import Guarantee, Kind, Option, Role, Spec

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


#: Of servers of files.
_LOGIN: Final = (
    Option("username", doc="Login of a server; anonymous by default for ftp."),
    secret("password", "Its password; also in the URI."),
    file("ssh.known.hosts", "Keys of SFTP servers, as ssh has them in known_hosts."),
    file("ssh.key", "Key of the login at an SFTP server, instead of a password."),
    secret("ssh.key.password", "Password of that key."),
    *TLS,
)
_SOURCE: Final = Spec(
    "file",
    Role.SOURCE,
    "Reads files by line, match or as a whole, and follows them; packed ones are unpacked.",
    (
        Option("file.uri", doc="Path of a file, ftp://host/path or sftp://.."),
        Option("dir.uri", doc="The same of a directory, instead; its files are read by name."),
        Option("file.name.pattern", doc="Regular expression of the names in dir.uri."),
        Option("mode", default="line", choices=MODES,
               doc="Payloads: lines, matches, whole files, or parts of buffer.size bytes."),
        Option("tailing", Kind.SWITCH, doc="Continue when a file grows; true for line and regex."),
        Option("begin.regex", doc="Where a payload begins, in the mode regex."),
        Option("end.regex", doc="Where it ends; without it at the next beginning."),
        Option("action.after.process", choices=("keep", "delete", "move", "none"),
               doc="Once a file's events are stored; keep for line and regex, else delete. none is "
               "keep."),
        Option("move.after.process", doc="Directory to move to."),
        Option("action.after.failure", choices=("keep", "delete", "move"),
               doc="The same for files with payloads that can't be read."),
        Option("move.after.failure", doc="Directory to move those to."),
        Option("move.if.exist.mode", default="overwrite", choices=("overwrite", "keep"),
               doc="keep: both files, the new one with an id in its name."),
        Option("buffer.size", Kind.SIZE, "65536", doc="Bytes of a payload of binary.chunked."),
        Option("header.present", Kind.SWITCH, "false", doc="Skip the first lines of each file."),
        Option("header.line.count", Kind.NUMBER, "1", doc="Number of those lines."),
        Option("read.only.header", Kind.SWITCH, "false", doc="Read those lines only."),
        Option("read.only.trailer", Kind.SWITCH, "false", doc="Read the last line only."),
        Option("skip.trailer", Kind.SWITCH, "false", doc="Skip the last line."),
        Option("file.polling.interval", Kind.DURATION, "1000", doc="Interval of a look.",
               aliases=("dir.polling.interval",)),
        Option("cron.expression", doc="Times of looks instead, in UTC, with tailing='false'."),
        *_LOGIN,
        *ignored(
            "timeout", "file.read.wait.timeout", "file.system.options",
        ),
        *SOURCE,
    ),
    "mesh.receiver.types.file_source:FileSource",
    Guarantee.EXACTLY_ONCE,
    "Files grow at their end only; those that are read as a whole are moved in.",
    ("file.path", "file.name", "eof", "sequence.number", "content.length"),
    objection=objection,
)  # fmt: skip
_SINK: Final = Spec(
    "file",
    Role.SINK,
    "Appends each payload to a file.",
    (
        Option(
            "file.uri", is_required=True, place=OptionPlace.PATH,
            doc="Path, ftp://host/path or sftp://... A path of the worker with {{attribute}} has a "
            "journal beside it, .mesh-*.",
        ),
        Option("append", Kind.SWITCH, "true",
               doc="False empties the file at the first start; with {{attribute}}, each payload "
               "replaces it."),
        Option("roll.size", Kind.SIZE, doc="A file of this size is renamed: out-000001.txt."),
        Option("roll.interval", Kind.DURATION, doc="So is one whose first payload is as old."),
        Option("add.line.separator", Kind.SWITCH, "true", doc="End each payload with a newline."),
        *_LOGIN,
        *ignored("file.system.options"),
        *SINK,
    ),
    "mesh.receiver.types.file_sink:FileSink",
    Guarantee.EXACTLY_ONCE,
    "Nothing else writes the file.",
    objection=sink_objection,
)  # fmt: skip
_EVENTS: Final = Spec(
    "fileeventlistener",
    Role.SOURCE,
    "Reports files of a directory, and of those in it, that were created, modified or removed.",
    (
        Option("dir.uri", is_required=True, is_file=True, doc="Path of the directory."),
        Option("file.name.list", doc="Names in it, comma-separated; all files by default."),
        Option("monitoring.interval", Kind.DURATION, "100", doc="Interval of a look."),
        *ignored("file.system.options"),
        *SOURCE,
    ),
    "mesh.receiver.types.file_events:FileEventSource",
    Guarantee.EXACTLY_ONCE,
    "An event is a difference between two looks, also if the source was away between them.",
    ("filepath", "filename", "status"),
    objection=listener_objection,
)
SPECS: Final = (_SOURCE, _SINK, _EVENTS)
