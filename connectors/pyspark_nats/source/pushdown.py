"""Filters of a batch query that the server can apply: by sequence, by time, by subject.

They only narrow the read.  Spark evaluates every filter again, so they need not be exact; they must
only never exclude a row that passes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Final

from pyspark.sql import datasource as ds

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The columns of both forms with the stream, position and time of a message.
_SEQUENCE: Final = ("sequence", "_sequence")
_SUBJECT: Final = ("subject", "_subject")
_STREAM: Final = ("stream", "_stream")
_TIME: Final = ("timestamp", "_timestamp")
_TIME_MS: Final = ("_timestamp_ms",)


@dataclass(frozen=True, slots=True)
class ReadBounds:
    """Bounds of the rows to read; every bound is inclusive."""

    first: int = 1
    last: int | None = None
    first_ms: int | None = None
    last_ms: int | None = None
    #: Patterns; None for all.
    subjects: tuple[str, ...] | None = None
    #: Names; None for all.
    streams: tuple[str, ...] | None = None

    def at_least(self, sequence: int) -> ReadBounds:
        """Without sequences below."""
        return replace(self, first=max(self.first, sequence))

    def at_most(self, sequence: int) -> ReadBounds:
        """Without sequences above."""
        return replace(self, last=sequence if self.last is None else min(self.last, sequence))

    def since(self, time_ms: int) -> ReadBounds:
        """Without messages that are older."""
        times_ms = [one for one in (self.first_ms, time_ms) if one is not None]
        return replace(self, first_ms=max(times_ms))

    def until(self, time_ms: int) -> ReadBounds:
        """Without messages that are newer than that millisecond."""
        times_ms = [one for one in (self.last_ms, time_ms) if one is not None]
        return replace(self, last_ms=min(times_ms))


def bounds(filters: Iterable[ds.Filter], columns: Iterable[str]) -> ReadBounds:
    """The bounds that ``filters`` imply; all filters must hold.

    Args:
        filters: from Spark; those without such columns are ignored.
        columns: the source's own columns of positions and times; a column of the events may have
            the name of one.
    """
    names = set(columns)
    current = ReadBounds()
    for one in filters:
        path: tuple[str, ...] = getattr(one, "attribute", ())
        if len(path) == 1 and path[0] in names:
            current = _narrowed(current, one, path[0])
    return current


def _narrowed(current: ReadBounds, one: ds.Filter, column: str) -> ReadBounds:
    value = getattr(one, "value", None)
    if column in _SUBJECT or column in _STREAM:
        return _named(current, one, column in _SUBJECT)
    if column in _SEQUENCE:
        low, high = _closed(one, value) if isinstance(value, int) else (None, None)
        current = current if low is None else current.at_least(low)
        return current if high is None else current.at_most(high)
    moment_ms = _moment_ms(value) if column in _TIME else value
    if column in _TIME + _TIME_MS and isinstance(moment_ms, int):
        # A millisecond holds many messages: both of its bounds are inclusive.
        low, high = _closed(_not_strict(one), moment_ms)
        current = current if low is None else current.since(low)
        return current if high is None else current.until(high)
    return current


def _not_strict(one: ds.Filter) -> ds.Filter:
    match one:
        case ds.GreaterThan(attribute, value):
            return ds.GreaterThanOrEqual(attribute, value)
        case ds.LessThan(attribute, value):
            return ds.LessThanOrEqual(attribute, value)
        case _:
            return one


def _closed(one: ds.Filter, value: int) -> tuple[int | None, int | None]:
    """The lowest and the highest value that pass, None for no bound."""
    match one:
        case ds.EqualTo() | ds.EqualNullSafe():
            return value, value
        case ds.GreaterThan():
            return value + 1, None
        case ds.GreaterThanOrEqual():
            return value, None
        case ds.LessThan():
            return None, value - 1
        case ds.LessThanOrEqual():
            return None, value
        case _:
            return None, None


def _named(current: ReadBounds, one: ds.Filter, is_subject: bool) -> ReadBounds:
    names: tuple[str, ...]
    match one:
        case ds.EqualTo(_, value) | ds.EqualNullSafe(_, value):
            names = (value,)
        case ds.In(_, values):
            names = tuple(value for value in values if value is not None)
        case ds.StringStartsWith(_, value) if is_subject:
            # Only whole tokens form a pattern; ``ev.te`` means at least ``ev.>``.
            head, dot, _ = str(value).rpartition(".")
            names = (f"{head}.>",) if dot and head else ()
        case _:
            names = ()
    if not names or not all(isinstance(name, str) for name in names):
        return current
    if is_subject:
        # A name with a wildcard is not a subject of any message, but would be a pattern.
        plain = [n for n in names if n.endswith(".>") or not set(n) & set("*> \t\r\n")]
        usable = current.subjects is None and len(plain) == len(names) and all(plain)
        return replace(current, subjects=tuple(dict.fromkeys(plain))) if usable else current
    return replace(current, streams=names) if current.streams is None else current


def _moment_ms(value: object) -> int | None:
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.astimezone()
        return int(aware.timestamp() * 1000 // 1)
    if isinstance(value, date):
        return int(datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp() * 1000)
    return None
