"""Texts of times and spans that aggregations are asked by."""

from __future__ import annotations

import pytest

from mesh.operators.aggregations.times import span_of, time_of

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
