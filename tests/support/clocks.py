"""Clocks of tests."""

from __future__ import annotations


class MovedClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.ms = 1_795_440_000_000

    def monotonic_s(self) -> float:
        return self.ms / 1000

    def wall_ms(self) -> int:
        return self.ms

    def wait(self, seconds: float) -> None:
        self.ms += int(seconds * 1000)
