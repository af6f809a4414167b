"""Pairs of events joined by ``and`` or ``or`` of which one is absent.  Native code."""

from __future__ import annotations

from mesh.operators.native import inner
from mesh.operators.patterns.lists import (
    list_of,
    remove,
)
from mesh.operators.patterns.memory_layout import (
    AFTER,
    AND,
    CHANGED,
    DUE,
    EVERY,
    HEAD,
    HOLDS,
    IS_SEQUENCE,
    LAST,
    LOGIC,
    NEVER,
    NONE,
    PARTNER,
    PENDING,
    RETURNED,
    STEPS,
    WAITING,
    PatternMemory,
)
from mesh.operators.patterns.wait_lists import begin


@inner
def absent_lets(w: PatternMemory, absent: int, instance: int, match: int) -> bool:
    """Whether the absent side of ``and`` lets the other side's event complete the pair."""
    key = instance * w.scalars[STEPS] + absent
    is_every = w.plan[absent, EVERY] != NONE
    if w.scalars[IS_SEQUENCE] == 1 and not is_every and w.local[key, DUE] > 0:
        return False
    if w.plan[absent, WAITING] != NEVER:
        return bool(w.matches[match, absent] != NONE)
    if not is_every:
        return bool(w.matches[match, absent] == NONE)
    if w.local[key, DUE] > 0:
        w.local[key, DUE] = 0
        begin(w, absent, instance)
        return False
    return True


@inner
def _remove_match(w: PatternMemory, of: int, match: int) -> None:
    before = NONE
    cell = w.lists[of, HEAD]
    while cell != NONE:
        if w.cells[cell, HOLDS] == match:
            remove(w, of, before, cell)
            return
        before = cell
        cell = w.cells[cell, AFTER]


@inner
def settle_pair(
    w: PatternMemory, step: int, instance: int, before: int, cell: int, held: int
) -> int:
    """After the event of an absent side of a pair: drop its match, or let it wait on.

    ``held`` is the node that the match had at the step.  Returns the cell before the next one.
    """
    match = w.cells[cell, HOLDS]
    last = w.plan[step, LAST]
    partner = w.plan[step, PARTNER]
    pending = list_of(w, step, instance, PENDING)
    is_sequence = w.scalars[IS_SEQUENCE] == 1
    every_and = w.plan[step, LOGIC] == AND and w.plan[step, EVERY] != NONE
    if w.plan[step, WAITING] != NEVER or (is_sequence and every_and):
        w.matches[match, step] = held
    is_gone = False
    if w.flags[last, RETURNED] == 1:
        w.flags[last, RETURNED] = 0
        remove(w, pending, before, cell)
        is_gone = True
        if is_sequence:
            _remove_match(w, list_of(w, partner, instance, PENDING), match)
    if w.flags[step, CHANGED] == 0:
        w.matches[match, step] = held
        if is_sequence and not is_gone:
            remove(w, pending, before, cell)
            is_gone = True
    return before if is_gone else cell
