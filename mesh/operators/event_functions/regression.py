"""``#timeseries:regress``, ``forecast``, ``outlier``: linear regression over the last events.

    stderr, beta0, beta1 ..    of y = beta0 + beta1 * x1 + .., for the events so far

Means and products of deviations are updated with each event that arrives or leaves, and computed
again from the held events each time that as many have left.  All is plain Python, so that the bits
are the same on every processor.  A coefficient that is not significant at the confidence is 0.

Source: API documentation of siddhi-execution-timeseries 5.0; Press et al., "Numerical Recipes",
section 6.4, for the distribution of Student.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from mesh.operators.base import CURRENT
from mesh.operators.event_functions.model import Form, finite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.model.values import Json, Row
    from mesh.operators.event_functions.model import Added

#: A number of events that stands for all: they are not held.
ALL: Final = 100_000_000


@dataclass(slots=True)
class Moments:
    """Number, means and products of deviations of points; the last coordinate is y."""

    size: int
    count: int = 0
    means: list[float] = field(default_factory=list)
    products: list[list[float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.means = self.means or [0.0] * self.size
        self.products = self.products or [[0.0] * self.size for _ in range(self.size)]

    def add(self, point: Sequence[float]) -> None:
        """Add a point."""
        self.count += 1
        before = [x - m for x, m in zip(point, self.means, strict=True)]
        self.means = [m + d / self.count for m, d in zip(self.means, before, strict=True)]
        after = [x - m for x, m in zip(point, self.means, strict=True)]
        for row, a in zip(self.products, before, strict=True):
            for place, b in enumerate(after):
                row[place] += a * b

    def remove(self, point: Sequence[float]) -> None:
        """Remove a point that was added."""
        after = [x - m for x, m in zip(point, self.means, strict=True)]
        self.count -= 1
        if not self.count:
            self.means = [0.0] * self.size
            self.products = [[0.0] * self.size for _ in range(self.size)]
            return
        self.means = [m - d / self.count for m, d in zip(self.means, after, strict=True)]
        before = [x - m for x, m in zip(point, self.means, strict=True)]
        for row, a in zip(self.products, before, strict=True):
            for place, b in enumerate(after):
                row[place] -= a * b

    def line(self, confidence: float) -> list[float]:
        """Standard error and coefficients; zeros for too few points, or without a solution."""
        width = self.size - 1
        free = self.count - width - 1
        nothing = [0.0] * (width + 2)
        if free <= 0:
            return nothing
        inverse = inverted([row[:width] for row in self.products[:width]])
        if inverse is None:
            return nothing
        with_y = [row[width] for row in self.products[:width]]
        slopes = [_dot(row, with_y) for row in inverse]
        *means, mean_y = self.means
        rest = max(0.0, self.products[width][width] - _dot(slopes, with_y)) / free
        spread = [_dot(row, means) for row in inverse]
        betas = [mean_y - _dot(slopes, means), *slopes]
        shares = [1 / self.count + _dot(means, spread)]
        shares += [inverse[place][place] for place in range(width)]
        coefficients = [
            0.0 if _chance(beta, math.sqrt(max(0.0, rest * share)), free) > 1 - confidence else beta
            for beta, share in zip(betas, shares, strict=True)
        ]
        return [math.sqrt(rest), *coefficients]


class Regression:
    """Regression over at most ``most`` events, and those of the last ``span_ms``; None: of any age.

    Every ``interval``-th event is passed on, the others are dropped. ``kind``: what is added to the
    coefficients; the arguments begin with the value that it needs.
    """

    def __init__(
        self,
        kind: str,
        width: int,
        interval: int,
        most: int,
        confidence: float,
        span_ms: int | None,
    ) -> None:
        self._kind = kind
        self._interval = interval
        self._most = most
        self._confidence = confidence
        self._span_ms = span_ms
        self._holds = most < ALL or span_ms is not None
        self._came = 0
        self._left = 0
        self._moments = Moments(width)
        #: Times and points.
        self._held: deque[tuple[int, list[float]]] = deque()
        #: The result for the event before; None if it was dropped.
        self._before: list[float] | None = None

    def step(self, values: Row, kind: int, time_ms: int) -> Added | None:
        """Add one event; those that leave a window before are nothing to it."""
        if kind != CURRENT:
            return None
        start = 0 if self._kind == "regress" else 1
        numbers = finite(values)
        y, *xs = numbers[start:]
        before = self._before
        self._add(time_ms, [*xs, y])
        self._came += 1
        if self._came % self._interval:
            self._before = None
            return None
        line = self._before = self._moments.line(self._confidence)
        if self._kind == "forecast":
            return *line, line[1] + line[2] * numbers[0]
        if self._kind == "outlier":
            return *line, before is not None and _is_outlier(before, numbers[0], y, xs[0])
        return tuple(line)

    def _add(self, time_ms: int, point: list[float]) -> None:
        self._moments.add(point)
        if not self._holds:
            return
        held = self._held
        held.append((time_ms, point))
        oldest = None if self._span_ms is None else time_ms - self._span_ms
        while len(held) > self._most or (oldest is not None and held[0][0] <= oldest):
            self._moments.remove(held.popleft()[1])
            self._left += 1
        # Rounding in the values that have left would stay for good.
        if self._left >= max(16, len(held)):
            self._left = 0
            self._moments = Moments(self._moments.size)
            for _, one in held:
                self._moments.add(one)

    def dump(self) -> object:
        """Its state as JSON."""
        moments = self._moments
        summary = [moments.count, moments.means, moments.products]
        return [self._came, self._left, self._before, summary, list(self._held)]

    def load_dump(self, state: Json) -> None:
        """Restore what ``dump`` returned."""
        self._came, self._left, self._before, (count, means, products), held = state
        self._moments = Moments(self._moments.size, count, means, products)
        self._held = deque((time_ms, point) for time_ms, point in held)


def _is_outlier(line: list[float], deviations: float, y: float, x: float) -> bool:
    """Whether y is further from the line than so many standard errors."""
    error, first, slope = line
    return abs(y - (first + slope * x)) > deviations * error


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def inverted(matrix: list[list[float]]) -> list[list[float]] | None:
    """The inverse of a square matrix by Gauss and Jordan; None if it has none."""
    size = len(matrix)
    rows = [[*row, *(float(i == j) for j in range(size))] for i, row in enumerate(matrix)]
    largest = max((abs(one) for row in matrix for one in row), default=0.0)
    for place in range(size):
        best = max(range(place, size), key=lambda row: abs(rows[row][place]))
        pivot = rows[best][place]
        if abs(pivot) <= largest * 1e-14:
            return None
        rows[place], rows[best] = rows[best], rows[place]
        rows[place] = [one / pivot for one in rows[place]]
        for other in range(size):
            factor = rows[other][place]
            if other != place and factor:
                rows[other] = [
                    a - factor * b for a, b in zip(rows[other], rows[place], strict=True)
                ]
    return [row[size:] for row in rows]


def _chance(beta: float, error: float, free: int) -> float:
    """The probability of a coefficient as far from 0, if it were 0; 0 for an error of 0."""
    if not error:
        return 0.0
    t = beta / error
    return incomplete_beta(free / 2, 0.5, free / (free + t * t))


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function, for 0 <= x <= 1."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a
    return 1 - front * _fraction(b, a, 1 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function, by the method of Lentz."""
    tiny = 1e-300
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1) or tiny)
    fraction = d
    for m in range(1, 300):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / (1 + term * d or tiny)
            c = 1 + term / c or tiny
            fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return fraction


def regression(kind: str, added: int, settings: Sequence[Any], span_ms: int | None) -> Form:
    """A call of ``kind`` that adds so many attributes.

    ``settings``: interval, number of events and confidence, if any are given.
    """
    interval, most, confidence = settings or (1, ALL, 0.95)
    width = added - (1 if kind == "regress" else 2)
    return Form(lambda: Regression(kind, width, interval, most, confidence, span_ms))
