"""Predicates that only Python can compute: evaluated for all requests of the machine at once.

The machine writes requests down and continues without their answers (``requests``), on memory that
is discarded.  The evaluator answers them as columns: one evaluation for each predicate, for any
number of matches and events.  To find more requests of the same kind it can pair events ahead of
the machine: for patterns in which one match has to end before the next begins.

Predicates that only Python can compute: the machine's requests and Python's answers.

A request is a predicate with the events that it reads.  The machine looks a request up before it
uses the answer.  Without an answer it writes the request down and continues as if the predicate
were False, on a copy of its memory: so one run finds as many requests as possible.  Python answers
all of them at once and runs the machine again (``evaluation``).

Requests are found by hash; they are kept as long as one batch is processed.  Native code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from mesh.operators.base import EventBatch
from mesh.operators.expressions import Frame, columns_of, compile_filter, key_of
from mesh.operators.native import bare, inner
from mesh.operators.patterns.matches import (
    node_at,
)
from mesh.operators.patterns.memory_layout import (
    CAUSE,
    EVENT,
    FIRST_UNANSWERED,
    LOOKAHEAD,
    NONE,
    PREDICATE_REASON,
    REQUESTS,
    STEPS,
    STREAM,
    PatternMemory,
    opened,
)
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


# Columns of ``requests``, before the slots of the events that the predicate reads.
ANSWER, NEXT_REQUEST, REQUEST_EVENT, REQUEST_PREDICATE = range(4)
REQUEST_COLUMNS: Final = 4

# ``ANSWER``: False is 0, True is 1, and ``FIRST_REASON + n`` is failure number n.
UNANSWERED: Final = -1
FIRST_REASON: Final = 2
#: A reference to the time of the match, in the place of a step.
OF_MATCH_TIME: Final = -1
#: Instead of a slot: the match has no such event.
NO_NODE: Final = -2

# An odd number that spreads close values, as in splitmix64.
_SPREAD: Final = -7046029254386353131


@inner
def _head(w: PatternMemory, request: int, references: int) -> int:
    """The place of a request's chain among ``request_heads``."""
    mixed = w.requests[request, REQUEST_PREDICATE]
    for column in range(REQUEST_COLUMNS, REQUEST_COLUMNS + references):
        mixed = (mixed ^ w.requests[request, column]) * _SPREAD
        mixed = mixed ^ (mixed >> 29)
    return int(mixed & (len(w.request_heads) - 1))


@inner
def _find(w: PatternMemory, head: int, request: int, references: int) -> int:
    """The request of chain ``head`` that is equal to the one in row ``request``, or ``NONE``."""
    other = w.request_heads[head]
    while other != NONE:
        is_equal = w.requests[other, REQUEST_PREDICATE] == w.requests[request, REQUEST_PREDICATE]
        column = REQUEST_COLUMNS
        while is_equal and column < REQUEST_COLUMNS + references:
            is_equal = w.requests[other, column] == w.requests[request, column]
            column += 1
        if is_equal:
            break
        other = w.requests[other, NEXT_REQUEST]
    return int(other)


@inner
def _keep(w: PatternMemory, head: int, request: int) -> None:
    """Keep the row ``request``, the one after the last, as an unanswered request."""
    w.requests[request, ANSWER] = UNANSWERED
    w.requests[request, NEXT_REQUEST] = w.request_heads[head]
    w.request_heads[head] = request
    w.scalars[REQUESTS] = request + 1


@inner
def answer_to(w: PatternMemory, match: int, at: int) -> int:
    """The answer to the predicate of program row ``at``; ``UNANSWERED`` if it has none yet.

    Each match records ``LOOKAHEAD`` requests at most: an answer may well move the match on.
    """
    s = w.scalars
    request = s[REQUESTS]
    first, references = w.program[at, 2], w.program[at, 3] - w.program[at, 2]
    w.requests[request, REQUEST_EVENT] = s[CAUSE]
    w.requests[request, REQUEST_PREDICATE] = w.program[at, 1]
    for number in range(references):
        step = w.references[first + number, 0]
        if step == OF_MATCH_TIME:
            value = w.matches[match, s[STEPS]]
        else:
            node = node_at(w, match, step, w.references[first + number, 1])
            value = NO_NODE if node == NONE else w.nodes[node, EVENT]
        w.requests[request, REQUEST_COLUMNS + number] = value
    head = _head(w, request, references)
    existing = _find(w, head, request, references)
    if existing != NONE and w.requests[existing, ANSWER] != UNANSWERED:
        return int(w.requests[existing, ANSWER])
    if s[FIRST_UNANSWERED] == NONE:
        s[FIRST_UNANSWERED] = s[CAUSE]
    if existing == NONE and w.request_counts[match] < s[LOOKAHEAD]:
        w.request_counts[match] += 1
        _keep(w, head, request)
    return UNANSWERED


@bare
def link_requests(directory: Array, widths: Array) -> None:
    """Fill ``request_heads``, which are empty, from the requests.

    ``widths``: by predicate, the number of its references.
    """
    w = opened(directory)
    for request in range(w.scalars[REQUESTS]):
        head = _head(w, request, widths[w.requests[request, REQUEST_PREDICATE]])
        w.requests[request, NEXT_REQUEST] = w.request_heads[head]
        w.request_heads[head] = request


@bare
def add_requests(directory: Array, rows: Array, references: int) -> None:
    """Record new requests of one predicate; there is room for them."""
    w = opened(directory)
    for number in range(len(rows)):
        request = w.scalars[REQUESTS]
        for column in range(rows.shape[1]):
            w.requests[request, column] = rows[number, column]
        head = _head(w, request, references)
        if _find(w, head, request, references) == NONE:
            _keep(w, head, request)
