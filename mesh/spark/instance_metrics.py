"""Counters of an instance, and its reports to the worker."""

from __future__ import annotations

import re
import statistics
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mesh.model.cluster import ElementCounts, InstanceState, InstanceStatus
from mesh.model.histogram import LATENCY_BOUNDS_S, Histogram, merged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.control.instance_lifecycle import InstanceLifecycle
    from mesh.spark.instance_context import InstanceContext

#: The end of the messages of ``StaleWriterError`` and MESH-S110.
_NEWER: Final = re.compile(r"of epoch (\d+) \[(?:PYSPARK-NATS-FENCED|MESH-S110)\]")
#: Number of batches in the reported median duration.
_BATCHES: Final = 100


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
