"""Join that searches the other side for each event, as the reference engine does.

For sides with other content than their output: tables, aggregations, named windows, and windows
that hold other rows, or in another order.  It is called stepwise, with one chunk of events or one
timer at a time, so that it finds the content of that time.

Source: observed on Siddhi 5.1.7, live; tests/cases/conformance/joins.jsonl and tables.jsonl.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mesh.language.syntax import EventKind, JoinSide
from mesh.operators.base import (
    EXPIRED,
    LOCAL_TIMER,
    RESET,
    Bools,
    EventBatch,
    Longs,
    State,
    concat,
    namespaced,
    subset,
)
from mesh.operators.expressions import Frame, compile_filter
from mesh.operators.joins.aggregation_lookup import AggregationLookup, add_spans
from mesh.operators.joins.input import ROW, TIME, joined_events, pass_nothing
from mesh.operators.joins.lookup_input import BesideFrame, LookupInput, of_table
from mesh.operators.total_order import instance_chunk_begins, run_begins, run_starts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.functions.vectors import Mask
    from mesh.operators.base import Timeline
    from mesh.operators.expressions import Key
    from mesh.operators.query.handlers import Failures
    from mesh.plan.bound import BoundJoin, BoundQuery
    from pyspark_nats.arrow import ArrowArray

_NO_MASK = np.empty(0, dtype=np.bool_)
_NO_SPANS = np.empty((0, 2), dtype=np.int64)
_WHOSE = pa.schema([pa.field(ROW, pa.int64())])
_COLUMNS = {
    "time_ms": np.int64,
    "clock_ms": np.int64,
    "order": np.int64,
    "path": np.int64,
    "kind": np.int8,
    "instance": np.int64,
}


@dataclass(frozen=True, slots=True)
class _JoinMatches:
    """Events of one side, and the rows that they found on the other.

    ``row``: int64[m], growing, the event of each pair; ``place``: int64[m], the row of ``theirs``
    beside it, -1 for none.  An event that resets is in a pair with no row.
    """

    step: int
    events: EventBatch
    row: Longs
    place: Longs
    theirs: pa.RecordBatch
    #: int64[n, 2], the start and the end of the span that each event asks an aggregation for.
    spans: Longs | None = None

    def rows(self, step: int, schema: pa.Schema) -> tuple[pa.RecordBatch, Mask]:
        """The rows of side ``step`` in the pairs, nulls for missing ones, and a mask of those."""
        if step == self.step:
            rows, place = self.events.rows.select(schema.names), self.row
            none = self.events.kind[self.row] == RESET
        else:
            rows, place, none = self.theirs, self.place, self.place < 0
        if not rows.num_rows or not schema.names:
            return nothing(schema, len(place)), none
        index: Any
        if none.any():
            index = pa.array(np.where(none, 0, place), mask=none)
            rows = rows.take(index)
        elif len(place) != rows.num_rows or (place != np.arange(len(place))).any():
            index = pa.array(place)
            rows = rows.take(index)
        return rows if rows.schema == schema else rows.cast(schema), none


class LookupJoin:
    """``from A join T on ..`` and other joins that search one side."""

    def __init__(self, query: BoundQuery, source: BoundJoin, timer_path: int) -> None:
        self._timer_path = timer_path
        self._sides = (
            LookupInput(query, source.left, 0, timer_path),
            LookupInput(query, source.right, 1, timer_path),
        )
        self._is_self = (
            source.left.schema.name == source.right.schema.name and self._sides[0].has_events
        )
        self._outer = joined_events(source)
        self._sets_off = (
            source.trigger is not JoinSide.RIGHT and self._sides[0].has_events,
            source.trigger is not JoinSide.LEFT and self._sides[1].has_events,
        )
        self._met = None if source.on is None else compile_filter(source.on)
        self._tables = [
            None if side.table is None else side.table.condition(of_table(source.on, side.step))
            for side in self._sides
        ]
        self._aggregation = next(
            (AggregationLookup(source, side.step) for side in self._sides if side.is_aggregation),
            None,
        )
        # Without a window an event expires on arrival; that is omitted if nothing reads it.
        self._comes_only = (
            query.events is EventKind.CURRENT and not query.has_aggregates and query.rate is None
        )
        kinds = [side.kind for side in self._sides]
        self._keeps = [kind is not None and kind.keeps_arrival_time for kind in kinds]
        #: By side and partition instance, the last row that the other side has searched.
        self._last_rows: dict[tuple[int, int], int] = {}
        #: (order, clock, path) of the last emitted event, and the number of its chunk.
        self._last = (-1, -1, -1, -1)

    def process(
        self, inputs: Sequence[EventBatch], timeline: Timeline, failures: Failures
    ) -> tuple[EventBatch, Frame]:
        """As ``WindowJoin.process``, for one chunk or one timer."""
        matches: list[_JoinMatches] = []
        if self._is_self and len(inputs[0]) > 1:
            for at in range(len(inputs[0])):
                one = inputs[0].slice(at, at + 1)
                matches += self._both((one, one), timeline, failures)
        else:
            matches = self._both(inputs, timeline, failures)
        return self._result(matches)

    def _both(
        self, inputs: Sequence[EventBatch], timeline: Timeline, failures: Failures
    ) -> list[_JoinMatches]:
        matches: list[_JoinMatches] = []
        for side, events in zip(self._sides, inputs, strict=True):
            if not side.has_events:
                continue
            output = side.enter(events, timeline, failures)
            if self._keeps[side.step]:
                output = self._keep_times(side.step, output)
            if not len(output) or not self._sets_off[side.step]:
                continue
            part = self._find(side, output, failures)
            matches.append(self._passing(part) if side.is_passing else part)
        return matches

    def _find(self, side: LookupInput, events: EventBatch, failures: Failures) -> _JoinMatches:
        """Find each event's rows on the other side; none if the condition fails."""
        step = side.step
        other = self._sides[1 - step]
        asks = np.flatnonzero(events.kind != RESET)
        frame = Frame.of_events(events, step)
        spans: Longs | None = None
        condition = self._tables[other.step]
        if other.is_aggregation:
            assert self._aggregation is not None, "made for the side that is one"
            answer = self._aggregation.find(frame, asks, events.clock_ms, other.schema)
            row, place, theirs, spans = answer.row, answer.place, answer.rows, answer.spans
        elif condition is None:
            row, place, theirs = self._look(other, frame, asks, events.instance)
        elif len(asks) < len(events):
            probe = Frame.of_events(events.take(asks), step)
            row, slots = condition.pairs(probe)
            row = asks[row]
            frame.failures |= {int(asks[at]): why for at, why in probe.failures.items()}
        else:
            row, slots = condition.pairs(frame)
        if condition is not None:
            assert other.table is not None
            place, theirs = np.arange(len(slots)), other.table.take(slots, other.schema.names)
        # Resets are emitted alone, and so are events without a match in an outer join.
        alone = np.ones(len(events), dtype=np.bool_)
        if not self._outer[step]:
            alone = events.kind == RESET
        alone[row] = False
        if frame.failures:
            failures.take(frame, events, stream=side.stream)
            alone[list(frame.failures)] = False
            mask = ~np.isin(row, list(frame.failures))
            row, place = row[mask], place[mask]
        if alone.any():
            further = np.flatnonzero(alone)
            row = np.concatenate([row, further])
            place = np.concatenate([place, np.full(len(further), -1)])
            order = np.argsort(row, kind="stable")
            row, place = row[order], place[order]
        return _JoinMatches(step, events, row, place, theirs, spans)

    def _look(
        self, other: LookupInput, frame: Frame, asks: Longs, instance: Longs
    ) -> tuple[Longs, Longs, pa.RecordBatch]:
        """Search a window for rows ``asks`` of ``frame``: for each pair event and row; the rows."""
        row: list[Longs] = []
        place: list[Longs] = []
        parts: list[pa.RecordBatch] = []
        cache: dict[int, tuple[int, pa.RecordBatch | None]] = {}
        count = 0
        for at, whose in zip(asks.tolist(), instance[asks].tolist(), strict=True):
            if whose not in cache:
                rows = self._content(other, whose)
                cache[whose] = count, rows
                if rows is not None:
                    parts.append(rows.select(other.schema.names))
                    count += rows.num_rows
            first, rows = cache[whose]
            if rows is None:
                continue
            met = np.arange(rows.num_rows)
            if self._met is not None:
                beside = BesideFrame(frame, at, rows, other.step)
                met = np.flatnonzero(self._met(beside))
                if beside.failures:
                    frame.failures[at] = beside.failures[min(beside.failures)]
            row.append(np.full(len(met), at))
            place.append(first + met)
        none = np.empty(0, dtype=np.int64)
        theirs = concat(parts) if parts else pa.RecordBatch.from_pylist([], other.schema)
        return np.concatenate([none, *row]), np.concatenate([none, *place]), theirs

    def _content(self, other: LookupInput, instance: int) -> pa.RecordBatch | None:
        """The present rows of a window; None where it is empty."""
        rows = other.content(instance)
        if rows is None or not rows.num_rows:
            return None
        if ROW in rows.schema.names and self._keeps[other.step]:
            last = rows.column(ROW)[rows.num_rows - 1].as_py()
            self._last_rows[other.step, instance] = last
        return _select(rows, other.schema.names)

    def _passing(self, matches: _JoinMatches) -> _JoinMatches:
        """Add the expiry of events without a window, which finds the same rows again."""
        if self._comes_only:
            return matches
        count = len(matches.events)
        resets = 3 * np.arange(count) + 2
        row = np.concatenate([3 * matches.row, 3 * matches.row + 1, resets])
        place = np.concatenate([matches.place, matches.place, np.full(count, -1)])
        order = np.argsort(row, kind="stable")
        events = pass_nothing(matches.events)
        spans = None if matches.spans is None else np.repeat(matches.spans, 3, axis=0)
        return _JoinMatches(matches.step, events, row[order], place[order], matches.theirs, spans)

    def _keep_times(self, step: int, events: EventBatch) -> EventBatch:
        """Rows of a batch window that a join has searched keep their time when they leave."""
        limit = np.array([self._last_rows.get((step, i), -1) for i in events.instance.tolist()])
        rows = events.rows.column(ROW).to_numpy(zero_copy_only=False)
        keeps = (events.kind == EXPIRED) & (rows <= limit)
        if not keeps.any():
            return events
        times = events.rows.column(TIME).to_numpy(zero_copy_only=False)
        return replace(events, time_ms=np.where(keeps, times, events.time_ms))

    def _result(self, matches: Sequence[_JoinMatches]) -> tuple[EventBatch, Frame]:
        arrays: dict[Key, ArrowArray] = {}
        missing: list[tuple[int, Mask]] = []
        for side in self._sides:
            parts = [one.rows(side.step, side.schema) for one in matches]
            rows = concat([rows for rows, _ in parts]) if parts else nothing(side.schema, 0)
            missing.append((side.step, np.concatenate([_NO_MASK, *(none for _, none in parts)])))
            for name in side.schema.names:
                arrays[side.step, name] = rows.column(name)
        events = self._events(matches)
        frame = Frame(len(events), arrays)
        for step, none in missing:
            if none.any():
                frame.add_missing(step, none)
        if self._aggregation is not None:
            spans = [one.spans[one.row] for one in matches if one.spans is not None]
            add_spans(frame, np.concatenate([_NO_SPANS, *spans]))
        frame.calls = partial(_calls, matches)
        return events, frame.timed(events)

    def _events(self, matches: Sequence[_JoinMatches]) -> EventBatch:
        """The pairs as events, those of one event as a chunk of their own."""
        parts = [one.events.at(one.row) for one in matches]
        begins = np.concatenate([_NO_MASK, *(run_begins(one.row) for one in matches)])
        whose = np.cumsum(begins) - 1
        rows = pa.RecordBatch.from_arrays([pa.array(whose, pa.int64())], schema=_WHOSE)
        columns = {
            name: np.concatenate([np.empty(0, dtype), *(getattr(p, name) for p in parts)])
            for name, dtype in _COLUMNS.items()
        }
        path = columns["path"]
        columns["path"] = np.where(path == LOCAL_TIMER, self._timer_path, path)
        return EventBatch(chunk=self._chunks(columns, begins, whose), rows=rows, **columns)

    def _chunks(self, columns: dict[str, Any], begins: Bools, whose: Longs) -> Longs:
        """Number the events that found something, under one cause."""
        places = [columns[name][begins] for name in ("order", "clock_ms", "path")]
        count = len(places[0])
        if not count:
            return np.empty(0, dtype=np.int64)
        new = run_begins(*places)
        number = np.arange(count) - run_starts(new)
        if tuple(int(column[0]) for column in places) == self._last[:3]:
            stop = int(np.argmax(new[1:])) + 1 if new[1:].any() else count
            number[:stop] += self._last[3] + 1
        order, clock, path = (int(column[-1]) for column in places)
        self._last = (order, clock, path, int(number[-1]))
        return number[whose]

    def next_time(self) -> int | None:
        """Time of the next timer of a window; None without one."""
        times = [side.next_time() for side in self._sides]
        return min((time for time in times if time is not None), default=None)

    def forget(self, instances: Longs) -> None:
        """Remove all state of these partition instances."""
        for side in self._sides:
            side.forget(instances)
        gone = set(instances.tolist())
        self._last_rows = {key: row for key, row in self._last_rows.items() if key[1] not in gone}

    def snapshot(self) -> State:
        """Both windows."""
        scalars: dict[str, object] = {
            "found": [[*key, row] for key, row in self._last_rows.items()],
            "last": list(self._last),
        }
        left, right = (side.snapshot() for side in self._sides)
        return namespaced({"own": State({}, scalars), "left": left, "right": right})

    def restore(self, state: State) -> None:
        """Restore both windows."""
        scalars = subset(state, "own").scalars
        self._last_rows = {(step, instance): row for step, instance, row in scalars["found"]}
        order, clock, path, chunk = scalars["last"]
        self._last = (order, clock, path, chunk)
        for side, name in zip(self._sides, ("left", "right"), strict=True):
            side.restore(subset(state, name))


def _calls(matches: Sequence[_JoinMatches]) -> Mask:
    """bool[m], where the pairs of another chunk of a side begin."""
    numbers = (np.cumsum(instance_chunk_begins(one.events))[one.row] for one in matches)
    return np.concatenate([_NO_MASK, *map(run_begins, numbers)])


def _select(rows: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Some columns; if none are selected, one stays, for the number of rows."""
    return rows.select(list(names)) if names else rows.select([0])


def nothing(schema: pa.Schema, count: int) -> pa.RecordBatch:
    """Rows of nulls."""
    nulls: list[ArrowArray] = [pa.nulls(count, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(nulls, schema=schema)
