"""Limits of requests by address and by user: buckets of tokens that fill with time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

#: Names of which the newest are kept: an attacker with many addresses takes no memory.
_NAMES_MAX: Final = 4096


@dataclass(slots=True)
class RateLimits:
    """Requests of each name: ``rate`` a second, and ``burst`` at once; a rate of 0 is no limit."""

    rate: float = 0.0
    burst: float = 0.0
    #: By name: what is left, and when that was.
    _left: dict[str, tuple[float, float]] = field(default_factory=dict, repr=False)

    def has(self, name: str, now_s: float) -> bool:
        """Whether a name might ask once more now; takes nothing."""
        left, then_s = self._left.get(name, (self.burst, now_s))
        return not self.rate or min(self.burst, left + (now_s - then_s) * self.rate) >= 1.0

    def admit(self, name: str, now_s: float) -> bool:
        """Whether a name may ask once more now."""
        if not self.rate:
            return True
        left, then_s = self._left.pop(name, (self.burst, now_s))
        left = min(self.burst, left + (now_s - then_s) * self.rate)
        if len(self._left) >= _NAMES_MAX:
            # The oldest: a name is put at the end each time it asks.
            del self._left[next(iter(self._left))]
        self._left[name] = (left - 1.0 if left >= 1.0 else left), now_s
        return left >= 1.0
