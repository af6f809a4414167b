"""An aggregation: events into cells of its shortest duration, and cells into longer durations.

Only the shortest duration takes events, each in the bucket of the time at which it arrives.  When
an arrival bucket is over its cells are closed: they are added to the closed cells of the duration,
and to the running ones of the next duration, which are closed in the same way when their own
arrival bucket is over.  With ``aggregate by`` a cell is that of the event's own bucket, so an
arrival bucket has cells of any event buckets.

Which cells are closed is a function of the events before and the clock alone, and they are closed
in the order of their arrival: so nothing depends on how events are cut into batches, not even the
last bit of a sum of doubles.  No timer is needed: cells are closed when the next event arrives, and
when a question is asked, by the clock of that.

With ``@store`` closed cells leave as rows for tables, one table a duration: those of the shortest
when its arrival bucket is over, those of longer ones every ``FLUSH_MS`` of the clock, as deltas
that are added to the rows there.  Timers close them, at places in the total order, so a replay
emits the same rows with the same positions.  The state then has what has not left yet.

Closed cells in any order: those of one key are merged from time to time.

Settings of an aggregation: ``@purge`` and ``@App:aggTimeZone``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from mesh.language.parser import parse_expression
from mesh.language.syntax import Literal, TimeUnit, find
from mesh.language.syntax.expressions import UNIT_MS
from mesh.model.stored import purge_channel, purge_schema, rows_channel
from mesh.operators.aggregations.bucket_reads import BucketReads
from mesh.operators.aggregations.cells import Cells, CellStore
from mesh.operators.aggregations.dictionary import KeyNumbers
from mesh.operators.aggregations.layout import Layout
from mesh.operators.aggregations.numbering import BUCKET, GROUP, CellNumbers, CellOrder
from mesh.operators.aggregations.times import bucket_starts, times_of
from mesh.operators.aggregations.values import BaseKind
from mesh.operators.base import BEFORE_ALL, State, namespaced, subset
from mesh.operators.expressions import Frame, compile_expression
from mesh.operators.failures import stopped
from mesh.plan.aggregation_tables import duration_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mesh.functions.vectors import Vector
    from mesh.language.syntax import Annotation
    from mesh.operators.aggregations.tables import AggregationTables
    from mesh.operators.aggregations.values import BaseValue
    from mesh.operators.base import EventBatch, Longs
    from mesh.operators.query.handlers import Failures
    from mesh.plan.bound import BoundAggregation


_DAY_MS: Final = 86_400_000
#: Default retention of closed cells by duration; the others are kept for good.
RETENTION_MS: Final = {
    TimeUnit.SECOND: 120_000,
    TimeUnit.MINUTE: _DAY_MS,
    TimeUnit.HOUR: 30 * _DAY_MS,
    TimeUnit.DAY: 365 * _DAY_MS,
}
PURGE_INTERVAL_MS: Final = 900_000
#: Interval in which an aggregation in a store writes what it has of running buckets.
FLUSH_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Purging:
    """``@purge``: at each interval since the start closed cells older than this are dropped.

    ``max_age_ms``: by duration; a duration that is not there is kept for good.
    """

    interval_ms: int
    max_age_ms: Mapping[TimeUnit, int]


@dataclass(frozen=True, slots=True)
class LeavingRows:
    """Rows that leave an aggregation for a table, n of them.

    ``due_ms``: int64[n], growing: when each left.  ``place``: orders the tables at one time.
    """

    channel: str
    place: int
    due_ms: Longs
    rows: pa.RecordBatch


class Aggregation:
    """The cells of ``define aggregation``; made inside of ``environment.using``.

    ``purging``: None to keep everything.  ``zone``: the time zone of hours and longer durations.
    ``layout``: that of ``definition``, if it is known.  ``tables``: of its store; None to keep
    closed cells in the state.  ``is_joined``: whether queries look rows of its tables up.
    """

    def __init__(
        self,
        definition: BoundAggregation,
        purging: Purging | None,
        zone: str | None = None,
        layout: Layout | None = None,
        tables: AggregationTables | None = None,
        *,
        is_joined: bool = False,
    ) -> None:
        self.name = definition.schema.name
        self.schema = definition.schema.arrow
        self.durations = definition.durations
        self.layout = Layout.of(definition) if layout is None else layout
        by = definition.aggregate_by
        self._by = None if by is None else compile_expression(by)
        self._keys = [compile_expression(column) for column in definition.group_by]
        self._purging = purging
        self.zone = zone
        self.tables = tables
        #: Rows for the tables since the last ``take_leaving``.
        self._leaving: list[LeavingRows] = []
        #: By duration, the rows of its tables that joins find; empty without joins.
        self.reads: dict[TimeUnit, tuple[BucketReads, ...]] = {}
        if tables is not None and is_joined:
            self.reads = {d: tuple(BucketReads(table) for table in tables.of(d)) for d in tables}
        #: The first position of the present run.
        self.position = 0
        #: Number of groups and values at which those in no use are looked for again.
        self._free_at = 0
        #: Finds the rows of each table of a duration in a span; None where there is no table.
        self.find_rows: Callable[[TimeUnit, int, int], Sequence[pa.RecordBatch]] | None = None
        types = [column.type for column in definition.group_by]
        self.groups = KeyNumbers(types, nulls_are_text=True)
        #: By number of the base value the values in its sets.
        self.value_numbers = self.layout.no_values()
        self.running: dict[TimeUnit, CellStore] = {}
        self.closed: dict[TimeUnit, CellStore] = {}
        self._empty()
        #: The time at which the app started, and the end of the last interval that was purged.
        self._start_ms: int | None = None
        self._purged_ms = 0
        #: Events taken so far, and the bucket of the shortest duration up to which all is closed.
        self._events = 0
        self._closed_ms = BEFORE_ALL

    def set_values(self, number: int) -> Vector:
        """The values in the sets of a base value, by number."""
        return self.value_numbers[number].values(0)

    @property
    def version(self) -> str:
        """Another one for each content: all of it is a function of these numbers and the input."""
        return f"{self._events}-{self._closed_ms}-{self._purged_ms}"

    def _empty(self) -> None:
        """Make stores without cells."""
        base = self.layout.base
        is_rising = self._by is None and self.tables is None
        for duration in self.durations:
            if is_rising:
                self.running[duration] = CellStore(base, CellOrder.RISING)
                self.closed[duration] = CellStore(base, CellOrder.NEW)
            else:
                self.running[duration] = CellStore(base)
                self.closed[duration] = LateCellStore(base)

    def begin(self, now_ms: int) -> None:
        """Count purging intervals from ``now_ms`` on, if this is the first call."""
        if self._start_ms is None:
            self._start_ms = self._purged_ms = now_ms

    # Events

    def add(self, events: EventBatch, failures: Failures) -> None:
        """Add events that passed the filters; those on which an expression fails are left out."""
        if not len(events):
            return
        frame = Frame.of_events(events)
        self._events += len(events)
        cells = self._cells(frame, events)
        if frame.failures:
            taken = np.flatnonzero(~stopped(frame, events))
            failures.take(frame, events)
            if not len(taken):
                return
            events = events.take(taken)
            frame = Frame.of_events(events)
            cells = self._cells(frame, events)
        self.running[self.durations[0]].add(cells, self.version)
        self.advance(int(events.clock_ms[-1]))

    def _cells(self, frame: Frame, events: EventBatch) -> Cells:
        count, shortest = len(events), self.durations[0]
        clock = np.ascontiguousarray(events.clock_ms)
        arrival = self._arrivals(clock, shortest)
        last = clock
        if self._by is None:
            is_arrival = self.tables is None
            bucket = arrival if is_arrival else bucket_starts(clock, shortest, self.zone)
        else:
            last, failed = times_of(self._by(frame), count)
            for row, why in failed.items():
                frame.failures.setdefault(row, why)
            bucket = bucket_starts(last, shortest, self.zone)
        values: dict[int, Vector] = {}
        sets: dict[int, tuple[Longs, Longs]] = {}
        for number, argument in enumerate(self.layout.arguments):
            if argument is None:
                continue
            vector = argument(frame)
            if self.layout.base[number].kind is BaseKind.SET:
                members = self.value_numbers[number].number([vector], count, self.version)
                sets[number] = np.arange(count), members
            else:
                values[number] = vector
        keys = [key(frame) for key in self._keys]
        if frame.failures:
            group = np.zeros(count, dtype=np.int64)
        else:
            group = self.groups.number(keys, count, self.version)
        return Cells(arrival, bucket, group, last, values, sets)

    # Time

    def moments(self, clock_ms: Longs) -> Longs:
        """int64[n, 2], equal for clocks at which the same cells are closed and purged."""
        closed = self._arrivals(clock_ms, self.durations[0])
        purged = np.zeros(len(clock_ms), dtype=np.int64)
        if self._purging is not None and self._start_ms is not None:
            purged = (clock_ms - self._start_ms) // self._purging.interval_ms
        return np.stack([closed, purged], axis=1)

    def advance(self, now_ms: int) -> None:
        """Close what is over at ``now_ms``, and purge what is due by then."""
        if self._purging is not None and self._start_ms is not None:
            interval_ms = self._purging.interval_ms
            due_ms = now_ms - (now_ms - self._start_ms) % interval_ms
            if due_ms > self._purged_ms and self.tables is None:
                self._close(due_ms)
                self._purged_ms = due_ms
                self._purge(due_ms, self._purging.max_age_ms)
        self._close(now_ms)

    def next_time(self) -> int | None:
        """When cells leave for their tables next; None without tables, or without cells."""
        if self.tables is None:
            return None
        stores = ((d, store) for d, store in self.running.items() if len(store))
        return min((int(s.arrivals[0]) + self._length_ms(d) for d, s in stores), default=None)

    def take_leaving(self) -> list[LeavingRows]:
        """Remove and return the rows for tables: those of one table are in the order of time."""
        taken, self._leaving = self._leaving, []
        return taken

    def _length_ms(self, duration: TimeUnit) -> int:
        """The length of an arrival bucket of an aggregation in a store."""
        return UNIT_MS[duration] if duration is TimeUnit.SECOND else FLUSH_MS

    def _arrivals(self, times_ms: Longs, duration: TimeUnit) -> Longs:
        """int64[n], the start of the arrival bucket of each time."""
        if self.tables is None:
            return bucket_starts(times_ms, duration, self.zone)
        return times_ms - times_ms % self._length_ms(duration)

    def _leave(self, duration: TimeUnit, cells: Cells) -> None:
        """Let closed cells leave for their table, and the table's old rows be deleted."""
        assert self.tables is not None, "called with tables"
        tables = self.tables.of(duration)
        first = self.durations.index(duration) * len(tables)
        due_ms = cells.arrival + self._length_ms(duration)
        rows = self.tables.rows(duration, cells, self.groups)
        of_sets = self.tables.set_rows(duration, cells, rows, self.set_values)
        for number, (of_cell, batch) in enumerate([(np.arange(len(cells)), rows), *of_sets]):
            if duration in self.reads:
                self.reads[duration][number].leave(batch, self.position)
            channel = rows_channel(tables[number].name)
            self._leaving.append(LeavingRows(channel, first + number, due_ms[of_cell], batch))
        if duration is not self.durations[-1] or self._purging is None or self._start_ms is None:
            return
        for time_ms in np.unique(due_ms).tolist():
            begun_ms = time_ms - (time_ms - self._start_ms) % self._purging.interval_ms
            if begun_ms <= self._purged_ms:
                continue
            self._purged_ms = begun_ms
            max_age_ms = self._purging.max_age_ms
            purged = [(t, time_ms - max_age_ms[d]) for d in max_age_ms for t in self.tables.of(d)]
            time = np.array([time_ms], dtype=np.int64)
            for place, (table, before_ms) in enumerate(purged, len(self.durations) * len(tables)):
                rows = pa.RecordBatch.from_pydict({"before_ms": [before_ms]}, purge_schema())
                self._leaving.append(LeavingRows(purge_channel(table.name), place, time, rows))

    def _close(self, now_ms: int) -> None:
        now = np.array([now_ms], dtype=np.int64)
        closed_ms = int(self._arrivals(now, self.durations[0])[0])
        if closed_ms <= self._closed_ms:
            return
        self._closed_ms = closed_ms
        version = self.version
        for place, duration in enumerate(self.durations):
            store = self.running[duration]
            if not len(store):
                continue
            current = int(self._arrivals(now, duration)[0])
            over = int(np.searchsorted(store.arrivals, current))
            if not over:
                continue
            cells = store.take_first(over, version)
            if self.tables is None:
                none = np.zeros(over, dtype=np.int64)
                self.closed[duration].add(_with(cells, none, cells.bucket), version)
            else:
                self._leave(duration, cells)
            if place + 1 < len(self.durations):
                longer = self.durations[place + 1]
                self.running[longer].add(self.in_buckets(cells, longer), version)
        if self.tables is not None and self._numbered() >= self._free_at:
            # Nothing is purged here, and what has left is in no use.
            self._free_keys()
            self._free_at = 2 * self._numbered()

    def in_buckets(self, cells: Cells, duration: TimeUnit) -> Cells:
        """Cells with the buckets of a longer duration."""
        arrival = self._arrivals(cells.arrival, duration)
        return _with(cells, arrival, bucket_starts(cells.bucket, duration, self.zone))

    def _purge(self, now_ms: int, max_age_ms: Mapping[TimeUnit, int]) -> None:
        has_purged = False
        for duration, store in self.closed.items():
            if duration not in max_age_ms or not len(store):
                continue
            live = np.flatnonzero(store.buckets >= now_ms - max_age_ms[duration])
            if len(live) < len(store):
                store.keep(live, self.version)
                has_purged = True
        if has_purged:
            self._free_keys()

    def _numbered(self) -> int:
        return len(self.groups) + sum(map(len, self.value_numbers.values()))

    def _free_keys(self) -> None:
        """Forget groups, and values of sets, that no cell has any more, once these are many."""
        stores = [*self.running.values(), *self.closed.values()]
        used = np.concatenate([store.groups for store in stores])
        groups = self.groups.renumbering(used, self.version)
        values = {}
        for number, numbers in self.value_numbers.items():
            used = np.concatenate([store.values_used(number) for store in stores])
            new = numbers.renumbering(used, self.version)
            if new is not None:
                values[number] = new
        if groups is not None or values:
            for store in stores:
                store.renumber(groups, values, self.version)

    # State

    def snapshot(self) -> State:
        """All cells and keys."""
        scalars: dict[str, object] = {
            "start_ms": self._start_ms, "purged_ms": self._purged_ms,
            "closed_ms": self._closed_ms, "events": self._events,
        }  # fmt: skip
        parts = {"own": State({}, scalars), "groups": self.groups.snapshot()}
        parts |= {f"values{n}": one.snapshot() for n, one in self.value_numbers.items()}
        for kind, stores in (("running", self.running), ("closed", self.closed)):
            parts |= {f"{kind}-{d}": store.snapshot() for d, store in stores.items()}
        parts |= {name: reads.snapshot() for name, reads in self._reads()}
        return namespaced(parts)

    def restore(self, state: State) -> None:
        """Restore an aggregation from ``snapshot``."""
        scalars = subset(state, "own").scalars
        self._start_ms, self._purged_ms = scalars["start_ms"], scalars["purged_ms"]
        self._closed_ms, self._events = scalars["closed_ms"], scalars["events"]
        self.groups = KeyNumbers(self.groups.types, nulls_are_text=True)
        self.groups.restore(subset(state, "groups"))
        for number, numbers in self.value_numbers.items():
            fresh = KeyNumbers(numbers.types, nulls_are_text=False)
            fresh.restore(subset(state, f"values{number}"))
            self.value_numbers[number] = fresh
        self._empty()
        for kind, stores in (("running", self.running), ("closed", self.closed)):
            for duration, store in stores.items():
                store.restore(subset(state, f"{kind}-{duration}"))
        for name, reads in self._reads():
            reads.restore(subset(state, name))

    def _reads(self) -> Iterator[tuple[str, BucketReads]]:
        """The rows of tables that joins find, by their names in a state."""
        for duration, tables in self.reads.items():
            for number, reads in enumerate(tables):
                yield f"left-{duration}" + (f"-{number}" if number else ""), reads


def _with(cells: Cells, arrival: Longs, bucket: Longs) -> Cells:
    """Cells with other buckets."""
    return Cells(arrival, bucket, cells.group, cells.last, cells.values, cells.sets)


#: Cells that are appended, at least, before those of one key are merged.
_LATE_MIN: Final = 262_144
#: Cells are put into the columns when they are read, or after this many additions.
_WAITING_MAX: Final = 256
#: Cells are left as they are if there are more different ones than this part of them.
_MERGED_PART: Final = 0.75


class LateCellStore(CellStore):
    """The closed cells of one duration, to which those of earlier buckets may come.

    Cells wait as they are until they are read, and are appended to the columns then: so these
    grow in large steps.
    """

    def __init__(self, plan: Sequence[BaseValue]) -> None:
        super().__init__(plan, CellOrder.LATE)
        self._waiting: list[Cells] = []
        self._waiting_count = 0
        #: Number of cells at which those of one key are merged.
        self._limit = _LATE_MIN

    @property
    def count(self) -> int:
        """Number of cells."""
        return super().count + self._waiting_count

    @property
    def _keys(self) -> Longs:
        self._settle()
        return super()._keys

    def add(self, cells: Cells, version: str) -> None:
        """See ``CellStore``."""
        # Places of merging that do not depend on how the cells are cut.
        while self.count + len(cells) > self._limit:
            room = self._limit - self.count
            self._wait(cells.part(0, room), version)
            cells = cells.part(room, len(cells))
            self._merge(version)
        self._wait(cells, version)

    def _wait(self, cells: Cells, version: str) -> None:
        if not len(cells):
            return
        if self._sets:
            super().add(cells, version)
            return
        self._pages.touch_added(self.count, self.count + len(cells), version)
        self._waiting.append(cells)
        self._waiting_count += len(cells)
        if len(self._waiting) > _WAITING_MAX:
            self._settle()

    def _settle(self) -> None:
        """Put cells that wait into the columns."""
        room = self.count
        waiting, self._waiting, self._waiting_count = self._waiting, [], 0
        for cells in waiting:
            self._put(cells, room)

    def _put(self, cells: Cells, room: int) -> Longs:
        if room > self._numbers.room:
            # They grow for long: fewer copies.
            room = max(room, min(4 * room, self._limit))
        return super()._put(cells, room)

    def _merge(self, version: str) -> None:
        """Merge the cells with the same keys, if they are many."""
        if self._has_many_keys_twice():
            merged = CellStore(self._plan)
            merged.add(self.take(slice(0, self.count)), version)
            self._columns, self._sets = merged._columns, merged._sets
            self._last, self._has_last = merged._last, merged._has_last
            merged._numbers.become(self._order)
            self._numbers = merged._numbers
            self._last_of, self._chained = self._last_of[:0], 0
            self._touch_from(0, version)
        self._limit = _limit_after(self.count)

    def _has_many_keys_twice(self) -> bool:
        keys = self._numbers.keys
        bucket = np.concatenate([keys[:, BUCKET], *(cells.bucket for cells in self._waiting)])
        group = np.concatenate([keys[:, GROUP], *(cells.group for cells in self._waiting)])
        # An eighth of all keys, with all of their cells.
        sample = np.flatnonzero((bucket // 1000 + group) % 8 == 0)
        if 16 * len(sample) < self.count:
            sample = np.arange(self.count)
        numbers = CellNumbers(CellOrder.ANY)
        # Closed cells have one arrival.
        numbers.number(np.zeros(len(sample), dtype=np.int64), bucket[sample], group[sample])
        return numbers.count < _MERGED_PART * len(sample)

    def keep(self, cells: Longs, version: str) -> None:
        """See ``CellStore``."""
        self._settle()
        super().keep(cells, version)
        self._limit = _limit_after(self.count)

    def renumber(self, groups: Longs | None, values: Mapping[int, Longs], version: str) -> None:
        """See ``CellStore``."""
        self._settle()
        super().renumber(groups, values, version)

    def snapshot(self) -> State:
        """See ``CellStore``."""
        state = super().snapshot()
        return State(state.pieces, {**state.scalars, "limit": self._limit})

    def restore(self, state: State) -> None:
        """See ``CellStore``."""
        super().restore(state)
        limit = state.scalars.get("limit", _limit_after(self.count))
        self._limit = limit


def _limit_after(count: int) -> int:
    """The number of cells at which they are merged next, of ``count`` now."""
    return 2 * count + _LATE_MIN


_ALL = "all"


def purging_of(definition: BoundAggregation) -> Purging | None:
    """The purging of an aggregation's closed cells; None: they are kept."""
    annotation = find(definition.annotations, "purge")
    max_age_ms = {d: ms for d, ms in RETENTION_MS.items() if d in definition.durations}
    if annotation is None:
        return Purging(PURGE_INTERVAL_MS, max_age_ms)
    if (annotation.get("enable") or "true").lower() == "false":
        return None
    interval = annotation.get("interval")
    periods = find(annotation.annotations, "retentionPeriod")
    for key, text in periods.elements if periods is not None else ():
        duration = duration_of(key or "")
        assert duration is not None, "the binder checks it"
        if text.lower() == _ALL:
            max_age_ms.pop(duration, None)
        else:
            max_age_ms[duration] = milliseconds(text)
    return Purging(PURGE_INTERVAL_MS if interval is None else milliseconds(interval), max_age_ms)


def zone_of(annotations: Iterable[Annotation]) -> str | None:
    """The time zone of an app's aggregations; None for UTC."""
    annotation = find(tuple(annotations), "app:aggTimeZone")
    return None if annotation is None else annotation.get()


def milliseconds(text: str) -> int:
    """A time as annotations have it, such as ``10 sec``."""
    time = parse_expression(text)
    assert isinstance(time, Literal) and isinstance(time.value, int), "the binder checks it"  # noqa: PT018
    return time.value
