"""Latencies of a dedicated query: its tasks sample the times of messages, the driver counts them.

    task: broker's times, 16 of a batch of Arrow ──accumulator──▶ driver: end of Spark's batch

Spark writes no commit files here.  A batch whose progress the driver missed ended when the tasks of
the next one began.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute
from pyspark import TaskContext
from pyspark.accumulators import AccumulatorParam

from mesh.clock import SystemClock
from mesh.spark import latency
from pyspark_nats.source.rows import MESSAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.accumulators import Accumulator

    from mesh.spark.latency import Sample

#: The stubs have a dozen overloads for each function of Arrow, and reject most valid calls.
kernels: Any = pyarrow.compute
#: Spark's local property of a task with the number of its batch.
_BATCH: Final = "streaming.sql.batchId"

_CLOCK: Final = SystemClock()

#: Number of a batch, when a task of it began, ms since 1970, and samples of its messages' times.
Samples = list[tuple[int, int, "list[Sample]"]]


class _Joined(AccumulatorParam[Samples]):
    """Joins lists, in place: the driver takes their beginning meanwhile."""

    def zero(self, value: Samples) -> Samples:
        return []

    def addInPlace(self, value1: Samples, value2: Samples) -> Samples:
        value1.extend(value2)
        return value1


def new_samples(context: SparkContext) -> Accumulator[Samples]:
    """Receives the samples of the tasks of one query."""
    return context.accumulator([], _Joined())


@dataclass(frozen=True, slots=True)
class SampledTask:
    """A task that samples the times of its messages; it pickles."""

    task: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    samples: Accumulator[Samples]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the task."""
        found: list[Sample] = []
        began_ms = _CLOCK.wall_ms()

        def seen() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                found.append(latency.sample(_times(batch)))
                yield batch

        yield from self.task(seen())
        context = TaskContext.get()
        number = None if context is None else context.getLocalProperty(_BATCH)
        if number is not None:
            self.samples.add([(int(number), began_ms, found)])


def _times(batch: pa.RecordBatch) -> Any:
    """The broker's times of messages; a batch of a group with state has range markers, too."""
    if "kind" not in batch.schema.names:
        return batch.column("_timestamp_ms")
    return batch.column("time_ms").filter(kernels.equal(batch.column("kind"), MESSAGE))


def take_latencies(
    samples: Accumulator[Samples], last: int, end_ms: int
) -> tuple[tuple[int, ...], float]:
    """The latencies of the events of batches up to ``last``, as ``latency.count`` gives them.

    Args:
        samples: of the query; those that are counted are removed.
        last: number of a batch that has ended.
        end_ms: when it has, ms since 1970.
    """
    known = samples.value
    taken = known[:]
    del known[: len(taken)]
    # A task of a later batch may have ended.
    known.extend(one for one in taken if one[0] > last)
    began_ms = {number: ms for number, ms, _ in taken}
    return latency.count(
        (found, [end_ms if number == last else began_ms.get(number + 1, end_ms)])
        for number, _, found in taken
        if number <= last
    )


def end_ms(progress: Any) -> int:
    """When the batch of a progress of Spark ended, ms since 1970."""
    began_s = datetime.fromisoformat(progress["timestamp"]).timestamp()
    return round(began_s * 1000) + int(progress["durationMs"].get("triggerExecution", 0))
