"""``#timeseries:regress``, ``forecast``, ``outlier``: linear regression over the last events.

    stderr, beta0, beta1 ..    of y = beta0 + beta1 * x1 + .., for the events so far

Means and products of deviations are updated with each event that arrives or leaves, and computed
again from the held events each time that as many have left.  All is plain Python, so that the bits
are the same on every processor.  A coefficient that is not significant at the confidence is 0.

Source: API documentation of siddhi-execution-timeseries 5.0; Press et al., "Numerical Recipes",
section 6.4, for the distribution of Student.

``#markov:markovChain``: the probability of each change of state of an id.

Source: API documentation of siddhi-execution-markov 5.0.

``kf:kalmanFilter(value, ..)`` of a select clause: an estimate of a value measured with noise.

With one or two arguments the value stands still; with four it changes at the measured rate.  The
matrices are 2 by 2, and are written out.

Source: API documentation of siddhi-execution-kalmanfilter 5.0; Kalman, "A new approach to linear
filtering and prediction problems" (1960).
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

#: Different states of a chain.
_STATES_MAX: Final = 1_000

#: Variance of the estimate before the first event.
_UNKNOWN: Final = 1000.0
#: Noise where none is given.
_NOISE: Final = 0.001


class StillFilter:
    """Filter of a value that does not change; the noise is that of the first event."""

    def __init__(self) -> None:
        self._noise: float | None = None
        self._estimate = 0.0
        self._variance = _UNKNOWN

    def step(self, values: Row, kind: int, time_ms: int) -> Added:
        """The estimate after one event; one that leaves a window changes nothing."""
        if kind == CURRENT:
            value, *noise = finite(values)
            if self._noise is None:
                self._noise = noise[0] if noise else _NOISE
                self._estimate = value
            total = self._variance + self._noise
            gain = self._variance / total if total else 0.0
            self._estimate += gain * (value - self._estimate)
            self._variance = (1 - gain) * self._variance
        return (self._estimate,)

    def dump(self) -> object:
        """Its state as JSON."""
        return [self._noise, self._estimate, self._variance]

    def load_dump(self, state: Json) -> None:
        """Restore what ``dump`` returned."""
        self._noise, self._estimate, self._variance = state


class MovingFilter:
    """Filter of a value and of its rate of change."""

    def __init__(self) -> None:
        self._before_ms: int | None = None
        self._value = self._rate = 0.0
        #: The covariance of value and rate: that of the value, of both, and of the rate.
        self._covariance = (_UNKNOWN, 0.0, _UNKNOWN)

    def step(self, values: Row, kind: int, time_ms: int) -> Added:
        """The estimate after one event; one that leaves a window changes nothing."""
        if kind != CURRENT:
            return (self._value,)
        value, rate, noise = finite(values[:3])
        at_ms = values[3]
        passed = 1 if self._before_ms is None else at_ms - self._before_ms
        if self._before_ms is None:
            self._value, self._rate = value, rate
        self._before_ms = at_ms
        p, q, r = self._covariance
        p, q = p + passed * (2 * q + passed * r), q + passed * r
        expected = self._value + passed * self._rate
        a, d = p + noise, r + noise
        determinant = a * d - q * q
        if not determinant:
            raise ValueError("a noise of 0 determines no estimate")
        # The gain: the covariance times the inverse of that of the measurement.
        k11, k12 = (p * d - q * q) / determinant, (q * a - p * q) / determinant
        k21, k22 = (q * d - r * q) / determinant, (r * a - q * q) / determinant
        off, turn = value - expected, rate - self._rate
        self._value = expected + k11 * off + k12 * turn
        self._rate += k21 * off + k22 * turn
        self._covariance = (
            (1 - k11) * p - k12 * q,
            (1 - k11) * q - k12 * r,
            -k21 * q + (1 - k22) * r,
        )
        return (self._value,)

    def dump(self) -> object:
        """Its state as JSON."""
        return [self._before_ms, self._value, self._rate, self._covariance]

    def load_dump(self, state: Json) -> None:
        """Restore what ``dump`` returned."""
        self._before_ms, self._value, self._rate, (p, q, r) = state
        self._covariance = (p, q, r)


def kalman(count: int) -> Form:
    """``kalmanFilter`` with so many arguments."""
    return Form(MovingFilter if count == 4 else StillFilter)


class MarkovChain:
    """Transitions that were counted, and the state of each id, for a time after its event.

    An event is passed on after ``hold`` events, with the probability before it is counted.
    """

    def __init__(self, span_ms: int, threshold: float, hold: int, *, trains: bool) -> None:
        self._span_ms = span_ms
        self._threshold = threshold
        self._hold = hold
        self._trains = trains
        self._came = 0
        #: By id, its state and the time of its event, in order of the events.
        self._last: dict[str, tuple[str, int]] = {}
        #: By state, the number of transitions to each.
        self._counts: dict[str, dict[str, int]] = {}

    def step(self, values: Row, kind: int, time_ms: int) -> Added | None:
        """Process one event; those that leave a window before are nothing to it."""
        if kind != CURRENT:
            return None
        key, state = values[:2]
        while self._last:
            oldest = next(iter(self._last))
            if time_ms - self._last[oldest][1] < self._span_ms:
                break
            del self._last[oldest]
        before, _ = self._last.pop(key, (None, 0))
        counts = self._counts
        transitions = counts.get(before, {}) if before is not None else {}
        if self._trains and state not in counts and len(counts) >= _STATES_MAX:
            raise ValueError(f"'{state}' would be state {_STATES_MAX + 1} of a chain")
        self._came += 1
        self._last[key] = (state, time_ms)
        probability = transitions.get(state, 0) / sum(transitions.values()) if transitions else 0.0
        if self._trains:
            counts.setdefault(state, {})
            if before is not None:
                row = counts.setdefault(before, {})
                row[state] = row.get(state, 0) + 1
        if self._came <= self._hold:
            return None
        return before, probability, before is not None and probability <= self._threshold

    def dump(self) -> object:
        """Its state as JSON."""
        return [self._came, [[k, *one] for k, one in self._last.items()], self._counts]

    def load_dump(self, state: Json) -> None:
        """Restore what ``dump`` returned."""
        self._came, last, self._counts = state
        self._last = {key: (last_state, time_ms) for key, last_state, time_ms in last}


def chain(span_ms: int, threshold: float, hold: int, trains: bool = True) -> Form:
    """``markovChain(id, state, duration, threshold, hold, train)``."""
    return Form(lambda: MarkovChain(span_ms, threshold, hold, trains=trains))


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
