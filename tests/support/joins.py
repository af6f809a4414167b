"""Random events of two streams, and the output of an app for them."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa

from mesh.language.parser import parse_app
from mesh.operators.executor import ExecutionMode, Executor, InputRun
from mesh.plan.bind import bind

DEFINITIONS = (
    "define stream L (k string, v int, t long); define stream R (k string, w int); "
    "define stream Q (k string, v int); "
)


Row = tuple[int, str, tuple[object, ...]]


def run(
    app: str, steps: list[Row], mode: ExecutionMode, cuts: set[int], saves: bool = False
) -> list[tuple[object, ...]]:
    """The output of ``app``, by position; ``cuts``: the events before which a new run begins."""
    bound = bind(parse_app(app))
    executor = Executor(bound, ["O"], mode=mode)
    names = [s.name for s in bound.streams if s.name in {stream for _, stream, _ in steps}]
    out: list[tuple[object, ...]] = []
    pending: list[tuple[int, Row]] = []
    for number, step in enumerate([*steps, (3_000, "", ())]):
        if number in cuts or number == len(steps):
            runs = []
            for name in names:
                own = [(n, s) for n, s in pending if s[1] == name]
                schema = bound.stream(name).arrow
                columns = list(zip(*(s[2] for _, s in own), strict=True)) or [()] * len(schema)
                arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
                runs.append(
                    InputRun(
                        name,
                        np.array([n for n, _ in own], dtype=np.int64),
                        np.array([s[0] for _, s in own], dtype=np.int64),
                        pa.RecordBatch.from_arrays(arrays, schema=schema),
                    )
                )
            for made in executor.run(runs, dict.fromkeys(names, step[0])):
                rows = made.rows.to_pylist()
                places = zip(made.position.tolist(), made.time_ms.tolist(), rows, strict=True)
                out += [(place, time, *row.values()) for place, time, row in places]
            pending = []
            if saves:
                state = executor.snapshot()
                executor = Executor(bound, ["O"], mode=mode)
                executor.restore(state)
        pending.append((number, step))
    return sorted(out, key=lambda row: row[0])  # type: ignore[arg-type, return-value]


def random_steps(seed: int, streams: str, count: int = 40) -> list[Row]:
    rnd = random.Random(seed)
    time_ms, steps = 1000, []
    for _ in range(count):
        time_ms += rnd.choice((0, 1, 1, 5, 10, 40))
        stream = rnd.choice(streams)
        values: tuple[object, ...] = (rnd.choice("aab") if rnd.random() > 0.1 else None,)
        values += (rnd.choice((None, 1, 2, 3, 4)),)
        steps.append((time_ms, stream, values + ((time_ms,) if stream == "L" else ())))
    return steps
