"""Cost of the counters of metrics, as a part of what a worker needs for the events they count.

A run of W1 (``bench.flow.rates``) is computed as a worker does it, and its counters are kept and
reported as at the levels BASIC and DETAIL, in turn, in the processor time of this thread.  The
whole of a run, with reading from NATS and publishing, is what ``make bench-flow`` has measured.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from bench.flow.rates import APPS
from mesh.clock import SystemClock
from mesh.model.cluster import Assignment
from mesh.model.histogram import Histogram
from mesh.plan.build import plan
from mesh.spark import instance_metrics
from mesh.spark.instance_io import InstanceIO
from mesh.spark.shared_query.serving import ElementCounter
from mesh.spark.stateless_task import StatelessTask, input_tasks

if TYPE_CHECKING:
    from collections.abc import Callable

#: Events of a run in a backlog.
SIZE: Final = 2000
#: Processor time of a worker for an event of W1: ``docs/benchmarks.md``.
EVENT_S: Final = 5.0e-6
BASIC_MAX: Final = 0.01
DETAIL_MAX: Final = 0.05
_ROUNDS: Final = 30
#: Runs between two reports of a busy part.
_RUNS: Final = 20


def measure() -> tuple[float, float]:
    """The cost of BASIC and of DETAIL, as parts of the processor time of a run."""
    (group,) = plan(APPS["filter", 1].format(name="W1", parallel=1)).spec.groups
    place = Assignment(group.instances[0], "W1", group.name, 1, "w", "i", epoch=1, lease_revision=0)
    io = InstanceIO(group, place)
    ((stream, task),) = input_tasks(io).items()
    return _shares(io, stream, task, SIZE)


def _shares(io: InstanceIO, stream: str, task: StatelessTask, size: int) -> tuple[float, float]:
    rows = _rows(stream, size)
    batches, elements, clock = Histogram(), ElementCounter(), SystemClock()
    times: list[tuple[list[Any], list[int]]] = []

    def compute() -> None:
        for _ in task([rows]):
            pass

    def count() -> None:
        batches.observe(0.003)
        times.append(([rows.column("_timestamp_ms")], [clock.wall_ms()]))

    def report() -> None:
        instance_metrics.count(times[:_RUNS])
        del times[:]

    def report_elements() -> None:
        elements.take(io, stream, None)

    calls = (*(compute, count) * _RUNS, report, report_elements)
    taken: dict[Callable[[], None], list[float]] = {one: [] for one in calls}
    for _ in range(_ROUNDS):
        for call in calls:
            began_s = time.thread_time()
            call()
            taken[call].append(time.thread_time() - began_s)
    _, counting, reporting, detail = (statistics.median(found) for found in taken.values())
    basic, whole = counting + reporting / _RUNS, size * EVENT_S
    return basic / whole, (basic + detail / _RUNS) / whole


def _rows(stream: str, size: int) -> pa.RecordBatch:
    """Events of W1 with their metadata, as the source gives them to a group without state."""
    number: Any = np.arange(size)
    none = pa.nulls(size, pa.int64())
    columns: dict[str, Any] = {
        "n": pa.array(number, pa.int64()),
        "v": pa.array(number % 100 + 0.5),
        "k": pa.array([f"key{n % 50}" for n in range(size)]),
        "note": pa.array(["x" * 60] * size),
        "_stream": pa.array([stream] * size),
        "_sequence": pa.array(number + 1),
        "_index": pa.array(np.zeros(size, np.int64)),
        "_timestamp_ms": pa.array(SystemClock().wall_ms() - number[::-1] // 10),
        "_event_time_ms": none,
        "_error": pa.nulls(size, pa.string()),
        "_data": pa.nulls(size, pa.binary()),
    }
    return pa.RecordBatch.from_pydict(columns)
