"""``#extrema:topK(a, k)`` and ``bottomK``: the most frequent values so far or in the window.

An event is passed on if the ranks have changed since the last one that was.  Of equal counts the
value that came first precedes.  Null stands for ranks without a value.

Source: API documentation of siddhi-execution-extrema 5.0.
"""

from __future__ import annotations

import math
from heapq import nsmallest
from typing import TYPE_CHECKING, Any

from mesh.operators.base import CURRENT
from mesh.operators.event_functions.model import Form

if TYPE_CHECKING:
    from mesh.model.values import Json, Row
    from mesh.operators.event_functions.model import Added


class Ranks:
    """Counts of values; ``sign``: -1 for the most frequent ones, 1 for the rarest."""

    def __init__(self, count: int, sign: int) -> None:
        self._ranks = count
        self._sign = sign
        self._counts: dict[Any, int] = {}
        self._before: list[object] | None = None
        #: The values with ranks at the last event; None if they may be others now.
        self._listed: set[Any] | None = None

    def step(self, values: Row, kind: int, time_ms: int) -> Added | None:
        """Count one event, or count it back if it leaves the window."""
        value, counts = _one_nan(values[0]), self._counts
        if kind != CURRENT:
            self._listed = None
            if counts.get(value, 0) > 1:
                counts[value] -= 1
            else:
                counts.pop(value, None)
            return None
        counts[value] = counts.get(value, 0) + 1
        sign = self._sign
        if self._is_below(value):
            return None
        ranking: list[Any] = []
        # The sort is stable, and a dict has its keys in order of arrival.
        for pair in nsmallest(self._ranks, counts.items(), key=lambda one: sign * one[1]):
            ranking += pair
        self._listed = set(ranking[::2])
        ranking += [None] * (2 * self._ranks - len(ranking))
        if ranking == self._before:
            return None
        self._before = ranking
        return tuple(ranking)

    def _is_below(self, value: object) -> bool:
        """Whether a value gets no rank by its last event: else each would search all values."""
        listed, count = self._listed, self._counts[value]
        if listed is None or value in listed or len(listed) < self._ranks:
            return False
        worst = max(self._sign * self._counts[one] for one in listed)
        # A new value comes after those of the same count.
        return self._sign * count > worst or (self._sign * count == worst and count == 1)

    def dump(self) -> object:
        """Its state as JSON."""
        return [list(self._counts), list(self._counts.values()), self._before]

    def load_dump(self, state: Json) -> None:
        """Restore what ``dump`` returned."""
        values, counts, before = state
        self._counts = dict(zip(map(_one_nan, values), counts, strict=True))
        self._before = None if before is None else [*map(_one_nan, before)]
        self._listed = None


def _one_nan(value: object) -> object:
    """A value that is found again in a dict and in lists, NaN as well."""
    return value if value == value else math.nan


def ranks(sign: int, count: int) -> Form:
    """``topK(attribute, k)``."""
    return Form(lambda: Ranks(count, sign), skips_constants=True)
