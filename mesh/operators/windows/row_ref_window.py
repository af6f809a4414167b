"""Window for late selection: emits row numbers and kinds instead of rows.

See ``mesh.operators.query.late_selection``.  A single instance is a queue of rows, or a batch that
its first row identifies, if there is a loop for it; with more instances it has lists of rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mesh.operators.base import BEFORE_ALL, CURRENT, NEVER, EventBatch
from mesh.operators.windows import tumbling
from mesh.operators.windows import window_loop as m
from mesh.operators.windows.count_batches import CountBatches
from mesh.operators.windows.native_window import INSTANCE, TIME, NativeWindow, WindowSpec
from mesh.operators.windows.row_queue import QE_CLOCK, QE_ROW_TIME, QE_TIME, SlidingRowQueue
from mesh.operators.windows.row_refs import RowRefs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.operators.base import Longs, State, Timeline
    from mesh.operators.windows.kind import WindowContext


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
