"""An executor's recorded output, and random events for it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from mesh.language.parser import parse
from mesh.operators.base import State
from mesh.operators.executor import Executor, InputRun, OutputRun
from mesh.plan.bind import bind
from pyspark_nats.arrow import ipc_stream
from tools.cases import batch, values

DEFINE = "define stream S (k int, v double, s string); define stream T (k int, v double); "


_VALUE = st.one_of(st.none(), st.floats(-5, 5).map(lambda x: round(x, 1)))


EVENT = st.tuples(
    st.sampled_from("ST"),
    st.integers(-40, 12),
    st.one_of(st.none(), st.integers(-1, 2)),
    _VALUE,
    st.sampled_from([None, "a", "b", "null"]),
)


Step = tuple[str, int, int | None, float | None, str | None]


#: By stream: events with their times, in order.
Log = dict[str, list[tuple[int, list[Any]]]]


def log_of(steps: list[Step], streams: tuple[str, ...]) -> Log:
    """Events at times that mostly rise: a step of less than -20 is a late event, else a pause."""
    log: Log = {stream: [] for stream in streams}
    now_ms = 1000
    for stream, step, k, v, s in steps:
        at_ms = now_ms + step if step < -20 else now_ms + max(step, 0)
        now_ms = max(now_ms, at_ms)
        name = stream if stream in log else streams[0]
        log[name].append((at_ms, [k, v, s] if name == "S" else [k, v]))
    return log


def stored(state: State) -> State:
    """A state after a way over the disk: Arrow IPC and JSON."""
    pieces = {}
    for name, piece in state.pieces.items():
        with pa.ipc.open_stream(ipc_stream(piece)) as reader:
            pieces[name] = reader.read_next_batch()
    return State(pieces, json.loads(json.dumps(dict(state.scalars))))


class Recorder:
    """An executor's outputs as (position, stream, time, values)."""

    def __init__(self, text: str) -> None:
        self.app = bind(parse(DEFINE + text))
        self.inputs = tuple(
            dict.fromkeys(s for q in self.app.queries for s in q.input_streams if s in ("S", "T"))
        )
        self.outputs = tuple({q.target.name for q in self.app.queries} & {"O", "P"})
        self.executor = Executor(self.app, self.outputs)
        self.rows: list[tuple[int, str, int, str]] = []

    def run(self, runs: list[InputRun], clocks: dict[str, int]) -> None:
        for output in self.executor.run(runs, clocks):
            self.take(output)

    def take(self, output: OutputRun) -> None:
        rows = zip(
            output.position.tolist(), output.time_ms.tolist(), values(output.rows), strict=True
        )
        # As text, so that NaN equals itself and -0.0 is not 0.0.
        self.rows += [(p, output.stream, t, repr(v)) for p, t, v in rows]

    def part(self, log: Log, stream: str, start: int, stop: int) -> InputRun:
        events = log[stream][start:stop]
        return InputRun(
            stream,
            np.arange(start + 1, stop + 1),
            np.array([t for t, _ in events], dtype=np.int64),
            batch(self.app.stream(stream), [row for _, row in events]),
        )

    def restart(self) -> None:
        state = stored(self.executor.snapshot())
        self.executor = Executor(self.app, self.outputs)
        self.executor.restore(state)


#: After the timers of all events, and soon: some windows have one each few milliseconds.
END_MS = 200_000


def at_once(text: str, log: Log) -> list[Any]:
    recorder = Recorder(text)
    runs = [recorder.part(log, s, 0, len(log[s])) for s in recorder.inputs]
    recorder.run(runs, dict.fromkeys(recorder.inputs, END_MS))
    return sorted(recorder.rows, key=lambda row: row[0])


def run_in_pieces(recorder: Recorder, log: Log, data: Any, start_ms: int) -> dict[str, int]:
    """Run ``log`` cut anywhere, with restarts in between; the final clock of each stream."""
    at = dict.fromkeys(recorder.inputs, 0)
    clocks = dict.fromkeys(recorder.inputs, start_ms)
    while any(at[s] < len(log[s]) for s in at):
        # The least draw takes the most events: else an example of least draws has no end.
        left = {s: data.draw(st.integers(0, 9)) for s in at}
        stops = {s: min(at[s] + 9 - left[s], len(log[s])) for s in at}
        runs = [recorder.part(log, s, at[s], stops[s]) for s in at if stops[s] > at[s]]
        for stream, stop in stops.items():
            highest = max((t for t, _ in log[stream][:stop]), default=0)
            clocks[stream] = max(clocks[stream], highest)
        at = stops
        recorder.run(runs, dict(clocks))
        if data.draw(st.booleans()):
            recorder.restart()
    return clocks
