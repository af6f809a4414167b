"""Calendar buckets: the start of the second, minute, .. year that holds a time.

Times are milliseconds since 1970, UTC, also before 1970: a bucket's start is never after its times.
In a time zone hours and longer buckets begin where its clocks show a whole hour, midnight and so
on.  An hour that the clocks repeat is two buckets.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

import numpy as np

from mesh.language.syntax import TimeUnit
from mesh.language.syntax.expressions import UNIT_MS

if TYPE_CHECKING:
    from mesh.operators.base import Longs

#: Units of NumPy for the buckets that have no fixed length.
_CALENDAR: Final = {TimeUnit.MONTH: "M", TimeUnit.YEAR: "Y"}
#: Offsets of time zones change at whole multiples of this.
_STEP_MS: Final = 900_000
#: Times with a year that Python's calendar has, with a day to spare.
_FIRST_MS: Final = -62_135_510_400_000
_LAST_MS: Final = 253_402_214_400_000


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
def _zone(zone: str) -> ZoneInfo:
    return ZoneInfo(zone)


@lru_cache(maxsize=65_536)
def _offset(step: int, zone: str) -> int:
    at_ms = min(max(step * _STEP_MS, _FIRST_MS), _LAST_MS)
    time = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=at_ms)
    offset = time.astimezone(_zone(zone)).utcoffset()
    assert offset is not None, "a zone has an offset at any time"
    return int(offset.total_seconds()) * 1000


def _to_utc(local_ms: int, zone: str) -> int:
    """The first time at which the zone's clocks show ``local_ms``."""
    if not _FIRST_MS <= local_ms <= _LAST_MS:
        return local_ms - _offset(local_ms // _STEP_MS, zone)
    wall = datetime(1970, 1, 1, tzinfo=_zone(zone)) + timedelta(milliseconds=local_ms)
    offset = wall.utcoffset()
    assert offset is not None, "a zone has an offset at any time"
    return local_ms - int(offset.total_seconds()) * 1000
