"""Samples of apps, groups and nodes, and percentiles of a step."""

from __future__ import annotations

import pytest

from mesh.manager.rates import Rates
from mesh.manager.telemetry import STORED, Telemetry, samples, thinned
from mesh.model.cluster import StatisticsLevel
from mesh.settings import ManagerSettings
from tests.support.telemetry import Moment, flow_row, report, snapshot


def test_samples_are_of_apps_groups_and_nodes() -> None:
    rates = Rates()
    both = (report(1.0, 5), report(1.0, 7, instance="Shop-one-2"))
    later = (report(2.0, 15, behind=3), report(2.0, 9, instance="Shop-one-2"))
    rates.update(snapshot(*both))
    seen = snapshot(*later, now_s=1.0)
    rates.update(seen)
    found = samples(seen, rates)
    assert found["group", "Shop/one"][:4] == (12.0, 0.0, 0.0, 3.0)
    assert found["app", "Shop"] == found["group", "Shop/one"] == found["cluster", "all"]
    # Each instance of several; one that is alone is its group.
    assert found["instance", "Shop-one-2"][:4] == (2.0, 0.0, 0.0, 0.0)
    assert found["node", "worker/w1"][0] == 0.5
    assert all(len(row) == len(STORED[kind]) for (kind, _), row in found.items())
    off = samples(snapshot(*later, statistics=StatisticsLevel.OFF), rates)
    assert set(off) == {("node", "worker/w1")}


async def test_a_week_is_thinned_and_percentiles_are_of_all_events_of_a_step() -> None:
    clock = Moment()
    telemetry = Telemetry(None, clock, ManagerSettings())  # type: ignore[arg-type]
    seconds, minutes, tens = telemetry.tiers
    now_s = clock.now_ms // 1000
    key = ("app", "Shop")
    # Each minute has 59 quick seconds and one with as many slow events as all the others.
    for at_s in range(now_s - 3600, now_s):
        is_slow = at_s % 60 == 0
        seconds.add(at_s, {key: flow_row(2.0, fast=0.0 if is_slow else 1.0, slow=59.0 * is_slow)})
    minute_s = now_s - 120
    rows = await thinned(seconds, minute_s, 60)
    assert set(rows) == {key}
    assert rows[key][0] == 2.0
    minutes.add(minute_s - 7200, {key: flow_row(5.0, fast=1.0)})
    tens.add(now_s - 2 * 86_400, {key: flow_row(7.0, slow=1.0)})
    hour = await telemetry.past("app", "Shop", 3600, 60)
    assert (hour.step_s, hour.values["events_in"][5]) == (60, 2.0)
    # Half of the events were quick, half slow: the median is the boundary, not a mean of medians.
    assert hour.values["latency_p50_s"][5] == pytest.approx(0.001, rel=0.05)
    assert hour.values["latency_p99_s"][5] == pytest.approx(0.99, rel=0.05)
    day = await telemetry.past("app", "Shop", 86_400, 60)
    place = (minute_s - 7200 - day.start_ms // 1000) // 60
    assert (day.step_s, day.values["events_in"][place], day.values["events_in"][-1]) == (60, 5, 2)
    assert day.values["events_in"][0] is None
    week = await telemetry.past("app", "Shop", 7 * 86_400, 1)
    assert (week.step_s, {v for v in week.values["events_in"] if v}) == (600, {2.0, 5.0, 7.0})
    # A time that was: its end is not now, and its steps are as long as what is kept of it.
    then = await telemetry.past("app", "Shop", 1200, 10, now_s - 2 * 86_400 + 1200)
    assert (then.step_s, then.values["events_in"]) == (600, [7.0, None])
    assert (await telemetry.past_of_apps(["Shop", "None"], 600, 10)).values == (  # type: ignore[union-attr]
        await telemetry.past("app", "Shop", 600, 10)
    ).values
    assert await telemetry.past_of_apps(["None"], 600, 10) is None
