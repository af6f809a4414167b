"""Start positions as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.errors import MeshError
from mesh.model.begin import StartPosition, StartPositionKind, parse_start_position


def test_words_and_sequences() -> None:
    assert parse_start_position("earliest").kind is StartPositionKind.EARLIEST
    assert parse_start_position("latest").kind is StartPositionKind.LATEST
    assert parse_start_position("007") == StartPosition(StartPositionKind.SEQUENCE, sequence=7)
    assert str(parse_start_position("12")) == "sequence 12"
    assert str(parse_start_position("latest")) == "latest"


@pytest.mark.parametrize(
    "text",
    [
        "", "0", "-1", "1.5", "1" * 19, "Earliest", " latest", "٣", "now",
        "2026-11-21T20:00:00", "2026-11-31T20:00:00Z", "9999-12-31T23:59:59-01:00",
        "0001-01-01T00:00:00+01:00",
    ],
)  # fmt: skip
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(MeshError, match="is no start position") as refusal:
        parse_start_position(text)
    assert refusal.value.code == "MESH-A400"


@given(
    at=st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31)),  # noqa: DTZ001 - the zone is added
    minutes=st.integers(-14 * 60, 14 * 60),
)
def test_a_time_of_any_zone_is_one_moment(at: datetime, minutes: int) -> None:
    moment = at.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    found = parse_start_position(moment.isoformat())
    assert found.kind is StartPositionKind.TIME
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    assert abs(found.time_ms - since / timedelta(milliseconds=1)) <= 1
    # What is shown of it is read as the same moment.
    assert parse_start_position(str(found)).time_ms == found.time_ms
