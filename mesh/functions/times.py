"""``time:`` functions.

Source: the documentation of siddhi-execution-time.  Differences: where the extensions raise on a
null, these give null; the default time zone is UTC; and "now" is the event's clock, so that a
replay gives the same.  A date that can't be parsed fails the row.

Dates in Java's patterns, ``yyyy-MM-dd HH:mm:ss.SSS``, in UTC and in English.

Letters: ``G y Y M L d D E u a H k K h m s S z Z X w``.  Parsing is as lenient as Java's: a number
may have fewer digits than its letters, the 31st of April is the 1st of May, and text after the last
letter is ignored.
"""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from mesh.functions.vectors import Function, Rows, Vector, each_row, from_values, python_values

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

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_PART: Final = re.compile(r"([A-Za-z])\1*|'((?:[^']|'')*)'|([^A-Za-z']+)")
_NUMBERS: Final = "yYMdDuHkKhmsSwL"
#: Java's short names of zones, of which ``IST`` is India's.
_SHORT_ZONES: Final = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka", "CAT": "Africa/Harare", "CNT": "America/St_Johns",
    "CST": "America/Chicago", "CTT": "Asia/Shanghai", "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "EST": "-05:00", "HST": "-10:00", "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo", "MIT": "Pacific/Apia", "MST": "-07:00", "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland", "PLT": "Asia/Karachi", "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}  # fmt: skip
_OFFSET: Final = re.compile(r"(?:GMT|UTC)?([+-])(\d{1,2}):?(\d{2})?")


@dataclass(frozen=True, slots=True)
class _Field:
    """A run of one letter; or literal text, where ``letter`` is empty."""

    letter: str
    count: int
    text: str = ""

    @property
    def is_number(self) -> bool:
        return self.letter != "" and self.letter in _NUMBERS and not self.is_month_name

    @property
    def is_month_name(self) -> bool:
        return self.letter in ("M", "L") and self.count > 2


@lru_cache(maxsize=256)
def _fields(pattern: str) -> tuple[_Field, ...]:
    fields: list[_Field] = []
    at = 0
    while at < len(pattern):
        match = _PART.match(pattern, at)
        if match is None:
            raise ValueError(f"'{pattern}' has a quote without end")
        letter, quoted, plain = match.groups()
        if letter is None:
            text = plain if plain is not None else (quoted.replace("''", "'") or "'")
            fields.append(_Field("", 0, text))
        elif letter not in "GyYMLdDEuaHkKhmsSzZXw":
            raise ValueError(f"'{pattern}' has a letter that can't be had: {letter}")
        else:
            fields.append(_Field(letter, match.end() - at))
        at = match.end()
    return tuple(fields)


@lru_cache(maxsize=256)
def zone(name: str) -> tzinfo:
    """A time zone by its name: ``UTC``, ``Asia/Kolkata``, ``IST``, ``+05:30``."""
    name = _SHORT_ZONES.get(name, name)
    if name in ("UTC", "GMT", "Z"):
        return UTC
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        sign, hours, minutes = offset.groups()
        size = timedelta(hours=int(hours), minutes=int(minutes or 0))
        return timezone(size if sign == "+" else -size)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(f"there is no time zone '{name}'") from error


def at(time_ms: int, where: tzinfo = UTC) -> datetime:
    """A time, milliseconds since 1970, as a date in a zone; ValueError beyond the year 9999."""
    try:
        return (_EPOCH + timedelta(milliseconds=time_ms)).astimezone(where)
    except OverflowError as error:
        raise ValueError(f"{time_ms} is beyond the dates that there are") from error


def milliseconds(date: datetime) -> int:
    """Milliseconds since 1970 of a date that has a zone."""
    return (date - _EPOCH) // timedelta(milliseconds=1)


def write(date: datetime, pattern: str) -> str:
    """``date`` formatted by ``pattern``."""
    return "".join(_written(date, field) for field in _fields(pattern))


def _written(date: datetime, field: _Field) -> str:
    letter, count = field.letter, field.count
    match letter:
        case "":
            return field.text
        case "G":
            return "AD"
        case "y" | "Y":
            year = date.year if letter == "y" else _week(date)[0]
            return f"{year % 100:02d}" if count == 2 else str(year).zfill(count)
        case "M" | "L" if count > 2:
            name = _MONTHS[date.month - 1]
            return name if count > 3 else name[:3]
        case "E":
            name = _DAYS[date.weekday()]
            return name if count > 3 else name[:3]
        case "a":
            return "AM" if date.hour < 12 else "PM"
        case "z":
            return date.tzname() or "UTC"
        case "Z":
            return date.strftime("%z")
        case "X":
            return _iso_offset(date, count)
        case _:
            return str(_number(date, letter)).zfill(count)


def _iso_offset(date: datetime, count: int) -> str:
    text = date.strftime("%z")
    if int(text) == 0:
        return "Z"
    return text[:3] if count == 1 else text if count == 2 else f"{text[:3]}:{text[3:]}"


def _number(date: datetime, letter: str) -> int:
    match letter:
        case "M" | "L":
            return date.month
        case "d":
            return date.day
        case "D":
            return date.timetuple().tm_yday
        case "u":
            return date.isoweekday()
        case "w":
            return _week(date)[1]
        case "H":
            return date.hour
        case "k":
            return date.hour or 24
        case "K":
            return date.hour % 12
        case "h":
            return date.hour % 12 or 12
        case "m":
            return date.minute
        case "s":
            return date.second
        case _:
            return date.microsecond // 1000


def _week(date: datetime) -> tuple[int, int]:
    return week(date, first_day=7, least_days=1)


def week(date: datetime, *, first_day: int, least_days: int) -> tuple[int, int]:
    """The year and the number of a week.

    Args:
        date: a day of the week.
        first_day: the first day of weeks, 1 for Monday.
        least_days: the least number of days that the first week of a year has in that year.
    """
    for year in (date.year + 1, date.year, date.year - 1):
        january = datetime(year, 1, 1, tzinfo=date.tzinfo) if year <= 9999 else None
        if january is None:
            continue
        into = (january.isoweekday() - first_day) % 7
        start = january - timedelta(days=into)
        if 7 - into < least_days:
            start += timedelta(days=7)
        day = date.replace(hour=0, minute=0, second=0, microsecond=0)
        if day >= start:
            return year, (day - start).days // 7 + 1
    raise AssertionError("the week is one of three years")


def read(text: str, pattern: str, where: tzinfo = UTC) -> datetime:
    """Parse the date at the start of ``text``.

    Raises:
        ValueError: it doesn't match ``pattern``.
    """
    fields = _fields(pattern)
    values: dict[str, int] = {}
    place, there = 0, where
    for index, field in enumerate(fields):
        if not field.letter:
            if not text.startswith(field.text, place):
                raise _unreadable(text, pattern)
            place += len(field.text)
        elif field.is_number:
            touches = index + 1 < len(fields) and fields[index + 1].is_number
            place = _read_number(text, place, field, values, pattern, touches=touches)
        elif field.letter in "zZX":
            there, place = _read_zone(text, place, pattern)
        else:
            place = _read_name(text, place, field, values, pattern)
    return _date(values, there, text, pattern)


def _unreadable(text: str, pattern: str) -> ValueError:
    return ValueError(f"'{text}' is not written as '{pattern}'")


def _read_number(
    text: str, place: int, field: _Field, values: dict[str, int], pattern: str, *, touches: bool
) -> int:
    # Next to another number it has as many digits as letters.
    most = f"{{1,{field.count}}}" if touches else "+"
    match = re.compile(rf"\s*(-?[0-9]{most})").match(text, place)
    if match is None:
        raise _unreadable(text, pattern)
    value = int(match[1])
    if field.letter in "yY" and field.count <= 2 and len(match[1]) == 2:
        # Two digits mean a year between 80 years ago and 20 years ahead; which year it is must not
        # matter.
        value += 2000 if value < 50 else 1900
    values["M" if field.letter == "L" else field.letter] = value
    return match.end()


def _read_name(text: str, place: int, field: _Field, values: dict[str, int], pattern: str) -> int:
    names: dict[str, tuple[str, int]] = {}
    match field.letter:
        case "G":
            names = {"ad": ("G", 1), "bc": ("G", 0)}
        case "a":
            names = {"am": ("a", 0), "pm": ("a", 1)}
        case "E":
            names = {n: ("E", 0) for day in _DAYS for n in (day.lower(), day[:3].lower())}
        case _:
            for number, month in enumerate(_MONTHS, 1):
                names |= {month.lower(): ("M", number), month[:3].lower(): ("M", number)}
    for name in sorted(names, key=len, reverse=True):
        if text[place : place + len(name)].lower() == name:
            letter, value = names[name]
            values[letter] = value
            return place + len(name)
    raise _unreadable(text, pattern)


def _read_zone(text: str, place: int, pattern: str) -> tuple[tzinfo, int]:
    match = re.compile(r"Z|(?:GMT|UTC)?[+-]\d{1,2}:?\d{2}|[+-]\d{2}|[A-Za-z_/]+").match(text, place)
    if match is None:
        raise _unreadable(text, pattern)
    return zone(match[0]), match.end()


def _date(values: dict[str, int], where: tzinfo, text: str, pattern: str) -> datetime:
    hour = values.get("H", values.get("k", -1) % 24 if "k" in values else -1)
    if hour < 0:
        half = values.get("K", values.get("h", 0) % 12 if "h" in values else 0)
        hour = half + 12 * values.get("a", 0)
    year, month = values.get("y", values.get("Y", 1970)), values.get("M", 1)
    try:
        start = datetime(year + (month - 1) // 12, (month - 1) % 12 + 1, 1)  # noqa: DTZ001
        if "D" in values and "M" not in values:
            start += timedelta(days=values["D"] - 1)
        local = start + timedelta(
            days=values.get("d", 1) - 1,
            hours=hour,
            minutes=values.get("m", 0),
            seconds=values.get("s", 0),
            milliseconds=values.get("S", 0),
        )
    except (ValueError, OverflowError) as error:
        raise _unreadable(text, pattern) from error
    return local.replace(tzinfo=where)


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
            return write(add(read(date, pattern), sign * int(count), unit), pattern)
        return str(milliseconds(add(at(date), sign * int(count), unit)))

    return each_row(run)


def _diff(one: Any, other: Any, first: str = _FULL, second: str = _FULL) -> int:
    if isinstance(one, str):
        one = milliseconds(read(one, first))
        other = milliseconds(read(other, second))
    days: int = abs(one - other) // 86_400_000
    return days if one >= other else -days


def _format(date: Any, target: str, source: str = _FULL) -> str:
    return write(read(date, source) if isinstance(date, str) else at(date), target)


def _extract(*arguments: Any) -> object:
    locale = "en_US"
    if isinstance(arguments[0], str):
        unit, text, *rest = arguments
        pattern = rest[0] if rest else _FULL
        locale = rest[1] if len(rest) > 1 else locale
        date = read(text, pattern)
    else:
        time, unit, *rest = arguments
        locale = rest[0] if rest else locale
        date = at(time)
    match _unit(unit):
        case "QUARTER":
            return (date.month - 1) // 3 + 1
        case "WEEK":
            sunday = locale.rpartition("_")[2].upper() in _SUNDAY or "_" not in locale
            first, least = (7, 1) if sunday else (1, 4)
            return week(date, first_day=first, least_days=least)[1]
        case name:
            return getattr(date, name.lower())


def _timestamp(text: str, pattern: str = _FULL) -> int:
    return milliseconds(read(text, pattern))


def _convert(text: str, pattern: str, target: str, source: str = "UTC") -> str:
    date = read(text, pattern, zone(source))
    return write(date.astimezone(zone(target)), pattern)


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
        where = zone(value)
    elif value is not None:
        pattern = value
    return write(at(time_ms, where), pattern)


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
