"""``python -m bench.operators.ours NAME KEYS``: the rate of one app here, as a line of JSON.

A process of its own and one core: the engine's bench is the same.  Batches of 10,000 events go
into a new executor in each run; the first run is not counted, since it compiles.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import statistics
import sys
import time
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from bench.operators.apps import MEASURED
from mesh.errors import MeshError
from mesh.language.parser import parse_app
from mesh.operators.executor import Executor, InputRun
from mesh.plan.bind import bind
from mesh.plan.supported import check_supported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.operators.apps import Measured
    from mesh.plan.bound import BoundApp

BATCH: Final = 10_000
_START_MS: Final = 1_570_442_400_000
_RUNS: Final = 3
#: Of one run.
_TIME_MAX_S: Final = 20.0


def inputs(app: BoundApp, measured: Measured, keys: int, count: int) -> list[InputRun]:
    """``count`` events in batches, one a millisecond."""
    random = np.random.default_rng(42)
    schema = app.stream("TempStream").arrow
    runs = []
    for first in range(0, count, BATCH):
        sequence = np.arange(first + 1, first + BATCH + 1, dtype=np.int64)
        time_ms = _START_MS + sequence - 1
        columns = [
            pa.array(random.integers(0, keys, BATCH)),
            pa.array(random.integers(0, 20, BATCH).astype(np.int32)),
            pa.array(20.0 + random.integers(0, 150, BATCH) / 10.0),
        ]
        if measured.has_time:
            columns.append(pa.array(time_ms))
        rows = pa.RecordBatch.from_arrays(columns, schema=schema)
        runs.append(InputRun("TempStream", sequence, time_ms, rows))
    return runs


def run(app: BoundApp, batches: Sequence[InputRun]) -> dict[str, float]:
    """One run: events a second, also by processor time, and the output."""
    executor = Executor(app, ["Out"])
    gc.collect()
    sent = came = 0
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    for batch in batches:
        made = executor.run([batch], {"TempStream": int(batch.time_ms[-1])})
        sent += batch.rows.num_rows
        came += sum(one.rows.num_rows for one in made)
        if time.perf_counter() - wall_s > _TIME_MAX_S:
            break
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    return {"wall": sent / wall_s, "cpu": sent / cpu_s, "out": came, "sent": sent}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure one app; 3 when it does not run yet."""
    parser = argparse.ArgumentParser(prog="python -m bench.operators.ours")
    parser.add_argument("name")
    parser.add_argument("keys", type=int)
    parser.add_argument("--events", type=int, default=500_000)
    parser.add_argument("--unchecked", action="store_true")
    given = parser.parse_args(arguments)
    pa.set_cpu_count(1)
    logging.disable(logging.CRITICAL)
    measured = next(one for one in MEASURED if one.name == given.name)
    try:
        app = bind(parse_app(measured.app))
        if not given.unchecked:
            check_supported(app)
    except MeshError as error:
        print(json.dumps({"error": str(error)}))
        return 3
    batches = inputs(app, measured, given.keys, given.events)
    run(app, batches[:10])
    runs = [run(app, batches) for _ in range(_RUNS)]
    found = {key: statistics.median(one[key] for one in runs) for key in runs[0]}
    print(json.dumps(found | {"runs": [one["cpu"] for one in runs]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
