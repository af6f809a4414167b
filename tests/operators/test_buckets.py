"""Buckets of aggregations: where they begin."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from mesh.language.syntax import TimeUnit
from mesh.operators.aggregations.buckets import bucket_starts
from mesh.operators.aggregations.times import time_of


@pytest.mark.parametrize(
    "text", ["2019-10-07 10:20:30", "1969-12-31 23:59:59", "2020-02-29 00:00:00"]
)
def test_buckets_begin_where_the_calendar_says(text: str) -> None:
    time = datetime.fromisoformat(text).replace(tzinfo=UTC)
    at = np.array([time_of(text) + 123], dtype=np.int64)
    fields: list[tuple[TimeUnit, dict[str, Any]]] = [
        (TimeUnit.SECOND, {}),
        (TimeUnit.MINUTE, {"second": 0}),
        (TimeUnit.HOUR, {"minute": 0, "second": 0}),
        (TimeUnit.DAY, {"hour": 0, "minute": 0, "second": 0}),
        (TimeUnit.MONTH, {"day": 1, "hour": 0, "minute": 0, "second": 0}),
        (TimeUnit.YEAR, {"month": 1, "day": 1, "hour": 0, "minute": 0, "second": 0}),
    ]
    for duration, changed in fields:
        expected = round(time.replace(**changed).timestamp() * 1000)
        assert bucket_starts(at, duration).tolist() == [expected], duration


def test_buckets_of_a_time_zone_begin_at_its_midnight() -> None:
    at = np.array([time_of("2021-03-28 12:00:00"), time_of("2021-10-31 01:30:00")])
    days = bucket_starts(at, TimeUnit.DAY, "Europe/Berlin").tolist()
    assert days == [time_of("2021-03-28 00:00:00 +01:00"), time_of("2021-10-31 00:00:00 +02:00")]
    # The clocks show half past two twice; each hour is a bucket of its own.
    both = np.array([time_of("2021-10-31 00:30:00"), time_of("2021-10-31 01:30:00")])
    hours = bucket_starts(both, TimeUnit.HOUR, "Europe/Berlin").tolist()
    assert hours == [time_of("2021-10-31 00:00:00"), time_of("2021-10-31 01:00:00")]
    half = bucket_starts(at, TimeUnit.HOUR, "Asia/Kolkata").tolist()
    assert half == [time_of("2021-03-28 11:30:00"), time_of("2021-10-31 01:30:00")]
