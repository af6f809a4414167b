"""Needs of apps at rates, from costs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from mesh.model.cost import GroupCost, StateCost
from mesh.plan.build import plan
from mesh.plan.capacity import capacity, effective, state_bytes

SPEC = plan(
    """@App:name('Shop')
    define stream Orders (k string, v double);
    @dist(execGroup='clean', parallel='2')
    from Orders[v > 1.0] select k, v insert into Clean;
    @dist(execGroup='means', parallel='2')
    partition with (k of Clean) begin
    from Clean#window.length(10) select k, avg(v) as mean insert into Means; end;
    @dist(execGroup='all')
    from Means#window.length(3) select sum(mean) as total insert into Totals;
    """,
    partitions=8,
).spec
CLEAN = GroupCost("clean", "calibrated", 20_000.0, 4e-5, 1e-5, {"Clean": 0.5})
MEANS = GroupCost(
    "means", "calibrated", 500.0, 1e-3, 1e-4, {"Means": 1.0}, messages=0.005, events=0.5,
    state=StateCost(100.0, 1000.0),
)  # fmt: skip
ALL = GroupCost(
    "all", "calibrated", 40_000.0, 2e-5, 5e-6, {"Totals": 1.0}, messages=0.5, events=0.5,
    state=StateCost(0.0, 80.0),
)  # fmt: skip
COSTS = (CLEAN, MEANS, ALL)


def test_each_group_gets_instances_for_its_share_of_the_rate() -> None:
    found = capacity(SPEC, COSTS, 50_000.0, 1000, cores=2)
    clean, means, whole = found.groups
    # 2.5 instances' work, at 0.8 of their time.
    assert (clean.instances, clean.most, clean.utilisation) == (4, None, 0.625)
    assert (means.messages, means.events, means.instances) == (250.0, 25_000.0, 1)
    assert (means.utilisation, means.state_bytes) == (0.5, 101_000.0)
    assert (whole.instances, whole.most, whole.utilisation) == (1, 1, 0.625)
    # 50,000 * 4e-5 + 250 * 1e-3 + 25,000 * 2e-5 cores, of which 0.8 of two are used.
    assert sum(one.worker_cores for one in found.groups) == pytest.approx(2.75)
    assert (found.workers, found.state_bytes) == (2, 101_080.0)
    assert found.nats_cores == pytest.approx(0.65)


def test_what_saturates_first_is_said_for_the_text_and_for_the_most_instances() -> None:
    found = capacity(SPEC, COSTS, 50_000.0, 1000, cores=2)
    assert (found.present_first, found.present_limit) == ("clean", 40_000.0)
    # One stream takes 100,000 messages a second of NATS; the last group has one instance.
    assert [round(one.limit) for one in found.groups] == [100_000, 800_000, 80_000]
    assert (found.first, found.limit, found.is_enough) == ("all", 80_000.0, True)
    assert not capacity(SPEC, COSTS, 90_000.0, 1000, cores=2).is_enough


def test_instances_with_unequal_shares_of_partitions_are_as_many_as_the_busiest_allows() -> None:
    group = SPEC.group("means")
    assert group is not None
    assert [effective(group, n) for n in (1, 2, 3, 4, 7, 8)] == [1, 2, 8 / 3, 4, 4, 8]
    # 4.5 instances' work needs 8: 5 to 7 of them have one with two partitions.
    busy = replace(MEANS, rate=250_000 * 0.005 / 3.6)
    found = capacity(SPEC, (busy,), 250_000.0, 10, cores=4)
    assert found.groups[0].instances == 8
    more = capacity(SPEC, (busy,), 900_000.0, 10, cores=4)
    assert (more.groups[0].instances, more.is_enough) == (8, False)


def test_a_group_that_reads_nothing_limits_nothing() -> None:
    silent = replace(ALL, messages=0.0, events=0.0, rate=1.0)
    found = capacity(SPEC, (CLEAN, silent), 1000.0, 10, cores=2)
    assert (found.groups[1].instances, found.groups[1].limit) == (1, math.inf)
    assert found.first == "clean"


@pytest.mark.parametrize(
    ("cost", "size"),
    [
        (StateCost(40.0, 10.0), 4010.0),
        # Of a window of a minute at 1,000 events a second.
        (StateCost(event_bytes=24.0, longest_s=60.0), 1_440_000.0),
        (StateCost(event_bytes=24.0), None),
    ],
)
def test_a_state_grows_with_its_keys_or_with_what_its_time_holds(
    cost: StateCost, size: float | None
) -> None:
    assert state_bytes(cost, 1000.0, 100) == size
