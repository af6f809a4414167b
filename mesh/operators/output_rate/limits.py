"""``output all|first|last every ..``: how often a query emits.

Each partition instance has a limit of its own.

- A limit by number counts the query's output, current and expired events alike; ``all`` and
  ``last`` hold a block back until it is full.
- A limit by time has a timer from the start of the app, or of the instance, which precedes
  everything else of its instant.  ``first`` by time has no timer: it emits an event if that much
  time has passed since the previous one.
- For ``first`` without ``group by`` a reset of the aggregates counts as an event: it precedes the
  events of each batch of a batch window and takes their place, but is not emitted.
- ``first`` of one event by number emits only the very first event.
- With ``group by``, ``last`` emits the last event of each group, in the order in which the groups
  arrived, and ``first`` counts each group separately; an event that was held back keeps its time.

Source: observed on Siddhi 5.1.7.

Common parts of output rates: events that are held back, timers of instances, chunks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from mesh.language.syntax import RateKind
from mesh.operators.base import BEFORE_ALL, RESET, EventBatch, State, Stateful, join, no_events
from mesh.operators.native import BOOL1, LONG1, READ1, njit, types
from mesh.operators.select.hashing import more_rows
from mesh.operators.state.range_pieces import NUMBER, cut, joined
from mesh.operators.total_order import cause_begins, run_begins, run_starts

if TYPE_CHECKING:
    from mesh.operators.base import Bools, Longs, Timeline
    from mesh.plan.bound import BoundRate


class Rate(Stateful, Protocol):
    """The limit of one query's output."""

    def begin(self, instance: Longs, clock_ms: Longs) -> None:
        """Start each ``instance`` at its first ``clock_ms``, unless it has started before."""
        ...

    def process(self, events: EventBatch, groups: Longs, timeline: Timeline) -> EventBatch:
        """Process the selected events, each with its group; the events that are emitted."""
        ...

    def next_time(self) -> int | None:
        """Time of the next tick that may emit something; None without one."""
        ...

    def forget(self, instances: Longs, groups: Longs) -> None:
        """Drop ``instances`` and their ``groups``."""
        ...


def make_rate(rate: BoundRate, schema: pa.Schema, grouped: bool, timer_path: int) -> Rate:
    """The limit ``rate``, which is no snapshot, of rows in ``schema``."""
    if rate.kind is RateKind.FIRST:
        return FirstPerKey(rate.every, rate.is_by_time, grouped)
    last = rate.kind is RateKind.LAST
    if rate.is_by_time:
        return EveryInterval(schema, rate.every, last, grouped, timer_path)
    return EveryNEvents(schema, rate.every, last, grouped)


# The first events by number, or by time


@njit(types.void(READ1, types.int64, LONG1, BOOL1))
def _first_by_count(keys: Longs, every: int, counts: Longs, going: Bools) -> None:
    for row in range(len(keys)):
        key = keys[row]
        going[row] = counts[key] == 0
        counts[key] += 1
        # The engine does not look whether the first one fills the block, too.
        if counts[key] == every and every > 1:
            counts[key] = 0


@njit(types.void(READ1, READ1, types.int64, LONG1, BOOL1))
def _first_by_time(keys: Longs, clock_ms: Longs, every: int, since: Longs, going: Bools) -> None:
    """``since``: time of the last emitted event, plus one; 0 for never."""
    for row in range(len(keys)):
        key = keys[row]
        if since[key] == 0 or clock_ms[row] - (since[key] - 1) >= every:
            going[row] = True
            since[key] = clock_ms[row] + 1


class _ByArrival:
    """A limit without timers: every output needs an event."""

    def begin(self, instance: Longs, clock_ms: Longs) -> None:
        """No timer depends on the start."""

    def next_time(self) -> int | None:
        """None: every output needs an event."""
        return None


class FirstPerKey(_ByArrival):
    """``output first every ..``, for each group or instance; holds nothing back.

    Resets of the aggregates count as events, and are not emitted.
    """

    def __init__(self, every: int, by_time: bool, grouped: bool) -> None:
        self._every = every
        self._by_time = by_time
        self._grouped = grouped
        #: By group or instance: events since the last emitted one, or its time plus one.
        self._marks: Longs = np.zeros(0, dtype=np.int64)
        self._rows = 0

    def process(self, events: EventBatch, groups: Longs, timeline: Timeline) -> EventBatch:
        """The first events; events that arrived together are emitted together."""
        if not len(events):
            return events
        keys = groups if self._grouped else events.instance
        self._marks = more_rows(self._marks, int(keys.max()) + 1)
        self._rows += len(events)
        going = np.zeros(len(events), dtype=np.bool_)
        if self._by_time:
            _first_by_time(keys, events.clock_ms, self._every, self._marks, going)
        else:
            _first_by_count(keys, self._every, self._marks, going)
        return events.where(going & (events.kind != RESET))

    def forget(self, instances: Longs, groups: Longs) -> None:
        """Count from the beginning in these."""
        keys = groups if self._grouped else instances
        self._marks[keys[keys < len(self._marks)]] = 0
        self._rows += 1

    def snapshot(self) -> State:
        """The counts, or times."""
        used = int(np.flatnonzero(self._marks).max(initial=-1)) + 1
        piece = pa.RecordBatch.from_pydict({"marks": self._marks[:used].copy()})
        return State({f"marks-{self._rows}": piece}, {"rows": self._rows})

    def restore(self, state: State) -> None:
        """Restore the counts, or times."""
        scalars = state.scalars
        self._rows = scalars["rows"]
        (piece,) = state.pieces.values()
        marks = piece.column(0).to_numpy()
        self._marks = marks.copy()


# All of a block, or the last


def _last_places(keys: list[Longs]) -> tuple[Longs, Longs]:
    """For rows equal in ``keys``, the index of the last, and of the first, which it replaces."""
    order = np.lexsort(keys[::-1])
    first = np.flatnonzero(run_begins(*(key[order] for key in keys)))
    last = np.append(first[1:], len(order)) - 1
    # Equal rows keep their order of arrival.
    in_turn = np.argsort(order[first], kind="stable")
    return order[last][in_turn], order[first][in_turn]


def _ranks(instance: Longs) -> tuple[Longs, Longs]:
    """The number of equal rows before each, and a stable order that groups equal rows."""
    order = np.argsort(instance, kind="stable")
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order)) - run_starts(run_begins(instance[order]))
    return ranks, order


class EveryNEvents(_ByArrival):
    """``output all|last every n events``: a block is emitted with the event that fills it."""

    def __init__(self, schema: pa.Schema, every: int, last: bool, grouped: bool) -> None:
        self._every = every
        self._last = last
        self._grouped = grouped
        self._held = RateBuffer(schema)
        #: By instance, events in the block that is not full.
        self._counts: Longs = np.zeros(0, dtype=np.int64)

    def process(self, events: EventBatch, groups: Longs, timeline: Timeline) -> EventBatch:
        """The blocks that ``events`` fill, each as a chunk."""
        if not len(events):
            return events
        backlog = len(self._held.events)
        self._counts = more_rows(self._counts, int(events.instance.max()) + 1)
        ranks, order = _ranks(events.instance)
        ranks += self._counts[events.instance]
        blocks = ranks // self._every
        # The event that fills each block, by (instance, block), and which blocks are full.
        fills = (ranks + 1) % self._every == 0
        filled = order[fills[order]]
        came = np.bincount(events.instance, minlength=len(self._counts))
        self._counts = (self._counts + came) % self._every
        self._held.add(events, groups)
        held, held_groups = self._held.events, self._held.groups
        block = np.concatenate([np.zeros(backlog, dtype=np.int64), blocks])

        cause = _cause(held.instance, block, events.instance[filled], blocks[filled], filled)
        if self._last:
            keys = [held.instance, block]
            if self._grouped:
                keys.append(held_groups)
            places, instead = _last_places(keys)
        else:
            places = instead = np.arange(len(held))
        waits = cause[places] < 0
        going = places[cause[places] >= 0]
        going = going[np.argsort(cause[going], kind="stable")]
        self._held.keep(places[waits], instead[waits])
        by = cause[going]
        output = replace(
            held.take(going),
            clock_ms=events.clock_ms[by],
            order=events.order[by],
            path=events.path[by],
        )
        return pieces(output, by)

    def forget(self, instances: Longs, groups: Longs) -> None:
        """Drop the events held back of ``instances``."""
        self._counts[instances[instances < len(self._counts)]] = 0
        self._held.keep(np.flatnonzero(~np.isin(self._held.events.instance, instances)))
        self._held.rows += 1

    def snapshot(self) -> State:
        """Blocks that are not full."""
        held = self._held.snapshot()
        counts = pa.RecordBatch.from_pydict({"counts": self._counts.copy()})
        return State({**held.pieces, f"counts-{self._held.rows}": counts}, held.scalars)

    def restore(self, state: State) -> None:
        """Restore the blocks."""
        stored = dict(state.pieces)
        name = next(name for name in stored if name.startswith("counts-"))
        counts = stored.pop(name).column(0).to_numpy()
        self._counts = counts.copy()
        self._held.restore(State(stored, state.scalars))


def _cause(
    instance: Longs, block: Longs, full_instance: Longs, full_block: Longs, filled: Longs
) -> Longs:
    """For each row the event that fills its block, -1 where none does."""
    base = int(max(block.max(initial=0), full_block.max(initial=0))) + 1
    full_keys = full_instance * base + full_block
    order = np.argsort(full_keys)
    full_keys, filled = full_keys[order], filled[order]
    keys = instance * base + block
    if not len(full_keys):
        return np.full(len(keys), -1, dtype=np.int64)
    at = np.minimum(np.searchsorted(full_keys, keys), len(full_keys) - 1)
    return np.where(full_keys[at] == keys, filled[at], -1)


class EveryInterval:
    """``output all|last every t``: events are emitted with the next tick of the timer."""

    def __init__(
        self, schema: pa.Schema, every_ms: int, last: bool, grouped: bool, timer_path: int
    ) -> None:
        self._every_ms = every_ms
        self._last = last
        self._grouped = grouped
        self._timer_path = timer_path
        self._held = RateBuffer(schema)
        self.births = InstanceTimers()

    def begin(self, instance: Longs, clock_ms: Longs) -> None:
        """Start the timers at these times."""
        self.births.note(instance, clock_ms)

    def _due(self) -> Longs:
        held = self._held.events
        return self.births.after(held.instance, held.clock_ms, self._every_ms)

    def process(self, events: EventBatch, groups: Longs, timeline: Timeline) -> EventBatch:
        """The events that the ticks up to now emit, a chunk for each instance."""
        self._held.add(events, groups)
        if not len(self._held.events):
            return self._held.events
        due_ms = self._due()
        held, held_groups = self._held.events, self._held.groups
        places = instead = np.arange(len(held))
        if self._last:
            keys = [held.instance, due_ms]
            if self._grouped:
                keys.append(held_groups)
            places, instead = _last_places(keys)
        waits = due_ms[places] > timeline.now_ms
        self._held.keep(places[waits], instead[waits])
        going = places[due_ms[places] <= timeline.now_ms]
        turn = self.births.turn(held.instance[going])
        going = going[np.lexsort((turn, due_ms[going]))]
        return ticked(held.take(going), due_ms[going], self._timer_path, timeline)

    def next_time(self) -> int | None:
        """The tick that emits the oldest event."""
        if not len(self._held.events):
            return None
        return int(self._due().min())

    def forget(self, instances: Longs, groups: Longs) -> None:
        """Drop the events held back of ``instances``, and their timers."""
        self._held.keep(np.flatnonzero(~np.isin(self._held.events.instance, instances)))
        self._held.rows += 1
        self.births.forget(instances)

    def snapshot(self) -> State:
        """The events that wait, and the start of timers."""
        held, births = self._held.snapshot(), self.births.snapshot()
        return State({**held.pieces, **births.pieces}, held.scalars)

    def restore(self, state: State) -> None:
        """Restore events and timers."""
        births = {n: p for n, p in state.pieces.items() if n.startswith("births-")}
        self.births.restore(State(births))
        held = {n: p for n, p in state.pieces.items() if n not in births}
        self._held.restore(State(held, state.scalars))


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
