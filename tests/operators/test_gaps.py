"""Gaps of time between events: what emits in each period stops within them, and continues after."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.operators import executor, gaps
from mesh.operators.executor import Executor, InputRun
from mesh.plan.bind.apps import bind_group
from mesh.plan.build import plan
from tools.cases import batch, values

YEAR_MS: Final = 365 * 86_400_000
SNAPSHOT: Final = "from S select k, count() as n output snapshot every 1 sec insert into T;"
KEPT: Final = (
    "from S#window.length(3) select k, count() as n group by k output snapshot every 1 sec "
    "insert into T;"
)
ABSENCE: Final = "from every not S[k == 'x'] for 1 sec select 'none' as k insert into T;"
FOLLOWED: Final = (
    "from every not S[k == 'x'] for 1 sec -> b=S[k == 'b'] select b.k as k insert into T;"
)
BOTH: Final = (
    "from every not S[k == 'x'] for 1 sec and not S[k == 'y'] for 2 sec "
    "select 'none' as k insert into T;"
)
BY_KEY: Final = "partition with (k of S) begin {} end;"
#: With an expiry, which takes place in a gap as ever.
EXPIRY: Final = (
    "from S#window.time(1 hour) select k output snapshot every 1 sec insert into T; "
    "from S#window.time(5 days) select k insert expired events into T;"
)
APPS: Final = {
    "snapshot": SNAPSHOT, "kept": KEPT, "absence": ABSENCE, "followed": FOLLOWED, "both": BOTH,
    "snapshot by key": BY_KEY.format(SNAPSHOT), "absence by key": BY_KEY.format(ABSENCE),
}  # fmt: skip


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gaps of 32 periods or 20 rows are long."""
    for name, value in {"PERIODS_FIRST": 4, "PERIODS_MAX": 32, "ROWS_MAX": 20}.items():
        monkeypatch.setattr(gaps, name, value)
        if hasattr(executor, name):
            monkeypatch.setattr(executor, name, value)


def made(text: str) -> tuple[Executor, Any]:
    played = "@app:playback" if text.startswith("@app:playback") else ""
    text = text.removeprefix("@app:playback")
    spec = plan(f"@App:name('A') {played} define stream S (k string); {text}").spec
    (group,) = spec.groups
    app = bind_group(group)
    return Executor(app, ["T"]), app.stream("S")


def run(
    text: str, events: list[tuple[int, str]], end_ms: int, step_ms: int = 0, *, jumps: bool = True
) -> list[Any]:
    """The output in T; time passes in steps, or with 0 at once."""
    running, schema = made(text)
    found: list[Any] = []

    def take(part: list[tuple[int, str]], first: int, now_ms: int) -> None:
        times = np.array([time_ms for time_ms, _ in part], dtype=np.int64)
        inputs = []
        if part:
            numbers = np.arange(first, first + len(part))
            inputs = [InputRun("S", numbers, times, batch(schema, [[key] for _, key in part]))]
        for out in running.run(inputs, {"S": now_ms}, is_by_events=jumps):
            found.extend(zip(out.time_ms.tolist(), values(out.rows), strict=True))

    if not step_ms:
        take(events, 1, end_ms)
        return found
    now_ms = 0
    for number, (time_ms, key) in enumerate(events, 1):
        while now_ms and now_ms + step_ms < time_ms:
            now_ms += step_ms
            take([], number, now_ms)
        now_ms = time_ms
        take([(time_ms, key)], number, now_ms)
        # A state that is stored in between has the gap.
        state = running.snapshot()
        running, schema = made(text)
        running.restore(state)
    while now_ms < end_ms:
        now_ms = min(now_ms + step_ms, end_ms)
        take([], len(events) + 1, now_ms)
    return found


EVENTS: Final = st.lists(
    st.tuples(st.sampled_from([1, 300, 1000, 5500, 40_001]), st.sampled_from("abx")),
    min_size=1,
    max_size=4,
)


def timed(drawn: list[tuple[int, str]]) -> list[tuple[int, str]]:
    times = 1_000 + np.cumsum([gap for gap, _ in drawn])
    return list(zip(times.tolist(), [key for _, key in drawn], strict=True))


@pytest.mark.parametrize("name", APPS)
@pytest.mark.usefixtures("short")
@settings(max_examples=3)
@given(EVENTS, st.sampled_from([0, 900, 30_000]))
def test_rows_in_a_gap_do_not_depend_on_the_steps_of_time(
    name: str, drawn: list[tuple[int, str]], last_ms: int
) -> None:
    events = timed(drawn)
    end_ms = events[-1][0] + last_ms
    whole = run(APPS[name], events, end_ms)
    assert whole == run(APPS[name], events, end_ms, 2_350)


@pytest.mark.parametrize("name", APPS)
@settings(max_examples=3)
@given(EVENTS)
def test_short_gaps_are_as_ever(name: str, drawn: list[tuple[int, str]]) -> None:
    events = timed(drawn)
    end_ms = events[-1][0] + 9_000
    assert run(APPS[name], events, end_ms) == run(APPS[name], events, end_ms, jumps=False)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["snapshot", "absence", "absence by key"])
def test_a_year_between_two_events_makes_few_rows(name: str) -> None:
    events = [(1_000, "a"), (1_500, "b"), (YEAR_MS + 700, "a"), (YEAR_MS + 900, "b")]
    found = run(APPS[name], events, YEAR_MS + 5_000)
    assert len(found) <= 2 * gaps.ROWS_MAX + 2 * gaps.PERIODS_FIRST
    assert len(found) >= gaps.ROWS_MAX // 2
    # Afterwards it emits in each period, at the same times as ever.
    last = [time_ms for time_ms, _ in found if time_ms > YEAR_MS + 1_000]
    near = run(APPS[name], [*events[:2], (60_700, "a"), (60_900, "b")], 65_000)
    assert [time_ms - YEAR_MS for time_ms in last] == [
        time_ms - 60_000 for time_ms, _ in near if time_ms > 61_000
    ]


def test_other_timers_fire_in_a_gap_that_is_passed_over() -> None:
    found = run(EXPIRY, [(1_000, "a"), (YEAR_MS, "b")], YEAR_MS + 10)
    assert len([row for time_ms, row in found if time_ms == 5 * 86_400_000 + 1_000]) == 1


def test_time_of_the_machines_is_never_passed_over() -> None:
    days_ms = 86_400_000 + 20_000_000
    found = run(SNAPSHOT, [(1_000, "a"), (days_ms, "b")], days_ms, jumps=False)
    assert len(found) > days_ms // 1000 - 3


@pytest.mark.parametrize("text", [SNAPSHOT, ABSENCE])
def test_a_year_in_playback_is_passed_over(text: str) -> None:
    text = f"@app:playback {text}"
    events = [(1_000, "a"), (9_500, "b"), (YEAR_MS, "a"), (YEAR_MS + 2_500, "b")]
    found = run(text, events, YEAR_MS + 2_500)
    near = run(text, [*events[:2], (20_000, "a"), (22_500, "b")], 22_500)
    assert 8 < len(found) < len(near) < 40
