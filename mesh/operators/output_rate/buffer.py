"""Common parts of output rates: events that are held back, timers of instances, chunks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mesh.operators.base import BEFORE_ALL, EventBatch, State, join, no_events
from mesh.operators.select.hashing import more_rows
from mesh.operators.state.range_pieces import NUMBER, cut, joined
from mesh.operators.total_order import cause_begins, run_begins, run_starts

if TYPE_CHECKING:
    from mesh.operators.base import Longs, Timeline


class InstanceTimers:
    """Start time of each instance, and their order; timers count from the start."""

    def __init__(self) -> None:
        self._start_ms: Longs = np.empty(0, dtype=np.int64)
        self._number: Longs = np.empty(0, dtype=np.int64)
        self._count = 0

    def note(self, instance: Longs, clock_ms: Longs) -> None:
        """Record events of ``instance`` at ``clock_ms``, some of which may be the first."""
        if not len(instance):
            return
        count = len(self._start_ms)
        highest = int(instance.max()) + 1
        if highest > count:
            self._start_ms = more_rows(self._start_ms, highest)
            self._number = more_rows(self._number, highest)
            self._start_ms[count:] = BEFORE_ALL
        new = np.flatnonzero(self._start_ms[instance] == BEFORE_ALL)
        if len(new):
            instances, first = np.unique(instance[new], return_index=True)
            in_turn = np.argsort(first)
            instances, first = instances[in_turn], first[in_turn]
            self._start_ms[instances] = clock_ms[new[first]]
            self._number[instances] = self._count + np.arange(len(instances))
            self._count += len(instances)

    def after(self, instance: Longs, clock_ms: Longs, every_ms: int) -> Longs:
        """The first tick of each one's timer after ``clock_ms``."""
        start_ms = self._start_ms[instance]
        return start_ms + ((clock_ms - start_ms) // every_ms + 1) * every_ms

    def turn(self, instance: Longs) -> Longs:
        """The order of timers that are due at one instant."""
        return self._number[instance]

    @property
    def start_ms(self) -> Longs:
        """By instance when it began, ``BEFORE_ALL`` for those that have not."""
        return self._start_ms

    def forget(self, instances: Longs) -> None:
        """Remove ``instances``."""
        self._start_ms[instances[instances < len(self._start_ms)]] = BEFORE_ALL

    def snapshot(self) -> State:
        """All instances."""
        live = np.flatnonzero(self._start_ms != BEFORE_ALL)
        live = live[np.argsort(self._number[live])]
        rows = {"instance": live, "start_ms": self._start_ms[live], "number": self._number[live]}
        return State({f"births-{self._count}-{len(live)}": pa.RecordBatch.from_pydict(rows)})

    def restore(self, state: State) -> None:
        """Restore all instances."""
        ((name, piece),) = state.pieces.items()
        self._count = int(name.split("-")[1])
        instance: object
        start_ms: object
        number: object
        instance, start_ms, number = (column.to_numpy() for column in piece.columns)
        size = int(instance.max(initial=-1)) + 1
        self._start_ms = np.full(size, BEFORE_ALL, dtype=np.int64)
        self._number = np.zeros(size, dtype=np.int64)
        self._start_ms[instance], self._number[instance] = start_ms, number


class RateBuffer:
    """Events that wait, in order of arrival, each with its group."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._clear()

    def _clear(self) -> None:
        self.events = no_events(self._schema)
        self.groups: Longs = np.empty(0, dtype=np.int64)
        #: The number of each event among all arrivals.
        self._numbers: Longs = np.empty(0, dtype=np.int64)
        #: Number of events that have arrived.
        self.rows = 0

    def add(self, events: EventBatch, groups: Longs) -> None:
        """Append ``events``."""
        if len(events):
            numbers = np.arange(self.rows, self.rows + len(events))
            self.rows += len(events)
            self.events = join([self.events, events], self._schema)
            self.groups = np.concatenate([self.groups, groups])
            self._numbers = np.concatenate([self._numbers, numbers])

    def keep(self, places: Longs, instead: Longs | None = None) -> None:
        """Drop all but those at ``places``.

        ``instead``: rising, the place of the event that each replaces.
        """
        self.events, self.groups = self.events.take(places), self.groups[places]
        self._numbers = self._numbers[places if instead is None else instead]

    def snapshot(self) -> State:
        """Pieces of events that arrived in sequence."""
        events = self.events
        columns = {
            name: pa.array(getattr(events, name))
            for name in ("time_ms", "clock_ms", "order", "path", "chunk", "kind", "instance")
        }
        arrays = [pa.array(self._numbers), *columns.values(), pa.array(self.groups)]
        names = [NUMBER, *(f"{NUMBER}{name}" for name in (*columns, "group")), *self._schema.names]
        rows = pa.RecordBatch.from_arrays([*arrays, *events.rows.columns], names=names)
        return State(cut("held", rows), {"rows": self.rows})

    def restore(self, state: State) -> None:
        """Restore the buffer."""
        scalars = state.scalars
        self._clear()
        self.rows = scalars["rows"]
        if not state.pieces:
            return
        piece = joined(state.pieces)
        columns = [column.to_numpy() for column in piece.columns[:9]]
        self._numbers, time_ms, clock_ms, order, path, chunk, kind, instance, self.groups = columns
        rows = pa.RecordBatch.from_arrays(piece.columns[9:], schema=self._schema)
        self.events = EventBatch(time_ms, clock_ms, order, path, chunk, kind, instance, rows)


def pieces(events: EventBatch, cause: Longs) -> EventBatch:
    """``events`` with the numbers of chunks: one for each ``cause``, from 0 on in each instant."""
    if not len(events):
        return events
    count = np.cumsum(run_begins(cause))
    return replace(events, chunk=count - count[run_starts(cause_begins(events))])


def ticked(events: EventBatch, due_ms: Longs, timer_path: int, timeline: Timeline) -> EventBatch:
    """``events`` as emitted by ticks at ``due_ms``, instance by instance."""
    batch = replace(
        events,
        clock_ms=timeline.fired_ms(due_ms),
        order=timeline.timer_order(due_ms),
        path=np.full(len(events), timer_path, dtype=np.int64),
    )
    if not len(batch):
        return batch
    return pieces(batch, np.cumsum(run_begins(due_ms, events.instance)))
