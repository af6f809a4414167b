"""Timers of windows that are empty for long: they pass at once, and all others fire as ever."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.operators.executor import Executor, InputRun
from mesh.plan.bind.apps import bind_group
from mesh.plan.build import plan
from tests.support.examples import examples
from tools.cases import batch, values

WINDOWS: Final = [
    "timeBatch(1 sec)", "timeBatch(1 sec, 300)", "timeBatch(1 sec, 0, true)",
    "externalTimeBatch(t, 1 sec, 0, 2 sec)", "externalTimeBatch(t, 1 sec, 0, 700, true)",
]  # fmt: skip
PLAIN: Final = "from S#window.{} select k, count() as n, sum(t) as s insert all events into T;"
BY_KEY: Final = "partition with (k of S) begin " + PLAIN + " end;"
#: Of a window of a second: from within one to thousands of years.
YEARS_MS: Final = 5_000 * 365 * 86_400_000


def executor(text: str) -> tuple[Executor, Any]:
    spec = plan(f"@App:name('A') define stream S (k string, t long); {text}").spec
    app = bind_group(spec.groups[-1])
    return Executor(app, ["T"]), app.stream("S")


def run(text: str, events: list[tuple[int, str]], end_ms: int, step_ms: int) -> list[Any]:
    """The output for events at times; time passes in steps, or with 0 at once."""
    running, schema = executor(text)
    found: list[Any] = []

    def take(inputs: list[InputRun], now_ms: int) -> None:
        for made in running.run(inputs, {"S": now_ms}):
            found.extend(zip(made.time_ms.tolist(), values(made.rows), strict=True))

    def made(some: list[tuple[int, tuple[int, str]]]) -> InputRun:
        times = np.array([time_ms for _, (time_ms, _) in some])
        rows = batch(schema, [[key, time_ms] for _, (time_ms, key) in some])
        return InputRun("S", np.array([number for number, _ in some]), times, rows)

    numbered = list(enumerate(events, 1))
    if not step_ms:
        take([made(numbered)], end_ms)
        return found
    now_ms = 0
    for one in numbered:
        while now_ms + step_ms < one[1][0]:
            now_ms += step_ms
            take([], now_ms)
        now_ms = one[1][0]
        take([made([one])], now_ms)
    while now_ms < end_ms:
        now_ms = min(now_ms + step_ms, end_ms)
        take([], now_ms)
    return found


GAPS: Final = st.integers(0, 1500) | st.sampled_from([4000, 9001, 40_000])


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("query", [PLAIN, BY_KEY])
@settings(max_examples=examples(6))
@given(st.lists(st.tuples(GAPS, st.sampled_from("abc")), min_size=1, max_size=8), GAPS)
def test_time_that_passes_at_once_is_time_that_passes_in_steps(
    query: str, window: str, gaps: list[tuple[int, str]], last_ms: int
) -> None:
    times = 1_000 + np.cumsum([gap for gap, _ in gaps])
    events = list(zip(times.tolist(), [key for _, key in gaps], strict=True))
    end_ms = events[-1][0] + last_ms
    text = query.format(window)
    assert run(text, events, end_ms, 0) == run(text, events, end_ms, 350)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("query", [PLAIN, BY_KEY])
def test_thousands_of_years_without_an_event_take_no_time(query: str, window: str) -> None:
    text = query.format(window)
    events = [(1_000, "a"), (1_500, "b"), (YEARS_MS, "a"), (YEARS_MS + 200, "b")]
    far = run(text, events, YEARS_MS + 5_000, 0)
    assert len(far) == len(run(text, [*events[:2], (61_000, "a"), (61_200, "b")], 66_000, 0))
