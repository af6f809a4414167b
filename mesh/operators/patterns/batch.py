"""One batch of events as the machine reads it: in the order of the engine, one row an event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mesh.operators.patterns.nfa import (
    EVENT_CHUNK,
    EVENT_CLOCK,
    EVENT_COLUMNS,
    EVENT_INSTANCE,
    EVENT_ORDER,
    EVENT_STREAM,
    EVENT_TIME,
)
from mesh.operators.total_order import instance_chunk_begins

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.operators.base import EventBatch, Longs
    from mesh.operators.patterns.memory import Array

#: Below this number events are processed in their order, for any number of instances.
REGROUPED_FROM = 64


@dataclass(slots=True)
class PatternBatch:
    """The events of several runs, merged.

    ``inputs``: the runs, by number of the stream; ``merged``: by event the place among all inputs,
    None where that is its number; ``taken``: int64[n, 6], see ``nfa.EVENT_STREAM``; ``slots``:
    int64[n, steps], slots with the attributes of events that may pass a step; ``failures``: why the
    condition of a step failed on an event alone, by place among all inputs and step;
    ``regrouped``: the numbers of the events in the order in which the machine processes them,
    None where it is their own.
    """

    inputs: Sequence[EventBatch]
    merged: Longs | None
    taken: Array
    slots: Array
    failures: Mapping[tuple[int, int], str]
    regrouped: Longs | None = None

    def __len__(self) -> int:
        return len(self.taken)

    @property
    def path(self) -> Longs:
        """By event, the path."""
        return _in_sequence([events.path for events in self.inputs], self.merged)

    def regroup(self, instances: int) -> None:
        """Group the events by instance.

        Memory is laid out by instance; reading it in order is faster.
        """
        if len(self) < REGROUPED_FROM:
            return
        keys = self.taken[:, EVENT_INSTANCE]
        # Numbers of 16 bits are sorted in one pass.
        is_narrow = instances <= 1 << 16
        self.regrouped = np.argsort(keys.astype(np.uint16) if is_narrow else keys, kind="stable")
        self.taken, self.slots = self.taken[self.regrouped], self.slots[self.regrouped]

    @property
    def last_place(self) -> Longs:
        """Clock and order of the last event."""
        assert self.regrouped is not None, "as they are taken the last is the last"
        last = self.regrouped == len(self) - 1
        place: Longs = self.taken[last, EVENT_CLOCK : EVENT_ORDER + 1][0]
        return place


def merge_order(inputs: Sequence[EventBatch]) -> Longs | None:
    """The sequence of the events of several runs; None: in their order."""
    if sum(1 for events in inputs if len(events)) < 2:
        return None
    names = ("chunk", "path", "clock_ms", "order")
    return np.lexsort([np.concatenate([getattr(e, name) for e in inputs]) for name in names])


def event_rows(inputs: Sequence[EventBatch], merged: Longs | None, has_chunks: bool) -> Array:
    """The rows of ``PatternBatch.taken``; ``has_chunks``: whether arrays sent at once matter."""
    counts = [len(events) for events in inputs]
    taken = np.empty((sum(counts), EVENT_COLUMNS), dtype=np.int64)
    streams = [np.full(count, stream) for stream, count in enumerate(counts)]
    taken[:, EVENT_STREAM] = _in_sequence(streams, merged)
    taken[:, EVENT_INSTANCE] = _in_sequence([events.instance for events in inputs], merged)
    taken[:, EVENT_TIME] = _in_sequence([events.time_ms for events in inputs], merged)
    taken[:, EVENT_CLOCK] = _in_sequence([events.clock_ms for events in inputs], merged)
    taken[:, EVENT_ORDER] = _in_sequence([events.order for events in inputs], merged)
    taken[:, EVENT_CHUNK] = _chunks(inputs, merged) if has_chunks else np.arange(len(taken))
    return taken


def _in_sequence(columns: Sequence[Longs], merged: Longs | None) -> Longs:
    """A column of all runs, in sequence."""
    if merged is not None:
        return np.concatenate(columns)[merged]
    return max(columns, key=len)


def _chunks(inputs: Sequence[EventBatch], merged: Longs | None) -> Longs:
    """For each event, in sequence, the number of the array that it was sent in."""
    numbers = np.cumsum(np.concatenate([instance_chunk_begins(events) for events in inputs]))
    return numbers if merged is None else numbers[merged]
