"""Latency from the publication of an event to its row in a sink written in Python."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

import numpy as np

from bench.connector import queries, receipts
from bench.connector.harness import Figure

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt
    from pyspark.sql.streaming.query import StreamingQuery

    from bench.connector.harness import Bench

RATE: Final = 200
#: Time for the JVM to compile the path of a trigger, and for the Python workers to start.
WARM_UP_S: Final = 20.0
MEASURED_S: Final = 30.0

_STREAM: Final = "LATENCY"
_SUBJECT: Final = "bench.latency"


def measure(bench: Bench) -> list[Figure]:
    """200 events a second for half a minute after a warm-up; all of them count."""
    bench.create_stream(_STREAM, _SUBJECT)
    path = bench.directory / "latency.receipts"
    bench.quick_spark.dataSource.register(receipts.ReceiptsDataSource)
    query = queries.start(queries.load(bench, _STREAM, _SUBJECT), path)
    try:
        latencies_ms = measured(query, bench.server.port, path, WARM_UP_S, MEASURED_S)
        batches = query.lastProgress
    finally:
        query.stop()
        bench.delete_stream(_STREAM)
    p50, p99 = np.percentile(latencies_ms, [50, 99])
    note = f"{len(latencies_ms)} events, highest {latencies_ms.max():.0f} ms"
    if batches is not None:
        note += f", last trigger {batches['durationMs'].get('triggerExecution', 0)} ms"
    return [
        Figure("latency at 200 events/s, p50", float(p50), "ms", 70, at_least=False, note=note),
        Figure("latency at 200 events/s, p99", float(p99), "ms", 200, at_least=False),
    ]


def measured(
    query: StreamingQuery, port: int, path: Path, warm_up_s: float, measured_s: float
) -> npt.NDArray[np.float64]:
    """Publish, and wait for everything to arrive; latencies of the events after the warm-up.

    Raises:
        RuntimeError: events are missing or duplicate, or the query failed.
    """
    seconds = warm_up_s + measured_s
    count = round(RATE * seconds)
    command = [sys.executable, "-m", "bench.connector.steady", str(port), _SUBJECT]
    publisher = subprocess.Popen([*command, str(RATE), str(seconds)])
    try:
        deadline_s = time.monotonic() + seconds + 20
        while len(pairs := receipts.read(path)) < count and time.monotonic() < deadline_s:
            # Rarely, because this process competes with those that are measured.
            time.sleep(0.5)
            failure = query.exception()
            if failure is not None:
                raise failure
    finally:
        publisher.kill()
        publisher.wait()
    if len(np.unique(pairs[:, 0])) != count or len(pairs) != count:
        raise RuntimeError(f"{len(pairs)} rows of {count} events arrived")
    pairs = pairs[pairs[:, 0] >= pairs[:, 0].min() + int(warm_up_s * 1e9)]
    return np.asarray(pairs[:, 1] - pairs[:, 0], np.float64) / 1e6
