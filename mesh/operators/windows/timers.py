"""Timers of one partition instance of a window in Python."""

from __future__ import annotations

from collections import deque


class TimerQueue:
    """The times of timers that one instance set, in order; ``first``: the number of the first."""

    __slots__ = ("first", "times")

    def __init__(self, first: int = 0) -> None:
        self.first = first
        self.times: deque[int] = deque()

    def take(self) -> int:
        """Remove and return the first."""
        self.first += 1
        return self.times.popleft()
