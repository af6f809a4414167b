"""Changes of a group: what has to have stopped, drained or met before the next revision runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.control.group_revisions import (
    ChangeRequirement,
    StopOutcome,
    describe_change,
    furthest_positions,
    has_drained,
    instances_to_catch_up,
    next_revision,
    requirement_of,
)
from mesh.model.app import Channel, GroupInput, GroupSpec, Strategy
from mesh.model.cluster import GroupForm
from mesh.model.types import Attribute, AttributeType, StreamSchema

CHANNEL = Channel("A", StreamSchema("S", (Attribute("a", AttributeType.LONG),)))


def group(
    text: str = "from S select a insert into T;", parallel: int = 2, **more: object
) -> GroupSpec:
    strategy = more.pop("strategy", Strategy.ROUND_ROBIN)
    assert isinstance(strategy, Strategy)
    spec = GroupSpec("A", "g", parallel, text, (GroupInput(CHANNEL, strategy),), (), True)
    return replace(spec, **more)  # type: ignore[arg-type]  # names of fields


def form(spec: GroupSpec, **more: object) -> GroupForm:
    return GroupForm("A", "g", "i1", spec, 3, epoch=7, **more)  # type: ignore[arg-type]  # fields


KEYED: dict[str, Any] = {"strategy": Strategy.BY_KEY}


@pytest.mark.parametrize(
    ("old", "new", "need"),
    [
        (group(), group(node=("gpu=true",)), ChangeRequirement.STOPPED),
        (group("@dist(execGroup='g')\nq"), group("q"), ChangeRequirement.STOPPED),
        (group(parallel=2, **KEYED), group(parallel=5, **KEYED), ChangeRequirement.STOPPED),
        (group("q"), group("r"), ChangeRequirement.SETTLED),
        (group("q", **KEYED), group("r", 5, **KEYED), ChangeRequirement.SETTLED),
        (group(parallel=2), group(parallel=3), ChangeRequirement.CUT),
        (group(parallel=2, **KEYED), group(parallel=3), ChangeRequirement.CUT),
        (group(inputs=()), group(parallel=3, inputs=()), ChangeRequirement.STOPPED),
    ],
)
def test_what_a_change_needs(old: GroupSpec, new: GroupSpec, need: ChangeRequirement) -> None:
    assert requirement_of(old, new) is need
    assert requirement_of(new, old) is need


def test_a_group_that_only_moves_runs_nothing_once_more() -> None:
    stops = {"A-g-1": StopOutcome(None), "A-g-2": StopOutcome(None, has_failed=True)}
    assert instances_to_catch_up(form(group()), group(node=("x=y",)), stops) == {}


def test_another_text_waits_for_all_that_can_drain() -> None:
    stops = {
        "drained": StopOutcome({"S": 4}),
        "killed": StopOutcome(None),
        "failing": StopOutcome(None, has_failed=True),
        "never ran": StopOutcome(None, has_run=False),
    }
    assert instances_to_catch_up(form(group("q")), group("r"), stops) == {"killed": {}}
    # Those before it had not drained either.
    unsettled = form(group("q"), is_settled=False)
    assert instances_to_catch_up(unsettled, group("r"), stops) == {"killed": {}, "never ran": {}}


def test_another_number_of_instances_meets_at_the_furthest_position() -> None:
    stops = {
        "ahead": StopOutcome({"S": 9, "U": 2}),
        "behind": StopOutcome({"S": 8, "U": 2}),
        "killed": StopOutcome(None, has_failed=True),
        "never ran": StopOutcome(None, has_run=False),
    }
    place = {"S": 9, "U": 2}
    found = instances_to_catch_up(form(group(), start={"S": 5}), group(parallel=3), stops)
    assert found == {"behind": place, "killed": place, "never ran": place}
    settled = dict.fromkeys(stops, StopOutcome(place))
    assert instances_to_catch_up(form(group()), group(parallel=3), settled) == {}


@given(
    start=st.dictionaries(st.sampled_from("ST"), st.integers(1, 20)),
    ends=st.lists(
        st.none() | st.dictionaries(st.sampled_from("ST"), st.integers(1, 20)), max_size=4
    ),
)
def test_instances_that_ran_once_more_need_not_do_so_again(
    start: dict[str, int], ends: list[dict[str, int] | None]
) -> None:
    before = form(group(), start=start)
    stops = {f"A-g-{n}": StopOutcome(end) for n, end in enumerate(ends)}
    wider = group(parallel=9)
    again = instances_to_catch_up(before, wider, stops)
    assert all(end == furthest_positions(before, stops) for end in again.values())
    caught_up = stops | {name: StopOutcome(end) for name, end in again.items()}
    assert instances_to_catch_up(before, wider, caught_up) == {}
    after = next_revision(before, wider, caught_up, 8, "scaled")
    assert all(after.start[stream] >= place for stream, place in start.items())
    assert after.start == furthest_positions(before, stops)


def test_a_revision_says_whether_what_was_before_it_had_drained() -> None:
    stops = {"A-g-1": StopOutcome({"S": 4}), "A-g-2": StopOutcome(None)}
    found = next_revision(form(group("q"), start={"S": 1}), group("r"), stops, 8, "edited")
    assert (found.number, found.epoch, found.cause) == (4, 8, "edited")
    assert found.start == {"S": 1}
    assert not found.is_settled
    assert not found.is_at_start
    assert not has_drained(found, StopOutcome(None, has_run=False))
    idle = {"A-g-1": StopOutcome(None, has_run=False)}
    assert next_revision(form(group("q")), group("r"), idle, 8, "edited").is_at_start


def test_a_change_in_words() -> None:
    assert describe_change(group(), group(parallel=5)) == "group g goes from 2 to 5 instances"
    assert describe_change(group(), group("r")) == "group g changes"
