"""``kf:kalmanFilter(value, ..)`` of a select clause: an estimate of a value measured with noise.

With one or two arguments the value stands still; with four it changes at the measured rate.  The
matrices are 2 by 2, and are written out.

Source: API documentation of siddhi-execution-kalmanfilter 5.0; Kalman, "A new approach to linear
filtering and prediction problems" (1960).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.operators.base import CURRENT
from mesh.operators.event_functions.model import Form, finite

if TYPE_CHECKING:
    from mesh.model.values import Json, Row
    from mesh.operators.event_functions.model import Added

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
