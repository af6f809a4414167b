"""A part of a slot between its runs: when it is looked at again, and for how long it is waited."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.spark.shared_query.part_position import PartPosition, even_ends


def place(at: dict[str, int] | None = None, **more: Any) -> PartPosition:
    """A part that has read so far."""
    part: Any = SimpleNamespace(is_foreign=more.pop("is_foreign", False))
    watch: Any = SimpleNamespace(has_copies=more.pop("has_copies", False))
    offsets: Any = {stream: {"sequence": sequence} for stream, sequence in (at or {}).items()}
    member: Any = None
    return PartPosition(member, part, offsets, _watch=watch, **more)


def test_a_part_that_nothing_follows_or_wakes_is_not_looked_at() -> None:
    assert place().next_look_s(100.0) is None
    assert place(follows=True).next_look_s(100.0) == 700.0
    assert place(is_foreign=True).next_look_s(100.0) == 100.25
    assert place(has_copies=True, follows=True).next_look_s(100.0) == 100.25


def test_a_timer_is_due_by_the_brokers_clock() -> None:
    # The broker's clock is 50 s ahead of the local one.
    timed = place(follows=True, timer_ms=170_000, clock_ms=50_000.0)
    assert timed.next_look_s(100.0) == pytest.approx(120.0)
    # One that is over is looked at soon, and not before now.
    assert timed.next_look_s(130.0) == pytest.approx(130.001)


def test_a_stream_that_does_not_answer_is_asked_again_and_then_given_up() -> None:
    silent = place()
    assert silent.patience_s(10.0) == 0.5
    assert silent.may_wait(10.0)
    assert silent.due_s == 10.25
    assert silent.patience_s(14.0) == 2.0
    assert silent.may_wait(29.9)
    assert silent.patience_s(29.9) == 5.0
    assert not silent.may_wait(30.0)
    silent.unanswered_s = None
    assert silent.may_wait(40.0)


def test_what_came_of_other_parts_counts_as_read() -> None:
    assert place({"S": 4}, seen=9).read == {"S": 9}
    assert place({"S": 14}, seen=9).read == {"S": 14}


PLACES = st.lists(st.dictionaries(st.sampled_from("STU"), st.integers(1, 30)), max_size=4)


@given(until=st.dictionaries(st.sampled_from("ST"), st.integers(1, 30)), at=PLACES)
def test_partitions_of_a_stream_halt_together_and_none_goes_back(
    until: dict[str, int], at: list[dict[str, int]]
) -> None:
    ends = even_ends(until, map(place, at))
    assert ends.keys() == until.keys() | {stream for one in at for stream in one}
    for stream, end in ends.items():
        reached = [one[stream] for one in at if stream in one]
        assert end == max([until.get(stream, 0), *reached])
