"""``session(gap, key, latency)``: events pass on, and expire as a session when none came for a gap.

With a latency a session that is over waits that long for late events, as the previous one; a late
event may join the running session to it.

Source: observed on Siddhi 5.1.7.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

from mesh.operators.windows.java_maps import spread
from mesh.operators.windows.machine import CURRENT, EXPIRED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa

    from mesh.operators.windows.plain import Sink

#: The key of all events where none is named.
_NO_KEY = "default-key"


class _Session:
    """Events, (row, time), with start, end and the time up to which late ones may come.

    ``cursor``: where the last late event went in before; the engine goes one on from there each
    time it looks for the place of the next one, and so do we.
    """

    __slots__ = ("alive", "cursor", "end", "events", "start")

    def __init__(self) -> None:
        self.events: list[tuple[int, int]] = []
        self.cursor: int | None = None
        self.start = self.end = self.alive = 0

    def set_times(self, start: int, end: int, alive: int) -> None:
        self.start, self.end, self.alive = start, end, alive

    def clear(self) -> None:
        self.events = []
        self.cursor = None

    def put_in_front(self, events: list[tuple[int, int]]) -> None:
        """Insert events before the cursor."""
        at = -1 if self.cursor is None else self.cursor
        if at + 1 < len(self.events):
            at += 1
        self.events[at:at] = events
        self.cursor = at + len(events)

    def dump(self) -> list[Any]:
        return [self.events, self.cursor, self.start, self.end, self.alive]

    @classmethod
    def of(cls, state: Any) -> _Session:
        session = cls()
        events, session.cursor, session.start, session.end, session.alive = state
        session.events = [(row, time) for row, time in events]
        return session


class Sessions:
    """The running and the previous session of each key, of one partition instance."""

    def __init__(self, gap: int, latency: int) -> None:
        self._gap = gap
        self._latency = latency
        self._keys: dict[str, tuple[_Session, _Session]] = {}
        self._expired: list[tuple[int, int]] = []
        #: The length of the table of the map by which the engine goes through the keys.
        self._table = 16

    def take(self, row: int, time_ms: int, now_ms: int, values: tuple[Any, ...], to: Sink) -> None:
        """Take one event."""
        key = values[0] if values else _NO_KEY
        if key not in self._keys:
            self._keys[key] = (_Session(), _Session())
        current, previous = self._keys[key]
        end = time_ms + self._gap
        alive = end + self._latency
        event = (row, time_ms)
        if not current.events:
            current.events.append(event)
            current.set_times(time_ms, end, alive)
            to.alarms.append(end)
        elif time_ms >= current.start:
            if time_ms <= current.end:
                current.set_times(current.start, end, alive)
                current.events.append(event)
                to.alarms.append(end)
            elif self._latency > 0:
                self._end_current(current, previous, to)
                current.set_times(time_ms, end, alive)
                current.events.append(event)
                to.alarms.append(end)
            # Without a latency it passes, and belongs to no session.
        elif not self._take_late(event, current, previous):
            return
        to.emit(row, CURRENT, time_ms)

    def _end_current(self, current: _Session, previous: _Session, to: Sink) -> None:
        """Let the running session be the previous one, which expires."""
        self._expired += previous.events
        if previous.events:
            previous.clear()
        previous.events += current.events
        previous.set_times(current.start, current.end, current.alive)
        to.alarms.append(current.alive)
        current.clear()

    def _take_late(self, event: tuple[int, int], current: _Session, previous: _Session) -> bool:
        """An event from before the running session; False: it is dropped."""
        time = event[1]
        if time >= current.start - self._gap:
            current.put_in_front([event])
            current.start = time
            if self._latency > 0:
                self._merge(previous, current)
            return True
        if self._latency == 0 or not previous.events or time < previous.start - self._gap:
            return False
        previous.events.append(event)
        if time <= previous.end - self._gap and time < previous.start:
            previous.start = time
        else:
            previous.end = time + self._gap
            previous.alive = previous.end + self._latency
            self._merge(previous, current)
        return True

    def _merge(self, previous: _Session, current: _Session) -> None:
        if previous.events and previous.end >= current.start - self._gap:
            current.put_in_front(previous.events)
            current.start = previous.start
            previous.clear()

    def fire(self, due_ms: int, now_ms: int, to: Sink) -> None:
        """End the sessions that are over at ``due_ms``."""
        for key in self._over(0, due_ms):
            current, previous = self._keys[key]
            if self._latency > 0:
                previous.events += current.events
                previous.set_times(current.start, current.end, current.alive)
                to.alarms.append(current.alive)
            else:
                self._expired += current.events
            current.clear()
        if self._latency > 0:
            for key in self._over(1, due_ms):
                previous = self._keys[key][1]
                if due_ms < previous.alive:
                    # The engine looks no further.
                    break
                self._expired += previous.events
                previous.clear()

    def _over(self, which: int, due_ms: int) -> list[str]:
        """The keys whose session is over, by its end, and then as the engine's map has them."""
        keys = [(key, pair[which]) for key, pair in self._keys.items() if pair[which].events]
        while len(keys) > self._table * 3 // 4:
            self._table *= 2
        over = [(s.end, spread(key) & (self._table - 1), key) for key, s in keys if s.end <= due_ms]
        if len(over) > 1:
            over.sort(key=itemgetter(0, 1))
        return [key for _, _, key in over]

    def finish(self, to: Sink) -> None:
        """What expired goes behind the events of the chunk."""
        for row, time_ms in self._expired:
            to.emit(row, EXPIRED, time_ms)
        self._expired = []

    def rows(self) -> Iterable[int]:
        """The rows in it."""
        return [row for pair in self._keys.values() for s in pair for row, _ in s.events]

    def found(self) -> Sequence[tuple[int, int]]:
        """Joins find nothing: the engine has them look at what is about to expire."""
        return []

    def dump(self) -> Any:
        """Its state as JSON."""
        keys = [
            [key, current.dump(), previous.dump()]
            for key, (current, previous) in self._keys.items()
        ]
        return [self._table, keys]

    def load(self, state: Any) -> None:
        """Take over what ``dump`` gave."""
        self._table, keys = state
        self._keys = {
            key: (_Session.of(current), _Session.of(previous)) for key, current, previous in keys
        }


def session_keys(name: str | None) -> Callable[[pa.RecordBatch], Sequence[list[Any]]]:
    """The sessions' keys."""

    def keys(rows: pa.RecordBatch) -> Sequence[list[Any]]:
        if name is None:
            return []
        return [["null" if key is None else key for key in rows.column(name).to_pylist()]]

    return keys
