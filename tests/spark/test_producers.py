"""Names of an app's producers, compared with those that instances use."""

from __future__ import annotations

from dataclasses import replace

from mesh.plan.build import plan
from mesh.spark.producers import producers

TEXT = """
@App:name('A')
define stream S (k string, a int);
define trigger Often at every 1 sec;
@dist(execGroup='filter', parallel='2')
from S[a > 1] select k, a insert into Large;
@dist(execGroup='filter', parallel='2')
from S[a < 1] select k, a insert into Small;
@dist(execGroup='sums', parallel='2', partitions='3')
partition with (k of Large) begin
  from Large select k, sum(a) as total insert into Sums;
end;
@dist(execGroup='ticks')
from Often select triggered_time insert into Ticks;
"""


def of(group: str) -> set[tuple[str, str]]:
    spec = plan(TEXT).spec
    return set(producers([g for g in spec.groups if g.name == group], "i1"))


def test_a_group_without_state_has_one_for_each_route_and_instance() -> None:
    found = of("filter")
    assert {producer for _, producer in found} == {
        f"i1-filter-{index}of2-{number}" for index in (1, 2) for number in (1, 2)
    }
    # By key: each may write each partition.
    large = {stream for stream, producer in found if producer == "i1-filter-1of2-1"}
    assert large == {f"mesh-A-Large-by-k-{partition}" for partition in range(3)}
    assert ("mesh-A-Small", "i1-filter-2of2-2") in found


def test_a_group_with_state_has_one_for_each_partition() -> None:
    assert of("sums") == {("mesh-A-Sums", f"i1-sums-{partition}") for partition in range(3)}


def test_a_trigger_has_one() -> None:
    assert of("trigger-Often") == {("mesh-A-Often", "i1-trigger-Often-0")}


def test_both_sizes_of_a_group_that_is_scaled_count() -> None:
    (group,) = [g for g in plan(TEXT).spec.groups if g.name == "filter"]
    found = producers([group, replace(group, parallel=1)], "i1")
    assert {"i1-filter-1of1-1", "i1-filter-2of2-1"} <= {producer for _, producer in found}
