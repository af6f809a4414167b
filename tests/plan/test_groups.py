"""A plan with another number of instances: the groups that can have it, and no other change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mesh.control.group_revisions import ChangeRequirement, requirement_of
from mesh.errors import MeshError
from mesh.plan.build import plan
from mesh.plan.groups import as_scaled, scaled

KEYED = """@App:name('A')
define stream S (k string, n int);
@dist(execGroup='g', parallel='{}', partitions='4')
partition with (k of S) begin from S select k, count() as c insert into Counts; end;
"""
IN_TURN = """@App:name('A')
define stream S (k string, n int);
@dist(execGroup='g', parallel='{}')
from S[n > 0] select k insert into Out;
from Out select k insert into Again;
"""
WINDOW = """@App:name('A')
define stream S (k string, n int);
@dist(execGroup='g') from S#window.length(2) select sum(n) as t insert into Sums;
"""


@pytest.mark.parametrize("text", [KEYED, IN_TURN])
@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 1), (1, 3), (2, 2)])
def test_a_scaled_plan_is_that_of_the_text_with_the_other_number(
    text: str, before: int, after: int
) -> None:
    made = scaled(plan(text.format(before)).spec, "g", after)
    expected = plan(text.format(after)).spec
    assert [replace(g, text="") for g in made.groups] == [
        replace(g, text="") for g in expected.groups
    ]
    # Their texts differ only by the annotation, which has no effect when instances are scaled.
    assert all(
        requirement_of(one, other) is not ChangeRequirement.SETTLED
        for one, other in zip(made.groups, expected.groups, strict=True)
    )
    assert made.channels == expected.channels


@pytest.mark.parametrize(
    ("text", "group", "parallel", "reason"),
    [
        (KEYED.format(2), "g", 5, "divided into 4 partitions"),
        (KEYED.format(2), "g", 0, "at least one"),
        (KEYED.format(2), "partition-S-k", 2, "the order of the events"),
        (WINDOW, "g", 2, "not divided by key"),
    ],
)
def test_what_a_plan_forbids_is_refused(text: str, group: str, parallel: int, reason: str) -> None:
    spec = plan(text).spec
    with pytest.raises(MeshError) as refused:
        scaled(spec, group, parallel)
    assert refused.value.code == "MESH-A422"
    assert reason in (refused.value.detail or "")
    assert as_scaled(spec, {group: parallel}) == spec


def test_an_unknown_group_is_not_found() -> None:
    with pytest.raises(MeshError) as refused:
        scaled(plan(WINDOW).spec, "h", 2)
    assert refused.value.code == "MESH-A404"


def test_another_text_gets_the_numbers_that_were_asked_for() -> None:
    spec = as_scaled(plan(IN_TURN.format(1)).spec, {"g": 3, "gone": 2})
    assert [group.parallel for group in spec.groups] == [3, 1]
