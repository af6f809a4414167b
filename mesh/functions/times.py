"""``time:`` functions.

Source: the documentation of siddhi-execution-time.  Differences: where the extensions raise on a
null, these give null; the default time zone is UTC; and "now" is the event's clock, so that a
replay gives the same.  A date that can't be parsed fails the row.
"""

from __future__ import annotations

import calendar
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any, Final

from mesh.functions import dates
from mesh.functions.rows import Function, Rows, each_row, from_values, python_values
from mesh.functions.vectors import Vector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.model.types import AttributeType

_FULL: Final = "yyyy-MM-dd HH:mm:ss.SSS"
_SECONDS: Final = "yyyy-MM-dd HH:mm:ss"
_DATE: Final = "yyyy-MM-dd"
_UNITS: Final = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")
_SPANS: Final = {
    "WEEK": timedelta(weeks=1),
    "DAY": timedelta(days=1),
    "HOUR": timedelta(hours=1),
    "MINUTE": timedelta(minutes=1),
    "SECOND": timedelta(seconds=1),
}
#: Countries whose weeks start on Sunday and whose first week has at least one day of the year.  In
#: the others weeks start on Monday, and the first week has at least four.
_SUNDAY: Final = frozenset({
    "US", "CA", "MX", "BR", "AR", "CO", "PE", "CL", "VE", "JP", "KR", "TW", "HK", "IN", "TH", "PH",
    "SG", "ZA", "IL", "AU", "NZ", "CN", "ID",
})  # fmt: skip


def _unit(name: str) -> str:
    if name.upper() not in _UNITS:
        raise ValueError(f"'{name}' is no unit of time: it is one of {', '.join(_UNITS)}")
    return name.upper()


def add(date: datetime, count: int, unit: str) -> datetime:
    """Add ``count`` units to ``date``; in a month that is too short the result is its last day."""
    unit = _unit(unit)
    try:
        if unit in _SPANS:
            return date + count * _SPANS[unit]
        months = count * {"YEAR": 12, "QUARTER": 3, "MONTH": 1}[unit] + date.month - 1
        year, month = date.year + months // 12, months % 12 + 1
        last = calendar.monthrange(year, month)[1]
        return date.replace(year=year, month=month, day=min(date.day, last))
    except (OverflowError, ValueError, IndexError) as error:
        raise ValueError(f"{count} {unit} lead beyond the dates that there are") from error


def _add(sign: int) -> Function:
    def run(date: Any, count: int, unit: str, pattern: str = _FULL) -> str:
        if isinstance(date, str):
            return dates.write(add(dates.read(date, pattern), sign * int(count), unit), pattern)
        return str(dates.milliseconds(add(dates.at(date), sign * int(count), unit)))

    return each_row(run)


def _diff(one: Any, other: Any, first: str = _FULL, second: str = _FULL) -> int:
    if isinstance(one, str):
        one = dates.milliseconds(dates.read(one, first))
        other = dates.milliseconds(dates.read(other, second))
    days: int = abs(one - other) // 86_400_000
    return days if one >= other else -days


def _format(date: Any, target: str, source: str = _FULL) -> str:
    return dates.write(
        dates.read(date, source) if isinstance(date, str) else dates.at(date), target
    )


def _extract(*arguments: Any) -> object:
    locale = "en_US"
    if isinstance(arguments[0], str):
        unit, text, *rest = arguments
        pattern = rest[0] if rest else _FULL
        locale = rest[1] if len(rest) > 1 else locale
        date = dates.read(text, pattern)
    else:
        time, unit, *rest = arguments
        locale = rest[0] if rest else locale
        date = dates.at(time)
    match _unit(unit):
        case "QUARTER":
            return (date.month - 1) // 3 + 1
        case "WEEK":
            sunday = locale.rpartition("_")[2].upper() in _SUNDAY or "_" not in locale
            first, least = (7, 1) if sunday else (1, 4)
            return dates.week(date, first_day=first, least_days=least)[1]
        case name:
            return getattr(date, name.lower())


def _timestamp(text: str, pattern: str = _FULL) -> int:
    return dates.milliseconds(dates.read(text, pattern))


def _convert(text: str, pattern: str, target: str, source: str = "UTC") -> str:
    date = dates.read(text, pattern, dates.zone(source))
    return dates.write(date.astimezone(dates.zone(target)), pattern)


def _now(pattern: str, *, argument: str = "") -> Function:
    """The event's clock in a pattern; ``argument`` names the argument: pattern or zone."""

    def apply(arguments: Sequence[Vector], type: AttributeType, rows: Rows) -> Vector:
        values = python_values(arguments[0].spread(rows.length)) if arguments else None
        written: dict[tuple[int, str | None], str | None] = {}
        texts: list[str | None] = []
        for row, time in enumerate(rows.clock_ms.tolist()):
            key = (time, values[row] if values is not None else None)
            if key not in written:
                try:
                    written[key] = _now_as(time, pattern, argument, key[1])
                except ValueError as error:
                    rows.failures.setdefault(row, str(error))
                    texts.append(None)
                    continue
            texts.append(written[key])
        return from_values(texts, type)

    return apply


def _now_as(time_ms: int, pattern: str, argument: str, value: str | None) -> str:
    where: tzinfo = UTC
    if value is not None and argument == "zone":
        where = dates.zone(value)
    elif value is not None:
        pattern = value
    return dates.write(dates.at(time_ms, where), pattern)


_EACH_TIMESTAMP = each_row(_timestamp)


def _timestamp_or_now(arguments: Sequence[Vector], type: AttributeType, rows: Rows) -> Vector:
    if not arguments:
        return Vector(type, rows.clock_ms)
    return _EACH_TIMESTAMP(arguments, type, rows)


FUNCTIONS: dict[str, Function] = {
    "time:currentdate": _now(_DATE),
    "time:currenttime": _now("HH:mm:ss"),
    "time:currenttimestamp": _now(_SECONDS, argument="zone"),
    "time:date": each_row(lambda text, pattern=_FULL: _format(text, _DATE, pattern)),
    "time:dateadd": _add(1),
    "time:datediff": each_row(_diff),
    "time:dateformat": each_row(_format),
    "time:datesub": _add(-1),
    "time:dayofweek": each_row(lambda text, pattern=_FULL: _format(text, "EEEE", pattern)),
    "time:extract": each_row(_extract),
    "time:timestampinmilliseconds": _timestamp_or_now,
    "time:timezoneconvert": each_row(_convert),
    "time:utctimestamp": _now(_SECONDS, argument="pattern"),
}
