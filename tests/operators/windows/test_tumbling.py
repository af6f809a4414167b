"""``hopping``: the engine's ``timeBatch`` where hops don't overlap, else the events of a span."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support import windows_driver as driver
from tests.support.paths import CASES
from tests.support.recorder import Step, at_once, log_of

SPANS = {(30, 10), (30, 20), (20, 50), (1000, 250)}
ENGINE = driver.read(CASES / "windows" / "timeBatch.jsonl")
OURS = driver.read(CASES / "windows" / "extensions" / "hopping.jsonl")


def test_hops_as_long_as_the_window_are_time_batch_of_the_engine() -> None:
    plain = [one for one in ENGINE if one.arguments[1:] in ([], [False])]
    wrong = [
        case.app
        for case in plain
        if driver.run(replace(case, window="hopping", arguments=case.arguments[:1] * 2))
        != case.calls
    ]
    assert len(plain) == 8
    assert wrong == []


def batches(steps: list[dict[str, Any]], span_ms: int, hop_ms: int) -> list[list[int]]:
    """The numbers of the events of each batch that is not empty, by definition."""
    arrived = [one.clock_ms for one in driver.sent(steps) for _ in one.events]
    end = list(driver.sent(steps))[-1].clock_ms
    ends = range(arrived[0] + hop_ms, end + 1, hop_ms) if arrived else range(0)
    found = [[n for n, at in enumerate(arrived) if e - span_ms <= at < e] for e in ends]
    return [batch for batch in found if batch]


@pytest.mark.parametrize(("span_ms", "hop_ms"), sorted(SPANS))
def test_a_batch_has_the_events_of_the_last_span(span_ms: int, hop_ms: int) -> None:
    compared = 0
    for case in OURS:
        steps, number = [], 0
        for step in case.steps:
            if "advance_ms" in step:
                steps.append(step)
                continue
            for k, _, d, t in (
                [row for _, row in step["events"]] if "events" in step else [step["data"]]
            ):
                steps.append({"data": [k, number, d, t], "ts": None})
                number += 1
        calls = driver.run(driver.Case("hopping", [span_ms, hop_ms], steps, []))
        current = [[row[1] for _, row in events] for events, _ in calls if events]
        assert current == batches(steps, span_ms, hop_ms), case.app
        # Each batch expires as a whole, when the next hop ends.
        expired = [[row[1] for _, row in events] for _, events in calls if events]
        assert expired == current[: len(expired)]
        assert len(current) - len(expired) in (0, 1)
        compared += len(current)
    assert compared > 10


def test_a_sum_is_of_its_batch_alone() -> None:
    text = """from S#window.hopping(30 millisec, 10 millisec)
    select sum(k) as t, count() as n insert into O;"""
    events: list[Step] = [("S", 0, 1, 0.0, ""), ("S", 4, 2, 0.0, ""), ("S", 8, 4, 0.0, "")]
    events += [("S", 23, 8, 0.0, ""), ("S", 7, 0, 0.0, "")]
    found = [row for _, _, _, row in at_once(text, log_of(events, ("S",)))]
    # The ends are at 10, 20 .. 70 ms; the last events are of 35 and 42 ms.
    assert found == [
        "[3, 2]", "[7, 3]", "[7, 3]", "[12, 2]", "[8, 2]", "[8, 2]", "[0, 1]",
    ]  # fmt: skip
