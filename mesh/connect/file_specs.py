"""Declarations of the source and the sink ``file``."""

from __future__ import annotations

from typing import Final

from mesh.connect import files
from mesh.connect.files import MODES
from mesh.connect.parts import SINK, SOURCE, TLS, file, ignored, secret
from mesh.connect.places import OptionPlace
from mesh.connect.spec import Guarantee, Kind, Option, Role, Spec

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
    "Reads files by line, match or as a whole, and follows them; those named .gz are unpacked.",
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
    objection=files.objection,
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
    objection=files.sink_objection,
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
    objection=files.listener_objection,
)
SPECS: Final = (_SOURCE, _SINK, _EVENTS)
