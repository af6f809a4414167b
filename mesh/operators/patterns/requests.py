"""Predicates that only Python can compute: the machine's requests and Python's answers.

A request is a predicate with the events that it reads.  The machine looks a request up before it
uses the answer.  Without an answer it writes the request down and continues as if the predicate
were False, on a copy of its memory: so one run finds as many requests as possible.  Python answers
all of them at once and runs the machine again (``evaluation``).

Requests are found by hash; they are kept as long as one batch is processed.  Native code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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
    REQUESTS,
    STEPS,
    PatternMemory,
    opened,
)

if TYPE_CHECKING:
    from mesh.operators.patterns.memory import Array

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
