"""Schedules of sources, also while the wall clock is set."""

from __future__ import annotations

from mesh.receiver.types.schedule import Schedule


def is_due(schedule: Schedule) -> bool:
    return schedule.is_due


HOUR_MS = 3_600_000


class SetClock:
    """Two clocks, of which the wall clock can be set."""

    def __init__(self) -> None:
        self.wall = 1_795_440_000_000
        self.monotonic = 0

    def monotonic_s(self) -> float:
        return self.monotonic / 1000

    def wall_ms(self) -> int:
        return self.wall

    def pass_ms(self, time_ms: int) -> None:
        self.wall += time_ms
        self.monotonic += time_ms


def test_a_clock_that_is_set_does_not_move_an_interval() -> None:
    for set_ms in (-HOUR_MS, HOUR_MS):
        clock = SetClock()
        schedule = Schedule(5_000, None, clock)
        assert is_due(schedule)
        schedule.end_look()
        clock.wall += set_ms
        clock.pass_ms(4_999)
        assert not is_due(schedule)
        clock.pass_ms(1)
        assert is_due(schedule)


def test_a_clock_that_is_set_back_leads_to_the_next_time_of_cron_from_there() -> None:
    clock = SetClock()
    schedule = Schedule(0, "0 * * * * ?", clock)
    assert is_due(schedule)
    schedule.end_look()
    clock.pass_ms(30_000)
    assert not is_due(schedule)
    clock.wall -= HOUR_MS
    assert not is_due(schedule)
    clock.pass_ms(30_000)
    assert is_due(schedule)
    schedule.end_look()
    assert not is_due(schedule)
    clock.wall += HOUR_MS
    assert is_due(schedule)
