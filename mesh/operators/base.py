"""Data and protocol of operators: event batches, time lines, state, and the operator itself.

No I/O, no clock, no Spark: events and the timeline supply the time.  ``executor.Executor`` drives
a group's operators, one executor for each virtual partition.

The total order.  External event number k (from 0, over the partition's life) has order 2k+1.
Events that are sent at once have one number.
Timers that are due after event k-1 and not after event k have order 2k, so they precede the event.
Within one order, the clock decides the sequence, and then ``path``: a number for the way from the
cause through the queries, depth first, as the reference engine calls them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mesh.model.values import JsonMapping
from pyspark_nats.few_rows import batches_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Kinds = npt.NDArray[np.int8]
#: Numbers, or truth values, of a type that a column decides.
Numbers = npt.NDArray[Any]

#: The ``path`` of events that the operator's own timers cause; the executor sets the real one.
LOCAL_TIMER = -1
#: The index or number that means none.
NIL = -1
#: Times after and before all others: of a timer that is not set, and before the first event.
NEVER = int(np.iinfo(np.int64).max)
BEFORE_ALL = int(np.iinfo(np.int64).min)

#: ``Events.kind``: enters; leaves a window; resets the aggregates of its instance.
CURRENT, EXPIRED, RESET = 0, 1, 2
#: ``Events.instance`` outside of partitions.
WHOLE = 0


@dataclass(frozen=True, slots=True)
class EventBatch:
    """A run of events, as columns of one length n, in the total order.

    ``time_ms``: int64[n], each event's own timestamp.
    ``clock_ms``: int64[n], the time at which the event arrived; never falls, and may be later than
    the event's own time.
    ``order``, ``path``: int64[n], the place of the event's cause in the total order (see above).
    ``chunk``: int64[n], distinguishes the pieces, in order, that one operator emits under one
    (order, clock, path); 0 if there is one piece.  Events with equal values in all four are one
    chunk, which the reference engine passes on at once: a sent array, a batch that a window emits.
    ``kind``: int8[n], ``CURRENT``, ``EXPIRED`` or ``RESET``; the row of a ``RESET`` has no meaning.
    ``instance``: int64[n], in a partition the number of the key; ``WHOLE`` outside.
    ``rows``: the attributes.
    """

    time_ms: Longs
    clock_ms: Longs
    order: Longs
    path: Longs
    chunk: Longs
    kind: Kinds
    instance: Longs
    rows: pa.RecordBatch

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @property
    def expired(self) -> Bools:
        """bool[n], whether it leaves a window rather than enters."""
        return np.equal(self.kind, EXPIRED)

    def take(self, indices: Longs) -> EventBatch:
        """The events at ``indices``."""
        return self.at(indices).with_rows(self.rows.take(indices))

    def at(self, indices: Longs) -> EventBatch:
        """The events at ``indices``, all but their attributes: ``rows`` stay as they are."""
        return EventBatch(
            self.time_ms[indices],
            self.clock_ms[indices],
            self.order[indices],
            self.path[indices],
            self.chunk[indices],
            self.kind[indices],
            self.instance[indices],
            self.rows,
        )

    def slice(self, start: int, stop: int) -> EventBatch:
        """The events from ``start`` to below ``stop``, without a copy."""
        cut = slice(start, stop)
        return EventBatch(
            self.time_ms[cut],
            self.clock_ms[cut],
            self.order[cut],
            self.path[cut],
            self.chunk[cut],
            self.kind[cut],
            self.instance[cut],
            self.rows.slice(start, stop - start),
        )

    def where(self, mask: Bools) -> EventBatch:
        """The events for which ``mask`` holds."""
        return self if bool(mask.all()) else self.take(np.flatnonzero(mask))

    def with_rows(self, rows: pa.RecordBatch) -> EventBatch:
        """The same events with other attributes."""
        return EventBatch(
            self.time_ms,
            self.clock_ms,
            self.order,
            self.path,
            self.chunk,
            self.kind,
            self.instance,
            rows,
        )

    def with_path(self, path: Longs) -> EventBatch:
        """The same events with other paths."""
        return EventBatch(
            self.time_ms,
            self.clock_ms,
            self.order,
            path,
            self.chunk,
            self.kind,
            self.instance,
            self.rows,
        )

    def outside(self) -> EventBatch:
        """The same events, outside of partitions."""
        return replace(self, instance=np.full(len(self), WHOLE, dtype=np.int64))


#: By the identity of a schema: the schema and a run of length 0.  Making a run, or hashing a
#: schema, takes as long as some operators do.  The entry keeps the schema alive, so its identity is
#: unique.
_NO_EVENTS: dict[int, tuple[pa.Schema, EventBatch]] = {}
_NO_EVENTS_MAX = 4096


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """A record batch of length 0."""
    return no_events(schema).rows


def no_events(schema: pa.Schema) -> EventBatch:
    """A run of length 0."""
    cached = _NO_EVENTS.get(id(schema))
    if cached is None:
        if len(_NO_EVENTS) >= _NO_EVENTS_MAX:
            _NO_EVENTS.clear()
        none = np.empty(0, dtype=np.int64)
        rows = pa.RecordBatch.from_pylist([], schema)
        events = EventBatch(none, none, none, none, none, np.empty(0, dtype=np.int8), none, rows)
        cached = _NO_EVENTS[id(schema)] = schema, events
    return cached[1]


def concat(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Record batches of one schema as one; there is at least one."""
    parts = batches_of(batches)
    if len(parts) == 1:
        return parts[0]
    # The type stubs lack it.
    joined: pa.RecordBatch = pa.concat_batches(parts)  # type: ignore[attr-defined]
    return joined


def join(runs: Sequence[EventBatch], schema: pa.Schema) -> EventBatch:
    """Concatenate runs of events with one schema."""
    runs = [run for run in runs if len(run)]
    if not runs:
        return no_events(schema)
    if len(runs) == 1:
        return runs[0]
    return EventBatch(
        np.concatenate([run.time_ms for run in runs]),
        np.concatenate([run.clock_ms for run in runs]),
        np.concatenate([run.order for run in runs]),
        np.concatenate([run.path for run in runs]),
        np.concatenate([run.chunk for run in runs]),
        np.concatenate([run.kind for run in runs]),
        np.concatenate([run.instance for run in runs]),
        concat([run.rows for run in runs]),
    )


def merge(runs: Sequence[EventBatch], schema: pa.Schema) -> EventBatch:
    """Runs of events with one schema, as one run in the total order."""
    runs = [run for run in runs if len(run)]
    together = join(runs, schema)
    if len(runs) < 2:
        return together
    keys = (together.chunk, together.path, together.clock_ms, together.order)
    return together.take(np.lexsort(keys))


def with_timer_path(events: EventBatch, path: int) -> EventBatch:
    """Events with ``path`` where a timer of the operator itself caused them."""
    is_timer = events.path == LOCAL_TIMER
    return (
        events.with_path(np.where(is_timer, path, events.path)) if bool(is_timer.any()) else events
    )


@dataclass(frozen=True, slots=True)
class Timeline:
    """The executor's knowledge of time while it processes one run of external events.

    ``first``: the number of the first event.
    ``clocks_ms``: int64[n], their clocks, never falling.
    ``now_ms``: the time up to which timers fire, not earlier than any of the clocks.
    ``playback``: time doesn't pass between events.  Timers due before an event fire when it
    arrives, all at that event's clock, as in the reference engine's playback.
    ``stands``: playback without events moves time to its present value: timers that have become due
    there since it was reached fire.
    """

    first: int
    clocks_ms: Longs
    now_ms: int
    playback: bool = False
    is_idle_playback: bool = False

    def timer_order(self, due_ms: Longs) -> Longs:
        """The order of timers due at ``due_ms``: before the first event that is not earlier."""
        return 2 * (self.first + np.searchsorted(self.clocks_ms, due_ms, side="left"))

    def fired_ms(self, due_ms: Longs) -> Longs:
        """The clock at which timers due at ``due_ms`` fire."""
        if not self.playback:
            return due_ms
        place = np.searchsorted(self.clocks_ms, due_ms, side="left")
        fired_ms = due_ms.copy()
        met = place < len(self.clocks_ms)
        fired_ms[met] = self.clocks_ms[place[met]]
        return fired_ms


@dataclass(frozen=True, slots=True)
class State:
    """An operator's state as named pieces.

    A piece that changed has another name.  So a host stores only names that it has not stored, and
    drops those that are no longer listed.  Names are derived from counts over the input, never over
    batches, or from the piece's content.  After a restart from an older state the same name
    therefore means the same content, however the input is cut then.  ``scalars`` holds small JSON
    values and is stored whole each time.
    """

    pieces: Mapping[str, pa.RecordBatch] = field(default_factory=dict)
    scalars: JsonMapping = field(default_factory=dict)


class Stateful(Protocol):
    """An object with a state that can be saved and restored."""

    def snapshot(self) -> State:
        """The whole state; later calls don't change a returned snapshot."""
        ...

    def restore(self, state: State) -> None:
        """Replace the present state by ``state``, a snapshot."""
        ...


def namespaced(parts: Mapping[str, State]) -> State:
    """The states of several parts as one, each name with its part's before it."""
    return State(
        {f"{name}/{key}": piece for name, s in parts.items() for key, piece in s.pieces.items()},
        {f"{name}/{key}": value for name, s in parts.items() for key, value in s.scalars.items()},
    )


def subset(state: State, name: str) -> State:
    """The state of one part, from a state that ``namespaced`` composed."""
    start = f"{name}/"
    return State(
        {k.removeprefix(start): v for k, v in state.pieces.items() if k.startswith(start)},
        {k.removeprefix(start): v for k, v in state.scalars.items() if k.startswith(start)},
    )


def restore_subset(stateful: Stateful, state: State, name: str) -> None:
    """Restore one part of what ``namespaced`` composed; a part without state stays new."""
    part = subset(state, name)
    if part.pieces or part.scalars:
        stateful.restore(part)
