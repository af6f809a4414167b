"""Durations of aggregations: seconds, minutes, .. years, and their names in texts."""

from __future__ import annotations

import re
from typing import Final

from mesh.language.syntax import TimeUnit

#: From short to long.
DURATIONS: Final = (
    TimeUnit.SECOND,
    TimeUnit.MINUTE,
    TimeUnit.HOUR,
    TimeUnit.DAY,
    TimeUnit.MONTH,
    TimeUnit.YEAR,
)

_NAMED: Final = re.compile(
    r"(sec|seconds?|min|minutes?|h|hours?|days?|months?|years?)\Z", re.IGNORECASE
)


def duration_of(text: str) -> TimeUnit | None:
    """The duration that a text names, ``day``, ``DAYS``; None if it names none."""
    if not _NAMED.match(text):
        return None
    if text.lower() == "h":
        return TimeUnit.HOUR
    return next(unit for unit in DURATIONS if text.lower().startswith(unit))
