"""Places of options that values of events are filled into, and what a value may be there.

    destination='orders.{{k}}.new'           a token of a subject: no dot, no wildcard, no blank
    publisher.url='http://h/{{k}}?q={{v}}'   escaped, in the path and in the query
    headers="'X-Of:{{k}}'"                   one header, whatever the value has

An option is parsed before it is filled.  A value is escaped where its place has an escape, and
refused otherwise, so that the option keeps its parts.  An option that is one attribute and nothing
else is the event's as a whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


TEMPLATE: Final = re.compile(r"\{\{(.*?)\}\}")
#: Of a payload: with three braces a value stays as it is, as in Mustache.
PAYLOAD_TEMPLATE: Final = re.compile(r"\{\{\{([^{}]+)\}\}\}|\{\{(.*?)\}\}")
#: Characters of no place but a text, and the same with the blank.
_CONTROL: Final = r"\x00-\x1f\x7f"
_BLANK: Final = r"\x00-\x20\x7f"

#: A pair in quotes, in which two quotes are one, or without.
_PAIR: Final = re.compile(r"'((?:[^']|'')*)'|([^,']+)")


class _Rule(NamedTuple):
    """Rule of a place: regular expressions of one character of a value."""

    #: Of a value beside other text, and of one that is the whole option.
    part: str
    whole: str
    #: Between the parts of the option; a value that is such a part is not empty.
    separator: str = ""
    #: Beginning that no event may give to the option.
    closed: str = ""
    words: str = ""


class OptionPlace(Enum):
    """Kind of a place."""

    #: Any text; a choice, a number or a switch is checked as an option's value is.
    TEXT = _Rule("", "", words="any text")
    LINE = _Rule(rf"[^{_CONTROL}]", rf"[^{_CONTROL}]", words="a text of one line")
    METHOD = _Rule("[A-Za-z]", "[A-Za-z]", words="a method: letters")
    NAME = _Rule(
        "[A-Za-z0-9._:-]",
        "[A-Za-z0-9._:-]",
        closed="__",
        words='a name: letters, digits and "._:-", without "__" at its beginning',
    )
    SUBJECT = _Rule(
        rf"[^{_BLANK}.*>]",
        rf"[^{_BLANK}*>]",
        ".",
        r"\$|_INBOX(\.|$)",
        'a token of a subject: without ".", "*", ">", blanks and a "$" at its beginning',
    )
    ROUTING_KEY = _Rule(
        rf"[^{_CONTROL}.*#]",
        rf"[^{_CONTROL}*#]",
        ".",
        words='a word of a routing key: without ".", "*" and "#"',
    )
    TOPIC = _Rule(
        rf"[^{_CONTROL}/+#]",
        rf"[^{_CONTROL}+#]",
        "/",
        r"\$",
        'a level of a topic: without "/", "+", "#" and a "$" at its beginning',
    )
    PATH = _Rule(
        rf"[^{_CONTROL}/]",
        rf"[^{_CONTROL}]",
        "/",
        words='a segment of a path: without "/", and not ".."',
    )
    #: Paths, comma-separated.
    PATHS = _Rule(
        rf"[^{_CONTROL}/,]",
        rf"[^{_CONTROL},]",
        "/",
        words='a segment of one path: without "/" and ",", and not ".."',
    )
    #: Addresses of emails, comma-separated.
    ADDRESSES = _Rule(rf'[^{_CONTROL},;:<>@"()\[\]\\]', "", words="one address, or a part of one")
    HEADERS = _Rule(
        r"[^\x00-\x08\x0a-\x1f\x7f]",
        r"[^\x00-\x08\x0a-\x1f\x7f]",
        words="a value of one header, or a name that an event may choose",
    )
    URL = _Rule(
        rf"[^{_BLANK}/\\?#@%]", "", "/",
        words='a part of a URL: a host without "/?#@%", and no segment "" or ".."',
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class TemplateSlot:
    """An attribute of a template."""

    attribute: str
    #: Regular expression (RE2) of the values that may be there; empty for any.
    fits: str = ""
    escape: Callable[[str], str] | None = None


@dataclass(frozen=True, slots=True)
class Filling:
    """A template that was parsed for its place."""

    place: OptionPlace
    #: Texts, and attributes between them.
    parts: tuple[str | TemplateSlot, ...]
    #: Whether a text that events have filled has what the place closes to them.
    is_closed: Callable[[str], bool] | None = None


#: One mailbox: an address, with or without a name.
_MAILBOX: Final = (
    rf'([^{_CONTROL},;:<>"]*|\s*("([^{_CONTROL}"\\]|\\.)*"|[^{_CONTROL},;:<>"]*)'
    rf'\s*<[^{_CONTROL},;:<>"]*>\s*)'
)
_BRACKETED: Final = rf'[^{_CONTROL},;:<>"]*'
_ANY: Final = r"[\x00-\x{10ffff}]"
_HEADER_NAME: Final = r"[!#$%&*+.^_`|~0-9A-Za-z-]+"
#: Names of headers that steer a server or a connection; only the text of an app gives them.
_STEERING: Final = re.compile(
    r"nats-.*|mesh-.*|proxy-.*|host|content-length|transfer-encoding|connection|keep-alive|upgrade"
    r"|te|trailer|expect|authorization|cookie|idempotency-key",
    re.IGNORECASE,
)
#: A segment that names the directory above, or the same one.
_DOTS: Final = r"(?s:.*/)?\.\.?($|[/?#,])"


def filling(place: OptionPlace, template: str) -> Filling | None:
    """A template as it is filled; None if it is the same for all events."""
    pieces = TEMPLATE.split(template)
    if len(pieces) == 1:
        return None
    is_whole = not "".join(pieces[::2]).strip() and len(pieces) == 3
    match place:
        case OptionPlace.HEADERS:
            return _headers(template)
        case OptionPlace.URL:
            slots = _in_url(pieces)
        case OptionPlace.ADDRESSES | OptionPlace.PATHS:
            slots = _in_list(place, pieces)
        case _:
            slots = _in_text(place, pieces, is_whole=is_whole)
    texts: list[str | TemplateSlot] = list(pieces)
    texts[1::2] = slots
    closed = ""
    if place in (OptionPlace.PATH, OptionPlace.PATHS) or (
        place is OptionPlace.URL and not is_whole
    ):
        closed = _DOTS
    elif not pieces[0].strip():
        closed = place.value.closed
    return Filling(place, tuple(texts), _matches(closed) if closed else None)


def _matches(pattern: str) -> Callable[[str], bool]:
    """Whether a text begins with a pattern."""
    compiled = re.compile(pattern)
    return lambda text: compiled.match(text) is not None


def _around(pieces: list[str]) -> Iterator[tuple[str, str, str]]:
    """Each attribute, with the text before it, in which another one is a NUL, and that after it."""
    for at in range(1, len(pieces), 2):
        before = "".join(p if n % 2 == 0 else "\0" for n, p in enumerate(pieces[:at]))
        after = "".join(p if n % 2 == 1 else "\0" for n, p in enumerate(pieces[at + 1 :], 1))
        yield pieces[at], before, after


def _many(character: str, before: str, after: str, separator: str) -> str:
    """Values of some characters, at least one if they are all between two separators."""
    if not character:
        return ""
    is_part = before[-1:] in ("", separator) and after[:1] in ("", separator, "?", "#")
    return f"{character}{'+' if separator and is_part else '*'}"


def _in_text(place: OptionPlace, pieces: list[str], *, is_whole: bool) -> list[TemplateSlot]:
    rule = place.value
    if is_whole:
        return [TemplateSlot(pieces[1], _many(rule.whole, "", "", ""))]
    return [
        TemplateSlot(attribute, _many(rule.part, before, after, rule.separator))
        for attribute, before, after in _around(pieces)
    ]


def _in_list(place: OptionPlace, pieces: list[str]) -> list[TemplateSlot]:
    """Of elements that are separated by commas; a value is one of them, or in one of them."""
    slots = []
    for attribute, before, after in _around(pieces):
        before, after = before.rpartition(",")[2].strip(), after.partition(",")[0].strip()
        rule = place.value
        fits = _many(rule.part, before, after, rule.separator)
        if place is OptionPlace.ADDRESSES and before.endswith("<") and after.startswith(">"):
            fits = _BRACKETED
        elif not before and not after:
            fits = _MAILBOX if place is OptionPlace.ADDRESSES else f"{rule.whole}*"
        slots.append(TemplateSlot(attribute, fits))
    return slots


def _in_url(pieces: list[str]) -> list[TemplateSlot]:
    return [_url_slot(*around) for around in _around(pieces)]


def _url_slot(attribute: str, before: str, after: str) -> TemplateSlot:
    if not before:
        # The event gives the scheme and the host, and may give a path before that of the option.
        return TemplateSlot(attribute, rf"[^{_BLANK}\\?#]*" if after else "")
    if after.startswith("://") and "/" not in before:
        return TemplateSlot(attribute, "[A-Za-z]*")
    rest = before.partition("://")[2] if "://" in before else f"/{before}"
    if not re.search("[/?#]", rest):
        return TemplateSlot(attribute, f"{OptionPlace.URL.value.part}+")
    is_path = not re.search("[?#]", rest)
    fits = _many(_ANY, before, after, "/") if is_path else ""
    return TemplateSlot(attribute, fits, _in_percent)


def _in_percent(text: str) -> str:
    return quote(text, safe="", errors="replace")


def _headers(template: str) -> Filling:
    try:
        headers = pairs_of(template)
    except ValueError:
        # The event gives names and values.
        parts = tuple(
            TemplateSlot(piece, f"{OptionPlace.HEADERS.value.part}*") if at % 2 else piece
            for at, piece in enumerate(TEMPLATE.split(template))
        )
        return Filling(OptionPlace.HEADERS, parts, _steers(template))
    segments: list[str | TemplateSlot] = []
    for name, value in headers:
        segments += [",'" if segments else "'", *_pieces(name, _HEADER_NAME), ":"]
        segments += [*_pieces(value, f"{OptionPlace.HEADERS.value.part}*"), "'"]
    has_names = any(TEMPLATE.search(name) for name, _ in headers)
    return Filling(OptionPlace.HEADERS, tuple(segments), _steers(template) if has_names else None)


def _pieces(text: str, fits: str) -> Iterator[str | TemplateSlot]:
    for at, piece in enumerate(TEMPLATE.split(text)):
        yield TemplateSlot(piece, fits, quoted) if at % 2 else quoted(piece)


def _steers(template: str) -> Callable[[str], bool]:
    """Whether a header that the template does not name steers a server or a connection."""

    def steers(text: str) -> bool:
        try:
            names = [name for name, _ in pairs_of(text)]
        except ValueError:
            return False
        return any(_STEERING.fullmatch(name) and name not in template for name in names)

    return steers


def pairs_of(text: str) -> list[tuple[str, str]]:
    """The pairs of a text; the quotes may be missing.

    Raises:
        ValueError: a part has no colon, or no name before it.
    """
    pairs = []
    for quoted, bare in _PAIR.findall(text):
        text = (quoted or bare).strip()
        if not text:
            # Blanks around a comma.
            continue
        name, colon, value = text.partition(":")
        if not colon or not name.strip():
            raise ValueError("is a list of 'name:value'")
        pairs.append((unquoted(name.strip()), unquoted(value.strip())))
    return pairs


def unquoted(text: str) -> str:
    """A text between quotes, with its own ones as they are."""
    return text.replace("''", "'")


def quoted(text: str) -> str:
    """A text that may stand between quotes."""
    return text.replace("'", "''")


def text_of(pairs: Iterable[tuple[str, str]]) -> str:
    """The text of pairs, each in quotes."""
    return ",".join(f"'{quoted(name)}:{quoted(value)}'" for name, value in pairs)
