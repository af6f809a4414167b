"""Periods of batch windows by time, in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mesh.model.values import Json
    from mesh.operators.windows.contents import Emitter


class Periods:
    """Consecutive periods of one partition instance, from its first event on.

    ``start_ms``: they begin at multiples of ``span_ms`` after it; None: with the first event.
    """

    def __init__(self, span_ms: int, start_ms: int | None) -> None:
        self._span_ms = span_ms
        self._start_ms = start_ms
        self._due_ms: int | None = None
        #: The end of a period is processed with this chunk of events, at this time.
        self._ends_ms: int | None = None

    def enter(self, now_ms: int, to: Emitter) -> None:
        """Begin with an event; at the end of a period its chunk still belongs to it."""
        if self._due_ms is None:
            gone = 0 if self._start_ms is None else (now_ms - self._start_ms) % self._span_ms
            self._due_ms = now_ms + self._span_ms - gone
            to.alarms.append(self._due_ms)
        if self._ends_ms is None:
            self.fire(now_ms, to)

    def fire(self, now_ms: int, to: Emitter) -> None:
        """End the period if its time is over."""
        if self._due_ms is not None and now_ms >= self._due_ms:
            self._due_ms += self._span_ms
            to.alarms.append(self._due_ms)
            self._ends_ms = now_ms

    def end(self) -> int | None:
        """The time at which a period has ended with this chunk; None if none has."""
        ends_ms, self._ends_ms = self._ends_ms, None
        return ends_ms

    def dump(self) -> object:
        """Its state between chunks, as JSON."""
        return self._due_ms

    def load_dump(self, state: Json) -> None:
        """Restore what ``dump`` returned."""
        self._due_ms = state
