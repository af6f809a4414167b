"""Merges the input streams of a group into one order that doesn't depend on arrival.

Several inputs are merged by (time, input, sequence).  The time of an event here is the highest of
its stream so far, so that a late event keeps its place in its stream.  An event waits until all
inputs are known beyond its time: no earlier event can arrive any more.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from mesh.operators.base import BEFORE_ALL, NEVER, Longs, State, concat, no_rows
from mesh.operators.total_order import run_begins, run_starts
from pyspark_nats.few_rows import as_batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark_nats.arrow import ArrowArray

_SEQUENCE, _TIME, _CHUNK = "#sequence", "#time_ms", "#chunk"
#: The stream of on-demand changes of tables, which no query reads: see ``table_changes``.  Its
#: messages are beside the events of one of the inputs, and are known as far as these.
CHANGES: Final = "#changes"
#: ``refusal``: why a change is not made; null otherwise.
CHANGE_SCHEMA: Final = pa.schema(
    [("id", pa.string()), ("query", pa.string()), ("refusal", pa.string())]
)


@dataclass(frozen=True, slots=True)
class MergedRun:
    """Events of one stream that are ready to be processed.

    ``index``: int64[n], the rank of each among all that are ready. ``first``: that of the first
    event of its chunk, ``index`` itself where each was sent alone. ``time_ms``: its own time.
    ``clock_ms``: the highest time of its stream up to the end of its chunk.
    """

    stream: str
    index: Longs
    first: Longs
    time_ms: Longs
    clock_ms: Longs
    rows: pa.RecordBatch

    def slice(self, low: int, high: int, start: int = 0) -> MergedRun:
        """The events from number ``low`` to below ``high``; ``start`` is subtracted from ranks."""
        part = slice(low, high)
        index = self.index[part] - start
        first = index if self.first is self.index else self.first[part] - start
        rows = self.rows.slice(low, high - low)
        return MergedRun(self.stream, index, first, self.time_ms[part], self.clock_ms[part], rows)


@dataclass(slots=True)
class _Buffered:
    """Events of one stream that wait, in the order of its sequence; arrays are never changed."""

    schema: pa.Schema
    sequence: Longs
    time_ms: Longs
    #: Never falls; events of one number were sent at once.
    chunk: Longs
    rows: pa.RecordBatch
    #: Whether any of them were sent at once; the checks of ``chunk`` are left out otherwise.
    is_grouped: bool = False
    #: The highest time of the events that have been handed out.
    latest_ms: int = BEFORE_ALL
    #: Events received, and events handed out.
    came: int = 0
    gone: int = 0

    def name(self, stream: str) -> str:
        return f"{stream}-{self.gone}-{self.came}"

    @property
    def clock_ms(self) -> Longs:
        highest = self.time_ms
        # Most streams are in order already, and checking that takes a fifth of the time.
        if not (highest[1:] >= highest[:-1]).all():
            highest = np.maximum.accumulate(highest)
        if len(highest) and highest[0] < self.latest_ms:
            highest = np.maximum(highest, self.latest_ms)
        return highest[self.last] if self.is_grouped else highest

    @property
    def last(self) -> Longs:
        """For each event the place of the last one of its chunk."""
        return np.searchsorted(self.chunk, self.chunk, side="right") - 1


class InputMerger:
    """Merges external streams, which are in the order of first mention."""

    def __init__(self, mentioned: tuple[str, ...], schemas: Mapping[str, pa.Schema]) -> None:
        self._schemas = schemas
        self._rank = {stream: number for number, stream in enumerate(mentioned)}
        self._held: dict[str, _Buffered] = {}

    @property
    def schemas(self) -> dict[str, pa.Schema]:
        """By stream, in the order of first mention."""
        return {stream: self._schemas[stream] for stream in self._rank}

    def add(
        self,
        stream: str,
        sequence: Longs,
        time_ms: Longs,
        rows: pa.RecordBatch,
        chunk: Longs | None = None,
    ) -> None:
        """Accept the events after those of earlier calls; no chunk is in two calls."""
        held = self._of(stream)
        # The count of the first event distinguishes chunks.
        chunks = np.arange(held.came, held.came + len(sequence))
        first = None if chunk is None else _first_of(chunk)
        if first is not None:
            chunks = chunks[first]
            held.is_grouped = True
        if rows.schema != held.schema:
            rows = as_batch(rows).select(held.schema.names).cast(held.schema)
        rows_new = rows.num_rows
        if len(held.sequence):
            sequence = np.concatenate([held.sequence, sequence])
            time_ms = np.concatenate([held.time_ms, time_ms])
            rows = concat([held.rows, rows])
            chunks = np.concatenate([held.chunk, chunks])
        held.sequence, held.time_ms, held.rows, held.chunk = sequence, time_ms, rows, chunks
        held.came += rows_new

    def _of(self, stream: str) -> _Buffered:
        if stream not in self._held:
            schema = CHANGE_SCHEMA if stream == CHANGES else self._schemas[stream]
            none = np.empty(0, dtype=np.int64)
            rows = no_rows(schema)
            self._held[stream] = _Buffered(schema, none, none, none, rows)
        return self._held[stream]

    def ready(self, clocks: Mapping[str, int]) -> tuple[list[MergedRun], int]:
        """The events that may be processed, and the time up to which everything is known."""
        mentioned = [s for s in set(clocks) | set(self._held) if s in self._rank]
        streams = sorted(mentioned, key=self._rank.__getitem__)
        watermark_ms = min(
            (clocks.get(stream, BEFORE_ALL) for stream in streams), default=BEFORE_ALL
        )
        is_merged = len(streams) > 1
        if CHANGES in self._held:
            # At equal times the events come first.
            streams.append(CHANGES)
        parts: list[tuple[str, Longs | None, Longs, Longs, pa.RecordBatch]] = []
        for stream in streams:
            held = self._of(stream)
            clock_ms = held.clock_ms
            count = len(clock_ms)
            if is_merged:
                count = int(np.searchsorted(clock_ms, watermark_ms, side="left"))
            if count:
                chunk = held.chunk[:count]
                first = _first_of(chunk) if held.is_grouped else None
                rows = held.rows.slice(0, count)
                parts.append((stream, first, held.time_ms[:count], clock_ms[:count], rows))
                held.latest_ms = int(clock_ms[count - 1])
                held.sequence, held.time_ms = held.sequence[count:], held.time_ms[count:]
                held.chunk = held.chunk[count:]
                held.is_grouped = held.is_grouped and len(held.chunk) > 0
                held.rows = held.rows.slice(count)
                held.gone += count
        if not parts:
            return [], watermark_ms
        # Stable: at equal times the streams stay in their order, and each in that of its sequence.
        index = np.arange(sum(len(part[3]) for part in parts))
        if len(parts) > 1:
            order = np.argsort(np.concatenate([part[3] for part in parts]), kind="stable")
            index[order] = np.arange(len(order))
        ready, at = [], 0
        for stream, first, time_ms, clock_ms, rows in parts:
            ranks = index[at : at + len(time_ms)]
            begins = ranks if first is None else ranks[first]
            ready.append(MergedRun(stream, ranks, begins, time_ms, clock_ms, rows))
            at += len(time_ms)
        return ready, watermark_ms

    def next_time(self) -> int | None:
        """Time at which the first waiting event may be processed: just after its own."""
        times = [int(h.clock_ms[0]) + 1 for h in self._held.values() if len(h.time_ms)]
        return min(times, default=None)

    def snapshot(self) -> State:
        """The waiting events, a piece for each stream that has any."""
        pieces, scalars = {}, {}
        for stream, held in self._held.items():
            scalars[stream] = [held.latest_ms, held.gone, held.came]
            if len(held.time_ms):
                rows = as_batch(held.rows)
                piece = rows.append_column(_SEQUENCE, pa.array(held.sequence))
                piece = piece.append_column(_TIME, pa.array(held.time_ms))
                pieces[held.name(stream)] = piece.append_column(_CHUNK, pa.array(held.chunk))
        return State(pieces, scalars)

    def restore(self, state: State) -> None:
        """Restore the waiting events."""
        self._held = {}
        scalars = state.scalars
        for stream, (latest_ms, gone, came) in scalars.items():
            held = self._of(stream)
            held.latest_ms, held.gone, held.came = latest_ms, gone, came
            if came > gone:
                piece = state.pieces[held.name(stream)]
                held.sequence = piece.column(_SEQUENCE).to_numpy()
                held.time_ms = piece.column(_TIME).to_numpy()
                held.chunk = piece.column(_CHUNK).to_numpy()
                held.is_grouped = _first_of(held.chunk) is not None
                held.rows = piece.select(held.schema.names)


def with_schema(held: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A piece of a stream's waiting events, for a stream that has other attributes now.

    An attribute is null if it is new, or if its values can't be cast to its new type.
    """
    columns: dict[str, ArrowArray] = {}
    for field in schema:
        columns[field.name] = pa.nulls(held.num_rows, field.type)
        if field.name in held.schema.names:
            with contextlib.suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
                columns[field.name] = held.column(field.name).cast(field.type)
    columns |= {name: held.column(name) for name in (_SEQUENCE, _TIME, _CHUNK)}
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _first_of(chunk: Longs) -> Longs | None:
    """The index of the first element equal to each, of a sorted column; None: all differ."""
    new = run_begins(chunk)
    return None if new.all() else run_starts(new)


def around_changes(
    ready: list[MergedRun], watermark_ms: int
) -> Iterator[tuple[list[MergedRun], pa.RecordBatch | None, int]]:
    """The events before each change of a table, the change as one row, and its time.

    The last are the events after all changes, no change, and ``watermark_ms``.
    """
    done = 0
    events = [run for run in ready if run.stream != CHANGES]
    # The changes are the last run.
    for change in ready[len(events) :]:
        for row, index in enumerate(change.index.tolist()):
            clock_ms = int(change.clock_ms[row])
            yield ranked(events, done, index), change.rows.slice(row, 1), clock_ms
            done = index + 1
    yield ranked(events, done) if done else ready, None, watermark_ms


def ranked(ready: Sequence[MergedRun], start: int, stop: int = NEVER) -> list[MergedRun]:
    """The events of ranks from ``start`` to below ``stop``, ranked from 0."""
    runs = []
    for run in ready:
        first, last = np.searchsorted(run.index, [start, stop]).tolist()
        if first < last:
            runs.append(run.slice(first, last, start))
    return runs


def causes_of(ready: Sequence[MergedRun]) -> tuple[Longs, list[Longs]]:
    """The clock of each cause, never falling, and by run its events' causes.

    Events sent at once are one cause: they move time once.
    """
    if not ready:
        return np.empty(0, dtype=np.int64), []
    if len(ready) == 1 and ready[0].first is ready[0].index:
        return ready[0].clock_ms, [ready[0].index]
    total = sum(len(run.index) for run in ready)
    all_ms = np.empty(total, dtype=np.int64)
    begins = np.zeros(total, dtype=np.bool_)
    for run in ready:
        all_ms[run.index] = run.clock_ms
        begins[run.first] = True
    number = np.cumsum(begins) - 1
    causes_ms = np.maximum.accumulate(all_ms[begins])
    return causes_ms, [number[run.first] for run in ready]
