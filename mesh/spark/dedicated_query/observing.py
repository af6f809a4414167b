"""Counts of a dedicated query: its tasks count, and sample the times of messages.

    task: counts, 16 of the broker's times of a batch ──accumulator──▶ driver: end of Spark's batch

Spark writes no commit files here.  A batch whose progress the driver missed ended when the tasks of
the next one began.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.accumulators import AccumulatorParam

from mesh.clock import SystemClock
from mesh.spark import instance_metrics, sink_rows
from pyspark_nats.arrow import kernels
from pyspark_nats.source.rows import MESSAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.accumulators import Accumulator

    from mesh.spark.instance_io import InstanceIO
    from mesh.spark.instance_metrics import Sample

#: Spark's local property of a task with the number of its batch.
_BATCH: Final = "streaming.sql.batchId"

_CLOCK: Final = SystemClock()


@dataclass(slots=True)
class Counts:
    """Messages and events of a task, or of several."""

    messages: int = 0
    events_in: int = 0
    events_out: int = 0
    errors: int = 0


#: Number of a batch, when a task of it began, ms since 1970, samples of its messages' times, and
#: its counts.
Samples = list[tuple[int, int, "list[Sample]", Counts]]


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
    """A task that counts its events and samples their times; it pickles.

    NATS accepts its rows: those that are too large become entries of errors.
    """

    io: InstanceIO
    task: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    #: Most bytes of a payload.
    bytes_max: int
    #: Receives the counts; None for none.
    samples: Accumulator[Samples] | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the task."""
        # The operators, which sessions without dedicated queries do not load.
        from mesh.spark.partition_task import PartitionRun, PartitionTask, count_messages

        samples: list[Sample] = []
        counts = Counts()
        began_ms = _CLOCK.wall_ms()
        run = PartitionRun(self.task) if isinstance(self.task, PartitionTask) else None

        def seen() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                times = _times(batch)
                samples.append(instance_metrics.sample(times))
                if run is None:
                    counts.events_in += len(times)
                    counts.messages += count_messages(batch.column("_sequence").to_numpy())
                else:
                    counts.messages += len(times)
                yield batch

        output = self.task(seen()) if run is None else run.task.work(run, seen())
        for out in sink_rows.within_size(self.io, output, self.bytes_max):
            if out.num_rows:
                # The rows of a batch are for one stream.
                if out.column("stream")[0].as_py() == self.io.errors[0]:
                    counts.errors += out.num_rows
                else:
                    counts.events_out += sink_rows.event_count(out)
            yield sink_rows.for_sink(out)
        if run is not None:
            counts.events_in = run.events
        context = TaskContext.get()
        number = None if context is None else context.getLocalProperty(_BATCH)
        if number is not None and self.samples is not None:
            self.samples.add([(int(number), began_ms, samples, counts)])


def _times(batch: pa.RecordBatch) -> Any:
    """The broker's times of messages; a batch of a group with state has range markers, too."""
    if "kind" not in batch.schema.names:
        return batch.column("_timestamp_ms")
    return batch.column("time_ms").filter(kernels.equal(batch.column("kind"), MESSAGE))


def take_counts(
    samples: Accumulator[Samples], last: int, end_ms: int
) -> tuple[Counts, tuple[tuple[int, ...], float]]:
    """The counts of batches up to ``last``, and latencies as ``latency.count`` gives them.

    Args:
        samples: of the query; those that are counted are removed.
        last: number of a batch that has ended.
        end_ms: when it has, ms since 1970.
    """
    entries = samples.value
    taken = entries[:]
    del entries[: len(taken)]
    # A task of a later batch may have ended.
    entries.extend(one for one in taken if one[0] > last)
    began_ms = {number: ms for number, ms, *_ in taken}
    ended = [one for one in taken if one[0] <= last]
    counts = Counts(*map(sum, zip(*(astuple(one) for *_, one in ended), strict=True)))
    return counts, instance_metrics.count(
        (batch_samples, [end_ms if number == last else began_ms.get(number + 1, end_ms)])
        for number, _, batch_samples, _ in ended
    )


def end_ms(progress: Any) -> int:
    """When the batch of a progress of Spark ended, ms since 1970."""
    began_s = datetime.fromisoformat(progress["timestamp"]).timestamp()
    return round(began_s * 1000) + int(progress["durationMs"].get("triggerExecution", 0))
