"""Batch windows: events are held until their batch is full or over, then emitted as one chunk.

The loops of ``lengthBatch``, ``timeBatch`` and ``batch``.  The previous batch is emitted first, as
expired events; then a reset of the aggregates; then the batch.  With ``stream.current.event``
events are emitted on arrival, and expire as a batch.

Source: observed on Siddhi 5.1.7, live and in playback.

``cron('..')``: the events since the last time of a schedule are emitted as a batch.

The batch expires when the next one is emitted.  The schedule begins with the window: if it contains
that second, an event that arrives within it is emitted at once.

Source: observed on Siddhi 5.1.7, live.

``hopping(t, h)``: every h the events of the last t, as a batch.

Hops begin with the first event.  A batch expires when the next one is emitted, of which it has
events if t is longer than h; if h is longer, the events before the last t of a hop are in none.
With t = h it is ``timeBatch(t)``.

Events are held by panes, the spans of gcd(t, h) that no batch divides, so that a hop drops whole
panes (Li et al., "No pane, no gain", 2005).

Source: the engine's later documentation has the parameters; the rest follows ``timeBatch``, as
observed on Siddhi 5.1.7.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from mesh.operators.base import CURRENT, EXPIRED, NIL, RESET
from mesh.operators.native import helper, native
from mesh.operators.windows.contents import encoded
from mesh.operators.windows.window_loop import (
    A_COUNT,
    A_HEAD,
    A_ROW,
    B_HEAD,
    B_ROW,
    COMMON,
    E_CLOCK,
    E_INSTANCE,
    E_ORDER,
    E_PATH,
    E_TIME,
    LOOP,
    M_PIECE,
    P_ARGS,
    P_BASE,
    P_EXPIRED,
    ROW,
    TIME,
    add,
    arm,
    begin,
    emit,
    ends_chunk,
    free_node,
    new_node,
    next_timer,
    poll,
    skip_idle,
    timer_before,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mesh.functions.cron import Cron
    from mesh.model.values import Json, Row
    from mesh.operators.windows.contents import Emitter


#: Events since the batch began; whether any arrived since the last reset.
COUNT, DIRTY = COMMON, COMMON + 1
#: Time at which the running batch ends; 0 before the first event.
EMIT_AT = COMMON


@helper
def _expire(par, node, reg, meta, out, i, time, clock, order, path):
    """Expire the previous batch."""
    while reg[i, B_HEAD] != NIL:
        n = poll(node, reg, i, B_HEAD)
        if par[P_EXPIRED] != 0:
            emit(out, meta, node[n, ROW], EXPIRED, time, clock, order, path, i)
        free_node(node, meta, n)


@helper
def _let_go(par, node, reg, meta, out, i, clock, order, path):
    """Emit the batch; it expires next."""
    while reg[i, A_HEAD] != NIL:
        n = poll(node, reg, i, A_HEAD)
        emit(out, meta, node[n, ROW], CURRENT, node[n, TIME], clock, order, path, i)
        if par[P_EXPIRED] != 0:
            node[n, 2] = NIL
            add(node, reg, i, B_HEAD, n)
        else:
            reg[i, B_ROW] = node[n, ROW] + 1
            free_node(node, meta, n)


@native(LOOP)
def length_batch_loop(ev, clocks, par, node, reg, heap, meta, out):
    """``lengthBatch(n, stream.current.event)``: n events at a time."""
    size, streams = par[P_ARGS], par[P_ARGS + 1] != 0
    for e in range(ev.shape[1]):
        begin(ev, meta, e)
        i, row = ev[E_INSTANCE, e], par[P_BASE] + e
        time, clock = ev[E_TIME, e], ev[E_CLOCK, e]
        order, path = ev[E_ORDER, e], ev[E_PATH, e]
        meta[M_PIECE] += 1
        if size == 0:
            emit(out, meta, row, CURRENT, time, clock, order, path, i)
            if par[P_EXPIRED] != 0:
                emit(out, meta, row, EXPIRED, clock, clock, order, path, i)
            emit(out, meta, row, RESET, clock, clock, order, path, i)
            reg[i, A_ROW] = row + 1
            reg[i, B_ROW] = row + 1
            continue
        reg[i, COUNT] += 1
        if streams:
            if reg[i, COUNT] == size + 1:
                _expire(par, node, reg, meta, out, i, clock, clock, order, path)
                emit(out, meta, row, RESET, clock, clock, order, path, i)
                reg[i, COUNT] = 1
            emit(out, meta, row, CURRENT, time, clock, order, path, i)
            reg[i, A_ROW] = row + 1
            if par[P_EXPIRED] != 0:
                add(node, reg, i, B_HEAD, new_node(node, meta, row, time))
            else:
                reg[i, B_ROW] = row + 1
            continue
        add(node, reg, i, A_HEAD, new_node(node, meta, row, time))
        if reg[i, COUNT] == size:
            _expire(par, node, reg, meta, out, i, clock, clock, order, path)
            emit(out, meta, row, RESET, clock, clock, order, path, i)
            _let_go(par, node, reg, meta, out, i, clock, order, path)
            reg[i, COUNT] = 0


@helper
def _time_is_up(par, node, reg, meta, out, i, clock, order, path):
    """End the running time batch."""
    _expire(par, node, reg, meta, out, i, clock, clock, order, path)
    if reg[i, DIRTY] != 0:
        emit(out, meta, NIL, RESET, clock, clock, order, path, i)
        reg[i, DIRTY] = 0
    _let_go(par, node, reg, meta, out, i, clock, order, path)


@native(LOOP)
def time_batch_loop(ev, clocks, par, node, reg, heap, meta, out):
    """``timeBatch(t, start.time, stream.current.event)``: the events of t milliseconds."""
    span, has_start, start, streams = (
        par[P_ARGS],
        par[P_ARGS + 1] != 0,
        par[P_ARGS + 2],
        par[P_ARGS + 3] != 0,
    )
    sends = False
    for e in range(ev.shape[1] + 1):
        idle = 0
        while timer_before(ev, clocks, par, reg, heap, meta, e):
            i, clock, order, path = next_timer(clocks, par, reg, heap, meta)
            is_empty = reg[i, A_HEAD] == NIL and reg[i, B_HEAD] == NIL and reg[i, DIRTY] == 0
            idle = idle + 1 if is_empty else 0
            if clock >= reg[i, EMIT_AT]:
                reg[i, EMIT_AT] += span
                _time_is_up(par, node, reg, meta, out, i, clock, order, path)
            arm(reg, heap, meta, i, reg[i, EMIT_AT])
            skip_idle(ev, par, reg, heap, meta, e, idle, span, EMIT_AT)
        if e == ev.shape[1]:
            break
        i, row = ev[E_INSTANCE, e], par[P_BASE] + e
        time, clock = ev[E_TIME, e], ev[E_CLOCK, e]
        order, path = ev[E_ORDER, e], ev[E_PATH, e]
        first = begin(ev, meta, e) or e == 0 or ev[E_INSTANCE, e - 1] != i
        if first:
            if reg[i, EMIT_AT] == 0:
                reg[i, EMIT_AT] = clock + span
                if has_start:
                    # The remainder has the sign of the dividend, as in Java.
                    past = clock - start
                    over = abs(past) % span
                    reg[i, EMIT_AT] -= over if past >= 0 else -over
                arm(reg, heap, meta, i, reg[i, EMIT_AT])
            sends = clock >= reg[i, EMIT_AT]
            if sends:
                reg[i, EMIT_AT] += span
                arm(reg, heap, meta, i, reg[i, EMIT_AT])
        reg[i, DIRTY] = 1
        if streams:
            emit(out, meta, row, CURRENT, time, clock, order, path, i)
            reg[i, A_ROW] = row + 1
            if par[P_EXPIRED] != 0:
                add(node, reg, i, B_HEAD, new_node(node, meta, row, time))
            else:
                reg[i, B_ROW] = row + 1
        else:
            add(node, reg, i, A_HEAD, new_node(node, meta, row, time))
        if sends and ends_chunk(ev, e):
            _time_is_up(par, node, reg, meta, out, i, clock, order, path)
            sends = False


@native(LOOP)
def batch_loop(ev, clocks, par, node, reg, heap, meta, out):
    """``batch(n)``: the events of one chunk, n at a time; all of them with n = 0."""
    size = par[P_ARGS]
    for e in range(ev.shape[1]):
        i, row = ev[E_INSTANCE, e], par[P_BASE] + e
        time, clock = ev[E_TIME, e], ev[E_CLOCK, e]
        order, path = ev[E_ORDER, e], ev[E_PATH, e]
        if begin(ev, meta, e) or e == 0 or ev[E_INSTANCE, e - 1] != i:
            meta[M_PIECE] += 1
            if par[P_EXPIRED] != 0 and reg[i, B_HEAD] != NIL:
                _expire(par, node, reg, meta, out, i, clock, clock, order, path)
                if reg[i, DIRTY] != 0:
                    emit(out, meta, row, RESET, clock, clock, order, path, i)
                    reg[i, DIRTY] = 0
        add(node, reg, i, A_HEAD, new_node(node, meta, row, time))
        ends = ends_chunk(ev, e)
        if reg[i, A_COUNT] == size or ends:
            if reg[i, DIRTY] != 0:
                emit(out, meta, row, RESET, clock, clock, order, path, i)
            reg[i, DIRTY] = 1
            _let_go(par, node, reg, meta, out, i, clock, order, path)
            if not ends:
                meta[M_PIECE] += 1


class CronBatch:
    """The batch that is gathered, and the one before it, of one instance."""

    def __init__(self, schedule: Cron) -> None:
        self._schedule = schedule
        #: (row, time) each.
        self._current: list[tuple[int, int]] = []
        self._expires: list[tuple[int, int]] = []
        self._batch = 1

    def take(self, row: int, time_ms: int, now_ms: int, values: Row, to: Emitter) -> None:
        """Add one event; it waits for the batch."""
        if not self._current:
            after = self._schedule.first_from if to.begins else self._schedule.after
            due = after(now_ms)
            if due is not None:
                to.alarms.append(due)
        self._current.append((row, time_ms))

    def fire(self, due_ms: int, now_ms: int, to: Emitter) -> None:
        """Emit the batch."""
        for row, _ in self._expires:
            to.emit(row, EXPIRED, now_ms)
        for row, time_ms in self._current:
            to.emit(row, CURRENT, time_ms)
        self._expires, self._current = self._current, []
        self._batch += 1

    def finish(self, to: Emitter) -> None:
        """Nothing follows the events of a chunk."""

    def rows(self) -> Iterable[int]:
        """The rows in it."""
        return [row for row, _ in (*self._expires, *self._current)]

    def join_rows(self) -> Sequence[tuple[int, int]]:
        """The rows that a join finds: the batch that was emitted last."""
        return self._expires

    def lists(self) -> Iterable[tuple[int, Sequence[tuple[int, int]]]]:
        """Both batches; each keeps its number when it is emitted."""
        return [
            (self._batch, self._current),
            (self._batch - 1, self._expires),
        ]

    def parts(self) -> Iterable[tuple[int, str]]:
        """The number of the batch that is gathered."""
        return [(0, encoded(self._batch))]

    def load(
        self, parts: Mapping[int, Json], lists: Mapping[int, Sequence[tuple[int, int]]]
    ) -> None:
        """Restore what ``parts`` and ``lists`` returned."""
        self._batch = parts[0]
        self._current, self._expires = (list(lists.get(self._batch - n, ())) for n in range(2))


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
