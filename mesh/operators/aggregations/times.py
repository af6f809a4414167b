"""Times as aggregations read them: those of ``aggregate by``, ``within`` and ``per``.

A text is ``2019-10-07 10:00:00``, in GMT, or with a zone after one space: ``.. +05:30``.

Calendar buckets: the start of the second, minute, .. year that holds a time.

Times are milliseconds since 1970, UTC, also before 1970: a bucket's start is never after its times.
In a time zone hours and longer buckets begin where its clocks show a whole hour, midnight and so
on.  An hour that the clocks repeat is two buckets.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

import numpy as np

from mesh.language.syntax import TimeUnit
from mesh.language.syntax.expressions import UNIT_MS
from mesh.plan.aggregation_tables import DURATIONS, duration_of

if TYPE_CHECKING:
    from mesh.functions.vectors import Vector
    from mesh.operators.base import Longs


_TIME: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?: ([+-])(\d\d):(\d\d))?\Z")
#: A text with stars: how many of its parts are there.
_SPAN: Final = re.compile(
    r"(\d{4})-(\*\*|\d\d)-(\*\*|\d\d) (\*\*|\d\d):(\*\*|\d\d):(\*\*|\d\d)"
    r"(?: ([+-])(\d\d):(\d\d))?\Z"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LEAST: Final = ("01", "01", "00", "00", "00")
_STARS: Final = "**"
_FORMATS: Final = "It is written 2019-10-07 10:00:00, or with a zone: 2019-10-07 10:00:00 +05:30."

#: Units of NumPy for the buckets that have no fixed length.
_CALENDAR: Final = {TimeUnit.MONTH: "M", TimeUnit.YEAR: "Y"}
#: Offsets of time zones change at whole multiples of this.
_STEP_MS: Final = 900_000
#: Times with a year that Python's calendar has, with a day to spare.
_FIRST_MS: Final = -62_135_510_400_000
_LAST_MS: Final = 253_402_214_400_000


def time_of(text: str) -> int:
    """The time that a text names, milliseconds since 1970.

    Raises:
        ValueError: it names none; the message says so.
    """
    match = _TIME.match(text.strip())
    time = None if match is None else _instant(match.groups())
    if time is None:
        raise ValueError(f"'{text}' is no time. {_FORMATS}")
    return time


def _instant(parts: tuple[str | Any, ...]) -> int | None:
    """The time of year to second, sign, hours and minutes of a zone; None: there is none."""
    year, month, day, hour, minute, second = (int(part) for part in parts[:6])
    try:
        # 24:00:00 is midnight at the end of the day.
        extra = 0
        if (hour, minute, second) == (24, 0, 0):
            hour, extra = 0, 86_400_000
        zone = UTC if parts[6] is None else _zone(*parts[6:9])
        time = datetime(year, month, day, hour, minute, second, tzinfo=zone)
    except ValueError:
        return None
    return (time - _EPOCH) // timedelta(milliseconds=1) + extra


def _zone(sign: str, hours: str, minutes: str) -> timezone:
    offset = timedelta(hours=int(hours), minutes=int(minutes))
    if offset > timedelta(hours=18) or int(minutes) > 59:
        raise ValueError("no zone is further from GMT")
    return timezone(-offset if sign == "-" else offset)


def span_of(text: str) -> tuple[int, int]:
    """The span that a text with stars names: ``2019-10-** **:**:**``; its start and its end.

    Raises:
        ValueError: it names none.
    """
    match = _SPAN.match(text.strip())
    parts = list(match.groups()) if match is not None else []
    stars = [part == _STARS for part in parts[1:6]]
    # Stars stand for the rest: none is followed by digits.
    if match is None or stars != sorted(stars):
        raise ValueError(
            f"'within' can't read '{text}'. It is written 2019-10-** **:**:**: a year, and stars "
            "for all of the parts from some part on."
        )
    first = 1 + stars.count(False)
    begin = [*parts[:first], *_LEAST[first - 1 :], *parts[6:]]
    start = _instant(tuple(begin))
    if start is None:
        raise ValueError(f"'within' can't read '{text}': there is no such day or time.")
    return start, _end(start, first, begin)


def _end(start_ms: int, first: int, begin: list[str | Any]) -> int:
    """The end of a span of which the first ``first`` parts are given."""
    year, month = int(begin[0]), int(begin[1])
    match first:
        case 1:
            following = [f"{year + 1:04}", "01"]
        case 2:
            following = [f"{year + month // 12:04}", f"{month % 12 + 1:02}"]
        case _:
            return start_ms + (86_400_000, 3_600_000, 60_000, 1000)[first - 3]
    if int(following[0]) > 9999:
        return start_ms + (366 if first == 1 else 31) * 86_400_000
    end = _instant((*following, *begin[2:]))
    assert end is not None, "the first of a month is a day"
    return end


def duration_named(text: str, durations: tuple[TimeUnit, ...], name: str) -> TimeUnit:
    """The duration that ``per`` names, one of ``durations`` of aggregation ``name``.

    Raises:
        ValueError: it names none, or one that is not kept.
    """
    duration = duration_of(text)
    if duration is None:
        raise ValueError(f"'per' knows no '{text}'. It is one of {', '.join(DURATIONS)}.")
    if duration not in durations:
        raise ValueError(
            f"Aggregation {name} is not kept by {duration}, only by {', '.join(durations)}."
        )
    return duration


def span_between(start: str | int, end: str | int | None) -> tuple[int, int]:
    """The span of ``within start, end``, each a text or milliseconds; or of one text with stars.

    Raises:
        ValueError: one of them names no time, or the start is not before the end.
    """
    if end is None:
        return span_of(str(start))
    first, last = (time_of(one) if isinstance(one, str) else one for one in (start, end))
    if first >= last:
        raise ValueError(f"'within' starts at {first}, which is not before its end {last}")
    return first, last


def times_of(vector: Vector, count: int) -> tuple[Longs, dict[int, str]]:
    """The times of ``aggregate by``: int64[count], and by row why it has none."""
    vector = vector.spread(count)
    failed: dict[int, str] = {}
    if isinstance(vector.values, np.ndarray):
        times = np.ascontiguousarray(vector.values, dtype=np.int64)
        for row in np.flatnonzero(vector.null_mask).tolist() if vector.nulls is not None else ():
            failed[row] = "'aggregate by' is null"
        return times, failed
    times = np.zeros(count, dtype=np.int64)
    encoded = vector.values.dictionary_encode()
    results: list[int | str | None] = []
    for text in encoded.dictionary.to_pylist():
        try:
            results.append(time_of(text))
        except ValueError as error:
            results.append(f"'aggregate by': {error}")
    for row, code in enumerate(encoded.indices.to_pylist()):
        result = "'aggregate by' is null" if code is None else results[code]
        if isinstance(result, str):
            failed[row] = result
        else:
            assert result is not None
            times[row] = result
    return times, failed


def bucket_starts(times_ms: Longs, duration: TimeUnit, zone: str | None = None) -> Longs:
    """int64[n], the start of the bucket of each time; ``zone``: a zone's id, None for UTC."""
    if zone is None or duration in (TimeUnit.SECOND, TimeUnit.MINUTE):
        return _floor(times_ms, duration)
    local = times_ms + _offsets(times_ms, zone)
    starts = _floor(local, duration)
    if duration is TimeUnit.HOUR:
        return times_ms - (local - starts)
    unique_starts, where = np.unique(starts, return_inverse=True)
    utc = np.array([_to_utc(start, zone) for start in unique_starts.tolist()], dtype=np.int64)
    return utc[where]


def _floor(times_ms: Longs, duration: TimeUnit) -> Longs:
    unit = _CALENDAR.get(duration)
    if unit is None:
        # NumPy divides by a constant several times faster than it finds a remainder.
        return times_ms // UNIT_MS[duration] * UNIT_MS[duration]
    starts = times_ms.astype("datetime64[ms]").astype(f"datetime64[{unit}]")
    return starts.astype("datetime64[ms]").astype(np.int64)


def _offsets(times_ms: Longs, zone: str) -> Longs:
    """int64[n], how far the zone's clocks are ahead of UTC, milliseconds."""
    if not len(times_ms):
        return times_ms
    steps = times_ms // _STEP_MS
    if steps.min() == steps.max():
        return np.full(len(steps), _offset(int(steps[0]), zone), dtype=np.int64)
    unique_steps, where = np.unique(steps, return_inverse=True)
    offsets = np.array([_offset(step, zone) for step in unique_steps.tolist()], dtype=np.int64)
    return offsets[where]


@cache
def _bucket_zone(zone: str) -> ZoneInfo:
    return ZoneInfo(zone)


@lru_cache(maxsize=65_536)
def _offset(step: int, zone: str) -> int:
    at_ms = min(max(step * _STEP_MS, _FIRST_MS), _LAST_MS)
    time = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=at_ms)
    offset = time.astimezone(_bucket_zone(zone)).utcoffset()
    assert offset is not None, "a zone has an offset at any time"
    return int(offset.total_seconds()) * 1000


def _to_utc(local_ms: int, zone: str) -> int:
    """The first time at which the zone's clocks show ``local_ms``."""
    if not _FIRST_MS <= local_ms <= _LAST_MS:
        return local_ms - _offset(local_ms // _STEP_MS, zone)
    wall = datetime(1970, 1, 1, tzinfo=_bucket_zone(zone)) + timedelta(milliseconds=local_ms)
    offset = wall.utcoffset()
    assert offset is not None, "a zone has an offset at any time"
    return local_ms - int(offset.total_seconds()) * 1000
