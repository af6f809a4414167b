"""Feeds: named simulations that publish events for tests, as the system before this one has them.

    {"properties": {"simulationName", "description", "startTimestamp", "endTimestamp",
                    "noOfEvents", "timeInterval"},
     "sources": [{"siddhiAppName", "streamName", "simulationType", "timestampInterval", ..}]}

``RANDOM_DATA_SIMULATION`` has ``attributeConfiguration``, one object for each attribute;
``CSV_SIMULATION`` has ``fileName``, ``delimiter``, ``isOrdered``, ``timestampAttribute`` and
``indices``.  Numbers may be texts, and an empty text is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from mesh.errors import MeshError
from mesh.model.types import AttributeType
from mesh.model.values import Row

if TYPE_CHECKING:
    from mesh.model.values import JsonObject

#: Pause between two events without ``timeInterval``, and between two times, milliseconds.
INTERVAL_MS: Final = 1000
SOURCES_MAX: Final = 100
NAME_MAX: Final = 100
#: Of a configuration, which is one message of NATS.
BYTES_MAX: Final = 262_144
LENGTH_MAX: Final = 1000
#: Times and numbers of events are below this.
NUMBER_MAX: Final = 10**15


class FeedState(StrEnum):
    """A feed runs, has paused, or has not begun or ended."""

    RUN = "RUN"
    PAUSE = "PAUSE"
    STOP = "STOP"


@dataclass(frozen=True, slots=True)
class RandomValue:
    """A rule for the values of an attribute: a type with bounds, a list, or a pattern."""

    type: AttributeType | None = None
    length: int = 5
    least: float = 0
    most: float = 0
    #: Digits of a fraction; None for all.
    precision: int | None = None
    values: Row = ()
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class FeedSource:
    """Events of one stream: random ones, or the lines of a file."""

    app: str
    stream: str
    #: Milliseconds between the times of two events.
    step_ms: int
    #: Of random events, by attribute.
    attributes: tuple[RandomValue, ...] = ()
    #: Name of the file; empty for random events.
    file: str = ""
    delimiter: str = ","
    #: Column with the times of events; None for times in steps.
    time_column: int | None = None
    #: Columns of the attributes; empty for all in their order.
    columns: tuple[int, ...] = ()
    is_ordered: bool = True


@dataclass(frozen=True, slots=True)
class Feed:
    """A configuration that was read."""

    name: str
    sources: tuple[FeedSource, ...]
    #: Time of the first event, and of the last one at most; None for now, and for no end.
    start_ms: int | None = None
    end_ms: int | None = None
    #: Number of events; None for no end.
    count: int | None = None
    #: Pause between two events.
    pause_ms: int = INTERVAL_MS

    @property
    def apps(self) -> tuple[str, ...]:
        """The apps whose streams get events, each once."""
        return tuple(dict.fromkeys(source.app for source in self.sources))


def feed_of(values: object) -> Feed:
    """The feed of a configuration; MESH-A400 for another form."""
    if not isinstance(values, dict):
        raise invalid("it is an object with properties and sources")
    properties, sources = values.get("properties"), values.get("sources")
    if not isinstance(properties, dict) or not isinstance(sources, list):
        raise invalid("it has the objects properties and sources")
    if not 0 < len(sources) <= SOURCES_MAX:
        raise invalid(f"it has 1 to {SOURCES_MAX} sources")
    name = _text(properties, "simulationName")
    if len(name) > NAME_MAX or "/" in name or not name.isprintable():
        raise invalid(f"simulationName has at most {NAME_MAX} characters, without /")
    start_ms, end_ms = (_number(properties, f"{word}Timestamp") for word in ("start", "end"))
    if start_ms is not None and end_ms is not None and end_ms < start_ms:
        raise invalid("endTimestamp is not before startTimestamp")
    return Feed(
        name,
        tuple(_source(source) for source in sources),
        start_ms,
        end_ms,
        _number(properties, "noOfEvents"),
        _number(properties, "timeInterval", INTERVAL_MS) or 0,
    )


def _source(values: object) -> FeedSource:
    if not isinstance(values, dict):
        raise invalid("a source is an object")
    app, stream = _text(values, "siddhiAppName"), _text(values, "streamName")
    step_ms = _number(values, "timestampInterval", INTERVAL_MS) or 0
    match values.get("simulationType"):
        case "RANDOM_DATA_SIMULATION":
            rules = values.get("attributeConfiguration")
            if not isinstance(rules, list) or not rules:
                raise invalid("attributeConfiguration has an object for each attribute")
            return FeedSource(app, stream, step_ms, tuple(_random(rule) for rule in rules))
        case "CSV_SIMULATION":
            columns = str(values.get("indices") or "")
            return FeedSource(
                app,
                stream,
                step_ms,
                file=_text(values, "fileName"),
                delimiter=_delimiter(str(values.get("delimiter") or ",")),
                time_column=_number(values, "timestampAttribute"),
                columns=tuple(_column(one) for one in columns.split(",") if one.strip()),
                is_ordered=str(values.get("isOrdered", True)).lower() != "false",
            )
        case kind:
            raise invalid(
                f"simulationType is RANDOM_DATA_SIMULATION or CSV_SIMULATION, not {kind!r}",
                hint="Of a database export a CSV file, or use a source of type cdc.",
            )


def _random(values: Any) -> RandomValue:
    kind = values.get("type") if isinstance(values, dict) else None
    match kind:
        case "PRIMITIVE_BASED":
            word = _text(values, "primitiveType").lower()
            if word not in list(AttributeType) or word == AttributeType.OBJECT:
                raise invalid("primitiveType is STRING, INT, LONG, FLOAT, DOUBLE or BOOL")
            length = _number(values, "length", 5) or 0
            if length > LENGTH_MAX:
                raise invalid(f"length is {LENGTH_MAX} at most")
            least, most = _bound(values, "min", 0), _bound(values, "max", 1000)
            return RandomValue(
                AttributeType(word),
                length,
                min(least, most),
                max(least, most),
                _number(values, "precision"),
            )
        case "CUSTOM_DATA_BASED":
            chosen = values.get("list")
            if not isinstance(chosen, list) or not chosen:
                raise invalid("list has at least one value")
            return RandomValue(values=tuple(chosen))
        case "REGEX_BASED":
            return RandomValue(pattern=_text(values, "pattern"))
        case _:
            raise invalid(
                f"type of an attribute is PRIMITIVE_BASED, REGEX_BASED or CUSTOM_DATA_BASED, "
                f"not {kind!r}",
                hint="CUSTOM_DATA_BASED takes the values of any property as a list.",
            )


def invalid(expected: str, hint: str | None = None) -> MeshError:
    """The error for a configuration of another form."""
    return MeshError("MESH-A400", f"the simulation is invalid: {expected}", hint=hint)


def _text(values: JsonObject, name: str) -> str:
    entry = values.get(name)
    if not isinstance(entry, str) or not entry.strip():
        raise invalid(f"{name} is a text")
    return entry.strip()


def _number(values: JsonObject, name: str, default: int | None = None) -> int | None:
    """An integer from 0; None or ``default`` without one, and for -1."""
    entry = values.get(name)
    if entry is None or str(entry).strip() in ("", "-1"):
        return default
    text = str(entry).strip()
    if not text.isdecimal() or not text.isascii() or len(text) > len(str(NUMBER_MAX)) - 1:
        raise invalid(f"{name} is a number from 0")
    return int(text)


def _bound(values: JsonObject, name: str, default: float) -> float:
    entry = values.get(name)
    if entry is None or not str(entry).strip():
        return default
    try:
        value = float(str(entry))
    except ValueError:
        value = float("nan")
    if not abs(value) < NUMBER_MAX:
        raise invalid(f"{name} is a number")
    return value


def _column(text: str) -> int:
    if not text.strip().isdecimal() or len(text.strip()) > 4:
        raise invalid("indices is a list of numbers of columns, such as 0,2")
    return int(text)


def _delimiter(text: str) -> str:
    if text == "\\t":
        return "\t"
    if len(text) != 1 or text in '"\r\n':
        raise invalid("delimiter is one character")
    return text
