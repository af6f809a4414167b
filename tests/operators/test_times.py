"""Texts of times and spans that aggregations are asked by."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from mesh.language.syntax import TimeUnit
from mesh.operators.aggregations.times import bucket_starts, span_of, time_of

SPANS = {
    "2019-**-** **:**:**": ("2019-01-01 00:00:00", "2020-01-01 00:00:00"),
    "2019-12-** **:**:**": ("2019-12-01 00:00:00", "2020-01-01 00:00:00"),
    "2020-02-** **:**:** +05:30": ("2020-02-01 00:00:00 +05:30", "2020-03-01 00:00:00 +05:30"),
    "2019-10-07 **:**:**": ("2019-10-07 00:00:00", "2019-10-08 00:00:00"),
    "2019-10-07 23:**:**": ("2019-10-07 23:00:00", "2019-10-08 00:00:00"),
    "2019-10-07 10:20:**": ("2019-10-07 10:20:00", "2019-10-07 10:21:00"),
    " 2019-10-07 10:20:30 ": ("2019-10-07 10:20:30", "2019-10-07 10:20:31"),
}


@pytest.mark.parametrize("text", SPANS)
def test_a_text_with_stars_is_a_span(text: str) -> None:
    start, end = SPANS[text]
    assert span_of(text) == (time_of(start), time_of(end))


@pytest.mark.parametrize(
    "text",
    ["2019-**-07 **:**:**", "2019-10-07 **:20:**", "2019", "2019-02-30 **:**:**", "****-**-**", ""],
)
def test_other_texts_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="within"):
        span_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "2019-10-07T10:00:00",
        "2019-10-07 10:00:00.5",
        "2019-10-07 10:00:00+05:30",
        "2019-13-01 00:00:00",
    ],
)
def test_what_is_no_time_is_said_to_be_none(text: str) -> None:
    with pytest.raises(ValueError, match="is no time"):
        time_of(text)


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
