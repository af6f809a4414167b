"""``extrema:maxByLength`` and its like, against what the engine's windows hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.operators.windows.test_unique import held, numbered
from tests.support import windows_driver as driver
from tests.support.paths import CASES

DIRECTORY = CASES / "windows"
#: Few values, so that some are equal; rows are told apart by their numbers, ``v``.
ATTRIBUTE = 2


def cases(engine: str) -> list[driver.Case]:
    """Cases of the engine's window whose first argument is not 0, without switches."""
    found = driver.read(DIRECTORY / f"{engine}.jsonl")
    plain = [
        case
        for case in found
        if case.arguments[0] not in (0, {"long": 0})
        and not any(isinstance(one, bool) for one in case.arguments)
        and len(case.arguments) < 3
    ]
    return [replace(case, steps=numbered(case.steps)) for case in plain]


def single(case: driver.Case) -> driver.Case:
    """Without events that are sent at once: those are one call of the engine."""
    return replace(case, steps=[step for step in case.steps if "events" not in step])


def extreme(rows: list[list[Any]], name: str) -> list[Any]:
    """The row with the extreme value; of equal ones the latest, which has the highest number."""
    sign = 1 if name.startswith("extrema:max") else -1
    return max(rows, key=lambda row: (sign * row[ATTRIBUTE], row[1]))


@pytest.mark.parametrize("name", ["extrema:maxByLength", "extrema:minByLength"])
def test_each_event_gives_the_extreme_one_of_the_last(name: str) -> None:
    compared = 0
    for case in map(single, cases("length")):
        expected = [extreme(rows, name) for rows in held(driver.run(case))]
        found = driver.run(replace(case, window=name, arguments=[["d"], *case.arguments]))
        assert [current[0][1] for current, _ in found] == expected, case.app
        # Expired: the event that was emitted before, where that is another one.
        gone = [expired[0][1] if expired else None for _, expired in found]
        pairs = zip([None, *expected], expected, strict=False)
        assert gone == [old if old not in (None, new) else None for old, new in pairs]
        compared += len(expected)
    assert compared > 40


@pytest.mark.parametrize("name", ["extrema:maxByTime", "extrema:minByTime"])
def test_an_event_that_changes_the_extreme_one_of_a_time_gives_it(name: str) -> None:
    compared = 0
    for case in map(single, cases("time")):
        calls, last, expected = driver.run(case), None, []
        for (current, _), rows in zip(calls, held(calls), strict=True):
            if current and extreme(rows, name) != last:
                last = extreme(rows, name)
                expected.append(last)
        found = driver.run(replace(case, window=name, arguments=[["d"], *case.arguments]))
        assert [row for current, _ in found for _, row in current] == expected, case.app
        shown = [row for current, _ in found for _, row in current]
        assert all(row in shown for _, expired in found for _, row in expired)
        compared += len(expected)
    assert compared > 20


@pytest.mark.parametrize("side", ["max", "min"])
@pytest.mark.parametrize("engine", ["lengthBatch", "timeBatch"])
def test_each_batch_gives_its_extreme_event_and_takes_the_last_one_away(
    engine: str, side: str
) -> None:
    name, compared = f"extrema:{side}By{engine[0].upper()}{engine[1:]}", 0
    for case in cases(engine):
        calls = driver.run(case)
        batches = [[row for _, row in current] for current, _ in calls if current]
        found = driver.run(replace(case, window=name, arguments=[["d"], *case.arguments]))
        expected = [extreme(rows, name) for rows in batches]
        assert [row for current, _ in found for _, row in current] == expected, case.app
        gone = [row for _, expired in found for _, row in expired]
        assert gone == expected[: len(gone)]
        assert len(gone) >= len(expected) - 1
        compared += len(expected)
    assert compared > 20
