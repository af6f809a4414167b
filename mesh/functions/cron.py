"""Cron expressions in Quartz's dialect: their due times, in UTC.

``sec min hour day-of-month month day-of-week [year]``; of the two days one is ``?``.  Days of the
week count from 1, Sunday.  ``L``, ``W``, ``LW``, ``6L`` and ``6#3`` are supported.

Source: Quartz 1.x ``CronExpression``, as the reference engine uses it; checked against it.
"""

from __future__ import annotations

import calendar
import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError

if TYPE_CHECKING:
    from mesh.errors import Position

_MONTHS: Final = {name.upper(): number for number, name in enumerate(calendar.month_abbr) if name}
#: Sunday is 1.
_WEEKDAYS: Final = {n.upper(): (d + 1) % 7 + 1 for d, n in enumerate(calendar.day_abbr)}
_YEARS: Final = (1970, 2199)
_PART: Final = re.compile(r"(\*|\w+)(?:-(\w+))?(?:/(\d+))?\Z")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Days:
    """The days of a month that match: some of these fields apply, all others are empty."""

    #: Of the month; None: any.
    numbers: tuple[int, ...] | None = None
    is_last: bool = False
    #: The weekday nearest to the day, or to the last one.
    is_nearest: bool = False
    #: Of the week, 1 is Sunday; None: any.
    weekdays: tuple[int, ...] | None = None
    #: Ordinal of the weekday in the month; -1: the last.
    occurrence: int | None = None

    def of(self, year: int, month: int) -> list[int]:
        """The matching days of a month, in ascending order."""
        first, count = calendar.monthrange(year, month)
        if self.weekdays is not None:
            # Python's week begins with Monday, 0.
            days = [d for d in range(1, count + 1) if (first + d) % 7 + 1 in self.weekdays]
            if self.occurrence is None:
                return days
            at = self.occurrence if self.occurrence < 0 else self.occurrence - 1
            return [days[at]] if at < len(days) else []
        if self.is_last:
            days = [count]
        elif self.numbers is None:
            days = list(range(1, count + 1))
        else:
            days = [d for d in self.numbers if d <= count]
        return [_nearest(d, first, count) for d in days] if self.is_nearest else days


def _nearest(day: int, first: int, count: int) -> int:
    """The weekday from Monday to Friday nearest to ``day``, in its month."""
    weekday = (first + day - 1) % 7
    if weekday == 5:
        return day - 1 if day > 1 else day + 2
    if weekday == 6:
        return day + 1 if day < count else day - 2
    return day


class Cron:
    """One cron expression.

    Raises:
        MeshError: MESH-P220, Quartz doesn't accept the expression.
    """

    def __init__(self, text: str) -> None:
        fields = text.upper().split()
        if len(fields) not in (6, 7):
            raise _wrong(text, f"It has {len(fields)} fields.")
        try:
            self._seconds = _numbers(fields[0], 0, 59)
            self._minutes = _numbers(fields[1], 0, 59)
            self._hours = _numbers(fields[2], 0, 23)
            self._months = _numbers(fields[4], 1, 12, _MONTHS)
            self._years = _numbers(fields[6] if len(fields) == 7 else "*", *_YEARS)
            self._days = _days(fields[3], fields[5])
        except ValueError as error:
            raise _wrong(text, str(error)) from None

    def first_from(self, start_ms: int) -> int | None:
        """The first due time of an expression that is started at ``start_ms``.

        The engine truncates the start to its second, and is late if that second matches.
        """
        second_ms = start_ms // 1000 * 1000
        due_ms = self.after(second_ms - 1)
        return None if due_ms is None else max(due_ms, start_ms)

    def after(self, time_ms: int) -> int | None:
        """The first due time after ``time_ms``; None: never again."""
        start = _EPOCH + timedelta(seconds=time_ms // 1000 + 1)
        for year in self._years[bisect_left(self._years, start.year) :]:
            is_first = year == start.year
            for month in self._months:
                if is_first and month < start.month:
                    continue
                due = self._in_month(year, month, start)
                if due is not None:
                    return int((due - _EPOCH).total_seconds()) * 1000
        return None

    def _in_month(self, year: int, month: int, start: datetime) -> datetime | None:
        """The first match in a month, at ``start`` or later."""
        for day in sorted(set(self._days.of(year, month))):
            begin = datetime(year, month, day, tzinfo=UTC)
            if begin + timedelta(days=1) <= start:
                continue
            second = max(0, int((start - begin).total_seconds()))
            due_second = self._in_day(second)
            if due_second is not None:
                return begin + timedelta(seconds=due_second)
        return None

    def _in_day(self, start: int) -> int | None:
        """The first match in a day from second ``start`` on."""
        hour, minute, second = start // 3600, start // 60 % 60, start % 60
        for h in self._hours[bisect_left(self._hours, hour) :]:
            if h > hour:
                return h * 3600 + self._minutes[0] * 60 + self._seconds[0]
            for m in self._minutes[bisect_left(self._minutes, minute) :]:
                if m > minute:
                    return h * 3600 + m * 60 + self._seconds[0]
                at = bisect_right(self._seconds, second - 1)
                if at < len(self._seconds):
                    return h * 3600 + m * 60 + self._seconds[at]
        return None


def check_cron(text: str, position: Position) -> None:
    """Refuse an invalid cron expression.

    Raises:
        MeshError: MESH-P220, with its place.
    """
    try:
        Cron(text)
    except MeshError as error:
        error.position = position
        raise


def _wrong(text: str, detail: str) -> MeshError:
    return MeshError(
        "MESH-P220",
        f"'{text}' is no cron expression",
        detail=detail,
        hint="Write second minute hour day month weekday, say '0 30 9 ? * MON-FRI'.",
    )


def _days(month: str, week: str) -> _Days:
    if (month == "?") == (week == "?"):
        raise ValueError("One of the days of month and week is '?', the other is not.")
    if week == "?":
        if month in ("L", "LW"):
            return _Days(is_last=True, is_nearest=month == "LW")
        if month.endswith("W"):
            return _Days(numbers=_numbers(month[:-1], 1, 31), is_nearest=True)
        return _Days(numbers=None if month == "*" else _numbers(month, 1, 31))
    if week == "*":
        return _Days()
    if "#" in week:
        day, _, occurrence = week.partition("#")
        return _Days(
            weekdays=_numbers(day, 1, 7, _WEEKDAYS), occurrence=_numbers(occurrence, 1, 5)[0]
        )
    if week == "L":
        return _Days(weekdays=(7,))
    if week.endswith("L"):
        return _Days(weekdays=_numbers(week[:-1], 1, 7, _WEEKDAYS), occurrence=-1)
    return _Days(weekdays=_numbers(week, 1, 7, _WEEKDAYS))


def _numbers(
    text: str, least: int, most: int, names: dict[str, int] | None = None
) -> tuple[int, ...]:
    """The numbers of a list such as ``1,4-6,10/5``, in ascending order."""

    def number(word: str) -> int:
        value = (names or {}).get(word)
        if value is None:
            if not word.isdigit():
                raise ValueError(f"'{word}' is no number here.")
            value = int(word)
        if not least <= value <= most:
            raise ValueError(f"{value} is not between {least} and {most}.")
        return value

    numbers: set[int] = set()
    for part in text.split(","):
        match = _PART.match(part)
        if match is None:
            raise ValueError(f"'{part}' is not understood.")
        start, end, step = match.groups()
        if start == "*" and end is not None:
            raise ValueError(f"'{part}' is not understood.")
        low = least if start == "*" else number(start)
        goes_on = start == "*" or step is not None
        high = number(end) if end is not None else most if goes_on else low
        every = int(step) if step is not None else 1
        if every < 1:
            raise ValueError(f"'{part}' never moves on.")
        if high < low:
            # The range wraps around, as from Friday to Monday.
            span = most - least + 1
            numbers.update((n - least) % span + least for n in range(low, high + span + 1, every))
        else:
            numbers.update(range(low, high + 1, every))
    return tuple(sorted(numbers))
