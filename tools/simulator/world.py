"""Time as a queue of events, and nodes whose clocks, processes and links may fail.

A node's work is a generator: it yields the event to wait for and is resumed with the outcome.  This
module is independent of the work.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from random import Random


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait until ``until_s`` on the node's clock, or until there is news."""

    until_s: float
    #: The count of news that is known already; None when news doesn't matter.
    news: int | None = None


@dataclass(frozen=True, slots=True)
class Write:
    """Write a key of the store and wait for its answer, at most ``limit_s``."""

    bucket: str
    key: str
    value: Any
    #: The key to check and its required revision; None for a write without a check.
    expected: tuple[str, int] | None
    limit_s: float


Work = Generator[Sleep | Write, Any, None]


class World:
    """The queue of events."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.now_s = 0.0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, time_s: float, do: Callable[[], None]) -> None:
        """Schedule a call of ``do`` at ``time_s``; calls of the same time are done in order."""
        self._count += 1
        heapq.heappush(self._queue, (time_s, self._count, do))

    def after(self, delay_s: float, do: Callable[[], None]) -> None:
        """Schedule a call of ``do`` after ``delay_s``."""
        self.at(self.now_s + delay_s, do)

    def run_until(self, time_s: float) -> None:
        """Do everything that is due until ``time_s``."""
        queue = self._queue
        while queue and queue[0][0] <= time_s:
            self.now_s, _, do = heapq.heappop(queue)
            do()
        self.now_s = max(self.now_s, time_s)

    def delay_s(self, typical_s: float) -> float:
        """A delay that is mostly short and sometimes long."""
        return self.random.uniform(0.2, 1.0) * typical_s / max(0.02, self.random.random())


@dataclass
class SimulatedLink:
    """A node's connection to the store, each way for itself."""

    #: Until when nothing passes, simulated seconds.
    up_cut_s: float = 0.0
    down_cut_s: float = 0.0
    #: Until when it loses every other write or answer.
    flaky_s: float = 0.0


@dataclass
class SimulatedProcess:
    """A process: its clock, and whether it runs."""

    world: World
    name: str
    #: Its monotonic clock against true time: rate, and offset in seconds.
    rate: float
    offset_s: float
    link: SimulatedLink = field(default_factory=SimulatedLink)
    is_up: bool = True
    #: Until when it is stopped, as by SIGSTOP.
    paused_s: float = 0.0
    #: Grows when the process ends, which cancels the scheduled calls of earlier ones.
    life: int = 0

    def clock_s(self, true_s: float | None = None) -> float:
        """Its clock, now or at another time."""
        return (self.world.now_s if true_s is None else true_s) * self.rate + self.offset_s

    def true_s(self, clock_s: float) -> float:
        """The simulated time at which its clock shows ``clock_s``."""
        return (clock_s - self.offset_s) / self.rate

    def soon(self, time_s: float, do: Callable[[], None]) -> None:
        """Schedule ``do`` at ``time_s``, later if the process is paused, cancelled if it ended."""
        life = self.life

        def call() -> None:
            if not self.is_up or self.life != life:
                return
            if self.paused_s > self.world.now_s:
                self.world.at(self.paused_s, call)
            else:
                do()

        self.world.at(max(time_s, self.world.now_s), call)
