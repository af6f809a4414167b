"""``hopping(t, h)``: every h the events of the last t, as a batch.

Hops begin with the first event.  A batch expires when the next one is emitted, of which it has
events if t is longer than h; if h is longer, the events before the last t of a hop are in none.
With t = h it is ``timeBatch(t)``.

Events are held by panes, the spans of gcd(t, h) that no batch divides, so that a hop drops whole
panes (Li et al., "No pane, no gain", 2005).

Source: the engine's later documentation has the parameters; the rest follows ``timeBatch``, as
observed on Siddhi 5.1.7.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from mesh.operators.base import CURRENT, EXPIRED, RESET
from mesh.operators.windows.contents import encoded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mesh.operators.windows.contents import Emitter

#: Panes are numbered without end, and lists of a state up to this: two years of milliseconds.
_LISTS: Final = 1 << 36


class Hopping:
    """The panes that a coming batch may have, of one instance."""

    def __init__(self, span_ms: int, hop_ms: int) -> None:
        self._hop_ms = hop_ms
        self._pane_ms = math.gcd(span_ms, hop_ms)
        #: Panes of a batch, and of a hop.
        self._in_batch, self._in_hop = span_ms // self._pane_ms, hop_ms // self._pane_ms
        #: (row, time) of the events of each pane, by its number, in order.
        self._panes: dict[int, list[tuple[int, int]]] = {}
        #: End of the present hop, and number of the pane that begins there.
        self._due_ms: int | None = None
        self._end = 0
        #: Time of the last batch with events.
        self._emitted_ms: int | None = None
        #: A hop ends with this chunk of events, at this time.
        self._ends_ms: int | None = None

    def take(
        self, row: int, time_ms: int, now_ms: int, values: tuple[Any, ...], to: Emitter
    ) -> None:
        """Add one event; it waits for the end of the hop."""
        if self._due_ms is None:
            self._due_ms, self._end = now_ms + self._hop_ms, self._in_hop
            to.alarms.append(self._due_ms)
        if self._ends_ms is None:
            self.fire(now_ms, now_ms, to)
        if self._ends_ms is not None:
            # The chunk that ends a hop belongs to it, as in timeBatch.
            pane = self._begin - 1
        else:
            pane = self._end - 1 - (self._due_ms - 1 - now_ms) // self._pane_ms
        self._panes.setdefault(pane, []).append((row, time_ms))

    @property
    def _begin(self) -> int:
        """The first pane of the present hop: those before it are in the last batch."""
        return self._end - self._in_hop

    def fire(self, due_ms: int, now_ms: int, to: Emitter) -> None:
        """End the hop, unless events have ended it."""
        if self._due_ms is not None and now_ms >= self._due_ms:
            self._due_ms += self._hop_ms
            self._end += self._in_hop
            to.alarms.append(self._due_ms)
            self._ends_ms = now_ms

    def finish(self, to: Emitter) -> None:
        """Emit the batch, if its hop is over."""
        now_ms, self._ends_ms = self._ends_ms, None
        if now_ms is None:
            return
        for row, _ in self._before(self._begin - self._in_hop):
            to.emit(row, EXPIRED, now_ms)
        for pane in [one for one in self._panes if one < self._begin - self._in_batch]:
            del self._panes[pane]
        batch = self._before(self._begin)
        if batch:
            if self._emitted_ms is not None:
                to.emit(batch[0][0], RESET, self._emitted_ms)
            self._emitted_ms = now_ms
        for row, time_ms in batch:
            to.emit(row, CURRENT, time_ms)

    def _before(self, pane: int) -> list[tuple[int, int]]:
        """The events of the panes before one."""
        return [event for one, events in self._panes.items() if one < pane for event in events]

    def rows(self) -> Iterable[int]:
        """The rows in it."""
        return [row for events in self._panes.values() for row, _ in events]

    def join_rows(self) -> Sequence[tuple[int, int]]:
        """The rows that a join finds: the batch that was emitted last."""
        return self._before(self._begin)

    def lists(self) -> Iterable[tuple[int, Sequence[tuple[int, int]]]]:
        """The panes."""
        return [(pane % _LISTS, events) for pane, events in self._panes.items()]

    def parts(self) -> Iterable[tuple[int, str]]:
        """The end of the hop with the number of its pane, and the time of the last batch."""
        return [(0, encoded([self._due_ms, self._end, self._emitted_ms]))]

    def load(
        self, parts: Mapping[int, Any], lists: Mapping[int, Sequence[tuple[int, int]]]
    ) -> None:
        """Restore what ``parts`` and ``lists`` returned."""
        self._due_ms, self._end, self._emitted_ms = parts[0]
        last = self._end - 1
        panes = {last - (last - number) % _LISTS: list(events) for number, events in lists.items()}
        self._panes = dict(sorted(panes.items()))
