"""Sliding windows of a single instance as a queue: rows arrive and expire in the same order.

The window holds rows ``head..last``.  Downstream ignores expired events, so only their position
relative to the next current event matters.  No timer is needed: every row due at or before an
event's clock is expired before that event is processed.

The loops of ``length``, ``time`` and ``externalTime``; see ``sliding`` for their semantics.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mesh.operators.base import BEFORE_ALL, CURRENT, EXPIRED
from mesh.operators.native import BYTE1, LONG1, LONG2, native, types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mesh.operators.base import Kinds, Longs

#: Parameters of a loop: number of the first event's row, end time of the run, argument of the
#: window, the row that ``due`` begins with; and the values that it changes: head and latest time.
Q_BASE, Q_NOW, Q_SIZE, Q_FIRST, Q_HEAD, Q_LATEST = range(6)
#: Rows of ``ev``: time, clock or attribute, and the value kept as the row's time.
QE_TIME, QE_CLOCK, QE_ROW_TIME = range(3)

#: Arguments of the loops: ev, par, due, and row and kind of the output; they return its length.
_QUEUE = types.int64(LONG2, LONG1, LONG1, LONG1, BYTE1)


@native(_QUEUE)
def length_queue(ev, par, due, row, kind):
    """``length(n)``, n > 0."""
    head, base, size = par[Q_HEAD], par[Q_BASE], par[Q_SIZE]
    count = 0
    for number in range(base, base + ev.shape[1]):
        if number - head == size:
            row[count], kind[count] = head, EXPIRED
            head += 1
            count += 1
        row[count], kind[count] = number, CURRENT
        count += 1
    par[Q_HEAD] = head
    return count


@native(_QUEUE)
def time_queue(ev, par, due, row, kind):
    """``time(t)``: ``due[k]`` is the due time of row ``k``, after ``Q_FIRST``."""
    head, base, first, latest = par[Q_HEAD], par[Q_BASE], par[Q_FIRST], par[Q_LATEST]
    span = par[Q_SIZE]
    count = 0
    events = ev.shape[1]
    for e in range(events):
        while head < base + e and due[head - first] <= ev[QE_CLOCK, e]:
            row[count], kind[count] = head, EXPIRED
            head += 1
            count += 1
        latest = max(latest, ev[QE_TIME, e])
        ev[QE_ROW_TIME, e] = latest + span
        due[base + e - first] = latest + span
        row[count], kind[count] = base + e, CURRENT
        count += 1
    while head < base + events and due[head - first] <= par[Q_NOW]:
        row[count], kind[count] = head, EXPIRED
        head += 1
        count += 1
    par[Q_HEAD], par[Q_LATEST] = head, latest
    return count


@native(_QUEUE)
def external_time_queue(ev, par, due, row, kind):
    """``externalTime(ts, t)``: ``due`` holds the attribute; time alone expires nothing."""
    head, base, first, span = par[Q_HEAD], par[Q_BASE], par[Q_FIRST], par[Q_SIZE]
    count = 0
    for e in range(ev.shape[1]):
        now = ev[QE_CLOCK, e]
        while head < base + e and due[head - first] <= now - span:
            row[count], kind[count] = head, EXPIRED
            head += 1
            count += 1
        ev[QE_ROW_TIME, e] = now
        due[base + e - first] = now
        row[count], kind[count] = base + e, CURRENT
        count += 1
    par[Q_HEAD] = head
    return count


class SlidingRowQueue:
    """The rows from ``head`` on, and when each is due."""

    def __init__(
        self,
        loop: Callable[..., int],
        argument: int,
        head: int,
        latest: int = BEFORE_ALL,
        times: Iterable[tuple[Longs, Longs]] = (),
    ) -> None:
        """Restore ``times``: numbers and times of rows, which may have left already."""
        self._loop = loop
        self._par = np.zeros(6, dtype=np.int64)
        self._par[[Q_SIZE, Q_HEAD, Q_FIRST, Q_LATEST]] = argument, head, head, latest
        self._due = np.empty(0, dtype=np.int64)
        for numbers, due in times:
            retained = numbers >= head
            if retained.any():
                last = int(numbers[-1])
                self._room(last + 1 - head)
                self._due[numbers[retained] - head] = due[retained]

    @property
    def head(self) -> int:
        """The first row that has not left, or the next one to arrive."""
        return int(self._par[Q_HEAD])

    @property
    def latest(self) -> int:
        """The latest time that an event had."""
        return int(self._par[Q_LATEST])

    def run(self, ev: Longs, base: int, now_ms: int) -> tuple[Longs, Kinds]:
        """Row numbers and kinds of arriving and expiring rows, in order.

        ``ev``: int64[3, n], by ``QE_TIME`` ..; ``QE_ROW_TIME`` is filled.  ``base``: the number of
        the first event's row.
        """
        par = self._par
        if not ev.shape[1] and par[Q_HEAD] == base:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int8)
        most = base - self.head + 2 * ev.shape[1]
        if self._loop is not length_queue:
            self._drop_left()
            self._room(base - int(par[Q_FIRST]) + ev.shape[1])
        row, kind = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int8)
        par[Q_BASE], par[Q_NOW] = base, now_ms
        count = self._loop(ev, par, self._due, row, kind)
        return row[:count], kind[:count]

    def due_at(self) -> int:
        """The time at which the first row expires; the queue is not empty."""
        return int(self._due[self._par[Q_HEAD] - self._par[Q_FIRST]])

    def _drop_left(self) -> None:
        """Move the rows to the front once as many have expired."""
        par = self._par
        gone = int(par[Q_HEAD] - par[Q_FIRST])
        if 2 * gone > len(self._due):
            live = len(self._due) - gone
            self._due[:live] = self._due[gone:]
            par[Q_FIRST] += gone

    def _room(self, need: int) -> None:
        if need > len(self._due):
            # In place where the system can: copying ten million rows would be noticeable.
            self._due.resize(max(need, len(self._due) + len(self._due) // 8), refcheck=False)
