"""``python -m bench.operators.memory``: the memory of a large time window, as a line of JSON.

Ten million events of three columns are in the window at the end.  The peak is that of the whole
process, with all that it imports, so it is a process of its own.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from bench.connector.harness import Figure
from bench.operators.apps import Measured
from bench.operators.ours import BATCH, inputs
from mesh.language.parser import parse_app
from mesh.operators.executor import Executor
from mesh.plan.bind import bind

if TYPE_CHECKING:
    from collections.abc import Sequence

EVENTS: Final = 10_000_000
TARGET_MB: Final = 1000.0
_NAME: Final = "time window of 10,000,000 events, three columns: peak memory"
_KEYS: Final = 10_000
#: There is one event a millisecond, so all of them are in the window.
_APP: Final = (
    "define stream TempStream (deviceID long, roomNo int, temp double);\n"
    "from TempStream#window.time(3 hours) "
    "select deviceID, roomNo, avg(temp) as avgT group by deviceID insert into Out;"
)


def measure() -> list[Figure]:
    """The figure, measured in a child process."""
    command = [sys.executable, "-m", "bench.operators.memory"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    note = f"{found['start_mb']:.0f} MB of it before the first event"
    return [Figure(_NAME, found["peak_mb"], "MB", TARGET_MB, at_least=False, note=note)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Fill the window and print the peak; the argument is the number of events."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    print(json.dumps(peak(int(given[0]) if given else EVENTS)))
    return 0


def peak(events: int) -> dict[str, float]:
    """Peak memory before the first event, and with ``events`` in the window, in MB."""
    pa.set_cpu_count(1)
    app = bind(parse_app(_APP))
    measured = Measured(_NAME, _APP, {})
    # The same batch again and again, later each time: events that wait for their turn cost nothing.
    (batch,) = inputs(app, measured, _KEYS, BATCH)
    executor = Executor(app, ["Out"])
    start_mb = _peak_mb()
    for first in range(0, events, BATCH):
        rows = pa.RecordBatch.from_arrays(
            [pa.array(column.to_numpy().copy()) for column in batch.rows.columns],
            schema=batch.rows.schema,
        )
        times = batch.time_ms + first
        run = type(batch)(batch.stream, batch.sequence + first, times, rows)
        executor.run([run], {"TempStream": int(times[-1])})
    return {"start_mb": start_mb, "peak_mb": _peak_mb(), "events": float(events)}


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


if __name__ == "__main__":
    sys.exit(main())
