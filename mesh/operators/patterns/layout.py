"""Tables of a bound pattern for the machine: its steps and how they are connected.

One batch of events as the machine reads it: in the order of the engine, one row an event.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, assert_never

import numpy as np

from mesh.language.syntax import LogicalOperator, StateKind
from mesh.operators.patterns import memory_layout
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
from mesh.plan.bound import BothEvents, Every, Next, NoEvent, OneEvent, SomeEvents

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.operators.base import EventBatch, Longs
    from mesh.operators.patterns.memory_layout import Array
    from mesh.plan.bound import BoundElement, BoundPattern


#: ``SomeEvents.most`` of one without end.
_ENDLESS = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class _Part:
    """An element: the steps at which it begins and ends, and those that the engine sees to.

    ``all`` are its steps in order; ``initials``, ``resets`` and ``updates`` those that the engine
    begins, resets and makes ready, in its order: of an ``every`` only the first.
    """

    first: int
    last: int
    all: tuple[int, ...]
    initials: tuple[int, ...]
    resets: tuple[int, ...]
    updates: tuple[int, ...]


@dataclass(slots=True)
class PatternLayout:
    """The tables; see ``PatternMemory``."""

    plan: Array
    starts: Array = field(init=False)
    initials: Array = field(init=False)
    resets: Array = field(init=False)
    updates: Array = field(init=False)
    readers: Array = field(init=False)
    receivers: Array = field(init=False)
    #: Whether a list's bounds decide which of its matches ``within`` drops.
    is_bounded: bool = field(init=False)


def lay_out(pattern: BoundPattern, streams: Sequence[str]) -> PatternLayout:
    """The tables of a pattern with events from ``streams``."""
    steps = len(pattern.steps)
    plan = np.full((steps, memory_layout.PLAN_COLUMNS), memory_layout.NONE, dtype=np.int64)
    plan[:, [memory_layout.START, memory_layout.FINISHES, memory_layout.LOGIC]] = 0
    plan[:, [memory_layout.PROGRAM, memory_layout.PROGRAM_END]] = 0
    plan[:, memory_layout.LAST] = np.arange(steps)
    plan[:, memory_layout.STREAM] = [streams.index(step.schema.name) for step in pattern.steps]
    is_sequence = pattern.kind is StateKind.SEQUENCE
    whole = _place(pattern.element, plan, True, is_sequence)
    for step in _twins(plan, whole.last):
        plan[step, memory_layout.FINISHES] = 1
    plan[whole.first, memory_layout.LAST] = whole.last

    layout = PatternLayout(plan)
    layout.starts = np.flatnonzero(plan[:, memory_layout.START] == 1)
    layout.initials = np.array(whole.initials, dtype=np.int64)
    layout.resets = np.array(whole.resets, dtype=np.int64)
    layout.updates = np.array(whole.updates, dtype=np.int64)
    read = [np.flatnonzero(plan[:, memory_layout.STREAM] == n) for n in range(len(streams))]
    layout.readers = np.full(
        (len(streams), max(map(len, read))), memory_layout.NONE, dtype=np.int64
    )
    layout.receivers = np.empty(len(streams), dtype=np.int64)
    for number, steps_of in enumerate(read):
        layout.readers[number, : len(steps_of)] = steps_of
        layout.receivers[number] = _receiver(plan, steps_of)
    begins_empty = (plan[layout.starts, memory_layout.KIND] == memory_layout.COUNT) & (
        plan[layout.starts, memory_layout.LEAST] == 0
    )
    layout.is_bounded = not begins_empty.any()
    return layout


def _receiver(plan: Array, steps: Array) -> int:
    """The emission of matches that events of a stream complete; ``steps`` read the stream."""
    last = steps[-1]
    if len(steps) == 1:
        return (
            memory_layout.EACH
            if plan[plan[last, memory_layout.LAST], memory_layout.FINISHES]
            else memory_layout.NOT_AT_ALL
        )
    return memory_layout.AT_ONCE if plan[last, memory_layout.FINISHES] else memory_layout.NOT_AT_ALL


def _twins(plan: Array, step: int) -> tuple[int, ...]:
    """A step and, of a pair, the other one."""
    partner = int(plan[step, memory_layout.PARTNER])
    return (step,) if partner == memory_layout.NONE else (step, partner)


def _place(element: BoundElement, plan: Array, starts: bool, is_sequence: bool) -> _Part:
    match element:
        case OneEvent(step):
            plan[step, memory_layout.KIND] = memory_layout.ONE
            return _single(step, plan, starts)
        case SomeEvents(step, least, most):
            plan[step, memory_layout.KIND] = memory_layout.COUNT
            plan[step, memory_layout.LEAST] = least
            plan[step, memory_layout.MOST] = _ENDLESS if most is None else most
            return _single(step, plan, starts)
        case NoEvent(step, waiting_ms):
            assert waiting_ms is not None, "by itself it has a time"
            plan[step, memory_layout.KIND] = memory_layout.ABSENT
            plan[step, memory_layout.WAITING] = waiting_ms
            return _single(step, plan, starts)
        case BothEvents():
            return _pair(element, plan, starts)
        case Every(inner):
            part = _place(inner, plan, starts, is_sequence)
            for step in _twins(plan, part.last):
                plan[step, memory_layout.EVERY] = part.first
            plan[list(part.all), memory_layout.WITHIN_EVERY] = part.first
            first = (part.first,)
            return _Part(part.first, part.last, part.all, part.initials, first, first)
        case Next(elements):
            parts = [
                _place(inner, plan, starts and number == 0, is_sequence)
                for number, inner in enumerate(elements)
            ]
            for part, following in pairwise(parts):
                _chain(plan, part, following, is_sequence)
            return _Part(
                parts[0].first,
                parts[-1].last,
                tuple(s for part in parts for s in part.all),
                tuple(s for part in parts for s in part.initials),
                tuple(s for part in reversed(parts) for s in part.resets),
                tuple(s for part in parts for s in part.updates),
            )
        case _:
            assert_never(element)


def _single(step: int, plan: Array, starts: bool) -> _Part:
    plan[step, memory_layout.START] = int(starts)
    return _Part(step, step, (step,), (step,), (step,), (step,))


def _pair(element: BothEvents, plan: Array, starts: bool) -> _Part:
    """The one with the lower number is the engine's second, at which the pair ends."""
    for side, other in ((element.left, element.right), (element.right, element.left)):
        is_absent = isinstance(side, NoEvent)
        plan[side.step, memory_layout.KIND] = (
            memory_layout.ABSENT_LOGICAL if is_absent else memory_layout.LOGICAL
        )
        if isinstance(side, NoEvent) and side.waiting_ms is not None:
            plan[side.step, memory_layout.WAITING] = side.waiting_ms
        plan[side.step, memory_layout.PARTNER] = other.step
        is_and = element.operator is LogicalOperator.AND
        plan[side.step, memory_layout.LOGIC] = memory_layout.AND if is_and else memory_layout.OR
        plan[side.step, memory_layout.START] = int(starts)
    last, first = sorted((element.left.step, element.right.step))
    return _Part(first, last, (last, first), (last, first), (last,), (last,))


def _chain(plan: Array, part: _Part, following: _Part, is_sequence: bool) -> None:
    for step in _twins(plan, part.last):
        plan[step, memory_layout.NEXT] = following.first
    is_optional = (
        plan[part.last, memory_layout.KIND] == memory_layout.COUNT
        and plan[part.last, memory_layout.LEAST] == 0
    )
    if is_sequence and is_optional and plan[part.last, memory_layout.START] == 1:
        plan[following.first, memory_layout.CALLBACK] = part.last


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
