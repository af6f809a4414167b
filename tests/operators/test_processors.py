"""Stream functions with a state: what they emit, cut anywhere and restored anywhere."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.processors import STEP, pieces_of
from tests.support.recorder import Step, at_once, log_of


@pytest.mark.parametrize(
    "text",
    [
        (
            "from S select k, s, convert(v, 'long') as t, v insert into M; "
            "from M#reorder:akslack(t, v, 15L, 9L, 4L, true, 0.1, 0.9) select s, t as c, 'x' as e "
            "insert into O;"
        ),
        "from S#priority:time(s, k, 7) select s, currentPriority as c, 'x' as e insert into O;",
        (
            "from S#extrema:kernelMinMax(v, 1, 5, 'minmax') select s, k as c, extremaType as e "
            "insert into O;"
        ),
        (
            "from S#timeseries:kalmanMinMax(v, 0.1, 0.1, 21, 'max') select s, k as c, "
            "extremaType as e insert into O;"
        ),
    ],
)
@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEP, max_size=40), data=st.data())
def test_those_that_keep_events_are_cut_and_restored_anywhere(
    text: str, steps: list[Step], data: Any
) -> None:
    assert pieces_of(text, steps, data) == at_once(text, log_of(steps, ("S",)))


def test_a_measurement_of_the_original_lets_the_events_pass() -> None:
    steps: list[Step] = [("S", 1, n, 0.5, "a") for n in range(3)]
    text = "from S#throughput:throughput(k, 3000, 'both', 6) select k insert into O;"
    assert [row for *_, row in at_once(text, log_of(steps, ("S",)))] == ["[0]", "[1]", "[2]"]
