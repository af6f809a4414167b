"""Changes of a group's number of instances that follow from its load."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from mesh.control.autoscale import (
    CEILING_S,
    COOL_DOWN_S,
    DOWN_S,
    SAMPLE_S,
    WINDOW_S,
    Autoscaler,
    GroupLoad,
    ScaleChange,
)
from mesh.model.app import ScaleBounds

SIZES = (1, 2, 3, 4, 8)
BUSY = GroupLoad("A", "g", 1, SIZES, 1000.0, 50_000)
IDLE = replace(BUSY, rate=100.0, backlog=0)


class Clock:
    """A scaler, fed with samples at their interval."""

    def __init__(self) -> None:
        self.scaler = Autoscaler()
        self.now_s = 0.0

    def feed(self, seconds: float, *loads: GroupLoad) -> list[ScaleChange]:
        """The changes of so many seconds with these samples; a changed group keeps its number."""
        found = []
        for _ in range(round(seconds / SAMPLE_S)):
            self.now_s += SAMPLE_S
            change = self.scaler.step(self.now_s, loads)
            found += [change] if change is not None else []
        return found


def sizes(changes: Iterable[ScaleChange]) -> Sequence[tuple[int, int]]:
    return [(change.parallel, change.target) for change in changes]


def growing(rate: float, growth: float, count: int, **more: object) -> list[GroupLoad]:
    """Samples with a backlog that grows."""
    per_sample = growth * SAMPLE_S
    return [
        replace(BUSY, rate=rate, backlog=round(10_000 + per_sample * n), **more)  # type: ignore[arg-type]
        for n in range(count)
    ]


def test_a_group_goes_up_after_messages_waited_for_half_a_minute() -> None:
    clock = Clock()
    assert clock.feed(WINDOW_S, BUSY) == []
    (change,) = clock.feed(SAMPLE_S, BUSY)
    # (1000 + 50000 / 20) / (1000 * 0.8) is 4.4: 8 instances, but at most two more at once.
    assert (change.parallel, change.target) == (1, 3)
    assert change.reason == (
        "50,000 messages wait, 1,000 arrive a second, and an instance reads 1,000"
    )
    assert clock.scaler.target(BUSY) == 8


def test_a_backlog_that_comes_and_goes_is_no_reason() -> None:
    clock = Clock()
    for _ in range(40):
        assert clock.feed(WINDOW_S - SAMPLE_S, BUSY) == []
        assert clock.feed(SAMPLE_S, IDLE) == []


def test_a_group_rests_after_a_change() -> None:
    clock = Clock()
    assert clock.feed(WINDOW_S + SAMPLE_S, BUSY)
    more = replace(BUSY, parallel=3, rate=3000.0)
    assert clock.feed(COOL_DOWN_S - SAMPLE_S, more) == []
    assert sizes(clock.feed(2 * SAMPLE_S, more)) == [(3, 4)]


def test_arrivals_are_what_was_read_and_the_growth_of_the_backlog() -> None:
    clock, found = Clock(), []
    for load in growing(1000.0, 200.0, 7):
        found += clock.feed(SAMPLE_S, load)
    # 1,200 arrive, 16,000 wait: (1200 + 16000 / 20) / 800 is 2.5.
    assert [(change.target, "1,200 arrive" in change.reason) for change in found] == [(3, True)]


def test_a_group_goes_down_after_five_quiet_minutes_and_as_far_as_its_peak_allows() -> None:
    clock = Clock()
    busy = replace(BUSY, parallel=8, rate=8000.0)
    clock.feed(WINDOW_S + SAMPLE_S, busy)
    quiet = replace(busy, rate=2000.0, backlog=0)
    # Messages waited in part of the first windows.
    assert clock.feed(DOWN_S, quiet) == []
    changes = clock.feed(WINDOW_S, quiet)
    assert sizes(changes) == [(8, 4)], "at most half of them go at once"
    assert changes[0].reason.endswith("messages arrived a second in 5 minutes")
    fewer = replace(quiet, parallel=4)
    # 2,000 of 3 * 1,000 * 0.7.
    assert sizes(clock.feed(DOWN_S + 2 * WINDOW_S, fewer)) == [(4, 3)]
    assert clock.feed(10 * DOWN_S, replace(quiet, parallel=3)) == []


def test_a_group_that_was_never_busy_tries_the_next_size() -> None:
    clock = Clock()
    assert sizes(clock.feed(DOWN_S + 2 * WINDOW_S, replace(IDLE, parallel=8))) == [(8, 4)]


def test_a_peak_begins_the_five_minutes_anew() -> None:
    clock = Clock()
    clock.feed(WINDOW_S + SAMPLE_S, replace(BUSY, parallel=2, sizes=(1, 2), rate=2000.0))
    quiet = replace(BUSY, parallel=2, sizes=(1, 2), rate=100.0, backlog=0)
    for _ in range(5):
        assert clock.feed(DOWN_S - 2 * WINDOW_S, quiet) == []
        assert clock.feed(WINDOW_S, replace(quiet, rate=1500.0)) == []


def test_to_and_fro_doubles_the_time_before_the_next_change_down() -> None:
    clock = Clock()
    waits = []
    for _ in range(3):
        clock.feed(COOL_DOWN_S, IDLE)
        assert sizes(clock.feed(WINDOW_S + SAMPLE_S, replace(BUSY, sizes=(1, 2)))) == [(1, 2)]
        found: list[ScaleChange] = []
        began_s = clock.now_s
        while not found:
            found = clock.feed(SAMPLE_S, replace(IDLE, parallel=2, sizes=(1, 2)))
        waits.append(clock.now_s - began_s)
    assert waits[1] > waits[0] + DOWN_S - WINDOW_S
    assert waits[2] > waits[1] + 2 * DOWN_S - WINDOW_S


def test_more_instances_that_read_no_more_are_the_ceiling() -> None:
    clock = Clock()
    clock.feed(WINDOW_S + SAMPLE_S, BUSY)
    same = replace(BUSY, parallel=3)
    assert clock.feed(CEILING_S, same) == []
    assert sizes(clock.feed(2 * WINDOW_S, same)) == [(3, 4)], "it tries again after half an hour"


def test_a_growing_backlog_behind_a_group_keeps_it_from_going_up() -> None:
    clock = Clock()
    writer = replace(BUSY, readers=(("A", "h"),))
    for reader in growing(1000.0, 500.0, 12, group="h", sizes=()):
        assert clock.feed(SAMPLE_S, writer, reader) == []
    shrinking = replace(BUSY, group="h", sizes=(), backlog=0)
    assert clock.feed(WINDOW_S + SAMPLE_S, writer, shrinking)


@pytest.mark.parametrize("other", [IDLE, BUSY])
def test_nothing_changes_while_another_group_does(other: GroupLoad) -> None:
    clock = Clock()
    moving = replace(other, app="B", is_settled=False)
    assert clock.feed(10 * WINDOW_S, BUSY, moving) == []
    assert clock.feed(SAMPLE_S, BUSY, replace(moving, is_settled=True))


def test_one_group_changes_at_once_the_oldest_backlog_first() -> None:
    clock = Clock()
    older = replace(BUSY, group="h", backlog=90_000)
    changes = clock.feed(WINDOW_S + SAMPLE_S, BUSY, older)
    assert [change.group for change in changes] == ["h"]


def test_a_number_out_of_bounds_returns_to_them() -> None:
    for parallel, wanted in ((16, 8), (1, 2)):
        load = replace(IDLE, parallel=parallel, sizes=(2, 4, 8))
        assert sizes(Clock().feed(WINDOW_S + SAMPLE_S, load)) == [(parallel, wanted)]


def test_a_group_without_bounds_stays_as_it_is() -> None:
    assert Clock().feed(DOWN_S, replace(BUSY, sizes=())) == []


def test_sizes_are_those_at_which_the_busiest_instance_has_fewer_partitions() -> None:
    assert ScaleBounds(1, 8).sizes(8) == (1, 2, 3, 4, 8)
    assert ScaleBounds(2, 6).sizes(8) == (2, 3, 4)
    assert ScaleBounds(5, 16).sizes(16) == (5, 6, 8, 16)
    assert ScaleBounds(1, 3).sizes(0) == (1, 2, 3)
    assert [ScaleBounds(2, 4).nearest(n) for n in (1, 3, 9)] == [2, 3, 4]
