"""``#extrema:kalmanMinMax`` and ``kernelMinMax``: local extremes of smoothed values.

When there are more events than the window has, an event among them is emitted that is the latest
local extreme, both of the smoothed values and of the values themselves; none is emitted twice. The
neighbourhoods are those of the original. An event with a null value is dropped.

Source: API documentation of siddhi-execution-extrema 5.0.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Final

from mesh.operators.base import CURRENT
from mesh.operators.windows.contents import BoundedContents

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mesh.model.values import Json, Row
    from mesh.operators.windows.contents import Emitter

#: Extremes that are remembered, so that none is emitted twice.
_RECENT_MAX: Final = 6


def latest_extreme(values: Sequence[float], left: int, right: int, sign: int) -> int | None:
    """The place of the latest value that is the extreme of its neighbourhood; None for none.

    Args:
        values: in order of time.
        left: neighbours before it, all of which exist.
        right: neighbours after it, all of which exist.
        sign: 1 for the greatest value, -1 for the least.
    """
    for place in range(len(values) - right - 1, left - 1, -1):
        near = values[place - left : place + right + 1]
        if values[place] == (max(near) if sign > 0 else min(near)):
            return place
    return None


class _Smoothed(BoundedContents):
    """The latest values of one instance; ``kinds``: of the extremes that are emitted."""

    def __init__(self, size: int, kinds: str) -> None:
        self._size = size
        self._kinds = [one for one in ("max", "min") if one in kinds.lower()]
        self._came = 0
        #: Number, row, time and value of each event.
        self._held: deque[tuple[int, int, int, float]] = deque()
        self._recent: deque[int] = deque(maxlen=_RECENT_MAX)

    def take(self, row: int, time_ms: int, now_ms: int, values: Row, to: Emitter) -> None:
        """Add one event; one of those before it may be an extreme."""
        if values[0] is None or not math.isfinite(values[0]):
            return
        self._came += 1
        self._held.append((self._came, row, time_ms, float(values[0])))
        if len(self._held) <= self._size:
            return
        smoothed = self._smooth([value for *_, value in self._held])
        extremes = [(*one, kind) for kind in self._kinds if (one := self._extreme(smoothed, kind))]
        for _, extreme, at_ms, kind in sorted(extremes):
            to.emit(extreme, CURRENT, at_ms, (kind,))
        self._held.popleft()

    def _extreme(self, smoothed: list[float], kind: str) -> tuple[int, int, int] | None:
        """Number, row and time of a new extreme."""
        place = self._place(
            smoothed, [value for *_, value in self._held], 1 if kind == "max" else -1
        )
        if place is None:
            return None
        number, row, time_ms, _ = self._held[place]
        if number in self._recent:
            return None
        self._recent.append(number)
        return number, row, time_ms

    @abstractmethod
    def _smooth(self, values: list[float]) -> list[float]:
        """The smoothed values."""

    @abstractmethod
    def _place(self, smoothed: list[float], values: list[float], sign: int) -> int | None:
        """The place of the extreme among ``values``; None for none."""

    def rows(self) -> Iterable[int]:
        """The rows in it."""
        return [row for _, row, *_ in self._held]

    def join_rows(self) -> Sequence[tuple[int, int]]:
        """No join reads it."""
        return ()

    def dump(self) -> object:
        """Its state as JSON."""
        return [self._came, list(self._held), list(self._recent)]

    def load_dump(self, state: Json) -> None:
        """Restore what ``dump`` returned."""
        self._came, held, recent = state
        self._held = deque((number, row, time, value) for number, row, time, value in held)
        self._recent = deque(recent, maxlen=_RECENT_MAX)


class KalmanExtremes(_Smoothed):
    """``kalmanMinMax(a, q, r, n, kinds)``: smoothed by a Kalman filter, from 0 on."""

    def __init__(self, process: float, noise: float, size: int, kinds: str) -> None:
        super().__init__(size, kinds)
        self._process = process
        self._noise = noise

    def _smooth(self, values: list[float]) -> list[float]:
        estimate, variance = 0.0, 1.0
        smoothed = []
        for value in values:
            variance += self._process
            total = variance + self._noise
            gain = variance / total if total else 1.0
            estimate += (value - estimate) * gain
            variance *= 1 - gain
            smoothed.append(estimate)
        return smoothed

    def _place(self, smoothed: list[float], values: list[float], sign: int) -> int | None:
        if latest_extreme(smoothed, 2, 2, sign) is None:
            return None
        return latest_extreme(values, 10, 10, sign)


class KernelExtremes(_Smoothed):
    """``kernelMinMax(a, width, n, kinds)``: smoothed by a Gaussian kernel."""

    def __init__(self, width: float, size: int, kinds: str) -> None:
        super().__init__(size, kinds)
        self._weights = [math.exp(-at * at / (2 * width * width)) for at in range(size + 1)]

    def _smooth(self, values: list[float]) -> list[float]:
        weights = self._weights
        smoothed = []
        for place in range(len(values)):
            near = [weights[abs(place - other)] for other in range(len(values))]
            weighed = (w * v for w, v in zip(near, values, strict=True))
            smoothed.append(math.fsum(weighed) / math.fsum(near))
        return smoothed

    def _place(self, smoothed: list[float], values: list[float], sign: int) -> int | None:
        smooth = latest_extreme(smoothed, 1, 1, sign)
        place = latest_extreme(values, self._size // 5, self._size // 3, sign)
        if smooth is None or place is None:
            return None
        is_near = place - smooth <= self._size // 5 and smooth - place <= self._size // 2
        return place if is_near else None
