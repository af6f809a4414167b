"""Filters of a batch query that the server can apply: by sequence, by time, by subject.

They only narrow the read.  Spark evaluates every filter again, so they need not be exact; they must
only never exclude a row that passes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final

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
class Bounds:
    """Bounds of the rows to read; every bound is inclusive."""

    first: int = 1
    last: int | None = None
    first_ms: int | None = None
    last_ms: int | None = None
    #: Patterns; None for all.
    subjects: tuple[str, ...] | None = None
    #: Names; None for all.
    streams: tuple[str, ...] | None = None

    def at_least(self, sequence: int) -> Bounds:
        """Without sequences below."""
        return replace(self, first=max(self.first, sequence))

    def at_most(self, sequence: int) -> Bounds:
        """Without sequences above."""
        return replace(self, last=sequence if self.last is None else min(self.last, sequence))

    def since(self, time_ms: int) -> Bounds:
        """Without messages that are older."""
        known = [one for one in (self.first_ms, time_ms) if one is not None]
        return replace(self, first_ms=max(known))

    def until(self, time_ms: int) -> Bounds:
        """Without messages that are newer than that millisecond."""
        known = [one for one in (self.last_ms, time_ms) if one is not None]
        return replace(self, last_ms=min(known))


def bounds(filters: Iterable[ds.Filter], columns: Iterable[str]) -> Bounds:
    """The bounds that ``filters`` imply; all filters must hold.

    Args:
        filters: from Spark; those without such columns are ignored.
        columns: the source's own columns of positions and times; a column of the events may have
            the name of one.
    """
    known = set(columns)
    found = Bounds()
    for one in filters:
        path: tuple[str, ...] = getattr(one, "attribute", ())
        if len(path) == 1 and path[0] in known:
            found = _narrowed(found, one, path[0])
    return found


def _narrowed(found: Bounds, one: ds.Filter, column: str) -> Bounds:
    value: Any = getattr(one, "value", None)
    if column in _SUBJECT or column in _STREAM:
        return _named(found, one, column in _SUBJECT)
    if column in _SEQUENCE:
        low, high = _closed(one, value) if isinstance(value, int) else (None, None)
        found = found if low is None else found.at_least(low)
        return found if high is None else found.at_most(high)
    moment_ms = _moment_ms(value) if column in _TIME else value
    if column in _TIME + _TIME_MS and isinstance(moment_ms, int):
        # A millisecond holds many messages: both of its bounds are inclusive.
        low, high = _closed(_not_strict(one), moment_ms)
        found = found if low is None else found.since(low)
        return found if high is None else found.until(high)
    return found


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


def _named(found: Bounds, one: ds.Filter, is_subject: bool) -> Bounds:
    names: tuple[Any, ...]
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
        return found
    if is_subject:
        # A name with a wildcard is not a subject of any message, but would be a pattern.
        plain = [n for n in names if n.endswith(".>") or not set(n) & set("*> \t\r\n")]
        usable = found.subjects is None and len(plain) == len(names) and all(plain)
        return replace(found, subjects=tuple(dict.fromkeys(plain))) if usable else found
    return replace(found, streams=names) if found.streams is None else found


def _moment_ms(value: Any) -> int | None:
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.astimezone()
        return int(aware.timestamp() * 1000 // 1)
    if isinstance(value, date):
        return int(datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp() * 1000)
    return None
