"""Merging the input streams of a group into one order that doesn't depend on arrival.

Several inputs are merged by (time, input, sequence).  The time of an event here is the highest of
its stream so far, so that a late event keeps its place in its stream.  An event waits until all
inputs are known beyond its time: no event that belongs before it can come any more.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mesh.operators.base import BEFORE_ALL, Longs, State, concat, no_rows
from mesh.operators.total_order import run_begins, run_starts

if TYPE_CHECKING:
    from collections.abc import Mapping

_SEQUENCE, _TIME, _CHUNK = "#sequence", "#time_ms", "#chunk"


@dataclass(frozen=True, slots=True)
class Ready:
    """Events of one stream that are to be processed now.

    ``index``: int64[n], the place of each among all that are; ``first``: that of the first event
    of its chunk, ``index`` itself where each was sent by itself; ``time_ms``: its own time;
    ``clock_ms``: the highest time of its stream up to the end of its chunk.
    """

    stream: str
    index: Longs
    first: Longs
    time_ms: Longs
    clock_ms: Longs
    rows: pa.RecordBatch


@dataclass(slots=True)
class _Held:
    """What one stream holds back, in the order of its sequence; arrays are never changed."""

    schema: pa.Schema
    sequence: Longs
    time_ms: Longs
    #: Never falls; events of one number were sent at once.
    chunk: Longs
    rows: pa.RecordBatch
    #: The highest time of the events that have gone on.
    latest_ms: int = BEFORE_ALL
    #: Events that came, and that have gone on.
    came: int = 0
    gone: int = 0

    def name(self, stream: str) -> str:
        return f"{stream}-{self.gone}-{self.came}"

    @property
    def clock_ms(self) -> Longs:
        highest = self.time_ms
        # Most streams come in order, and a look at that takes a fifth of the time.
        if not (highest[1:] >= highest[:-1]).all():
            highest = np.maximum.accumulate(highest)
        if len(highest) and highest[0] < self.latest_ms:
            highest = np.maximum(highest, self.latest_ms)
        # So it is with a search for each event's chunk.
        together = self.chunk[1:] == self.chunk[:-1]
        return highest[self.last] if together.any() else highest

    @property
    def last(self) -> Longs:
        """For each event the place of the last one of its chunk."""
        return np.searchsorted(self.chunk, self.chunk, side="right") - 1


class Inputs:
    """The streams that come from outside, in the order of first mention."""

    def __init__(self, mentioned: tuple[str, ...], schemas: Mapping[str, pa.Schema]) -> None:
        self._schemas = schemas
        self._rank = {stream: number for number, stream in enumerate(mentioned)}
        self._held: dict[str, _Held] = {}

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
        """Take the events that follow those taken before; no chunk is in two calls."""
        held = self._of(stream)
        # Chunks are told apart by the count of the first event of each.
        own = np.arange(held.came, held.came + len(sequence))
        if chunk is not None:
            own = own[np.searchsorted(chunk, chunk, side="left")]
        if rows.schema != held.schema:
            rows = rows.select(held.schema.names).cast(held.schema)
        rows_new = rows.num_rows
        if len(held.sequence):
            sequence = np.concatenate([held.sequence, sequence])
            time_ms = np.concatenate([held.time_ms, time_ms])
            rows = concat([held.rows, rows])
            own = np.concatenate([held.chunk, own])
        held.sequence, held.time_ms, held.rows, held.chunk = sequence, time_ms, rows, own
        held.came += rows_new

    def _of(self, stream: str) -> _Held:
        if stream not in self._held:
            schema = self._schemas[stream]
            none = np.empty(0, dtype=np.int64)
            rows = no_rows(schema)
            self._held[stream] = _Held(schema, none, none, none, rows)
        return self._held[stream]

    def ready(self, clocks: Mapping[str, int]) -> tuple[list[Ready], int]:
        """Give out what may be processed, and the time up to which everything is known."""
        mentioned = [s for s in set(clocks) | set(self._held) if s in self._rank]
        streams = sorted(mentioned, key=self._rank.__getitem__)
        known_ms = min((clocks.get(stream, BEFORE_ALL) for stream in streams), default=BEFORE_ALL)
        parts: list[tuple[str, Longs | None, Longs, Longs, pa.RecordBatch]] = []
        for stream in streams:
            held = self._of(stream)
            clock_ms = held.clock_ms
            count = len(clock_ms)
            if len(streams) > 1:
                count = int(np.searchsorted(clock_ms, known_ms, side="left"))
            if count:
                chunk = held.chunk[:count]
                first = _first_of(chunk)
                rows = held.rows.slice(0, count)
                parts.append((stream, first, held.time_ms[:count], clock_ms[:count], rows))
                held.latest_ms = int(clock_ms[count - 1])
                held.sequence, held.time_ms = held.sequence[count:], held.time_ms[count:]
                held.chunk = held.chunk[count:]
                held.rows = held.rows.slice(count)
                held.gone += count
        if not parts:
            return [], known_ms
        # Stable: at equal times the streams stay in their order, and each in that of its sequence.
        index = np.arange(sum(len(part[3]) for part in parts))
        if len(parts) > 1:
            order = np.argsort(np.concatenate([part[3] for part in parts]), kind="stable")
            index[order] = np.arange(len(order))
        ready, at = [], 0
        for stream, first, time_ms, clock_ms, rows in parts:
            own = index[at : at + len(time_ms)]
            begins = own if first is None else own[first]
            ready.append(Ready(stream, own, begins, time_ms, clock_ms, rows))
            at += len(time_ms)
        return ready, known_ms

    def next_time(self) -> int | None:
        """When the first event that is held back may go on: just after its time."""
        times = [int(h.clock_ms[0]) + 1 for h in self._held.values() if len(h.time_ms)]
        return min(times, default=None)

    def snapshot(self) -> State:
        """What is held back, a piece for each stream that holds any."""
        pieces, scalars = {}, {}
        for stream, held in self._held.items():
            scalars[stream] = [held.latest_ms, held.gone, held.came]
            if len(held.time_ms):
                piece = held.rows.append_column(_SEQUENCE, pa.array(held.sequence))
                piece = piece.append_column(_TIME, pa.array(held.time_ms))
                pieces[held.name(stream)] = piece.append_column(_CHUNK, pa.array(held.chunk))
        return State(pieces, scalars)

    def restore(self, state: State) -> None:
        """Take over what was held back."""
        self._held = {}
        scalars: Any = state.scalars
        for stream, (latest_ms, gone, came) in scalars.items():
            held = self._of(stream)
            held.latest_ms, held.gone, held.came = latest_ms, gone, came
            if came > gone:
                piece = state.pieces[held.name(stream)]
                held.sequence = piece.column(_SEQUENCE).to_numpy()
                held.time_ms = piece.column(_TIME).to_numpy()
                held.chunk = piece.column(_CHUNK).to_numpy()
                held.rows = piece.select(held.schema.names)


def with_schema(held: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A piece of what a stream holds back, where the stream has other attributes now.

    An attribute that is new, or whose values can't be had in its new type, is null.
    """
    columns: dict[str, pa.Array[Any]] = {}
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
