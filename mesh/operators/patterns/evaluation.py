"""Predicates that only Python can compute: evaluated for all requests of the machine at once.

The machine writes requests down and continues without their answers (``requests``), on memory that
is discarded.  The evaluator answers them as columns: one evaluation for each predicate, for any
number of matches and events.  To find more requests of the same kind it can pair events ahead of
the machine: for patterns in which one match has to end before the next begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mesh.operators.base import EventBatch
from mesh.operators.expressions import Frame, columns_of, compile_filter, key_of
from mesh.operators.patterns.matches import (
    ANSWER,
    FIRST_REASON,
    NO_NODE,
    REQUEST_COLUMNS,
    REQUEST_EVENT,
    REQUEST_PREDICATE,
    UNANSWERED,
)
from mesh.operators.patterns.memory_layout import PREDICATE_REASON, REQUESTS, STREAM, PatternMemory
from mesh.operators.patterns.nfa import EVENT_CLOCK, EVENT_INSTANCE, EVENT_ORDER, EVENT_TIME
from mesh.plan.bound import EventIsNull, walk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.operators.base import Longs
    from mesh.operators.expressions import Key
    from mesh.operators.patterns.events import EventStore
    from mesh.operators.patterns.memory_layout import Array
    from mesh.operators.patterns.program import Predicate, PredicatePrograms
    from pyspark_nats.arrow import ArrowArray


#: The number of next events that are paired with each event ahead of the machine.
_AHEAD = 8


class PredicateEvaluator:
    """The predicates of one pattern, compiled.

    ``references``: int64[n, 2], the machine's reads for requests (``PatternMemory.references``);
    ``widths``: by predicate, the number of its references; ``most``: by event and match, the
    maximal number of requests.
    """

    def __init__(self, programs: PredicatePrograms) -> None:
        self._predicates: Sequence[Predicate] = programs.predicates
        self._filters = [compile_filter(p.expression) for p in programs.predicates]
        self.references: Array = np.array(programs.references, dtype=np.int64).reshape(-1, 2)
        widths = [len(p.references) + p.has_time for p in programs.predicates]
        self.widths: Longs = np.array(widths, dtype=np.int64)
        self.most = max(programs.predicate_counts, default=0)
        #: Reasons of predicates that failed on requests of this batch.
        self._reasons: list[str] = []

    @property
    def columns(self) -> int:
        """The width of a request."""
        return REQUEST_COLUMNS + int(self.widths.max(initial=0))

    def forget(self) -> None:
        """Forget why requests failed, when their answers are no longer needed."""
        self._reasons = []

    def reason(self, why: int) -> str:
        """The reason of a predicate's failure, from its record (``memory_layout.WHY``)."""
        return self._reasons[PREDICATE_REASON - why]

    def answer(self, w: PatternMemory, events: EventStore, taken: Array) -> None:
        """Answer all requests that have no answer; ``taken``: the events of the batch."""
        requests = w.requests[: w.scalars[REQUESTS]]
        is_open = requests[:, ANSWER] == UNANSWERED
        for number, predicate in enumerate(self._predicates):
            rows = np.flatnonzero(is_open & (requests[:, REQUEST_PREDICATE] == number))
            if not len(rows):
                continue
            frame = _frame(predicate, requests[rows], w.plan[:, STREAM], events, taken)
            answers = self._filters[number](frame).astype(np.int64)
            for row, reason in frame.failures.items():
                answers[row] = FIRST_REASON + len(self._reasons)
                self._reasons.append(reason)
            requests[rows, ANSWER] = answers

    def pairs_ahead(
        self, number: int, w: PatternMemory, taken: Array, slots: Array, first: int, last: int
    ) -> Array | None:
        """Requests of predicate ``number`` for pairs of the events from ``first`` to ``last``.

        Each event that the earlier step may take is paired with the next few of its instance that
        the own step may take.  None if the predicate does not read two events only.
        """
        predicate = self._predicates[number]
        if len(predicate.references) != 2 or predicate.has_time:
            return None
        (step, _), (earlier, _) = predicate.references
        numbers = np.arange(first, last)
        instance = taken[first:last, EVENT_INSTANCE]
        order = np.argsort(instance, kind="stable")
        numbers = numbers[order]
        others = numbers[slots[numbers, step] >= 0]
        mine = numbers[slots[numbers, earlier] >= 0]
        # Places among the others, which are by instance and number.
        span = len(taken) + 1
        of_others = taken[others, EVENT_INSTANCE] * span + others
        of_mine = taken[mine, EVENT_INSTANCE] * span + mine
        start = np.searchsorted(of_others, of_mine, side="right")
        places = start[:, None] + np.arange(_AHEAD)
        is_valid = places < len(others)
        partner = others[np.where(is_valid, places, 0)] if len(others) else places
        if len(others):
            is_valid &= taken[partner, EVENT_INSTANCE] == taken[mine, EVENT_INSTANCE][:, None]
        left = np.broadcast_to(mine[:, None], partner.shape)[is_valid]
        right = partner[is_valid]
        rows = np.zeros((len(left), REQUEST_COLUMNS + 2), dtype=np.int64)
        rows[:, REQUEST_EVENT] = right
        rows[:, REQUEST_PREDICATE] = number
        rows[:, REQUEST_COLUMNS] = slots[right, step]
        rows[:, REQUEST_COLUMNS + 1] = slots[left, earlier]
        return rows


def _frame(
    predicate: Predicate, requests: Array, stream_of: Longs, events: EventStore, taken: Array
) -> Frame:
    """The columns that a predicate reads, one row for each request."""
    slots = {
        reference: np.ascontiguousarray(requests[:, REQUEST_COLUMNS + number])
        for number, reference in enumerate(predicate.references)
    }
    arrays: dict[Key, ArrowArray] = {}
    for column in columns_of(predicate.expression):
        if key_of(column) not in arrays:
            stream = int(stream_of[column.step])
            column_slots = slots[column.step, column.index]
            arrays[key_of(column)] = events.column(stream, column.name, column_slots)
    frame = Frame(len(requests), arrays)
    for part in walk(predicate.expression):
        if isinstance(part, EventIsNull) and part.step is not None:
            is_missing = slots[part.step, part.index] == NO_NODE
            frame.add_missing(part.step, is_missing, part.index)
    number = requests[:, REQUEST_EVENT]
    arrivals = taken[number]
    time_ms = arrivals[:, EVENT_TIME]
    if predicate.has_time:
        time_ms = requests[:, REQUEST_COLUMNS + len(predicate.references)]
    none = np.zeros(len(requests), dtype=np.int64)
    rows = next(iter(slots.values()))
    return frame.timed(
        EventBatch(
            time_ms,
            arrivals[:, EVENT_CLOCK],
            arrivals[:, EVENT_ORDER],
            none,
            rows,
            none.astype(np.int8),
            arrivals[:, EVENT_INSTANCE],
            pa.record_batch({"#": pa.array(none)}),
        )
    )
