"""Wait lists: add a partial match to a step, make it ready for events, reset it or expire it."""

from __future__ import annotations

from typing import Final

from mesh.operators.native import inner
from mesh.operators.patterns.lists import (
    append,
    bound,
    clear,
    list_of,
    push,
    remove,
    schedule,
    sort,
)
from mesh.operators.patterns.match_index import bucket_of, link, unlink
from mesh.operators.patterns.matches import copy_match, new_match
from mesh.operators.patterns.memory_layout import (
    ABSENT,
    ABSENT_LOGICAL,
    ACTIVE,
    AFTER,
    ALIKE_BEFORE,
    BITS,
    BITS_NULL,
    BUCKET,
    CHANGED,
    COUNT,
    DUE,
    END,
    EVERY,
    FAR,
    FINISHES,
    HEAD,
    HIGH,
    HOLDS,
    INITIALIZED,
    IS_SEQUENCE,
    JOURNALS,
    KEY,
    KEY_OF_MATCH,
    KEY_OF_MATCH_END,
    KIND,
    LEAST,
    LOGIC,
    LOGICAL,
    LOW,
    NEVER,
    NEW,
    NEXT,
    NONE,
    OF_MATCH,
    OF_MATCH_END,
    ONE,
    OR,
    PARTNER,
    PENDING,
    QUICK,
    RESETS,
    RETURNED,
    SIZE,
    SKIPS,
    START,
    STEPS,
    TIME,
    UNLINKED,
    WAITING,
    WITHIN_EVERY,
    WITHIN_MS,
    PatternMemory,
)
from mesh.operators.patterns.program import computed

#: Number of matches that are searched for the bounds of their times.
_FEW: Final = 4


@inner
def _prepare_cell(w: PatternMemory, step: int, instance: int, cell: int) -> None:
    """Compute the values of a cell's match for the first comparison of the step's condition."""
    match = w.cells[cell, HOLDS]
    if w.plan[step, QUICK] != NONE:
        computed(w, match, w.plan[step, OF_MATCH], w.plan[step, OF_MATCH_END])
        w.cells[cell, BITS] = w.stack[0]
        w.cells[cell, BITS_NULL] = w.stack_nulls[0]
    if w.plan[step, KEY] != NONE:
        computed(w, match, w.plan[step, KEY_OF_MATCH], w.plan[step, KEY_OF_MATCH_END])
        bucket = NONE
        if w.stack_nulls[0] == 0:
            of = list_of(w, step, instance, PENDING)
            bucket = bucket_of(w, of, w.stack[0], True)
        w.cells[cell, BUCKET] = bucket
        w.cells[cell, ALIKE_BEFORE] = UNLINKED


@inner
def prepare(w: PatternMemory, step: int, instance: int, which: int) -> None:
    """Compute that of all matches in a list of the step."""
    if w.plan[step, QUICK] != NONE or w.plan[step, KEY] != NONE:
        cell = w.lists[list_of(w, step, instance, which), HEAD]
        while cell != NONE:
            _prepare_cell(w, step, instance, cell)
            cell = w.cells[cell, AFTER]


@inner
def link_all(w: PatternMemory, step: int, of: int) -> None:
    """Put all of a list, which is at the end of the waiting ones or all of them, into buckets."""
    if w.plan[step, KEY] != NONE:
        cell = w.lists[of, HEAD]
        while cell != NONE:
            link(w, cell)
            cell = w.cells[cell, AFTER]


@inner
def _wait(w: PatternMemory, step: int, instance: int, match: int) -> None:
    """Put a match at the end of those that wait at a step from the next event on."""
    new = list_of(w, step, instance, NEW)
    push(w, new, match)
    if w.plan[step, QUICK] != NONE or w.plan[step, KEY] != NONE:
        _prepare_cell(w, step, instance, w.lists[new, END])


@inner
def _add_to_pair(w: PatternMemory, step: int, instance: int, match: int) -> None:
    new = list_of(w, step, instance, NEW)
    partner = list_of(w, w.plan[step, PARTNER], instance, NEW)
    if w.plan[step, START] == 1 or w.scalars[IS_SEQUENCE] == 1:
        if w.lists[new, SIZE] == 0:
            push(w, new, match)
        if w.lists[partner, SIZE] == 0:
            push(w, partner, match)
    else:
        push(w, new, match)
        push(w, partner, match)


@inner
def _add_one(w: PatternMemory, step: int, instance: int, match: int) -> None:
    """Let ``match`` wait at a step."""
    kind = w.plan[step, KIND]
    new = list_of(w, step, instance, NEW)
    key = instance * w.scalars[STEPS] + step
    if kind == ABSENT:
        if w.local[key, ACTIVE] == 0:
            return
        if w.scalars[IS_SEQUENCE] == 1:
            clear(w, new)
        _wait(w, step, instance, match)
        if w.plan[step, START] == 0:
            w.local[key, DUE] = w.matches[match, w.scalars[STEPS]] + w.plan[step, WAITING]
            schedule(w, step, instance, w.local[key, DUE])
    elif kind == LOGICAL:
        _add_to_pair(w, step, instance, match)
    elif kind == ABSENT_LOGICAL:
        if w.local[key, ACTIVE] == 0:
            return
        _add_to_pair(w, step, instance, match)
        if w.plan[step, START] == 0 and w.plan[step, WAITING] != NEVER:
            time_ms = w.matches[match, w.scalars[STEPS]]
            schedule(w, step, instance, time_ms + w.plan[step, WAITING])
            partner = w.plan[step, PARTNER]
            if w.plan[partner, KIND] == ABSENT_LOGICAL:
                schedule(w, partner, instance, time_ms + w.plan[partner, WAITING])
    elif w.scalars[IS_SEQUENCE] == 0 or w.lists[new, SIZE] == 0:
        _wait(w, step, instance, match)


@inner
def add_again(w: PatternMemory, step: int, instance: int, match: int) -> None:
    """Let a copy of ``match`` wait at the first step of an ``every``."""
    kind = w.plan[step, KIND]
    copy = copy_match(w, match)
    steps = w.scalars[STEPS]
    if kind == ABSENT_LOGICAL:
        partner = w.plan[step, PARTNER]
        node = w.matches[copy, step]
        if node != NONE:
            w.matches[copy, steps] = w.nodes[node, TIME]
        w.matches[copy, step] = NONE
        w.matches[copy, partner] = NONE
        push(w, list_of(w, step, instance, NEW), copy)
        push(w, list_of(w, partner, instance, NEW), copy)
        return
    for later in range(step, steps):
        w.matches[copy, later] = NONE
    if kind == LOGICAL:
        w.matches[copy, w.plan[step, PARTNER]] = NONE
    _wait(w, step, instance, copy)
    if kind == LOGICAL:
        push(w, list_of(w, w.plan[step, PARTNER], instance, NEW), copy)
    elif kind == ABSENT:
        key = instance * steps + step
        w.local[key, DUE] = w.matches[match, steps] + w.plan[step, WAITING]
        schedule(w, step, instance, w.local[key, DUE])


@inner
def add(w: PatternMemory, step: int, instance: int, match: int) -> None:
    """Let ``match`` wait at a step, and at later ones as long as steps need no event."""
    depth = 0
    while True:
        _add_one(w, step, instance, match)
        is_met = (
            w.plan[step, KIND] == COUNT
            and w.plan[step, LEAST] == 0
            and w.matches[match, step] == NONE
        )
        if not is_met:
            break
        w.path[depth] = step
        depth += 1
        if w.plan[step, FINISHES] == 1:
            w.flags[step, CHANGED] = 1
            w.flags[step, RETURNED] = 1
        if w.plan[step, NEXT] == NONE:
            break
        step = w.plan[step, NEXT]
    for back in range(depth - 1, -1, -1):
        again = w.plan[w.path[back], EVERY]
        if again != NONE:
            add_again(w, again, instance, match)


@inner
def begin(w: PatternMemory, step: int, instance: int) -> None:
    """Let an empty match wait at a first step."""
    if w.plan[step, START] == 0:
        return
    key = instance * w.scalars[STEPS] + step
    following = w.plan[step, NEXT]
    if (
        w.local[key, INITIALIZED] == 0
        or w.plan[step, EVERY] != NONE
        or (
            w.scalars[IS_SEQUENCE] == 1
            and following != NONE
            and w.plan[following, KIND] in (ABSENT, ABSENT_LOGICAL)
        )
    ):
        add(w, step, instance, new_match(w))
        w.local[key, INITIALIZED] = 1


@inner
def _has_advanced(w: PatternMemory, step: int, instance: int) -> bool:
    """Whether a sequence without ``every`` is beyond its first step."""
    following = w.plan[step, NEXT]
    return bool(
        w.scalars[IS_SEQUENCE] == 1
        and w.plan[step, EVERY] == NONE
        and following != NONE
        and w.lists[list_of(w, following, instance, PENDING), SIZE] > 0
    )


@inner
def reset(w: PatternMemory, step: int, instance: int) -> None:
    """Drop the matches that wait at a step of a sequence; a first step gets an empty match."""
    kind = w.plan[step, KIND]
    pending = list_of(w, step, instance, PENDING)
    if kind in (LOGICAL, ABSENT_LOGICAL):
        other = list_of(w, w.plan[step, PARTNER], instance, PENDING)
        if w.plan[step, LOGIC] != OR and w.lists[pending, SIZE] != w.lists[other, SIZE]:
            return
        clear(w, other)
    clear(w, pending)
    if w.plan[step, START] == 0:
        return
    is_empty = w.lists[list_of(w, step, instance, NEW), SIZE] == 0
    if (is_empty or kind == ABSENT) and not _has_advanced(w, step, instance):
        begin(w, step, instance)


@inner
def make_ready(w: PatternMemory, step: int, instance: int) -> None:
    """Let new matches at a step wait for events."""
    kind = w.plan[step, KIND]
    key = instance * w.scalars[STEPS] + step
    if kind == COUNT and w.local[key, RESETS] == 1:
        w.local[key, RESETS] = 0
        begin(w, step, instance)
    new = list_of(w, step, instance, NEW)
    if w.lists[new, HEAD] != NONE:
        sort(w, new)
        link_all(w, step, new)
        pending = list_of(w, step, instance, PENDING)
        append(w, pending, new)
        if w.scalars[JOURNALS] == 1:
            w.ready[key] = w.entries[w.lists[pending, END]]
    if kind in (LOGICAL, ABSENT_LOGICAL):
        partner = w.plan[step, PARTNER]
        new = list_of(w, partner, instance, NEW)
        sort(w, new)
        append(w, list_of(w, partner, instance, PENDING), new)


@inner
def is_over(w: PatternMemory, match: int, time_ms: int) -> bool:
    """Whether ``within`` drops a partial match at an event of this time."""
    within = w.scalars[WITHIN_MS]
    if within == NEVER:
        return False
    for place in range(len(w.starts)):
        step = w.starts[place]
        node = w.matches[match, step]
        if node != NONE and abs(w.nodes[node, TIME] - time_ms) > within:
            return True
    return False


@inner
def _is_within(w: PatternMemory, of: int, time_ms: int) -> bool:
    """Whether the bounds of a list show that ``within`` drops none of its matches."""
    within = w.scalars[WITHIN_MS]
    return bool(
        w.scalars[SKIPS] == 1
        and time_ms - w.lists[of, LOW] <= within
        and w.lists[of, HIGH] - time_ms <= within
    )


@inner
def _tighten(w: PatternMemory, of: int) -> None:
    """Find the bounds of the rest of a list."""
    w.lists[of, LOW] = FAR
    w.lists[of, HIGH] = -FAR
    cell = w.lists[of, HEAD]
    while cell != NONE:
        bound(w, of, w.cells[cell, HOLDS])
        cell = w.cells[cell, AFTER]


@inner
def drop_old(w: PatternMemory, step: int, instance: int, time_ms: int) -> None:
    """Drop matches beyond ``within``; of an ``every`` the last of them begins again."""
    steps = w.scalars[STEPS]
    dropped = NONE
    pending = list_of(w, step, instance, PENDING)
    # Matches at a first step for several events, or for two, get their first event there.
    is_bounded = w.plan[step, START] == 0 or w.plan[step, KIND] == ONE
    if not (is_bounded and _is_within(w, pending, time_ms)):
        cell = w.lists[pending, HEAD]
        while cell != NONE:
            match = w.cells[cell, HOLDS]
            if not is_over(w, match, time_ms):
                break
            unlink(w, cell)
            remove(w, pending, NONE, cell)
            if w.matches[match, steps + 1] == 0:
                w.matches[match, steps + 1] = 1
                dropped = match
            cell = w.lists[pending, HEAD]
        if w.lists[pending, SIZE] <= _FEW:
            _tighten(w, pending)
    new = list_of(w, step, instance, NEW)
    cell = NONE if _is_within(w, new, time_ms) else w.lists[new, HEAD]
    before = NONE
    while cell != NONE:
        after = w.cells[cell, AFTER]
        match = w.cells[cell, HOLDS]
        if is_over(w, match, time_ms):
            remove(w, new, before, cell)
            if w.matches[match, steps + 1] == 0:
                w.matches[match, steps + 1] = 1
                dropped = match
        else:
            before = cell
        cell = after
    again = w.plan[step, WITHIN_EVERY]
    if dropped != NONE and again != NONE:
        add_again(w, again, instance, dropped)
        make_ready(w, again, instance)
