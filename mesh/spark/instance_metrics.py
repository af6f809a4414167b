"""Counters of an instance, its backlog and its errors, and its reports to the worker.

The backlog is what the server has after what was read, as only the server's count is whole.  A
reader does not know of messages that are on their way to it, and not of those that come while it is
stuck.

Latency of events: from the broker's storing to the end of the run that published their effect.

A run keeps the times of its events, and they are counted once a report.  The messages of a stream
are in the order of their times, so a few events stand for those around them in a large run: the
cost of a run does not depend on its size.
"""

from __future__ import annotations

import logging
import re
import statistics
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from mesh.model.cluster import ElementCounts, InstanceState, InstanceStatus
from mesh.model.histogram import LATENCY_BOUNDS_S, Histogram, merged
from mesh.telemetry.logs import fields
from pyspark_nats.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mesh.control.instance_lifecycle import InstanceLifecycle
    from mesh.spark.instance_context import InstanceContext


#: The end of the messages of ``StaleWriterError`` and MESH-S110.
_NEWER: Final = re.compile(r"of epoch (\d+) \[(?:PYSPARK-NATS-FENCED|MESH-S110)\]")
#: Number of batches in the reported median duration.
_BATCHES: Final = 100

#: Longest reason, characters.
_REASON_MAX: Final = 500
#: Refusals of the sink, which Spark's wrapping leaves as they are, and of the store of snapshots.
_REPLACED: Final = ("PYSPARK-NATS-FENCED", "StaleWriterError", "MESH-S110")

log = logging.getLogger(__name__)


def newer_epoch(error: str | None) -> int:
    """The epoch of the writer that has replaced this one, from an error's text; 0 for none."""
    match = _NEWER.search(error or "")
    return int(match[1]) if match is not None else 0


def added(before: ElementCounts, more: ElementCounts, *, rows: int | None) -> ElementCounts:
    """The events of two counts of an element together."""
    return replace(
        before,
        events_in=before.events_in + more.events_in,
        events_out=before.events_out + more.events_out,
        rows=rows,
    )


class InstanceMetrics:
    """Counters of one instance, and its reports; for one thread at a time."""

    def __init__(self, context: InstanceContext) -> None:
        self._assignment = context.io.assignment
        self._worker = context.options.worker
        self._clock = context.clock
        self._batch_ms: list[float] = []
        self._batches = Histogram()
        self._latencies = Histogram(LATENCY_BOUNDS_S)
        #: By part; those of the same element add up.
        self._elements: dict[str, dict[tuple[str, str], ElementCounts]] = {}
        self.state_bytes = 0
        #: Failures of the instance's other queries.
        self.restarts = 0
        self.messages_in = 0
        self.events_in = 0
        self.events_out = 0
        self.errors = 0
        #: Number of waiting messages, as last measured.
        self.behind = 0

    def count(
        self, messages: int, events_in: int, events_out: int, errors: int, took_ms: float | None
    ) -> None:
        """Count events of completed batches; ``took_ms`` is the mean time of one."""
        self.messages_in += messages
        self.events_in += events_in
        self.events_out += events_out
        self.errors += errors
        if took_ms is not None:
            self._batch_ms = [*self._batch_ms[1 - _BATCHES :], float(took_ms)]

    def observe_batch(self, took_ms: float) -> None:
        """Count the duration of a micro-batch."""
        self._batches.observe(took_ms / 1000)

    def count_runs(
        self, batches: tuple[int, ...], took_s: float, latencies: tuple[int, ...], sum_s: float
    ) -> None:
        """Count runs by duration, and their events by latency."""
        self._batches.add(batches, took_s)
        self._latencies.add(latencies, sum_s)

    def count_elements(self, part: str, counts: Sequence[ElementCounts]) -> None:
        """Count events of a part's elements; their rows are those of now."""
        totals = self._elements.setdefault(part, {})
        for one in counts:
            key = one.kind, one.name
            totals[key] = added(totals.get(key, ElementCounts(*key)), one, rows=one.rows)

    def _all_elements(self) -> tuple[ElementCounts, ...]:
        totals: dict[tuple[str, str], ElementCounts] = {}
        for part in self._elements.values():
            for key, one in part.items():
                before = totals.get(key)
                rows = one.rows if before is None or before.rows is None else before.rows
                if before is not None and before.rows is not None and one.rows is not None:
                    rows = before.rows + one.rows
                totals[key] = added(before or ElementCounts(*key), one, rows=rows)
        return tuple(totals[key] for key in sorted(totals))

    def add(self, status: InstanceStatus) -> None:
        """Add the counts of the instance's other query."""
        self.restarts += status.restarts
        self.count(status.messages_in, status.events_in, status.events_out, status.errors, None)
        self.count_runs(
            status.batches, status.batches_sum_s, status.latencies, status.latencies_sum_s
        )

    def with_counts(self, status: InstanceStatus, failures: int) -> InstanceStatus:
        """A status of the instance's other query, with the counts of this one added."""
        return replace(
            status,
            restarts=status.restarts + self.restarts + failures,
            messages_in=status.messages_in + self.messages_in,
            events_in=status.events_in + self.events_in,
            events_out=status.events_out + self.events_out,
            errors=status.errors + self.errors,
            batches=merged(status.batches, self._batches.counts),
            batches_sum_s=status.batches_sum_s + self._batches.sum_s,
            latencies=merged(status.latencies, self._latencies.counts),
            latencies_sum_s=status.latencies_sum_s + self._latencies.sum_s,
        )

    def status(self, life: InstanceLifecycle) -> InstanceStatus:
        """The present status."""
        at_ms = self._clock.wall_ms()
        # The error of an earlier run is over.
        error = None if life.state is InstanceState.RUNNING else life.error
        return InstanceStatus(
            instance=self._assignment.instance,
            app=self._assignment.app,
            worker=self._worker,
            epoch=self._assignment.epoch,
            state=life.state,
            at_ms=at_ms,
            error=error,
            restarts=self.restarts + life.failures,
            messages_in=self.messages_in,
            events_in=self.events_in,
            events_out=self.events_out,
            errors=self.errors,
            behind=self.behind,
            batches=self._batches.counts,
            batches_sum_s=round(self._batches.sum_s, 6),
            latencies=self._latencies.counts,
            latencies_sum_s=round(self._latencies.sum_s, 3),
            state_bytes=self.state_bytes,
            elements=self._all_elements(),
            batch_ms_p50=statistics.median(self._batch_ms) if self._batch_ms else None,
            settled=life.settled is not None,
            position=life.settled or {},
            retry_at_ms=None if life.rest_s is None else at_ms + round(life.rest_s * 1000),
            newer_epoch=newer_epoch(error),
        )


def is_replaced(reason: str) -> bool:
    """Whether an instance failed because a newer epoch has taken over."""
    return any(sign in reason for sign in _REPLACED)


def is_nats_timeout(failure: Exception) -> bool:
    """Whether a failure is caused by a missing answer from NATS."""
    return isinstance(failure, TimeoutError) or UnavailableError.code in str(failure)


def message_of(failure: Exception) -> str:
    """The message of a failure, never empty."""
    return str(failure) or type(failure).__name__


def first_line(error: str) -> str:
    """The first line that is not empty."""
    return next((line.strip() for line in error.splitlines() if line.strip()), "unknown")


def reason_of(failure: Exception) -> str:
    """The line of a query's failure that matters to users.

    Spark wraps it in traces of two languages.
    """
    lines = [line.strip().removeprefix(": ") for line in str(failure).splitlines()]
    # The first line of Py4J names a call by a meaningless number.
    lines = [line for line in lines if line and not line.startswith("An error occurred while")]
    ours = [line for line in lines if "[MESH-" in line or "PYSPARK-NATS" in line]
    python = [line for line in lines if "Error: " in line and not line.startswith(("at ", "File "))]
    # The error is the last line of Python's traces, and the first line of Spark's.
    return (ours[-1:] or python[-1:] or lines[:1] or [type(failure).__name__])[0][:_REASON_MAX]


def waiting(context: InstanceContext, read: Mapping[str, int]) -> dict[str, int] | None:
    """Count by JetStream stream; None without an answer of the server.

    Args:
        context: of the instance.
        read: the last sequence that was read, by JetStream stream.
    """
    try:
        bounds = context.store.bounds(read)
    # The next count may succeed; a stream without a leader must not fail the instance.
    except Exception as error:
        extra = fields(instance=context.io.assignment.instance, error=str(error))
        log.debug("backlog was not counted", extra=extra)
        return None
    counts = {}
    for js_stream, at in read.items():
        first, last = bounds[js_stream]
        # Messages that are deleted do not wait.
        counts[js_stream] = context.io.blocks(js_stream).number_in(max(at, first - 1), last)
    return counts


def total(counts: Iterable[Mapping[str, int]]) -> int:
    """Sum over the streams; parts that read the same stream read the same messages."""
    highest: dict[str, int] = {}
    for one in counts:
        for js_stream, count in one.items():
            highest[js_stream] = max(count, highest.get(js_stream, 0))
    return sum(highest.values())


#: Times, ms since 1970, and the number of events that each stands for.
Sample: TypeAlias = "tuple[Any, list[int]]"
#: Of the type of the times: others would have all of them converted.
_BOUNDS_MS: Final = np.array([round(bound * 1000) for bound in LATENCY_BOUNDS_S], np.int64)
#: Events of a run that are looked at, about.
SAMPLES: Final = 16


def sample(column: Any) -> Sample:
    """Some times of an int64 column, in order, and the number that each stands for."""
    times = column if isinstance(column, np.ndarray) else column.to_numpy(zero_copy_only=False)
    size = len(times)
    step = max(1, -(-size // SAMPLES))
    # The last one stands for the rest.
    weights = [step] * ((size - 1) // step) + [size - (size - 1) // step * step] if size else []
    return times[::step], weights


def count(
    runs: Iterable[tuple[Iterable[object], Sequence[int]]],
) -> tuple[tuple[int, ...], float]:
    """The latencies of the events of some runs.

    Args:
        runs: for each, int64 columns of Arrow, or arrays, with the broker's times, ms since 1970,
            each in order, or samples of them; and when their output was published, by this
            machine's clock: empty if it was not.

    Returns:
        The number of events in each bucket of ``LATENCY_BOUNDS_S``, empty without events; and the
        sum of their latencies, seconds; those of a broker with a later clock count as 0.
    """
    waits, weights = [], []
    for columns, published_ms in runs:
        for column in columns if published_ms else ():
            times, stand_for = column if isinstance(column, tuple) else sample(column)
            if stand_for:
                waits.append(published_ms[0] - times)
                weights += stand_for
    if not waits:
        return (), 0.0
    waits_ms = np.maximum(np.concatenate(waits), 0)
    counts = np.bincount(np.searchsorted(_BOUNDS_MS, waits_ms), weights, len(_BOUNDS_MS) + 1)
    return tuple(counts.astype(np.int64).tolist()), float(np.dot(waits_ms, weights)) / 1000
