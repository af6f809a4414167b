"""Declaration of one connector: its options with their types, and the guarantee that it gives."""

from __future__ import annotations

import importlib
import importlib.util
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from mesh.connect.places import pairs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mesh.connect.places import OptionPlace
    from mesh.model.values import JsonObject


class Role(StrEnum):
    """Role of a connector; the values are the words of messages."""

    SOURCE = "source"
    SINK = "sink"
    SOURCE_MAPPER = "source mapper"
    SINK_MAPPER = "sink mapper"
    DISTRIBUTION = "distribution strategy"


class Guarantee(StrEnum):
    """Delivery at the border, from the weakest to the strongest."""

    #: An event may be lost, and another one may come twice.
    BEST_EFFORT = "best effort"
    AT_MOST_ONCE = "at most once"
    AT_LEAST_ONCE = "at least once"
    #: At least once, and each repeat has the key of the original.
    AT_LEAST_ONCE_WITH_KEY = "at least once, with a key"
    EXACTLY_ONCE = "exactly once"


class Kind(StrEnum):
    """Type of an option's value."""

    TEXT = "text"
    NUMBER = "number"
    SWITCH = "true or false"
    #: Milliseconds, or a number with a unit: ``10 sec``.
    DURATION = "duration"
    #: Seconds, or a number with a unit.
    SECONDS = "duration in seconds"
    #: Bytes, or a number with a unit: ``1 MB``.
    SIZE = "size"
    URL = "URL"
    #: ``'name:value','name:value'``.
    PAIRS = "pairs"


#: Begins the path of an attribute that is a transport property.
PROPERTY: Final = "trp:"
#: Milliseconds by the first letters of a unit of time, bytes by a unit of size.
_UNITS_MS: Final = {
    "": 1, "ms": 1, "millisec": 1, "milliseconds": 1, "s": 1000, "sec": 1000, "second": 1000,
    "seconds": 1000, "min": 60_000, "minute": 60_000, "minutes": 60_000, "h": 3_600_000,
    "hour": 3_600_000, "hours": 3_600_000,
}  # fmt: skip
_UNITS_BYTES: Final = {"": 1, "b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}
_QUANTITY: Final = re.compile(r"\s*([0-9]{1,15})\s*([A-Za-z]*)\s*\Z")
_NUMBER: Final = re.compile(r"\s*-?[0-9]{1,15}\s*\Z")
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+\Z")


@dataclass(frozen=True, slots=True)
class Option:
    """One option of an annotation."""

    name: str
    kind: Kind = Kind.TEXT
    #: Value of an option that is not given, as it would be written; None for none.
    default: str | None = None
    is_required: bool = False
    #: May hold ``{{attribute}}``, whose values are filled in for this place.
    place: OptionPlace | None = None
    #: A dynamic option may be empty for an event, which then has none.
    may_be_empty: bool = False
    #: Names an attribute of the stream.
    is_attribute: bool = False
    #: The valid values, compared without case; empty for any.
    choices: tuple[str, ...] = ()
    #: Never shown in plans, logs, status and answers.
    is_secret: bool = False
    #: Path of a file on the node: from a reference, or below ``receiver.file_roots``.
    is_file: bool = False
    #: Has a meaning in the reference engine and none here; accepted, without effect.
    is_ignored: bool = False
    #: A sentence of a deploy about an option with another meaning than in the reference engine.
    note: str = ""
    #: Other names of it.
    aliases: tuple[str, ...] = ()
    doc: str = ""

    @property
    def is_dynamic(self) -> bool:
        """Whether it may hold ``{{attribute}}``."""
        return self.place is not None

    def objection(self, value: str) -> str | None:
        """The reason against a value, without the value of a secret; None if it is valid."""
        if self.is_dynamic and "{{" in value:
            return None
        if self.choices and value.lower() not in [choice.lower() for choice in self.choices]:
            return f"is one of {', '.join(self.choices)}"
        try:
            value_of(self.kind, value)
        except ValueError as error:
            return str(error)
        return None

    def refusal(self, value: str) -> str | None:
        """The reason against a value that an event has given; None if it is valid."""
        if not value.strip():
            return None if self.may_be_empty else f'option "{self.name}" is empty'
        if self.choices and value.lower() not in [choice.lower() for choice in self.choices]:
            return f'option "{self.name}" is one of {", ".join(self.choices)}, and not "{value}"'
        try:
            # A URL is checked where it is used: what it needs is escaped there.
            value_of(Kind.TEXT if self.kind is Kind.URL else self.kind, value)
        except ValueError as error:
            return f'option "{self.name}" {error}, and not "{value[:80]}"'
        return None


def value_of(kind: Kind, text: str) -> Any:
    """The value of an option of ``kind``.

    Returns:
        ``str``, ``int`` (milliseconds for a duration, bytes for a size), ``bool``, or a list of
        pairs of strings.

    Raises:
        ValueError: the text is no such value; the message says what is expected.
    """
    match kind:
        case Kind.NUMBER:
            if not _NUMBER.match(text):
                raise ValueError("is a whole number")
            return int(text)
        case Kind.SWITCH:
            if text.strip().lower() not in ("true", "false"):
                raise ValueError("is true or false")
            return text.strip().lower() == "true"
        case Kind.DURATION:
            return _quantity(text, _UNITS_MS, "is a time such as 500, '10 sec' or '2 min'")
        case Kind.SECONDS:
            units = {**_UNITS_MS, "": 1000}
            return _quantity(text, units, "is a time such as 5, '500 ms' or '2 min'")
        case Kind.SIZE:
            return _quantity(text, _UNITS_BYTES, "is a size such as 65536, '64 KB' or '1 MB'")
        case Kind.URL:
            if not _URL.match(text) or not _has_port(text):
                raise ValueError("is a URL such as http://host:8080/path")
            return text
        case Kind.PAIRS:
            return pairs_of(text)
        case Kind.TEXT:
            return text


def _has_port(url: str) -> bool:
    """Whether a URL has no port, or one that there may be."""
    try:
        _ = urlsplit(url).port
    except ValueError:
        return False
    return True


def _quantity(text: str, units: Mapping[str, int], expected: str) -> int:
    match = _QUANTITY.match(text)
    if match is None or match[2].lower() not in units:
        raise ValueError(expected)
    return int(match[1]) * units[match[2].lower()]


@dataclass(frozen=True, slots=True)
class Spec:
    """Declaration of one connector."""

    name: str
    role: Role
    doc: str
    options: tuple[Option, ...] = ()
    #: ``package.module:Class``, loaded where it runs; empty for what the host does itself.
    implementation: str = ""
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    #: The condition of that guarantee, a sentence; empty for none.
    condition: str = ""
    #: Transport properties that ``trp:name`` may name; ``*`` for any.
    properties: tuple[str, ...] = ()
    #: Options of any name are accepted.
    is_open: bool = False
    #: Several instances of a source may run at a time, each with a part of the input.
    is_shared: bool = False
    #: Payloads of a source are rows of a database, see ``mesh.mapping.row_source``.
    reads_rows: bool = False
    #: Option with the URL that a server binds, ``{app}`` and ``{stream}`` in its default; empty for
    #: a connector that binds none.
    address: str = ""
    #: Extra of the installation with its client library, as in ``nats-event-mesh[kafka]``.
    extra: str = ""
    #: Module of that client library; empty for none.
    library: str = ""
    #: From options as they are written, by name in small letters and not by an alias, to the reason
    #: why they don't go together; None if they do.
    objection: Callable[[Mapping[str, str]], str | None] | None = None

    def is_installed(self) -> bool:
        """Whether the client library is installed here; it is not imported."""
        return not self.library or importlib.util.find_spec(self.library) is not None

    def option(self, name: str) -> Option | None:
        """The option of this name or alias, compared without case as in annotations."""
        key = name.lower()
        for option in self.options:
            if key in (option.name.lower(), *(alias.lower() for alias in option.aliases)):
                return option
        return None

    def reason_against(self, texts: Mapping[str, str]) -> str | None:
        """The reason why options, as they are written, don't go together; None if they do."""
        if self.objection is None:
            return None
        named = {}
        for name, text in texts.items():
            option = self.option(name)
            named[(option.name if option is not None else name).lower()] = text
        return self.objection(named)

    def values(self, texts: Mapping[str, str]) -> JsonObject:
        """Values of all options by their names, with defaults; None for one without a value.

        Options without a declaration keep their text.  Raises ``ValueError`` for invalid values.
        """
        result: JsonObject = {o.name: None for o in self.options}
        for option in self.options:
            if option.default is not None:
                result[option.name] = value_of(option.kind, option.default)
        for name, text in texts.items():
            declaration = self.option(name)
            if declaration is None:
                result[name] = text
            elif declaration.is_dynamic:
                result[declaration.name] = text
            else:
                try:
                    result[declaration.name] = value_of(declaration.kind, text)
                except ValueError as error:
                    raise ValueError(f'option "{declaration.name}" {error}') from None
        return result

    def load(self) -> Any:
        """The implementation's class."""
        module, _, name = self.implementation.partition(":")
        return getattr(importlib.import_module(module), name)
