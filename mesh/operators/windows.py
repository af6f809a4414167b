"""``#window.time(t)``: each event passes on, and leaves again t milliseconds after its own time.

Events leave in the order they came, so one that is late (older than one before it) leaves with its
predecessor: at the highest event time up to it, plus t.  What leaves does so by timer, with the
timer's time as its timestamp.  An event that comes so late that this time has passed already
leaves at once if its time is the highest so far, and else when the next event comes.

Source: observed on Siddhi 5.1.7, live; tests/cases/operators/windows.jsonl.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from mesh.operators.base import EXPIRED, OWN_TIMER, WHOLE, Events, Longs, State, Timeline, concat

#: Rows up to which small chunks are put together.
CHUNK_ROWS = 4096
_DUE = "#due"
_NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Events in the window, from the one numbered ``first`` on; never changed.

    ``due_ms`` never falls.
    """

    first: int
    rows: pa.RecordBatch
    due_ms: Longs

    @property
    def name(self) -> str:
        return f"chunk-{self.first}-{len(self.due_ms)}"


class TimeWindow:
    """The events of the last ``length_ms`` milliseconds.

    ``timer_path`` places the window's timers among those of other queries at one instant.
    """

    def __init__(self, schema: pa.Schema, length_ms: int, timer_path: int) -> None:
        self._schema = schema
        self._length_ms = length_ms
        self._timer_path = timer_path
        self._chunks: list[_Chunk] = []
        #: Rows of the first chunk that have left already.
        self._left = 0
        #: The highest event time so far.
        self._latest_ms = int(_NEVER)
        #: Whether what is in the window came too late for a timer: the next event drives it out.
        self._waiting = False
        #: Events that have come, over the window's life.
        self._came = 0

    def process(self, events: Events, timeline: Timeline) -> Events:
        """Let ``events`` in, and out what is due: each before the first event not before it."""
        count = len(events)
        kept_rows, kept_due = self._due_by(timeline.now_ms, have_events=count > 0)
        kept = len(kept_due)
        due, waits, at_once = self._due_of(events)
        leaves = self._leave_before(events, timeline, kept_due, due, waits, at_once)
        gone = len(leaves.before)
        self._drop(min(gone, kept))
        self._append(events, due, skip=max(0, gone - kept))
        if count:
            self._latest_ms = max(self._latest_ms, int(events.time_ms.max()))
            self._waiting = bool(waits[-1]) and gone < kept + count
        elif gone:
            self._waiting = False
        return self._emit(events, leaves, [*kept_rows, events.rows] if count else kept_rows)

    def _due_of(self, events: Events) -> tuple[Longs, Any, Any]:
        """When each event leaves; whether it waits for the next event, or leaves at once."""
        highest = np.maximum.accumulate(np.concatenate([[self._latest_ms], events.time_ms]))
        due = highest[1:] + self._length_ms
        too_late = due <= events.clock_ms
        rises = events.time_ms > highest[:-1]
        return due, too_late & ~rises, too_late & rises

    def _due_by(self, now_ms: int, have_events: bool) -> tuple[list[pa.RecordBatch], Longs]:
        """The events kept from before that may leave by ``now_ms``, oldest first."""
        if self._waiting and not have_events:
            return [], np.empty(0, dtype=np.int64)
        rows, dues = [], []
        start = self._left
        for chunk in self._chunks:
            stop = int(np.searchsorted(chunk.due_ms, now_ms, side="right"))
            rows.append(chunk.rows.slice(start, stop - start))
            dues.append(chunk.due_ms[start:stop])
            if stop < len(chunk.due_ms):
                break
            start = 0
        return rows, np.concatenate(dues) if dues else np.empty(0, dtype=np.int64)

    def _leave_before(
        self,
        events: Events,
        timeline: Timeline,
        kept_due: Longs,
        new_due: Longs,
        new_waits: Any,
        new_at_once: Any,
    ) -> _Leaving:
        """For the oldest that leave in this run: before which event, and at what place in order."""
        count, kept = len(events), len(kept_due)
        due = np.concatenate([kept_due, new_due])
        waits = np.concatenate([np.full(kept, self._waiting), new_waits])
        at_once = np.concatenate([np.zeros(kept, dtype=np.bool_), new_at_once])
        #: The first event that comes after each.
        after = np.concatenate([np.zeros(kept, dtype=np.int64), np.arange(1, count + 1)])

        order = timeline.timer_order(due)
        before = np.maximum(_first_not_before(events, order, due, self._timer_path), after)
        # An event of the same instant that comes before the timer drives out what is due too.
        by_event = np.maximum(np.searchsorted(events.clock_ms, due, side="left"), after)
        by_event = np.where(waits, after, by_event)
        before = np.where(waits, count, before)
        driven = by_event < before
        before = np.where(driven, by_event, before)
        before = np.where(at_once, after, before)
        leaves = driven | at_once | (~waits & (due <= timeline.now_ms))
        # They leave in the order they came, so those that leave are the first ones.
        gone = int(np.argmin(leaves)) if not leaves.all() else len(leaves)

        before, driven, at_once = before[:gone], driven[:gone], at_once[:gone]
        due, order = due[:gone], order[:gone]
        cause = np.where(driven, before, -1)
        for row in np.flatnonzero(at_once).tolist():
            self._place_at_once(events, row, int(before[row]), due, order, cause)
        return _Leaving(before, due, order, cause)

    def _place_at_once(
        self, events: Events, row: int, after: int, due: Longs, order: Longs, cause: Longs
    ) -> None:
        """Events that leave at once do so when everything else that brought them is done."""
        own = after - 1
        timer = (events.order[own] + 1, events.clock_ms[own], self._timer_path)
        if after < len(events) and timer > (
            events.order[after],
            events.clock_ms[after],
            events.path[after],
        ):
            cause[row] = after
        elif events.order[own] & 1:
            due[row], order[row] = events.clock_ms[own], events.order[own] + 1
        else:
            cause[row] = own

    def _emit(self, events: Events, leaves: _Leaving, rows: list[pa.RecordBatch]) -> Events:
        gone, count = len(leaves.before), len(events)
        if not gone:
            return events
        every = concat(rows)
        # Both are in order: the place of each is its own number and that of the others before it.
        place_gone = np.arange(gone) + leaves.before
        place_new = np.arange(count) + np.searchsorted(leaves.before, np.arange(count), "right")
        source = np.empty(gone + count, dtype=np.int64)
        source[place_gone] = np.arange(gone)
        source[place_new] = every.num_rows - count + np.arange(count)

        caused = leaves.cause >= 0
        at = np.where(caused, leaves.cause, 0)
        if count:
            time_ms = np.where(caused, events.clock_ms[at], leaves.due_ms)
            order = np.where(caused, events.order[at], leaves.order)
            path = np.where(caused, events.path[at], OWN_TIMER)
        else:
            time_ms, order = leaves.due_ms, leaves.order
            path = np.full(gone, OWN_TIMER, dtype=np.int64)

        def woven(of_gone: Any, of_new: Any) -> Any:
            out = np.empty(gone + count, dtype=of_new.dtype)
            out[place_gone], out[place_new] = of_gone, of_new
            return out

        return Events(
            woven(time_ms, events.time_ms),
            woven(time_ms, events.clock_ms),
            woven(order, events.order),
            woven(path, events.path),
            np.zeros(gone + count, dtype=np.int64),
            woven(np.int8(EXPIRED), events.kind),
            np.full(gone + count, WHOLE, dtype=np.int64),
            every.take(source),
        )

    def _drop(self, rows: int) -> None:
        while rows:
            here = len(self._chunks[0].due_ms) - self._left
            if rows < here:
                self._left += rows
                return
            rows -= here
            self._left = 0
            self._chunks.pop(0)

    def _append(self, events: Events, due: Longs, skip: int) -> None:
        rows, due = events.rows.slice(skip), due[skip:]
        first = self._came + skip
        self._came += len(events)
        if not len(due):
            return
        if self._chunks and len(self._chunks[-1].due_ms) + len(due) <= CHUNK_ROWS:
            last = self._chunks.pop()
            start = self._left if not self._chunks else 0
            self._left = 0 if not self._chunks else self._left
            first = last.first + start
            rows = concat([last.rows.slice(start), rows])
            due = np.concatenate([last.due_ms[start:], due])
        self._chunks.append(_Chunk(first, rows, due))

    def next_time(self) -> int | None:
        """When the oldest event leaves by timer."""
        if not self._chunks or self._waiting:
            return None
        return int(self._chunks[0].due_ms[self._left])

    def snapshot(self) -> State:
        """A piece for each chunk; only the last one changes while events come."""
        pieces = {
            chunk.name: chunk.rows.append_column(_DUE, pa.array(chunk.due_ms))
            for chunk in self._chunks
        }
        scalars = {
            "left": self._left,
            "latest_ms": self._latest_ms,
            "waiting": self._waiting,
            "came": self._came,
            "chunks": [[chunk.first, chunk.name] for chunk in self._chunks],
        }
        return State(pieces, scalars)

    def restore(self, state: State) -> None:
        """Take over chunks and place."""
        scalars: Any = state.scalars
        self._left = scalars["left"]
        self._latest_ms = scalars["latest_ms"]
        self._waiting = scalars["waiting"]
        self._came = scalars["came"]
        self._chunks = [
            _Chunk(
                first,
                state.pieces[name].select(self._schema.names),
                state.pieces[name].column(_DUE).to_numpy(),
            )
            for first, name in scalars["chunks"]
        ]


@dataclass(frozen=True, slots=True)
class _Leaving:
    """What leaves in one run, oldest first.

    ``before``: the number of the event of the run that it comes before; ``due_ms``, ``order``: its
    timer's time and place; ``cause``: the number of the event that drove it out, -1 for the timer.
    """

    before: Longs
    due_ms: Longs
    order: Longs
    cause: Longs


def _first_not_before(events: Events, order: Longs, due_ms: Longs, path: int) -> Longs:
    """For timers at (order, due, path): how many of ``events`` come before each."""
    found = np.searchsorted(events.order, order, side="left")
    if not (events.order & 1 == 0).any():
        return found
    # Events caused by other timers stand between the external ones: compare clock and path as well.
    keys = np.lexsort(
        (
            np.concatenate([np.zeros(len(order)), np.ones(len(events))]),
            np.concatenate([np.full(len(order), path), events.path]),
            np.concatenate([due_ms, events.clock_ms]),
            np.concatenate([order, events.order]),
        )
    )
    is_event = keys >= len(order)
    result = np.empty(len(order), dtype=np.int64)
    result[keys[~is_event]] = np.cumsum(is_event)[~is_event]
    return result
