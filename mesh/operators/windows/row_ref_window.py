"""Window for late selection: emits row numbers and kinds instead of rows.

See ``mesh.operators.query.late_selection``.  A single instance is a queue of rows, or a batch that
its first row identifies, if there is a loop for it; with more instances it has lists of rows.

``lengthBatch`` of a single instance without readers of expired events: arithmetic, no loop.

Every n rows are a batch, and emitted rows are forgotten; so row numbers alone determine where
batches end.  The output is that of ``tumbling.length_batch_loop``: for each batch a reset, then its
rows.

Sliding windows of a single instance as a queue: rows arrive and expire in the same order.

The window holds rows ``head..last``.  Downstream ignores expired events, so only their position
relative to the next current event matters.  No timer is needed: every row due at or before an
event's clock is expired before that event is processed.

The loops of ``length``, ``time`` and ``externalTime``; see ``sliding`` for their semantics.

Output of a window as row numbers and kinds: see ``mesh.operators.query.late_selection``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mesh.operators.base import BEFORE_ALL, CURRENT, EXPIRED, NEVER, RESET, WHOLE, EventBatch
from mesh.operators.native import BYTE1, LONG1, LONG2, native, types
from mesh.operators.windows import tumbling
from mesh.operators.windows import window_loop as m
from mesh.operators.windows.native_window import INSTANCE, TIME, NativeWindow, WindowSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mesh.operators.base import Kinds, Longs, State, Timeline
    from mesh.operators.windows.kind import WindowContext


# mypy: disable-error-code="no-untyped-def,no-untyped-call"


#: Parameters of a loop: number of the first event's row, end time of the run, argument of the
#: window, the row that ``due`` begins with; and the values that it changes: head and latest time.
Q_BASE, Q_NOW, Q_SIZE, Q_FIRST, Q_HEAD, Q_LATEST = range(6)
#: Rows of ``ev``: time, clock or attribute, and the value kept as the row's time.
QE_TIME, QE_CLOCK, QE_ROW_TIME = range(3)

#: Arguments of the loops: ev, par, due, and row and kind of the output; they return its length.
_QUEUE = types.int64(LONG2, LONG1, LONG1, LONG1, BYTE1)


@dataclass(slots=True)
class CountBatches:
    """The rows of the batch that is not full: those from the one numbered ``head`` on.

    ``size``: rows in a batch, more than 0.
    """

    size: int
    head: int

    def run(self, base: int, count: int) -> EndedBatches:
        """Add ``count`` rows, numbered from ``base`` on; the batches that end."""
        head = self.head
        ends = (base + count - head) // self.size
        self.head += ends * self.size
        return EndedBatches(self.size, head, ends, base)


@dataclass(frozen=True, slots=True)
class EndedBatches:
    """A number of batches of ``size`` rows from the row ``head`` on, which end in one run.

    ``base``: the number of the row of the run's first event.
    """

    size: int
    head: int
    batches: int
    base: int

    @property
    def last(self) -> Longs:
        """For each batch, the index in the run of the event that ends it."""
        return np.arange(1, self.batches + 1) * self.size + (self.head - self.base - 1)

    def chunks(self, events: EventBatch, pieces: Longs, before: Longs) -> tuple[Longs, Longs]:
        """Order, clock and path of each batch, int64[3, m], and numbers for equal triples."""
        last = self.last
        out = np.empty((m.OUT_ROWS, self.batches), dtype=np.int64)
        out[m.O_ORDER] = events.order.take(last)
        out[m.O_CLOCK] = events.clock_ms.take(last)
        out[m.O_PATH] = events.path.take(last)
        out[m.O_PIECE] = pieces
        chunk = np.empty(self.batches, dtype=np.int64)
        m.number_chunks(out, self.batches, before, chunk)
        return out[[m.O_ORDER, m.O_CLOCK, m.O_PATH]], chunk

    def lines(
        self,
        causes: Longs,
        chunk: Longs,
        take: Callable[[Longs], tuple[Longs, pa.RecordBatch]],
    ) -> RowRefs:
        """The output as row references.

        ``causes``, ``chunk``: the result of ``chunks``; ``take``: looks up rows.
        """
        size, batches = self.size, self.batches
        shape = (batches, size + 1)
        row = np.arange(batches * size).reshape(batches, size) + self.head
        rows = np.empty(shape, dtype=np.int64)
        rows[:, 1:] = row
        # The row of a reset is ignored.
        rows[:, 0] = row[:, -1]
        kind: Kinds = np.full(shape, CURRENT, dtype=np.int8)
        kind[:, 0] = RESET
        of_line = np.repeat(np.arange(batches), size + 1)

        def going(at: Longs) -> EventBatch:
            of = of_line.take(at)
            time_ms, attributes = take(rows.reshape(-1).take(at))
            order, clock_ms, path = (cause.take(of) for cause in causes)
            return EventBatch(
                time_ms,
                clock_ms,
                order,
                path,
                chunk.take(of),
                np.full(len(at), CURRENT, dtype=np.int8),
                np.full(len(at), WHOLE, dtype=np.int64),
                attributes,
            )

        instance = np.full(len(of_line), WHOLE, dtype=np.int64)
        return RowRefs(rows.reshape(-1), kind.reshape(-1), going, instance, of_line)


class RowRefWindow(NativeWindow):
    """``follow`` is called instead of ``process``, then ``sweep``."""

    def __init__(self, spec: WindowSpec, context: WindowContext) -> None:
        super().__init__(spec, context)
        #: The attributes that are looked up for rows that are emitted.
        self.shown: list[str] = list(context.schema.names)
        self._queue = self._new_queue()

    def _new_queue(self) -> SlidingRowQueue | CountBatches | None:
        """A queue of the store's rows, if all of them belong to one instance."""
        spec = self._spec
        if not self._queues or len(self._reg) > 1:
            return None
        head, latest = self._store.came, BEFORE_ALL
        if len(self._reg):
            head = int(self._reg[0, m.A_ROW])
        if spec.batch_rows:
            return CountBatches(spec.batch_rows, head)
        assert spec.queue is not None, "there is one or the other"
        if len(self._reg):
            latest = BEFORE_ALL if spec.latest is None else int(self._reg[0, spec.latest])
        times = ((rows, due) for rows, (due,) in self._store.columns((TIME,)))
        return SlidingRowQueue(spec.queue, spec.arguments[0], head, latest, times)

    @property
    def _queues(self) -> bool:
        """True if a single instance is a queue or a batch."""
        return self._spec.queue is not None or self._spec.batch_rows > 0

    @property
    def came(self) -> int:
        """The number of the next row."""
        return self._store.came

    def process(self, events: EventBatch, timeline: Timeline) -> EventBatch:
        """Not available: see ``follow``."""
        raise AssertionError("a window that is followed is followed always")

    def content(self, instance: int) -> tuple[pa.RecordBatch, Longs]:
        """Not available to joins."""
        raise AssertionError("no join looks into what a selector follows")

    def follow(self, events: EventBatch, timeline: Timeline) -> RowRefs:
        """Process events; the rows that arrive and expire.  Downstream ignores expired events."""
        if self._queue is not None:
            if not events.instance.any():
                if isinstance(self._queue, CountBatches):
                    return self._run_batches(self._queue, events, timeline)
                return self._run_queue(self._queue, events, timeline)
            self._end_queue(self._queue)
        out, count = self._run(events, timeline)
        row, kind = out[m.O_ROW, :count], out[m.O_KIND, :count].astype(np.int8)
        if not self.is_batch:
            return RowRefs(row, kind, events)
        chunk = self._chunks(out, count)

        def going(at: Longs) -> EventBatch:
            return EventBatch(
                out[m.O_TIME].take(at),
                out[m.O_CLOCK].take(at),
                out[m.O_ORDER].take(at),
                out[m.O_PATH].take(at),
                chunk.take(at),
                np.full(len(at), CURRENT, dtype=np.int8),
                out[m.O_INSTANCE].take(at),
                # At least one column is needed for the number of rows.
                self._store.take(row.take(at), self.shown or [INSTANCE]),
            )

        return RowRefs(row, kind, going, out[m.O_INSTANCE, :count], out[m.O_PIECE, :count])

    def _run_queue(self, queue: SlidingRowQueue, events: EventBatch, timeline: Timeline) -> RowRefs:
        ev = np.empty((3, len(events)), dtype=np.int64)
        ev[QE_TIME] = ev[QE_ROW_TIME] = events.time_ms
        ev[QE_CLOCK] = events.clock_ms
        for name in self._spec.columns:
            column = events.rows.column(name)
            ev[QE_CLOCK] = column.fill_null(0).to_numpy(zero_copy_only=False)
        row, kind = queue.run(ev, self._store.came, timeline.now_ms)
        self._keep(events, ev[QE_ROW_TIME], ev[QE_CLOCK])
        self._passed(events, timeline)
        return RowRefs(row, kind, events)

    def _run_batches(
        self, batches: CountBatches, events: EventBatch, timeline: Timeline
    ) -> RowRefs:
        ended = batches.run(self._store.came, len(events))
        self._keep(events, events.time_ms, events.time_ms)
        # As many pieces as events, for any division into runs.
        pieces = self._meta[m.M_PIECE] + 1 + ended.last
        causes, chunk = ended.chunks(events, pieces, self._last)
        self._meta[m.M_PIECE] += len(events)
        self._passed(events, timeline)
        return ended.lines(causes, chunk, self._timed_rows)

    def _timed_rows(self, numbers: Longs) -> tuple[Longs, pa.RecordBatch]:
        """The times of rows, and those of their attributes that are shown."""
        shown = self.shown or [INSTANCE]
        rows = self._store.take(numbers, [*shown, TIME])
        return rows.column(TIME).to_numpy(), rows.select(shown)

    def _passed(self, events: EventBatch, timeline: Timeline) -> None:
        """Record the end of a run."""
        meta = self._meta
        if len(events):
            meta[m.M_STEPS] += len(events)
            last = (events.order[-1], events.clock_ms[-1], events.path[-1], events.chunk[-1])
            meta[[m.M_ORDER, m.M_CLOCK, m.M_PATH, m.M_CHUNK]] = last
        self._par[m.P_BEFORE] = timeline.now_ms

    def _end_queue(self, queue: SlidingRowQueue | CountBatches) -> None:
        """Move the rows of the queue into lists: other instances have arrived."""
        self._queue = None
        self._register(queue)
        # The other list is empty: rows that have left are in none.
        left = int(self._reg[0, m.B_ROW])
        self._reg[0, [m.A_COUNT, m.B_ROW]] = 0, NEVER
        for rows, (times, instances) in self._store.columns((TIME, INSTANCE)):
            self._grow(len(rows))
            m.rebuild_lists(rows, instances, times, self._node, self._reg, self._meta)
        self._reg[0, m.B_ROW] = left
        if isinstance(queue, CountBatches):
            return
        if self._spec.latest is not None and self._reg[0, m.A_COUNT]:
            self._grow(1)
            m.arm_one(self._reg, self._heap, self._meta, 0, queue.due_at())

    def _register(self, queue: SlidingRowQueue | CountBatches) -> None:
        """Write the bounds of the queue to the registers."""
        self._grow_registers(1)
        reg = self._reg[0]
        reg[m.A_ROW], reg[m.A_COUNT] = queue.head, self._store.came - queue.head
        if isinstance(queue, CountBatches):
            reg[m.B_ROW], reg[tumbling.COUNT] = reg[m.A_ROW], reg[m.A_COUNT]
        elif self._spec.latest is not None:
            reg[self._spec.latest] = queue.latest

    @property
    def live(self) -> int:
        """Rows in it."""
        return super().live if self._queue is None else self._store.came - self._queue.head

    def live_rows(self) -> Longs:
        """The numbers of the rows in it, growing."""
        if self._queue is None:
            return super().live_rows()
        return np.arange(self._queue.head, self._store.came)

    def held_rows(self) -> Iterator[tuple[Longs, Longs, pa.RecordBatch]]:
        """The rows in it, in parts: numbers that grow, instances, attributes."""
        live = self.live_rows()
        for numbers, rows in self._store.chunks():
            near = live[slice(*np.searchsorted(live, [numbers[0], numbers[-1] + 1]))]
            if len(near) == len(numbers):
                is_live, part = np.ones(len(numbers), dtype=np.bool_), rows
            else:
                is_live = np.isin(numbers, near, assume_unique=True)
                part = rows.filter(pa.array(is_live))
            instance = part.column(INSTANCE).to_numpy().astype(np.int64)
            yield numbers[is_live], instance, part.select(self._schema.names)

    def sweep(self) -> None:
        """Release rows that have expired."""
        if self._queue is None:
            super().sweep()
        else:
            self.lowest = self._queue.head
            self._store.release_below(self.lowest)

    def forget(self, instances: Longs) -> None:
        """Remove all state of these partition instances."""
        if self._queue is not None:
            self._end_queue(self._queue)
        super().forget(instances)

    def next_time(self) -> int | None:
        """Time of the earliest timer; a queue needs none, as downstream ignores expired events."""
        return None if self._queue is not None else super().next_time()

    def snapshot(self) -> State:
        """The whole state."""
        if self._queue is not None and self._store.came:
            self._register(self._queue)
        return super().snapshot()

    def restore(self, state: State) -> None:
        """Restore rows and registers."""
        super().restore(state)
        self._queue = self._new_queue()

    def _relist(self, state: State, steps: int) -> None:
        if not self._queues or len(self._reg) > 1:
            super()._relist(state, steps)


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


def _none() -> Longs:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class RowRefs:
    """Arrivals, expiries and resets, m lines in order.

    ``row``: int64[m], the row that arrived or expired; undefined for a reset, or less than 0.
    ``kind``: int8[m].
    ``going``: of a sliding window the events that arrived: each is current in one of the lines, in
    their order.  Of a batch window, a function that returns the events at current lines.
    ``instance``, ``piece``: int64[m], of a batch window: the partition instance, and
    a number that changes where another chunk begins.
    """

    row: Longs
    kind: Kinds
    going: EventBatch | Callable[[Longs], EventBatch]
    instance: Longs = field(default_factory=_none)
    piece: Longs = field(default_factory=_none)

    def __len__(self) -> int:
        return len(self.row)

    def events(self, at: Longs) -> EventBatch:
        """The events at lines that are current; of a sliding window at all of those."""
        return self.going if isinstance(self.going, EventBatch) else self.going(at)
