"""``#unique:deduplicate(key, t)``: the first event of a key, and none of it for a time.

Source: API documentation of siddhi-execution-unique 5.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.functions.objects import object_text
from mesh.operators.base import CURRENT
from mesh.operators.windows.contents import encoded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mesh.model.values import Json, Row
    from mesh.operators.windows.contents import Emitter


class Deduplicate:
    """The keys of one instance that have come within the time, in order of arrival.

    A key counts from its first event: those that are dropped don't prolong its time.  Keys are
    forgotten when an event arrives, as nothing is emitted then.
    """

    def __init__(self, span_ms: int) -> None:
        self._span_ms = span_ms
        #: By key its number, time and part of the state.
        self._keys: dict[str, tuple[int, int, str]] = {}
        self._came = 0

    def take(self, row: int, time_ms: int, now_ms: int, values: Row, to: Emitter) -> None:
        """Emit or drop one event."""
        while self._keys:
            oldest = next(iter(self._keys))
            if time_ms - self._keys[oldest][1] <= self._span_ms:
                break
            del self._keys[oldest]
        key = object_text(values[0])
        if key not in self._keys:
            self._came += 1
            self._keys[key] = (self._came, time_ms, encoded([key, time_ms]))
            to.emit(row, CURRENT, time_ms)

    def fire(self, due_ms: int, now_ms: int, to: Emitter) -> None:
        """Do nothing: there are no timers."""

    def finish(self, to: Emitter) -> None:
        """Nothing follows the events of a chunk."""

    def rows(self) -> Iterable[int]:
        """No row is kept."""
        return ()

    def join_rows(self) -> Sequence[tuple[int, int]]:
        """No join reads it."""
        return ()

    def lists(self) -> Iterable[tuple[int, Sequence[tuple[int, int]]]]:
        """No lists."""
        return ()

    def parts(self) -> Iterable[tuple[int, str]]:
        """The number of keys that came, and a part for each that is known."""
        yield 0, encoded(self._came)
        for number, _, text in self._keys.values():
            yield number, text

    def load(
        self, parts: Mapping[int, Json], lists: Mapping[int, Sequence[tuple[int, int]]]
    ) -> None:
        """Restore the values of ``parts``."""
        self._came = parts[0]
        for number in sorted(parts.keys() - {0}):
            key, time_ms = parts[number]
            self._keys[key] = (number, time_ms, encoded([key, time_ms]))
