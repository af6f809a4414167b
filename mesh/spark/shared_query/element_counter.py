"""Counts of a part's queries, windows and tables since its last report.

The operators add to counters once a batch; they are read once a report.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mesh.model.cluster import ElementCounts
from mesh.spark import stateless_task

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mesh.spark.instance_io import InstanceIO
    from mesh.spark.shared_query.task import LiveState


@dataclass(slots=True)
class ElementCounter:
    """The counters of one part, as of its last report."""

    _counters: object = field(default=None, repr=False)
    _seen: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)

    def take(self, io: InstanceIO, key: str, live: LiveState | None) -> tuple[ElementCounts, ...]:
        """Events since the last call, and rows now; elements without any are left out."""
        if io.group.stateful:
            if live is None:
                return ()
            executor = live.partition.executor
            figures: Iterable[tuple[str, str, int, int, int | None]] = executor.figures()
            counters: object = executor
        else:
            counters, figures = stateless_task.figures(io, key)
        if counters is not self._counters:
            # Others count now, from 0.
            self._counters, self._seen = counters, {}
        counts = []
        for kind, name, events_in, events_out, rows in figures:
            old_in, old_out = self._seen.get((kind, name), (0, 0))
            self._seen[kind, name] = events_in, events_out
            if events_in > old_in or events_out > old_out or rows:
                counts.append(
                    ElementCounts(kind, name, events_in - old_in, events_out - old_out, rows)
                )
        return tuple(counts)
