"""Charts: gaps where nothing is known, and the time of the address."""

from __future__ import annotations

import pytest
from starlette.datastructures import QueryParams

from mesh.dashboard.charts import LONGEST_S, chart, chart_time
from mesh.dashboard.shown import NOTHING, number

pytestmark = pytest.mark.nats


def test_a_chart_has_gaps_where_nothing_is_known() -> None:
    lines: dict[str, list[float | None]] = {
        "a": [None, 1.0, 2.0, None, 4.0],
        "b": [8.0] + 4 * [None],
    }
    made = chart("In", "", 0, 10, {"": lines["a"]}, number)
    assert made.lines == ["M75.0 35.0L150.0 24.0M300.0 2.0"]
    assert (made.most, made.last) == ("4", "4")
    assert made.rows[0] == (40_000, ["4"])
    assert chart("In", "", 0, 10, {"": [None, None]}, number).lines == [""]
    both = chart("In", "", 0, 10, lines, number)
    assert (both.most, both.last, both.labels) == ("8", "4, 8", ("a", "b"))
    assert both.rows[-1] == (0, [NOTHING, "8"])


def test_the_time_of_charts_is_that_of_the_address() -> None:
    now_s = 1_800_000_000
    quarter = chart_time(QueryParams("span=no"), now_s)
    assert (quarter.span, quarter.seconds, quarter.until_s) == ("15", 900, None)
    assert [name for name, _ in quarter.links] == ["Earlier", "Zoom in", "Zoom out"]
    then = chart_time(QueryParams(f"from={now_s - 7200}&to={now_s - 3600}"), now_s)
    assert (then.span, then.seconds, then.step_s, then.until_s) == ("", 3600, 24, now_s - 3600)
    assert dict(then.links) == {
        "Earlier": f"from={now_s - 9000}&to={now_s - 5400}",
        "Later": f"from={now_s - 5400}&to={now_s - 1800}",
        "Zoom in": f"from={now_s - 6300}&to={now_s - 4500}",
        "Zoom out": f"from={now_s - 9000}&to={now_s - 1800}",
    }
    # Whatever an address says, it is a time of the last week that has begun.
    for begin, end in ((0, 60), (now_s, now_s + 999), (now_s - 5, now_s - 4), (0, 10**10)):
        found = chart_time(QueryParams(f"from={begin}&to={end}"), now_s)
        assert found.until_s is not None
        assert now_s - LONGEST_S <= found.until_s - found.seconds
        assert 60 <= found.seconds <= LONGEST_S
        assert found.until_s <= now_s
    assert chart_time(QueryParams("from=9&to=1"), now_s).span == "15"
