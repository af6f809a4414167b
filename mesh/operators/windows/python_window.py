"""Window in Python lists, for windows that are small: event by event, without native code.

Windows differ in their ``WindowContents``, one for each partition instance, which decides what is
emitted when an event arrives or a timer fires.
"""

from __future__ import annotations

from bisect import bisect_left
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mesh.functions.vectors import from_values
from mesh.operators.base import (
    BEFORE_ALL,
    LOCAL_TIMER,
    NEVER,
    EventBatch,
    Longs,
    State,
    Timeline,
    no_events,
)
from mesh.operators.state.row_store import RowStore
from mesh.operators.total_order import fired_order, fires_before, playback_place
from mesh.operators.windows.contents import Emitter, TimerQueue, WindowContents, pack, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mesh.model.types import Attribute
    from mesh.operators.windows.kind import WindowContext

# The rules of the native loops; plain numbers are faster through Python than through Numba.
_fires_before = fires_before.py_func
_fired_order = fired_order.py_func
_playback_place = playback_place.py_func
#: Unused rows that the store may have before it is swept.
_SWEEP_ROWS = 4096


class PythonWindow:
    """A window with a ``WindowContents`` for each partition instance.

    ``columns``: the attributes with values for the contents; ``adds``: those that they add.
    Timers of an instance fire in the order in which they were set, one that is set to an earlier
    time with the one before it.
    """

    def __init__(
        self,
        make: Callable[[], WindowContents],
        columns: Callable[[pa.RecordBatch], Sequence[Sequence[object]]],
        context: WindowContext,
        adds: Sequence[Attribute] = (),
    ) -> None:
        #: The engine marks most of these as none, not even those of cron.
        self.is_batch = context.is_batch
        self._make = make
        self._columns = columns
        self._schema = context.schema
        self._adds = adds
        self.schema = pa.schema(
            [*context.schema, *(pa.field(one.name, one.type.arrow) for one in adds)]
        )
        self._timer_path = context.timer_path
        self._store = RowStore(context.schema)
        #: The store is swept when it has more rows.
        self._swept_above = _SWEEP_ROWS
        self._contents: dict[int, WindowContents] = {}
        self._alarms: dict[int, TimerQueue] = {}
        #: Pending timers, one for each instance that has any: (due, number, instance).
        self._heap: list[tuple[int, int, int]] = []
        self._number = 0
        self._steps = 0
        self._before_ms = BEFORE_ALL
        self._began_ms: int | None = None
        #: (order, clock, path, chunk) of the event or timer before.
        self._at = (-1, BEFORE_ALL, 0, 0)
        #: (order, clock, path) and number of the last emitted chunk.
        self._last: tuple[tuple[int, int, int], int] = ((-1, -1, -1), 0)

    def process(self, events: EventBatch, timeline: Timeline) -> EventBatch:
        """Process ``events`` and timers; the current and expired events that they cause."""
        count = len(events)
        now_ms = timeline.now_ms
        if timeline.is_idle_playback:
            self._before_ms = BEFORE_ALL
        if self._began_ms is None:
            # Known only if time passes before the first event.
            self._began_ms = BEFORE_ALL if len(timeline.clocks_ms) else now_ms
        if not count and (not self._heap or self._heap[0][0] > now_ms):
            self._before_ms = now_ms
            return no_events(self.schema)
        base = self._store.came
        self._store.append(events.rows.select(self._schema.names))
        run = _Run(self, timeline)
        place = list(
            zip(
                events.order.tolist(),
                events.clock_ms.tolist(),
                events.path.tolist(),
                events.chunk.tolist(),
                events.instance.tolist(),
                strict=True,
            )
        )
        values = list(zip(*self._columns(events.rows), strict=True)) or [()] * count
        times = events.time_ms.tolist()
        for e in range(count):
            order, clock, path, chunk, instance = place[e]
            if self._heap:
                run.fire_before(order, clock, path)
            self._steps += 1
            self._at = (order, clock, path, chunk)
            run.sink.begins = self._steps == 1 and clock == self._began_ms
            content = self._contents.get(instance)
            if content is None:
                content = self._contents[instance] = self._make()
            content.take(base + e, times[e], clock, values[e], run.sink)
            if e + 1 == count or place[e + 1] != place[e]:
                content.finish(run.sink)
                run.close(order, clock, path, instance)
        run.fire_before(None, now_ms, 0)
        self._before_ms = now_ms
        output = self._output(run)
        self._sweep()
        return output

    def set_timers(self, instance: int, sink: Emitter, now_ms: int) -> None:
        """Take over the timers that a content has set."""
        alarms = self._alarms.get(instance)
        if alarms is None:
            alarms = self._alarms[instance] = TimerQueue()
        idle = not alarms.times
        alarms.times.extend(sink.alarms)
        sink.alarms.clear()
        if idle:
            self.schedule(instance, now_ms)

    def schedule(self, instance: int, now_ms: int) -> None:
        """Put an instance's first timer among those of all; odd numbers are those due already."""
        times = self._alarms[instance].times
        if times:
            self._number += 2
            number = self._number + (1 if times[0] <= now_ms else 0)
            heappush(self._heap, (times[0], number, instance))

    def chunk_of(self, key: tuple[int, int, int]) -> int:
        """The number of the next chunk under (order, clock, path)."""
        number = self._last[1] + 1 if self._last[0] == key else 0
        self._last = (key, number)
        return number

    def _output(self, run: _Run) -> EventBatch:
        if not run.chunks:
            return no_events(self.schema)
        row, kind, time_ms = (
            np.array(column, dtype=np.int64)
            for column in (run.sink.row, run.sink.kind, run.sink.time)
        )
        lengths, *causes = np.array(run.chunks, dtype=np.int64).T
        order, clock, path, chunk, instance = (np.repeat(cause, lengths) for cause in causes)
        rows = self._store.take(row)
        if self._adds:
            added = zip(self._adds, zip(*run.sink.added, strict=True), strict=True)
            columns = [from_values(values, one.type).to_arrow(len(row)) for one, values in added]
            rows = pa.RecordBatch.from_arrays([*rows.columns, *columns], schema=self.schema)
        return EventBatch(time_ms, clock, order, path, chunk, kind.astype(np.int8), instance, rows)

    def _sweep(self) -> None:
        if self._store.count <= self._swept_above:
            return
        live = sum(1 for content in self._contents.values() for _ in content.rows())
        # To count them takes as long as there are many.
        self._swept_above = 2 * live + _SWEEP_ROWS
        if self._store.count > self._swept_above:
            self.compact()

    def compact(self) -> None:
        """Keep just the rows that are in a content."""
        live = sorted({row for content in self._contents.values() for row in content.rows()})
        self._store.keep(np.array(live, dtype=np.int64))

    def next_time(self) -> int | None:
        """Time of the earliest timer; None without one."""
        return self._heap[0][0] if self._heap else None

    def content(self, instance: int) -> tuple[pa.RecordBatch, Longs]:
        """The rows that a join finds, in the engine's order, and their times."""
        content = self._contents.get(instance)
        entries = content.join_rows() if content is not None else ()
        rows = np.array([row for row, _ in entries], dtype=np.int64)
        return self._store.take(rows), np.array([time for _, time in entries], dtype=np.int64)

    def forget(self, instances: Longs) -> None:
        """Remove all state of these partition instances."""
        for instance in instances.tolist():
            self._contents.pop(instance, None)
            self._alarms.pop(instance, None)
        self._heap = [timer for timer in self._heap if timer[2] in self._alarms]
        heapify(self._heap)
        self._steps += 1

    def snapshot(self) -> State:
        """The rows in pieces that stay; contents and alarms by ranges of numbers."""
        pieces = self._store.pieces() | pack(self._contents, self._alarms)
        scalars = {
            "store": self._store.scalars(),
            "heap": [list(timer) for timer in sorted(self._heap)],
            "number": self._number,
            "steps": self._steps,
            "now": self._before_ms,
            "began": self._began_ms,
            "at": list(self._at),
            "last": [list(self._last[0]), self._last[1]],
        }
        return State(pieces, scalars)

    def restore(self, state: State) -> None:
        """Restore rows and contents."""
        scalars = state.scalars
        self._steps, self._number = scalars["steps"], scalars["number"]
        self._store.restore(state.pieces, scalars["store"])
        self._before_ms, self._began_ms = scalars["now"], scalars["began"]
        order, clock, path, chunk = scalars["at"]
        self._at = (order, clock, path, chunk)
        (last_order, last_clock, last_path), number = scalars["last"]
        self._last = ((last_order, last_clock, last_path), number)
        self._heap = [(due, number, i) for due, number, i in scalars["heap"]]
        self._contents, self._alarms = unpack(state.pieces, self._make)


class _Run:
    """One call of ``process``: the events that it emits, and the timers that fire."""

    def __init__(self, window: PythonWindow, timeline: Timeline) -> None:
        self._window = window
        self._first = timeline.first
        # NumPy's search is ten times slower for a single number.
        self._clocks: list[int] = timeline.clocks_ms.tolist()
        self._now_ms = timeline.now_ms
        self._playback = bool(getattr(timeline, "playback", False))
        self.sink = Emitter()
        #: Of each emitted chunk its length, order, clock, path, number and instance.
        self.chunks: list[tuple[int, ...]] = []
        self._closed = 0

    def close(self, order: int, clock: int, path: int, instance: int) -> None:
        """End a chunk, or several: the events that were emitted since the last one."""
        for end in (*self.sink.ends, len(self.sink.row)):
            length = end - self._closed
            if length:
                chunk = self._window.chunk_of((order, clock, path))
                self.chunks.append((length, order, clock, path, chunk, instance))
                self._closed = end
        self.sink.ends.clear()
        if self.sink.alarms:
            self._window.set_timers(instance, self.sink, clock)

    def fire_before(self, order: int | None, clock: int, path: int) -> None:
        """Fire the timers that are due before an event; None: up to the end of the run."""
        window = self._window
        while window._heap:
            due, number, instance = window._heap[0]
            if due > clock and self._playback:
                # Most events of many keys end here, without a search for the timer's place.
                return
            place = self._place(due, number, order, clock, path)
            if place is None:
                return
            heappop(window._heap)
            at_order, at_clock, at_path = place
            window._steps += 1
            window._at = (at_order, at_clock, at_path, 0)
            alarms, content = window._alarms[instance], window._contents[instance]
            times, sink = alarms.times, self.sink
            while times and times[0] <= at_clock:
                content.fire(alarms.take(), at_clock, sink)
                content.finish(sink)
                times.extend(sink.alarms)
                sink.alarms.clear()
                self.close(at_order, at_clock, at_path, instance)
            window.schedule(instance, at_clock)

    def _place(
        self, due: int, number: int, order: int | None, clock: int, path: int
    ) -> tuple[int, int, int] | None:
        """Order, clock and path at which a timer fires; None: not before the event."""
        window = self._window
        at_order, at_clock, at_path, _ = window._at
        earlier = bisect_left(self._clocks, due)
        if self._playback:
            fires, fires_ms = _playback_place(
                self._clocks, earlier, due, self._first, at_order, self._now_ms, window._before_ms
            )
            is_before = fires_ms != NEVER and (order is None or fires < order)
            return (fires, fires_ms, LOCAL_TIMER) if is_before else None
        if order is None:
            is_before = due <= clock
        else:
            timer = window._timer_path
            is_before = _fires_before(due, number, timer, at_order, at_clock, order, clock, path)
        if not is_before:
            return None
        fires = _fired_order(earlier, self._first, at_order)
        fires_path = at_path if number & 1 and fires == at_order else LOCAL_TIMER
        return fires, max(due, at_clock), fires_path
