"""``#markov:markovChain``: the probability of each change of state of an id.

Source: API documentation of siddhi-execution-markov 5.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.operators.base import CURRENT
from mesh.operators.event_functions.model import Form

if TYPE_CHECKING:
    from mesh.model.values import Json, Row
    from mesh.operators.event_functions.model import Added

#: Different states of a chain.
_STATES_MAX: Final = 1_000


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
