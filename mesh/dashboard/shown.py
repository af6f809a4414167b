"""Values as a page shows them: numbers, times and payloads.

Words for states, the same on all pages; each has a shape and a tone, never a colour alone.
"""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime
from typing import Any, Final

import orjson
from markupsafe import Markup, escape

#: Characters of a payload on a page.
PAYLOAD_MAX: Final = 2000
#: Kinds of characters that change how others are shown, or show nothing.
_HIDDEN: Final = ("Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp")
_UNITS: Final = ("B", "kB", "MB", "GB", "TB")
NOTHING: Final = "\u2013"

#: Tone of each state: its colour and its shape.
_TONES: Final = {
    "running": "good",
    "alive": "good",
    "open": "good",
    "ready": "good",
    "leads": "good",
    "same": "good",
    "kept": "good",
    "enabled": "good",
    "done": "good",
    "starting": "busy",
    "assigned": "busy",
    "stopping": "busy",
    "rescaling": "busy",
    "restoring": "busy",
    "moved": "busy",
    "scaled": "busy",
    "started": "busy",
    "added": "busy",
    "new": "busy",
    "waiting": "warn",
    "unplaced": "warn",
    "suspect": "warn",
    "closed": "warn",
    "cordoned": "warn",
    "emptying": "warn",
    "draining": "warn",
    "behind": "warn",
    "risk": "warn",
    "restarted": "warn",
    "changed": "warn",
    "dropped": "warn",
    "errors": "warn",
    "refused": "warn",
    "disabled": "warn",
    "failed": "bad",
    "fault": "bad",
    "failing": "bad",
    "retrying": "bad",
    "gone": "bad",
    "lost": "bad",
    "removed": "bad",
    "no leader": "bad",
    "no worker": "bad",
    "unreachable": "bad",
}
#: Short explanations, for tooltips and for people who use a screen reader.
WORDS: Final = {
    "running": "every instance runs",
    "starting": "every instance has a worker; some still start or move",
    "waiting": "an instance has no worker that may run it",
    "failing": "an instance fails again and again",
    "restoring": "nothing runs while a backup is restored",
    "rescaling": "a group stops, to continue with other instances or another text",
    "paused": "its instances are stopped until it is resumed",
    "undeploying": "it is being removed",
    "alive": "heartbeats arrive",
    "suspect": "a heartbeat is late",
    "gone": "no heartbeat arrives",
    "retrying": "it failed, and is started again",
    "behind": "events arrive faster than they are read",
    "unplaced": "no worker has it",
    "assigned": "its worker has not answered yet",
    "stopping": "it leaves its worker",
    "open": "it accepts instances",
    "closed": "it keeps its instances and accepts no others",
    "emptying": "its instances move away",
    "enabled": "it may sign in",
    "disabled": "it may not sign in, and its tokens are refused",
    "refused": "the user or a permission was missing, or there were too many requests",
}


def number(value: float | None) -> str:
    """A count with its thousands apart; a dash for none."""
    return NOTHING if value is None else f"{round(value):,}".replace(",", "\u202f")


def rate(value: float | None) -> str:
    """Events a second, in three digits or so."""
    if value is None:
        return NOTHING
    if value < 10 and value != round(value):
        return f"{value:.1f}"
    if value < 100_000:
        return number(value)
    return f"{value / 1e6:.1f}\u202fM" if value >= 1e6 else f"{value / 1e3:.0f}\u202fk"


def size(value: float | None) -> str:
    """Bytes in a unit that keeps them short."""
    if value is None:
        return NOTHING
    for unit in _UNITS[:-1]:
        if value < 1000:
            return f"{value:.0f}\u202f{unit}" if unit == "B" else f"{value:.1f}\u202f{unit}"
        value /= 1000
    return f"{value:.1f}\u202f{_UNITS[-1]}"


def duration(seconds: float | None) -> str:
    """A time span in one or two units."""
    if seconds is None:
        return NOTHING
    if seconds < 1:
        return f"{seconds * 1000:.0f}\u202fms" if seconds else "0\u202fs"
    if seconds < 10:
        return f"{seconds:.1f}\u202fs"
    whole = round(seconds)
    for unit, of, lower in (("d", 86_400, "h"), ("h", 3600, "min"), ("min", 60, "s")):
        if whole >= of:
            rest = whole % of * {"h": 24, "min": 60, "s": 60}[lower] // of
            return f"{whole // of}\u202f{unit}" + (f" {rest}\u202f{lower}" if rest else "")
    return f"{whole}\u202fs"


def percent(share: float | None) -> str:
    """A ratio in percent."""
    return NOTHING if share is None else f"{share * 100:.0f}%"


def clock(ms: float | None) -> str:
    """Milliseconds since 1970 as a time of day in UTC."""
    return _time(ms, "%H:%M:%S")


def moment(ms: float | None) -> str:
    """Milliseconds since 1970 as a date and a time in UTC."""
    return _time(ms, "%Y-%m-%d %H:%M:%S")


def time_element(ms: float | None, *, has_date: bool) -> Markup:
    """The ``<time>`` of milliseconds since 1970: in UTC, which a script shows in local time."""
    text, at = moment(ms) if has_date else clock(ms), _time(ms, "%Y-%m-%dT%H:%M:%SZ")
    if not at.endswith("Z"):
        return escape(text)
    mark = Markup("") if has_date else Markup(" data-clock")
    return Markup('<time datetime="{}"{}>{}<small> UTC</small></time>').format(at, mark, text)


def _time(ms: float | None, form: str) -> str:
    if not ms:
        return NOTHING
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime(form)
    except (OverflowError, ValueError, OSError):
        return str(ms)


def payload(value: Any, most: int = PAYLOAD_MAX) -> str:
    """A value of a publisher, safe to read: cut, and without characters that hide or turn others.

    It is still text that has to be escaped for HTML, as the templates do with all text.
    """
    if isinstance(value, bytes):
        try:
            text = value[: most * 4].decode()
        except UnicodeDecodeError:
            text = f"{len(value):,} bytes that are no text: {value[:64].hex(' ')}"
    elif isinstance(value, str):
        text = value
    else:
        text = orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    length = len(text)
    shown = "".join(map(_visible, text[:most]))
    return shown if length <= most else f"{shown} … {length - most:,} more characters"


def _visible(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in _HIDDEN:
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def badge_kind(state: str) -> str:
    """The tone of a state: ``good``, ``busy``, ``warn``, ``bad`` or ``calm``."""
    return _TONES.get(state, "calm")
