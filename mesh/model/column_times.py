"""Exact texts of dates, times and spans; see ``mesh.model.column_texts``."""

from __future__ import annotations

import datetime
import re
from typing import TYPE_CHECKING, Final

from mesh.model.column_types import Backend, Kind, NoFormError, matched

if TYPE_CHECKING:
    from mesh.model.column_types import Backend, ColumnType

_DATE: Final = r"(\d{4,6})-(\d\d)-(\d\d)"
_CLOCK: Final = r"(\d\d):(\d\d):(\d\d)(?:\.(\d+))?"
_ZONE: Final = r"(Z|[+-]\d\d(?::?\d\d)?)"
_IS_DATE: Final = re.compile(rf"{_DATE}( BC)?")
_IS_CLOCK: Final = re.compile(rf"{_CLOCK}{_ZONE}?")
_IS_TIME: Final = re.compile(rf"{_DATE}[ T]{_CLOCK}{_ZONE}?( BC)?")
_IS_HOURS: Final = re.compile(r"(-?)(\d{2,3}):([0-5]\d):([0-5]\d)(?:\.(\d+))?")
_IS_INTERVAL: Final = re.compile(
    r"(?=.)(?:[+-]?\d+ years?)?(?: ?[+-]?\d+ mons?)?(?: ?[+-]?\d+ days?)?"
    r"(?: ?[+-]?\d{2,}:[0-5]\d:[0-5]\d(?:\.\d{1,6})?)?"
)
_SPECIAL_TIMES: Final = ("infinity", "-infinity")
#: Digits of a second's fraction where the type has no other number.
_FRACTION: Final = 6
#: Last second of MySQL's TIMESTAMP, and the longest TIME, in hours.
_LAST: Final = datetime.datetime(2038, 1, 19, 3, 14, 7, 999999)  # noqa: DTZ001
_FIRST: Final = datetime.datetime(1970, 1, 1, 0, 0, 1)  # noqa: DTZ001
_HOURS: Final = 838


def date_form(column: ColumnType, text: str) -> str:
    """A date."""
    if text in _SPECIAL_TIMES and column.backend is Backend.POSTGRESQL:
        return text
    year, month, day, is_before = matched(_IS_DATE, text).groups()
    _check_day(column, int(year), int(month), int(day), is_before is not None)
    return text


def _check_day(column: ColumnType, year: int, month: int, day: int, is_before: bool) -> None:
    if is_before or year > 9999:
        if column.backend is not Backend.POSTGRESQL:
            raise NoFormError("the year is beyond the range")
        # The calendar repeats itself after 400 years; 1 BC is the year 0.
        year = (1 - year if is_before else year) % 400 + 400
    datetime.date(year, month, day)


def _fraction(column: ColumnType, digits: str | None) -> str:
    """A second's fraction as the column shows it, with its point."""
    most = _FRACTION if column.length is None else column.length
    decimals = (digits or "").rstrip("0")
    if len(decimals) > most:
        raise NoFormError(f"it has more than {most} digits after the second")
    if column.backend is Backend.MYSQL:
        return "." + decimals.ljust(most, "0") if most else ""
    return "." + decimals if decimals else ""


def time_form(column: ColumnType, text: str) -> str:
    """A time of day, or MySQL's span of hours."""
    if column.backend is Backend.MYSQL:
        sign, hours, minutes, seconds, digits = matched(_IS_HOURS, text).groups()
        if int(hours) > _HOURS:
            raise NoFormError("it is beyond the range")
        return f"{sign}{hours}:{minutes}:{seconds}{_fraction(column, digits)}"
    hour, minute, second, digits, zone = matched(_IS_CLOCK, text).groups()
    if (zone is None) is (column.kind is Kind.TIMETZ):
        raise NoFormError("it needs a zone such as +00" if zone is None else "it has a zone")
    if (hour, minute, second) != ("24", "00", "00") or (digits or "").strip("0"):
        datetime.time(int(hour), int(minute), int(second))
    shown = f"{hour}:{minute}:{second}{_fraction(column, digits)}"
    return shown if zone is None else shown + _shown_zone(zone)


def _shown_zone(zone: str) -> str:
    if zone == "Z":
        return "+00"
    hours, minutes = zone[:3], zone[3:].removeprefix(":")
    if hours == "-00" and not minutes.strip("0"):
        hours = "+00"
    return hours if not minutes.strip("0") else f"{hours}:{minutes}"


def timestamp_form(column: ColumnType, text: str) -> str:
    """A date with a time, in UTC where the column has a zone."""
    is_postgresql = column.backend is Backend.POSTGRESQL
    if text in _SPECIAL_TIMES and is_postgresql:
        return text
    match = matched(_IS_TIME, text)
    year, month, day, hour, minute, second, digits, zone, is_before = match.groups()
    is_zoned = column.kind is Kind.TIMESTAMPTZ
    if zone is not None and not is_zoned:
        raise NoFormError("the column has no zone")
    if zone is None and is_zoned and is_postgresql:
        raise NoFormError("it needs a zone such as +00")
    fraction = _fraction(column, digits)
    after = "+00" if is_zoned and is_postgresql else ""
    if is_before or int(year) > 9999:
        _check_day(column, int(year), int(month), int(day), is_before is not None)
        datetime.time(int(hour), int(minute), int(second))
        if zone is not None and _shown_zone(zone) != "+00":
            raise NoFormError("a year beyond 9999 needs the zone +00")
        shown = f"{year}-{month}-{day} {hour}:{minute}:{second}{fraction}{after}"
        return shown + (is_before or "")
    parts = (year, month, day, hour, minute, second)
    at = datetime.datetime(*map(int, parts))  # type: ignore[arg-type]  # noqa: DTZ001
    if zone is not None and zone != "Z":
        shift = zone[1:].replace(":", "").ljust(4, "0")
        span = datetime.timedelta(hours=int(shift[:2]), minutes=int(shift[2:]))
        at = at - span if zone[0] == "+" else at + span
    if is_zoned and not is_postgresql and not _FIRST <= at <= _LAST:
        raise NoFormError("it is beyond the range")
    return f"{at.isoformat(' ')}{fraction}{after}"


def interval_form(_: ColumnType, text: str) -> str:
    """A span, as PostgreSQL shows it."""
    return matched(_IS_INTERVAL, text).group()
