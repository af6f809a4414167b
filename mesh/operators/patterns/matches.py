"""Partial matches, and the chains of their steps' events.  Native code.

Emission of complete matches: records the values that the query reads of them.

Predicates that only Python can compute: the machine's requests and Python's answers.

A request is a predicate with the events that it reads.  The machine looks a request up before it
uses the answer.  Without an answer it writes the request down and continues as if the predicate
were False, on a copy of its memory: so one run finds as many requests as possible.  Python answers
all of them at once and runs the machine again (``evaluation``).

Requests are found by hash; they are kept as long as one batch is processed.  Native code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.operators.native import LONG1, READ1, READ2, bare, inner, types
from mesh.operators.patterns.lists import clear
from mesh.operators.patterns.memory_layout import (
    AFTER,
    BACK,
    CAUSE,
    CHUNK,
    CLOCK_MS,
    EVENT,
    FIRST_UNANSWERED,
    FORWARD,
    HEAD,
    HOLDS,
    ITEMS,
    LAST_CLOCK,
    LAST_ORDER,
    LENGTH,
    LOOKAHEAD,
    MATCHES,
    NEVER,
    NODES,
    NONE,
    NOTHING,
    ORDER,
    OUT_CAUSE,
    OUT_CHUNK,
    OUT_CLOCK,
    OUT_COLUMNS,
    OUT_DROPPED,
    OUT_INSTANCE,
    OUT_MATCH,
    OUT_ORDER,
    OUT_TIME,
    OUTPUTS,
    REQUESTS,
    STEPS,
    TAIL,
    TIME,
    PatternMemory,
    opened,
)

if TYPE_CHECKING:
    from mesh.operators.patterns.memory_layout import Array


@inner
def new_match(w: PatternMemory) -> int:
    """A partial match without events."""
    match = w.scalars[MATCHES]
    w.scalars[MATCHES] += 1
    steps = w.scalars[STEPS]
    for step in range(steps):
        w.matches[match, step] = NONE
    w.matches[match, steps] = NEVER
    w.matches[match, steps + 1] = 0
    return int(match)


@inner
def copy_match(w: PatternMemory, match: int) -> int:
    """A partial match with the same events, not dropped."""
    copy = w.scalars[MATCHES]
    w.scalars[MATCHES] += 1
    steps = w.scalars[STEPS]
    for column in range(steps + 1):
        w.matches[copy, column] = w.matches[match, column]
    w.matches[copy, steps + 1] = 0
    return int(copy)


@inner
def new_node(w: PatternMemory, event: int, time_ms: int) -> int:
    """A chain of one event."""
    node = w.scalars[NODES]
    w.scalars[NODES] += 1
    w.nodes[node, EVENT] = event
    w.nodes[node, TIME] = time_ms
    w.nodes[node, FORWARD] = NONE
    w.nodes[node, BACK] = NONE
    w.nodes[node, TAIL] = node
    w.nodes[node, LENGTH] = 1
    return int(node)


@inner
def add_event(w: PatternMemory, match: int, step: int, event: int, time_ms: int) -> None:
    """Put an event at the end of a step's chain."""
    node = new_node(w, event, time_ms)
    head = w.matches[match, step]
    if head == NONE:
        w.matches[match, step] = node
        return
    tail = w.nodes[head, TAIL]
    w.nodes[tail, FORWARD] = node
    w.nodes[node, BACK] = tail
    w.nodes[head, TAIL] = node
    w.nodes[head, LENGTH] += 1


@inner
def remove_last_event(w: PatternMemory, match: int, step: int) -> None:
    """Remove the last event of a step's chain."""
    head = w.matches[match, step]
    if head == NONE:
        return
    if w.nodes[head, LENGTH] == 1:
        w.matches[match, step] = NONE
        if head == w.scalars[NODES] - 1:
            w.scalars[NODES] -= 1
        return
    if w.nodes[head, TAIL] == w.scalars[NODES] - 1:
        w.scalars[NODES] -= 1
    tail = w.nodes[w.nodes[head, TAIL], BACK]
    w.nodes[tail, FORWARD] = NONE
    w.nodes[head, TAIL] = tail
    w.nodes[head, LENGTH] -= 1


@inner
def node_at(w: PatternMemory, match: int, step: int, index: int) -> int:
    """The node of a step's event number ``index``; negative ones count from the last, -1."""
    node = w.matches[match, step]
    if node == NONE:
        return NONE
    if index < 0:
        node = w.nodes[node, TAIL]
        for _ in range(-1 - index):
            node = w.nodes[node, BACK]
            if node == NONE:
                return NONE
        return int(node)
    for _ in range(index):
        node = w.nodes[node, FORWARD]
        if node == NONE:
            return NONE
    return int(node)


@inner
def next_chunk(w: PatternMemory) -> None:
    """Begin another chunk of outputs."""
    s = w.scalars
    is_same = s[LAST_ORDER] == s[ORDER] and s[LAST_CLOCK] == s[CLOCK_MS]
    s[CHUNK] = s[CHUNK] + 1 if is_same else 0
    s[LAST_ORDER] = s[ORDER]
    s[LAST_CLOCK] = s[CLOCK_MS]


@inner
def emit_match(w: PatternMemory, instance: int, match: int) -> None:
    """Write down a whole match, as it is now."""
    s = w.scalars
    at = s[OUTPUTS]
    s[OUTPUTS] += 1
    w.outputs[at, OUT_TIME] = w.matches[match, s[STEPS]]
    w.outputs[at, OUT_CLOCK] = s[CLOCK_MS]
    w.outputs[at, OUT_ORDER] = s[ORDER]
    w.outputs[at, OUT_CAUSE] = s[CAUSE]
    w.outputs[at, OUT_CHUNK] = s[CHUNK]
    w.outputs[at, OUT_DROPPED] = w.matches[match, s[STEPS] + 1]
    w.outputs[at, OUT_INSTANCE] = instance
    w.outputs[at, OUT_MATCH] = match
    for number in range(len(w.reads)):
        step, index, is_list = w.reads[number, 0], w.reads[number, 1], w.reads[number, 2]
        column = OUT_COLUMNS + 2 * number
        if is_list:
            w.outputs[at, column] = s[ITEMS]
            node = w.matches[match, step]
            while node != NONE:
                w.items[s[ITEMS]] = w.nodes[node, EVENT]
                s[ITEMS] += 1
                node = w.nodes[node, FORWARD]
            w.outputs[at, column + 1] = s[ITEMS]
        else:
            node = node_at(w, match, step, index)
            w.outputs[at, column] = NOTHING if node == NONE else w.nodes[node, EVENT]
            w.outputs[at, column + 1] = 1 if node == NONE else 0


@inner
def emit_all(w: PatternMemory, instance: int, is_each: bool) -> None:
    """Record the matches in the first list, in their state after the event."""
    cell = w.lists[0, HEAD]
    if cell == NONE:
        return
    is_new = True
    while cell != NONE:
        if is_new or is_each:
            next_chunk(w)
        is_new = False
        emit_match(w, instance, w.cells[cell, HOLDS])
        cell = w.cells[cell, AFTER]
    clear(w, 0)


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


@bare(types.void(LONG1, READ1))
def link_requests(directory: Array, widths: Array) -> None:
    """Fill ``request_heads``, which are empty, from the requests.

    ``widths``: by predicate, the number of its references.
    """
    w = opened(directory)
    for request in range(w.scalars[REQUESTS]):
        head = _head(w, request, widths[w.requests[request, REQUEST_PREDICATE]])
        w.requests[request, NEXT_REQUEST] = w.request_heads[head]
        w.request_heads[head] = request


@bare(types.void(LONG1, READ2, types.int64))
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
