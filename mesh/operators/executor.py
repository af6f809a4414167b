"""Drives the queries of one group for one partition: the whole of it is a fold over its input.

The result doesn't depend on how the input was cut into runs: events are merged in an order of their
own, timers fire at places in that order, and each output row gets its number in it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mesh.errors import MeshError
from mesh.operators.base import (
    CURRENT,
    OWN_TIMER,
    WHOLE,
    Events,
    Longs,
    State,
    Timeline,
    concat,
    part,
    prefixed,
)
from mesh.operators.inputs import Inputs
from mesh.operators.paths import Paths
from mesh.operators.queries import start

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from mesh.plan.bound import BoundApp

#: The format of ``snapshot``; a state of another one is not read.
STATE_VERSION = 1


@dataclass(frozen=True, slots=True)
class InputRun:
    """Events of one input stream, in the order of its sequence.

    ``sequence``, ``time_ms``: int64[n]; ``rows``: n rows in the stream's schema.
    """

    stream: str
    sequence: Longs
    time_ms: Longs
    rows: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class OutputRun:
    """Rows for one stream that leaves the group, n of them.

    ``position``: int64[n], growing; over all output streams the numbers 1, 2 .. come once each.
    ``time_ms``: int64[n], the events' own times.
    """

    stream: str
    position: Longs
    time_ms: Longs
    rows: pa.RecordBatch


class Executor:
    """The queries of ``app`` over one partition.

    With one input stream its events are processed as they come, and then the timers due by its
    clock fire.  With several, events are merged by (time, input in the order of first mention,
    sequence), and wait until every input's clock is past them.  At one instant timers come first.
    """

    def __init__(self, app: BoundApp, outputs: Collection[str]) -> None:
        self._schemas = {stream.name: stream.arrow for stream in app.streams}
        self._outputs = [stream.name for stream in app.streams if stream.name in outputs]
        self._paths = Paths(app.queries)
        self._queries = [
            start(query, self._paths.timers[number]) for number, query in enumerate(app.queries)
        ]
        self._targets = [query.target.name for query in app.queries]
        self._reads = [query.input_streams for query in app.queries]
        mentioned = (stream for query in app.queries for stream in query.input_streams)
        self._inputs = Inputs(tuple(dict.fromkeys(mentioned)), self._schemas)
        #: External events processed so far.
        self._events = 0
        self._now_ms = int(np.iinfo(np.int64).min)
        #: Positions given so far.
        self.outputs_count = 0

    def run(self, inputs: Sequence[InputRun], clocks: Mapping[str, int]) -> list[OutputRun]:
        """Take events, let time pass, and return what comes out.

        Args:
            inputs: events that follow those of earlier calls, stream by stream.
            clocks: for every input stream the time, milliseconds since 1970, up to which it is
                known; also for those that have no event in this run.

        Returns:
            For each output stream that has any, its rows.
        """
        for run in inputs:
            self._inputs.add(run.stream, run.sequence, run.time_ms, run.rows)
        ready, known_ms = self._inputs.ready(clocks)
        count = sum(len(part_.index) for part_ in ready)
        clocks_ms = np.empty(count, dtype=np.int64)
        for part_ in ready:
            clocks_ms[part_.index] = part_.clock_ms
        clocks_ms = np.maximum(np.maximum.accumulate(clocks_ms), self._now_ms)
        last_ms = int(clocks_ms[-1]) if count else self._now_ms
        timeline = Timeline(self._events, clocks_ms, max(last_ms, known_ms))

        flowing: dict[str, list[Events]] = {}
        for part_ in ready:
            events = Events(
                part_.time_ms,
                clocks_ms[part_.index],
                2 * (self._events + part_.index) + 1,
                np.full(len(part_.index), self._paths.roots[part_.stream], dtype=np.int64),
                np.zeros(len(part_.index), dtype=np.int64),
                np.full(len(part_.index), CURRENT, dtype=np.int8),
                np.full(len(part_.index), WHOLE, dtype=np.int64),
                part_.rows,
            )
            flowing.setdefault(part_.stream, []).append(events)
        self._events += count
        self._now_ms = timeline.now_ms

        leaving: list[tuple[int, Events]] = []
        for number in self._paths.order:
            made = self._queries[number].process(self._entering(number, flowing), timeline)
            if not len(made):
                continue
            own = made.path == OWN_TIMER
            made = replace(made, path=np.where(own, self._paths.timers[number], made.path))
            flowing.setdefault(self._targets[number], []).append(made)
            if self._targets[number] in self._outputs:
                leaving.append((self._outputs.index(self._targets[number]), made))
        return self._number(leaving)

    def _entering(
        self, number: int, flowing: Mapping[str, Sequence[Events]]
    ) -> dict[str, list[Events]]:
        """What a query reads, each event with the way on which it comes to this query."""
        return {
            stream: [
                replace(events, path=self._paths.through(number, events.path))
                for events in flowing[stream]
            ]
            for stream in self._reads[number]
            if stream in flowing
        }

    def _number(self, leaving: list[tuple[int, Events]]) -> list[OutputRun]:
        """Give positions to output rows: by cause, and then by way through the queries."""
        if not leaving:
            return []
        order = np.concatenate([events.order for _, events in leaving])
        clock_ms = np.concatenate([events.clock_ms for _, events in leaving])
        path = np.concatenate([events.path for _, events in leaving])
        chunk = np.concatenate([events.chunk for _, events in leaving])
        place = np.empty(len(order), dtype=np.int64)
        place[np.lexsort((chunk, path, clock_ms, order))] = np.arange(1, len(order) + 1)
        place += self.outputs_count
        self.outputs_count += len(order)

        runs: dict[int, list[tuple[Longs, Events]]] = {}
        at = 0
        for stream, events in leaving:
            runs.setdefault(stream, []).append((place[at : at + len(events)], events))
            at += len(events)
        return [self._output(self._outputs[stream], runs[stream]) for stream in sorted(runs)]

    def _output(self, stream: str, parts: list[tuple[Longs, Events]]) -> OutputRun:
        if len(parts) == 1:
            (position, events) = parts[0]
            return OutputRun(stream, position, events.time_ms, events.rows)
        position = np.concatenate([position for position, _ in parts])
        time_ms = np.concatenate([events.time_ms for _, events in parts])
        rows = concat([events.rows for _, events in parts])
        order = np.argsort(position)
        return OutputRun(stream, position[order], time_ms[order], rows.take(order))

    def next_time(self) -> int | None:
        """The earliest time at which the passing of time alone changes anything; None without."""
        times = [query.next_time() for query in self._queries]
        times.append(self._inputs.next_time())
        return min((time for time in times if time is not None), default=None)

    def snapshot(self) -> State:
        """Everything that a later run depends on."""
        scalars: dict[str, object] = {
            "version": STATE_VERSION,
            "events": self._events,
            "now_ms": self._now_ms,
            "outputs": self.outputs_count,
        }
        parts = {f"query{n}": query.snapshot() for n, query in enumerate(self._queries)}
        return prefixed({"own": State({}, scalars), "inputs": self._inputs.snapshot(), **parts})

    def restore(self, state: State) -> None:
        """Go on from ``state``, a snapshot of an executor of the same app.

        Raises:
            MeshError: MESH-O105, the state was written by another version.
        """
        own: Any = part(state, "own").scalars
        if own.get("version") != STATE_VERSION:
            raise MeshError(
                "MESH-O105",
                f"state has format {own.get('version')}",
                detail=f"This version reads format {STATE_VERSION}.",
                hint="Run it with the version of mesh that wrote it, or start from nothing.",
            )
        self._events, self._now_ms = own["events"], own["now_ms"]
        self.outputs_count = own["outputs"]
        self._inputs.restore(part(state, "inputs"))
        for number, query in enumerate(self._queries):
            query.restore(part(state, f"query{number}"))
