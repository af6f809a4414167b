"""``session(gap, key, latency)``: events are emitted on arrival; a session expires after a gap.

With a latency a session that is over waits that long for late events, as the previous session; a
late event may merge it with the running one.

Source: observed on Siddhi 5.1.7.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from mesh.operators.base import CURRENT, EXPIRED
from mesh.operators.windows.contents import encoded
from mesh.operators.windows.java_hash_order import spread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pyarrow as pa

    from mesh.model.values import Json, Row
    from mesh.operators.windows.contents import Emitter

#: The key of all events where none is named.
_NO_KEY = "default-key"
#: Numbers of a key's two sessions.
_CURRENT, _PREVIOUS = range(2)
#: ``indexed_end_ms`` of a session that is being processed, and not in the heap.
_NOT_INDEXED: Final = -1


@dataclass(slots=True)
class _Session:
    """Events, (row, time), with start, end and the time up to which late ones may come.

    ``cursor``: where the last late event was inserted; the engine advances by one from there
    each time it searches the place of the next one, and so does this code.  ``indexed_end_ms``: the
    end under which the heap of ends has the session, never later than its own; None without events.
    """

    events: list[tuple[int, int]] = field(default_factory=list)
    cursor: int | None = None
    start: int = 0
    end: int = 0
    late_until_ms: int = 0
    indexed_end_ms: int | None = None

    def set_times(self, start: int, end: int, late_until_ms: int) -> None:
        self.start, self.end, self.late_until_ms = start, end, late_until_ms

    def clear(self) -> None:
        self.events = []
        self.cursor = None

    def insert_before_cursor(self, events: list[tuple[int, int]]) -> None:
        """Insert events before the cursor."""
        at = -1 if self.cursor is None else self.cursor
        if at + 1 < len(self.events):
            at += 1
        self.events[at:at] = events
        self.cursor = at + len(events)

    def dump(self) -> object:
        return [self.cursor, self.start, self.end, self.late_until_ms]


@dataclass(slots=True)
class _Key:
    """A key's sessions, the running and the previous one; keys are numbered in order of arrival."""

    name: str
    number: int
    sessions: tuple[_Session, _Session]
    #: Its part of the state; None if that may have changed.
    text: str | None = None


class Sessions:
    """The sessions of each key that has any, of one partition instance.

    The engine checks the sessions of all keys whenever one may be over.  Here each waits in a
    heap under an end that is not later than its own.  If that is reached first, the session is put
    back with the right one; so the cost is the same with many keys as with few.  Keys without
    events are forgotten.
    """

    def __init__(self, gap: int, latency: int) -> None:
        self._gap = gap
        self._latency = latency
        self._keys: dict[str, _Key] = {}
        self._came = 0
        self._expired: list[tuple[int, int]] = []
        #: The length of the table of the engine's map, which decides the order of the keys.
        self._table = 16
        #: Of running and of previous sessions: ends with keys, and how many have events.
        self._ends: tuple[list[tuple[int, str]], ...] = ([], [])
        self._live = [0, 0]

    def take(self, row: int, time_ms: int, now_ms: int, values: Row, to: Emitter) -> None:
        """Add one event."""
        name = values[0] if values else _NO_KEY
        key = self._keys.get(name)
        if key is None:
            key = self._keys[name] = _Key(name, self._came, (_Session(), _Session()))
            self._came += 1
        if self._put(row, time_ms, key, to):
            to.emit(row, CURRENT, time_ms)
        self._follow(_CURRENT, key)
        if self._latency > 0:
            self._follow(_PREVIOUS, key)

    def _put(self, row: int, time_ms: int, key: _Key, to: Emitter) -> bool:
        """Put an event into a session of its key, or into none; False: it is dropped."""
        current, previous = key.sessions
        end = time_ms + self._gap
        late_until_ms = end + self._latency
        event = (row, time_ms)
        if not current.events:
            current.events.append(event)
            current.set_times(time_ms, end, late_until_ms)
            to.alarms.append(end)
        elif time_ms >= current.start:
            if time_ms <= current.end:
                current.set_times(current.start, end, late_until_ms)
                current.events.append(event)
                to.alarms.append(end)
            elif self._latency > 0:
                self._end_current(current, previous, to)
                current.set_times(time_ms, end, late_until_ms)
                current.events.append(event)
                to.alarms.append(end)
            # Without a latency it passes, and belongs to no session.
        else:
            return self._take_late(event, current, previous)
        return True

    def _follow(self, which: int, key: _Key) -> None:
        """Index a session that may have changed, under an end that is not later than its own."""
        key.text = None
        session = key.sessions[which]
        if not session.events:
            if session.indexed_end_ms is not None:
                session.indexed_end_ms = None
                self._live[which] -= 1
            return
        if session.indexed_end_ms is None:
            self._live[which] += 1
        elif session.indexed_end_ms != _NOT_INDEXED and session.indexed_end_ms <= session.end:
            return
        session.indexed_end_ms = session.end
        heappush(self._ends[which], (session.end, key.name))

    def _end_current(self, current: _Session, previous: _Session, to: Emitter) -> None:
        """Let the running session be the previous one, which expires."""
        self._expired += previous.events
        if previous.events:
            previous.clear()
        previous.events += current.events
        previous.set_times(current.start, current.end, current.late_until_ms)
        to.alarms.append(current.late_until_ms)
        current.clear()

    def _take_late(self, event: tuple[int, int], current: _Session, previous: _Session) -> bool:
        """An event from before the running session; False: it is dropped."""
        time = event[1]
        if time >= current.start - self._gap:
            current.insert_before_cursor([event])
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
            previous.late_until_ms = previous.end + self._latency
            self._merge(previous, current)
        return True

    def _merge(self, previous: _Session, current: _Session) -> None:
        if previous.events and previous.end >= current.start - self._gap:
            current.insert_before_cursor(previous.events)
            current.start = previous.start
            previous.clear()

    def fire(self, due_ms: int, now_ms: int, to: Emitter) -> None:
        """End the sessions that are over at ``due_ms``."""
        for key in self._over(_CURRENT, due_ms):
            current, previous = key.sessions
            if self._latency > 0:
                previous.events += current.events
                previous.set_times(current.start, current.end, current.late_until_ms)
                to.alarms.append(current.late_until_ms)
            else:
                self._expired += current.events
            current.clear()
            self._follow(_CURRENT, key)
            if self._latency > 0:
                self._follow(_PREVIOUS, key)
            else:
                del self._keys[key.name]
        if self._latency > 0:
            self._expire_previous(due_ms)

    def _expire_previous(self, due_ms: int) -> None:
        over = self._over(_PREVIOUS, due_ms)
        for key in over:
            previous = key.sessions[_PREVIOUS]
            if due_ms < previous.late_until_ms:
                # The engine looks no further.
                break
            self._expired += previous.events
            previous.clear()
        for key in over:
            self._follow(_PREVIOUS, key)
            if not any(session.events for session in key.sessions):
                del self._keys[key.name]

    def _over(self, which: int, due_ms: int) -> list[_Key]:
        """The keys with a finished session, by its end, and then as in the engine's map.

        The caller passes each to ``_follow`` when it is done with it.
        """
        while self._live[which] > self._table * 3 // 4:
            self._table *= 2
        ends = self._ends[which]
        over = []
        while ends and ends[0][0] <= due_ms:
            end, name = heappop(ends)
            key = self._keys.get(name)
            if key is None or key.sessions[which].indexed_end_ms != end:
                continue
            session = key.sessions[which]
            if session.end > due_ms:
                session.indexed_end_ms = session.end
                heappush(ends, (session.end, name))
                continue
            session.indexed_end_ms = _NOT_INDEXED
            over.append((session.end, spread(name) & (self._table - 1), key.number, key))
        if len(over) > 1:
            over.sort(key=itemgetter(0, 1, 2))
        return [key for *_, key in over]

    def finish(self, to: Emitter) -> None:
        """Expired events follow the events of the chunk."""
        if self._expired:
            for row, time_ms in self._expired:
                to.emit(row, EXPIRED, time_ms)
            self._expired = []

    def rows(self) -> Iterable[int]:
        """The rows in it."""
        return [row for key in self._keys.values() for s in key.sessions for row, _ in s.events]

    def join_rows(self) -> Sequence[tuple[int, int]]:
        """Joins find nothing: the engine lets them search only the events about to expire."""
        return []

    def lists(self) -> Iterable[tuple[int, Sequence[tuple[int, int]]]]:
        """The events of each session that has any; a key has two."""
        for key in self._keys.values():
            for which, session in enumerate(key.sessions):
                if session.events:
                    yield 2 * key.number + which, session.events

    def parts(self) -> Iterable[tuple[int, str]]:
        """Part 0 is about all keys; each key has one part."""
        yield 0, encoded([self._table, self._came])
        for key in self._keys.values():
            if key.text is None:
                key.text = encoded([key.name, *(session.dump() for session in key.sessions)])
            yield key.number + 1, key.text

    def load(
        self, parts: Mapping[int, Json], lists: Mapping[int, Sequence[tuple[int, int]]]
    ) -> None:
        """Restore what ``parts`` and ``lists`` returned."""
        self._table, self._came = parts[0]
        for part, (name, *states) in sorted(parts.items())[1:]:
            number = part - 1
            current, previous = (
                _Session(list(lists.get(2 * number + which, ())), *state)
                for which, state in enumerate(states)
            )
            self._add(_Key(name, number, (current, previous)))

    def _add(self, key: _Key) -> None:
        self._keys[key.name] = key
        for which in (_CURRENT, _PREVIOUS):
            self._follow(which, key)


def session_keys(name: str | None) -> Callable[[pa.RecordBatch], Sequence[Sequence[object]]]:
    """The sessions' keys."""

    def keys(rows: pa.RecordBatch) -> Sequence[Sequence[object]]:
        if name is None:
            return []
        return [["null" if key is None else key for key in rows.column(name).to_pylist()]]

    return keys
