"""``every A -> B [-> C ..] [within t]``: partial matches, each on its own.

Each event that passes step 0's filter starts a partial match.  A partial match that waits at a step
takes the first later event that passes the step's filter; the last step's makes an output.  One
event serves each partial match once: what it starts or moves on waits for later events.

With ``within`` a partial match is dropped as soon as any event of the pattern's streams comes whose
time is more than t away from that of its first event, to either side.

Whole batches are matched at once, step by step: what waits at a step, old and new, each looks
through the batch's later events of equal key, a bounded number of pairs at a time.

Source: observed on Siddhi 5.1.7; tests/cases/operators/patterns.jsonl.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mesh.operators.base import (
    CURRENT,
    WHOLE,
    Events,
    Longs,
    State,
    join,
    no_events,
    part,
    prefixed,
)
from mesh.operators.expressions import columns_of, compile_filter
from mesh.operators.frame import Frame
from mesh.operators.patterns.matching import StepMatcher
from mesh.operators.patterns.pending import Pending, PendingStore
from mesh.operators.patterns.reads import query_expressions
from mesh.plan.bound import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mesh.functions.vectors import Mask
    from mesh.operators.base import Timeline
    from mesh.operators.query.handlers import Failures
    from mesh.plan.bound import BoundPattern, BoundQuery


def used_columns(query: BoundQuery, pattern: BoundPattern) -> dict[int, list[Column]]:
    """For each step, the attributes that filters and the select clause need of its event."""
    expressions = query_expressions(query)
    expressions += [step.filter for step in pattern.steps if step.filter is not None]
    found: dict[tuple[int, str], Column] = {}
    for expression in expressions:
        for column in columns_of(expression):
            found.setdefault((column.step, column.name), column)
    used = {
        step: [column for (s, _), column in found.items() if s == step]
        for step in range(len(pattern.steps))
    }
    if not used[0]:
        # A record batch without columns has no length.
        attribute = pattern.steps[0].schema.attributes[0]
        used[0].append(Column(attribute.name, attribute.type, 0))
    return used


def column_name(step: int, name: str) -> str:
    """The name of a step's attribute among the columns of a match."""
    return f"{step}.{name}"


@dataclass(frozen=True, slots=True)
class _Batch:
    """Events of all streams of the pattern, merged; ``frames`` have a row for each of them."""

    time_ms: Longs
    #: For each event, which stream of the pattern it is of.
    stream: Longs
    frames: Mapping[int, Frame]


class ChainPattern:
    """The partial matches of one query, waiting at steps 1, 2 .."""

    def __init__(self, query: BoundQuery, pattern: BoundPattern) -> None:
        self._streams = query.input_streams
        self._within_ms = pattern.within_ms
        self._columns = used_columns(query, pattern)
        self._stream_of = [self._streams.index(step.schema.name) for step in pattern.steps]
        first = pattern.steps[0].filter
        self._first: Callable[[Frame], Mask] | None = compile_filter(first) if first else None
        self._matchers = [
            StepMatcher(number, step.filter) for number, step in enumerate(pattern.steps)
        ]
        #: The columns of a whole match.
        self.schema = pa.schema(
            [
                pa.field(column_name(step, column.name), column.type.arrow)
                for step, columns in self._columns.items()
                for column in columns
            ]
        )
        #: Events seen, over the pattern's life.
        self._seen = 0
        self._waiting = [
            PendingStore(self._schema_before(step)) for step in range(1, len(pattern.steps))
        ]

    def _schema_before(self, step: int) -> pa.Schema:
        return pa.schema([f for f in self.schema if int(f.name.split(".", 1)[0]) < step])

    def process(self, inputs: Sequence[Events], timeline: Timeline, failures: Failures) -> Events:
        """Events of the pattern's streams, a run for each, in order of first mention.

        Returns the matches: attributes of all steps, times and places of the last event.
        ``failures`` takes the events on which a filter failed; other matches may still take them.
        """
        del timeline  # Nothing here waits for time alone.
        total = sum(len(events) for events in inputs)
        if not total:
            return no_events(self.schema)
        order = np.concatenate([events.order for events in inputs])
        clock_ms = np.concatenate([events.clock_ms for events in inputs])
        path = np.concatenate([events.path for events in inputs])
        time_ms = np.concatenate([events.time_ms for events in inputs])
        stream = np.repeat(np.arange(len(inputs)), [len(events) for events in inputs])
        merged = np.lexsort((path, clock_ms, order))
        order, clock_ms, path = order[merged], clock_ms[merged], path[merged]
        time_ms, stream = time_ms[merged], stream[merged]

        results = []
        failed: dict[int, str] = {}
        for start, stop in self._runs(time_ms):
            frames = self._frames(inputs, merged[start:stop])
            batch = _Batch(time_ms[start:stop], stream[start:stop], frames)
            unmet: dict[int, str] = {}
            done, last = self._match(batch, unmet)
            if unmet:
                # Nothing comes out by an event on which a filter failed.
                going = np.flatnonzero(~np.isin(last, list(unmet)))
                done, last = done.take(going), last[going]
            last = last + start
            failed |= {start + number: reason for number, reason in unmet.items()}
            results.append(
                Events(
                    time_ms[last],
                    clock_ms[last],
                    order[last],
                    path[last],
                    last,
                    np.full(len(last), CURRENT, dtype=np.int8),
                    np.full(len(last), WHOLE, dtype=np.int64),
                    done,
                )
            )
        self._tell(failed, inputs, merged, failures)
        return self._in_chunks(join(results, self.schema))

    def _tell(
        self,
        failed: Mapping[int, str],
        inputs: Sequence[Events],
        merged: Longs,
        failures: Failures,
    ) -> None:
        starts = np.cumsum([0, *(len(events) for events in inputs)])
        for number in sorted(failed):
            place = int(merged[number])
            of = int(np.searchsorted(starts, place, side="right")) - 1
            lost = inputs[of].take(np.array([place - starts[of]]))
            failures.found.append((lost, [failed[number]], self._streams[of]))

    def _in_chunks(self, matches: Events) -> Events:
        """Matches whose ``chunk`` is the event that completed them, with chunks as they go on.

        Where a stream is read once each goes on by itself, else those of an event go together.
        """
        if not len(matches):
            return matches
        starts = np.zeros(len(matches), dtype=np.bool_)
        starts[0] = True
        for column in (matches.order, matches.clock_ms, matches.path):
            starts[1:] |= column[1:] != column[:-1]
        rises = np.ones(len(matches), dtype=np.bool_)
        if self._stream_of.count(self._stream_of[-1]) > 1:
            rises[1:] = matches.chunk[1:] != matches.chunk[:-1]
        number = np.cumsum(rises)
        first = np.maximum.accumulate(np.where(starts, np.arange(len(matches)), 0))
        return replace(matches, chunk=number - number[first])

    def _runs(self, time_ms: Longs) -> list[tuple[int, int]]:
        """Cuts a batch whose events are so late that ``within`` looks backwards too."""
        within = self._within_ms
        highest = np.maximum.accumulate(time_ms)
        if within is None or int((highest - time_ms).max()) <= within:
            return [(0, len(time_ms))]
        cuts = (np.flatnonzero(time_ms[1:] < time_ms[:-1]) + 1).tolist()
        return list(zip([0, *cuts], [*cuts, len(time_ms)], strict=True))

    def _frames(self, inputs: Sequence[Events], places: Longs) -> dict[int, Frame]:
        """For each step, its stream's attributes at the rows of the merged events."""
        starts = np.cumsum([0, *(len(events) for events in inputs)])
        frames = {}
        for step, columns in self._columns.items():
            number = self._stream_of[step]
            own = (places >= starts[number]) & (places < starts[number + 1])
            rows = inputs[number].rows
            # Rows of other streams are never looked at; any number will do for them.
            index = np.where(own, places - starts[number], 0)
            frames[step] = Frame(
                len(places),
                {(step, c.name): rows.column(c.name).take(index) for c in columns}
                if rows.num_rows
                else {},
            )
        return frames

    def _match(self, batch: _Batch, failed: dict[int, str]) -> tuple[pa.RecordBatch, Longs]:
        """Let a batch pass all steps; the finished matches, and the event that finished each.

        ``failed`` takes why events failed, by their numbers.
        """
        events = len(batch.time_ms)
        self._seen += events
        moved = self._begin(batch, failed)
        for step in range(1, len(self._stream_of)):
            store = self._waiting[step - 1]
            carried = store.waiting(self._dead_at(batch.time_ms, store.start_ms, carried=True))
            waiting = carried.join(moved)
            candidates = np.flatnonzero(batch.stream == self._stream_of[step])
            names = waiting.rows.schema.names
            frame = Frame(len(waiting), {_key(n): waiting.rows.column(n) for n in names})
            at = self._matchers[step].first_match(
                frame, waiting.since, waiting.dead, batch.frames[step], candidates, failed
            )
            found = at < events
            stays = ~found & (waiting.dead >= events)
            store.put(waiting, stays, carried=len(carried), seen=self._seen)
            moved = self._advance(waiting, found, at, batch, step)
        return moved.rows, moved.since

    def _begin(self, batch: _Batch, failed: dict[int, str]) -> Pending:
        """The partial matches that the batch's events start."""
        starts = batch.stream == self._stream_of[0]
        frame = batch.frames[0]
        if self._first is not None and starts.any():
            own, frame.failures = starts, {}
            starts = own & self._first(frame)
            failed |= {row: why for row, why in frame.failures.items() if own[row]}
        rows = np.flatnonzero(starts)
        start_ms = batch.time_ms[rows]
        dead = self._dead_at(batch.time_ms, start_ms, carried=False)
        columns = self._step_columns(batch, 0, rows)
        own = pa.RecordBatch.from_arrays(columns, schema=self._schema_before(1))
        return Pending(start_ms, rows, dead, own)

    def _advance(
        self, waiting: Pending, found: Mask, at: Longs, batch: _Batch, step: int
    ) -> Pending:
        """Those that found their event, by event and then in the order in which they waited."""
        rows = np.flatnonzero(found)
        rows = rows[np.argsort(at[rows], kind="stable")]
        taken = waiting.rows.take(rows)
        own = self._step_columns(batch, step, at[rows])
        together = pa.RecordBatch.from_arrays(
            [*taken.columns, *own], schema=self._schema_before(step + 1)
        )
        return Pending(waiting.start_ms[rows], at[rows], waiting.dead[rows], together)

    def _step_columns(self, batch: _Batch, step: int, rows: Longs) -> list[pa.Array[Any]]:
        """The attributes of a step's event that are needed, at ``rows``."""
        columns = self._columns[step]
        if not len(rows):
            return [pa.array([], column.type.arrow) for column in columns]
        vectors = [batch.frames[step].column(column).take(rows) for column in columns]
        return [vector.to_arrow(len(rows)) for vector in vectors]

    def _dead_at(self, time_ms: Longs, start_ms: Longs, carried: bool) -> Longs:
        """The event that drops each partial match; past the end if none does.

        ``_runs`` sees to it that among events of one batch none is too early for another.
        """
        end = len(time_ms)
        within = self._within_ms
        if within is None:
            return np.full(len(start_ms), end, dtype=np.int64)
        highest = np.maximum.accumulate(time_ms)
        dead = np.searchsorted(highest, start_ms + within, side="right")
        if not carried:
            return dead
        lowest = np.minimum.accumulate(time_ms)
        return np.minimum(dead, np.searchsorted(-lowest, -(start_ms - within), side="right"))

    def frame(self, matches: Events) -> Frame:
        """The columns of ``matches``, by step and attribute."""
        names = self.schema.names
        return Frame(len(matches), {_key(name): matches.rows.column(name) for name in names})

    def next_time(self) -> int | None:
        """It has no timers."""
        return None

    def forget(self, instances: Longs) -> None:
        """It is for queries outside of partitions."""

    def snapshot(self) -> State:
        """A piece for each chunk of waiting partial matches."""
        stores = enumerate(self._waiting, start=1)
        own = State({}, {"seen": self._seen})
        return prefixed({"own": own, **{f"step{step}": store.snapshot() for step, store in stores}})

    def restore(self, state: State) -> None:
        """Take over the waiting partial matches."""
        seen: Any = part(state, "own").scalars["seen"]
        self._seen = seen
        for step, store in enumerate(self._waiting, start=1):
            store.restore(part(state, f"step{step}"))


def _key(name: str) -> tuple[int, str]:
    step, attribute = name.split(".", 1)
    return int(step), attribute
