"""Exact texts of dates, times and spans: that of the column is the same value, or there is none."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.model.column_texts import date_form, interval_form, time_form, timestamp_form
from mesh.model.column_types import ColumnType, Kind, NoFormError
from mesh.model.stored import Backend

PG, MY = Backend.POSTGRESQL, Backend.MYSQL
DATE = ColumnType(PG, "date", Kind.DATE)
TIME = ColumnType(PG, "time", Kind.TIME)
TIMETZ = ColumnType(PG, "timetz", Kind.TIMETZ)
STAMP = ColumnType(PG, "timestamp(3)", Kind.TIMESTAMP, 3)
STAMPTZ = ColumnType(PG, "timestamptz", Kind.TIMESTAMPTZ)
MY_STAMP = ColumnType(MY, "timestamp(3)", Kind.TIMESTAMPTZ, 3)
MY_TIME = ColumnType(MY, "time(2)", Kind.TIME, 2)
MY_DATE = ColumnType(MY, "date", Kind.DATE)
INTERVAL = ColumnType(PG, "interval", Kind.INTERVAL)


@pytest.mark.parametrize(
    ("column", "text", "form"),
    [
        (STAMP, "2026-01-02 03:04:05.120", "2026-01-02 03:04:05.12"),
        (STAMP, "2026-01-02T03:04:05", "2026-01-02 03:04:05"),
        (STAMP, "infinity", "infinity"),
        (STAMP, "0044-03-15 12:00:00 BC", "0044-03-15 12:00:00 BC"),
        (STAMPTZ, "2026-01-02 03:04:05+02", "2026-01-02 01:04:05+00"),
        (STAMPTZ, "2026-01-02 03:04:05.5-0530", "2026-01-02 08:34:05.5+00"),
        (STAMPTZ, "2026-01-02 03:04:05Z", "2026-01-02 03:04:05+00"),
        (STAMPTZ, "12026-01-02 03:04:05Z", "12026-01-02 03:04:05+00"),
        (MY_STAMP, "2026-01-02 03:04:05+02:00", "2026-01-02 01:04:05.000"),
        (MY_STAMP, "2026-01-02 03:04:05.1", "2026-01-02 03:04:05.100"),
    ],
)
def test_a_time_is_shown_as_its_column_has_it(column: ColumnType, text: str, form: str) -> None:
    assert timestamp_form(column, text) == form


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (STAMP, "2026-01-02 03:04:05.1234"),
        (STAMP, "2026-01-02 03:04:05+00"),
        (STAMP, "2026-02-30 03:04:05"),
        (STAMP, "2026-01-02 25:04:05"),
        (STAMP, "2026-01-02"),
        (STAMPTZ, "2026-01-02 03:04:05"),
        (STAMPTZ, "12026-01-02 03:04:05+01"),
        (MY_STAMP, "2038-01-19 03:14:08"),
        (MY_STAMP, "1970-01-01 00:00:00"),
        (MY_STAMP, "infinity"),
        (MY_STAMP, "0044-03-15 12:00:00 BC"),
    ],
)
def test_a_time_that_a_column_can_not_have_has_no_form(column: ColumnType, text: str) -> None:
    with pytest.raises((NoFormError, ValueError)):
        timestamp_form(column, text)


@given(
    st.datetimes(),
    st.integers(-14 * 60, 14 * 60),
)
def test_a_zone_moves_a_time_to_utc(at: datetime.datetime, minutes: int) -> None:
    at = at.replace(year=min(max(at.year, 2), 9998))
    zone = datetime.timezone(datetime.timedelta(minutes=minutes))
    text = at.replace(tzinfo=zone).isoformat(" ")
    found = timestamp_form(STAMPTZ, text)
    utc = datetime.datetime.fromisoformat(found)
    assert utc == at.replace(tzinfo=zone)
    assert timestamp_form(STAMPTZ, found) == found


@pytest.mark.parametrize(
    ("column", "text", "form"),
    [
        (TIME, "24:00:00", "24:00:00"),
        (TIME, "01:02:03.500000", "01:02:03.5"),
        (TIMETZ, "01:02:03Z", "01:02:03+00"),
        (TIMETZ, "01:02:03-00:00", "01:02:03+00"),
        (TIMETZ, "01:02:03+0530", "01:02:03+05:30"),
        (MY_TIME, "-838:59:59", "-838:59:59.00"),
        (MY_TIME, "01:02:03.5", "01:02:03.50"),
    ],
)
def test_times_of_day_and_hours(column: ColumnType, text: str, form: str) -> None:
    assert time_form(column, text) == form


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (TIME, "24:00:00.1"), (TIME, "24:00:01"), (TIME, "01:02:03Z"), (TIMETZ, "01:02:03"),
        (MY_TIME, "839:00:00"), (MY_TIME, "01:60:00"), (MY_TIME, "01:02:03.123"),
    ],
)  # fmt: skip
def test_no_times_of_day(column: ColumnType, text: str) -> None:
    with pytest.raises((NoFormError, ValueError)):
        time_form(column, text)


def test_dates_follow_the_calendar_of_their_year() -> None:
    # 1 BC is the year 0, which has a 29th of February, and 5 BC the year -4.
    for text in ("2024-02-29", "0001-02-29 BC", "0005-02-29 BC", "12024-02-29", "-infinity"):
        assert date_form(DATE, text) == text
    for text in ("2023-02-29", "0002-02-29 BC", "12023-02-29", "24-02-29", "today"):
        with pytest.raises((NoFormError, ValueError)):
            date_form(DATE, text)
    for text in ("12024-02-28", "0001-02-28 BC", "infinity"):
        with pytest.raises(NoFormError):
            date_form(MY_DATE, text)


@pytest.mark.parametrize(
    "text", ["1 year", "1 year 2 mons -3 days", "-04:05:06.7", "2 days 100:00:00"]
)
def test_spans_as_postgresql_shows_them(text: str) -> None:
    assert interval_form(INTERVAL, text) == text


@pytest.mark.parametrize("text", ["", "1 week", "1 day 2 years", "04:05", "1:2:3"])
def test_no_spans(text: str) -> None:
    with pytest.raises(NoFormError):
        interval_form(INTERVAL, text)
