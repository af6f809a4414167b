"""Rates of instances: differences of their counters over the last seconds.

Samples are taken while pages are open, at most one a second, so that a manager without readers
pays nothing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mesh.control.lifecycle import AppStatus

#: Length of the mean, seconds: workers report about once a second.
WINDOW_S: Final = 10.0
#: An older sample says nothing of now.
AGE_MAX_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Rate:
    """Events a second; None until there are two samples."""

    taken: float | None = None
    emitted: float | None = None

    def lag_s(self, behind: int) -> float | None:
        """Seconds until so many messages are taken at this rate; None if that is not known."""
        if behind == 0:
            return 0.0
        return behind / self.taken if self.taken else None


@dataclass(frozen=True, slots=True)
class _Sample:
    at_s: float
    #: By instance: epoch, messages in, rows out.
    counters: Mapping[str, tuple[int | None, int, int]]


@dataclass(slots=True)
class Meter:
    """The last samples of all instances."""

    _samples: deque[_Sample] = field(default_factory=deque, repr=False)

    def note(self, apps: Sequence[AppStatus], now_s: float) -> None:
        """Take a sample."""
        while self._samples and now_s - self._samples[0].at_s > AGE_MAX_S:
            self._samples.popleft()
        while len(self._samples) > 1 and now_s - self._samples[1].at_s >= WINDOW_S:
            self._samples.popleft()
        counters = {
            one.instance: (one.epoch, one.messages_in, one.rows_out)
            for app in apps
            for one in app.instances
        }
        self._samples.append(_Sample(now_s, counters))

    def rate(self, instances: Iterable[str]) -> Rate:
        """The rate of several instances together.

        An instance that was placed again counts from nothing, and its counters begin again.
        """
        if len(self._samples) < 2:
            return Rate()
        first, last = self._samples[0], self._samples[-1]
        taken = emitted = 0
        for name in instances:
            now = last.counters.get(name)
            if now is None:
                continue
            was = first.counters.get(name)
            if was is None or was[0] != now[0]:
                was = (now[0], 0, 0) if was is not None else now
            taken += max(0, now[1] - was[1])
            emitted += max(0, now[2] - was[2])
        time_s = last.at_s - first.at_s
        return Rate(taken / time_s, emitted / time_s)
