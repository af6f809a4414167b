"""Spark readers: offsets, partitions and batches, for streams and for tables.

Written for the API of Spark 4.2 and later: ``latestOffset(start, limit)``.

Watchdog of the process that plans a streaming query: it must not outlive Spark's JVM.

The JVM starts the process with ``python -m`` and talks to it over a socket.  The process notices
the end of the JVM at its next read.  A planner that waits for a server, which may have ended as
well, reads only after ``timeoutS``.  So a thread watches the parent process.

The kernel could kill it (``PR_SET_PDEATHSIG``), but it would do so at the end of the JVM's *thread*
that started it, and only on Linux.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from pyspark_nats.protocol.connection import Connection, shared
from pyspark_nats.source import batches, offsets, planning
from pyspark_nats.source.batches import Inbox
from pyspark_nats.source.planning import NatsPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_nats.source.pushdown import ReadBounds
    from pyspark_nats.source.source_options import SourceOptions


#: The module that the JVM runs for a source; other programs may use a reader directly.
_MODULE: Final = "pyspark.sql.streaming.python_streaming_source_runner"
#: Interval of the checks of the parent, seconds.
_LOOK_S: Final = 1.0
_NAME: Final = "ends-with-jvm"


class NatsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of a streaming query."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._form = batches.row_layout(options, schema)
        #: Both exist only in the planner: a task uses the connection of its own process.
        self._watch: offsets.StreamWatch | None = None
        self._inbox: Inbox | None = None

    def initialOffset(self) -> dict[str, dict[str, int]]:
        """The start offset of a query without a checkpoint."""
        return self._watched().initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit that Spark shows and passes back: it supports one; all limits are enforced."""
        limits = self._options.limits
        if limits.offsets_max is not None:
            return ReadMaxRows(limits.offsets_max)
        if limits.bytes_max is not None:
            return ReadMaxBytes(limits.bytes_max)
        return ReadMinRows(limits.offsets_min) if limits.offsets_min else ReadAllAvailable()

    def latestOffset(
        self, start: dict[str, dict[str, int]], limit: ReadLimit
    ) -> dict[str, dict[str, int]]:
        """The end offset of the next batch; ``start`` itself if there is nothing to do."""
        # The trigger "once" requests all messages, whatever the options are.
        limits = None if isinstance(limit, ReadAllAvailable) else self._options.limits
        return self._watched().latest(start, limits)

    def prepareForTriggerAvailableNow(self) -> None:
        """Make the present ends the ends of the query."""
        self._watched().freeze()

    def reportLatestOffset(self) -> dict[str, dict[str, int | float]] | None:
        """The ends of the streams as last seen, for the query's progress.

        Besides a key for each stream there is ``_batch``: the amount that the newest batch fetched,
        according to its tasks' reports so far.
        """
        seen = self._watched().report()
        if seen is None:
            return None
        report: dict[str, dict[str, int | float]] = {name: {**end} for name, end in seen.items()}
        if self._inbox is not None:
            fetched = self._inbox.collect()
            report["_batch"] = {
                "messages": fetched.messages,
                "bytes": fetched.bytes,
                "fetch_ms": round(fetched.fetch_ms, 1),
            }
        return report

    def partitions(
        self, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]
    ) -> Sequence[InputPartition]:
        """The ranges to read, empty ones included, so that a partition keeps its number."""
        connection = self._watched().connection
        if self._inbox is None:
            self._inbox = Inbox(self._options.connection)
        return planning.partitions(self._options, connection, start, end, self._inbox.address())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition."""
        assert isinstance(partition, NatsPartition)
        return batches.read(self._options, self._form, partition.ranges, partition.address)

    def commit(self, end: dict[str, dict[str, int]]) -> None:
        """No action: the position is in Spark's checkpoint, not in acks."""

    def stop(self) -> None:
        """Close the planner's connections."""
        if self._watch is not None:
            self._watch.connection.close()
            self._watch = None
        if self._inbox is not None:
            self._inbox.close()
            self._inbox = None

    def _watched(self) -> offsets.StreamWatch:
        if self._watch is None:
            end_with_jvm()
            self._watch = offsets.StreamWatch(self._options, Connection(self._options.connection))
        return self._watch


class NatsReader(DataSourceReader):
    """Reader of a batch query, between the starting and the ending bounds."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._form = batches.row_layout(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """The ranges to read."""
        return self._partitions(None)

    def _partitions(self, bounds: ReadBounds | None) -> Sequence[InputPartition]:
        connection = shared(self._options.connection)
        watch = offsets.StreamWatch(self._options, connection)
        start, end = watch.initial(), watch.final()
        options = self._options
        if bounds is not None:
            start, end = watch.narrowed(start, end, bounds)
            if bounds.subjects is not None and not any(options.subjects.values()):
                options = replace(options, subjects={"": bounds.subjects})
        return planning.partitions(options, connection, start, offsets.not_before(start, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition."""
        assert isinstance(partition, NatsPartition)
        return batches.read(self._options, self._form, partition.ranges)


class NatsFilteringReader(NatsReader):
    """``NatsReader`` for a session that pushes filters down; see ``is_pushing_filters``."""

    _bounds: ReadBounds | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrow the range to read; Spark still evaluates all filters."""
        from pyspark_nats.source import pushdown

        self._bounds = pushdown.bounds(filters, self._form.places)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        """The ranges to read."""
        return self._partitions(self._bounds)


def is_pushing_filters() -> bool:
    """Whether this is the process in which Spark passes filters to a reader.

    Spark refuses a reader that accepts filters unless ``spark.sql.python.filterPushdown.enabled``
    is set, which is not the default.  It has a worker module of its own for that case.
    """
    return "pyspark.sql.worker.data_source_pushdown_filters" in sys.modules


def end_with_jvm() -> None:
    """End a planner process soon after the JVM; idempotent.

    No effect in other processes.
    """
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    is_watched = any(thread.name == _NAME for thread in threading.enumerate())
    if spec is not None and spec.name == _MODULE and not is_watched:
        end_with_parent()


def end_with_parent(look_s: float = _LOOK_S) -> None:
    """End this process with its parent, which is checked every ``look_s`` seconds."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(look_s)
        # The parent is gone, so no cleanup is needed.
        os._exit(1)

    threading.Thread(target=watch, name=_NAME, daemon=True).start()
