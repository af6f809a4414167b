"""Events of feeds as a pure function of the configuration, and the states of a feed.

Event ``n`` of a source is the same whenever it is made: its values are drawn with a seed of the
run, the source and ``n``.  So another leader continues a feed from the numbers of events that were
published, and an event that is published again is the same message.
"""

from __future__ import annotations

import csv
import io
import random
import string
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from mesh.model.simulation import LENGTH_MAX, NUMBER_MAX, FeedState, invalid
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.model.simulation import Feed, FeedSource, RandomValue

#: Repetitions of ``*`` and ``+`` in a pattern.
_REPEATS: Final = 10
#: Parts of a text that a pattern makes.
_STEPS_MAX: Final = 4 * LENGTH_MAX
_ALPHABET: Final = string.ascii_letters + string.digits
#: By action and state: the next state, or the HTTP status of the refusal; and what is said.
_ACTIONS: Final[dict[tuple[str, FeedState], tuple[FeedState | int, str]]] = {
    ("run", FeedState.STOP): (FeedState.RUN, "started"),
    ("run", FeedState.PAUSE): (403, "has paused; resume it, or stop it first"),
    ("run", FeedState.RUN): (409, "runs already"),
    ("pause", FeedState.RUN): (FeedState.PAUSE, "paused"),
    ("pause", FeedState.PAUSE): (409, "has paused already"),
    ("pause", FeedState.STOP): (403, "does not run"),
    ("resume", FeedState.PAUSE): (FeedState.RUN, "resumed"),
    ("resume", FeedState.RUN): (409, "runs already"),
    ("resume", FeedState.STOP): (403, "does not run; run it"),
    ("stop", FeedState.RUN): (FeedState.STOP, "stopped"),
    ("stop", FeedState.PAUSE): (FeedState.STOP, "stopped"),
    ("stop", FeedState.STOP): (409, "does not run"),
}
ACTIONS: Final = tuple(dict.fromkeys(action for action, _ in _ACTIONS))


def transition(action: str, state: FeedState) -> tuple[FeedState | int, str]:
    """The state after an action, or the HTTP status of its refusal; and a text about the feed."""
    return _ACTIONS[action, state]


@dataclass(frozen=True, slots=True)
class FeedEvent:
    """An event of a feed."""

    source: int
    #: Its number among those of the source.
    number: int
    values: list[Any]
    time_ms: int


@dataclass(frozen=True, slots=True)
class FileRow:
    """A line of a file: its time, None for times in steps, and its values."""

    time_ms: int | None
    values: list[Any]


def rows_of(source: FeedSource, text: str, types: Sequence[AttributeType]) -> list[FileRow]:
    """The lines of a file as values of a stream; MESH-A400 for one that does not fit."""
    rows: list[FileRow] = []
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=source.delimiter)
    columns = source.columns or range(len(types))
    if len(columns) != len(types):
        raise invalid(f"stream {source.stream} has {len(types)} attributes, not {len(columns)}")
    try:
        for cells in reader:
            if cells:
                values = [_cell(cells[at], type_) for at, type_ in zip(columns, types, strict=True)]
                rows.append(FileRow(_time(cells, source.time_column), values))
    except (IndexError, ValueError, csv.Error) as error:
        where = f"line {reader.line_num} of {source.file}"
        raise invalid(f"{where} does not fit stream {source.stream}: {error}") from error
    if not source.is_ordered and source.time_column is not None:
        rows.sort(key=lambda row: row.time_ms or 0)
    return rows


def _time(cells: Sequence[str], column: int | None) -> int | None:
    if column is None:
        return None
    time_ms = int(cells[column].strip())
    if not 0 <= time_ms < NUMBER_MAX:
        raise ValueError(f"{time_ms} is no time in milliseconds since 1970")
    return time_ms


def _cell(text: str, type_: AttributeType) -> object:
    word = text.strip()
    match type_:
        case AttributeType.STRING:
            return text
        case _ if not word:
            return None
        case AttributeType.INT | AttributeType.LONG:
            return int(word)
        case AttributeType.FLOAT | AttributeType.DOUBLE:
            return float(word)
        case AttributeType.BOOL:
            return word.lower() == "true"
        case _:
            raise ValueError(f"a file has no values of type {type_}")


def next_event(
    feed: Feed, run: str, began_ms: int, rows: Mapping[int, Sequence[FileRow]], sent: Sequence[int]
) -> FeedEvent | None:
    """The event after those that were sent; None at the end.

    Args:
        feed: the configuration.
        run: name of the run; events of another run have other values.
        began_ms: start of the run, the time of the first event without ``startTimestamp``.
        rows: lines of files by source.
        sent: by source, the number of its events that were sent.
    """
    if feed.count is not None and sum(sent) >= feed.count:
        return None
    first_ms = began_ms if feed.start_ms is None else feed.start_ms
    waiting = [
        (time_ms, at)
        for at, source in enumerate(feed.sources)
        if (time_ms := _time_of(source, first_ms, rows.get(at), sent[at])) is not None
        and (feed.end_ms is None or time_ms <= feed.end_ms)
    ]
    if not waiting:
        return None
    time_ms, at = min(waiting)
    source, number = feed.sources[at], sent[at]
    if source.file:
        return FeedEvent(at, number, rows[at][number].values, time_ms)
    drawn = random.Random(f"{run}/{at}/{number}")
    return FeedEvent(at, number, [value(rule, drawn) for rule in source.attributes], time_ms)


def _time_of(
    source: FeedSource, first_ms: int, rows: Sequence[FileRow] | None, number: int
) -> int | None:
    """Time of a source's event; None if it has no such event."""
    if source.file:
        if rows is None or number >= len(rows):
            return None
        time_ms = rows[number].time_ms
        if time_ms is not None:
            return time_ms
    return first_ms + number * source.step_ms


def check(feed: Feed) -> None:
    """Refuse patterns that make no texts: MESH-A400."""
    for source in feed.sources:
        for rule in source.attributes:
            if rule.pattern:
                text_of(rule.pattern, random.Random(0))


def value(rule: RandomValue, drawn: random.Random) -> Any:
    """A value by a rule."""
    if rule.values:
        return drawn.choice(rule.values)
    if rule.pattern:
        return text_of(rule.pattern, drawn)
    match rule.type:
        case AttributeType.STRING:
            return "".join(drawn.choices(_ALPHABET, k=rule.length))
        case AttributeType.INT | AttributeType.LONG:
            return drawn.randint(int(rule.least), int(rule.most))
        case AttributeType.BOOL:
            return drawn.random() < 0.5
        case _:
            number = drawn.uniform(rule.least, rule.most)
            return number if rule.precision is None else round(number, rule.precision)


def text_of(pattern: str, drawn: random.Random) -> str:
    """A text that a regular expression matches; MESH-A400 for one with look-around."""
    parser = import_module("re._parser")
    try:
        parts = parser.parse(pattern)
    except (parser.error, OverflowError, RecursionError) as error:
        raise invalid(f"{pattern!r} is no regular expression: {error}") from error
    text = _Text(drawn)
    text.extend(parts)
    return "".join(text.parts)


class _Text:
    """A text that grows part by part of a parsed pattern."""

    def __init__(self, drawn: random.Random) -> None:
        self.parts: list[str] = []
        self._drawn = drawn
        self._steps = 0

    def extend(self, parts: Any) -> None:
        """Append a text for each part."""
        for kind, argument in parts:
            match str(kind):
                case "LITERAL":
                    self.parts.append(chr(argument))
                case "NOT_LITERAL":
                    self._choose([c for c in _ALPHABET if c != chr(argument)])
                case "ANY":
                    self._choose(_ALPHABET)
                case "IN":
                    self._choose(_characters(argument))
                case "MAX_REPEAT" | "MIN_REPEAT":
                    least, most, repeated = argument
                    for _ in range(self._drawn.randint(least, min(most, max(least, _REPEATS)))):
                        self._step()
                        self.extend(repeated)
                case "SUBPATTERN":
                    self.extend(argument[-1])
                case "BRANCH":
                    self.extend(self._drawn.choice(argument[1]))
                case "AT":
                    continue
                case other:
                    raise invalid(f"a pattern can't have {other.lower()}")
            self._step()

    def _choose(self, characters: Sequence[str]) -> None:
        self.parts.append(self._drawn.choice(characters))

    def _step(self) -> None:
        """Refuse a pattern of very long texts, also one that repeats nothing."""
        self._steps += 1
        if self._steps > _STEPS_MAX:
            raise invalid(f"a pattern has texts of more than {LENGTH_MAX} characters")


_CATEGORIES: Final = {
    "CATEGORY_DIGIT": string.digits,
    "CATEGORY_WORD": _ALPHABET + "_",
    "CATEGORY_SPACE": " ",
    "CATEGORY_NOT_DIGIT": string.ascii_letters,
    "CATEGORY_NOT_WORD": "-.,;",
    "CATEGORY_NOT_SPACE": _ALPHABET,
}


def _characters(members: Any) -> str:
    """The characters of a class, at most some hundreds; of a negated one those of the alphabet."""
    characters = ""
    is_negated = False
    for kind, what in members:
        match str(kind):
            case "NEGATE":
                is_negated = True
            case "LITERAL":
                characters += chr(what)
            case "RANGE":
                first, last = what
                characters += "".join(map(chr, range(first, min(last, first + 255) + 1)))
            case _:
                characters += _CATEGORIES[str(what)]
    if is_negated:
        characters = "".join(c for c in _ALPHABET + " " if c not in characters)
    if not characters:
        raise invalid("a pattern has a class without characters")
    return characters
