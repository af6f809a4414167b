"""The clock of a process."""

from __future__ import annotations

import time

import pytest

from mesh import clock


def test_the_clock_counts_time_in_which_the_machine_was_suspended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = {time.CLOCK_BOOTTIME: 500.0, time.CLOCK_MONOTONIC: 100.0}
    monkeypatch.setattr(time, "clock_gettime", read.__getitem__)
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    assert clock.SystemClock().monotonic_s() == 500.0
