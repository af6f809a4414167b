"""Advance the partial matches that wait at a step by an event.

Pairs of events joined by ``and`` or ``or`` of which one is absent.  Native code.
"""

from __future__ import annotations

from mesh.operators.native import inner
from mesh.operators.patterns.lists import clear, list_of, push, remove, schedule
from mesh.operators.patterns.match_index import bucket_of, unlink
from mesh.operators.patterns.matches import add_event, emit_all, new_node, remove_last_event
from mesh.operators.patterns.memory_layout import (
    ABSENT,
    ABSENT_LOGICAL,
    ACTIVE,
    AFTER,
    ALIKE,
    AND,
    BEFORE,
    BITS,
    BITS_NULL,
    BUCKET_HEAD,
    CALLBACK,
    CHANGED,
    COUNT,
    DUE,
    EACH,
    EVERY,
    FAILING,
    FAILS,
    FINISHES,
    HEAD,
    HOLDS,
    IS_SEQUENCE,
    KEY,
    KEY_OF_EVENT,
    KEY_OF_EVENT_END,
    KIND,
    LAST,
    LEAST,
    LENGTH,
    LOGIC,
    LOGICAL,
    MOST,
    NEVER,
    NEXT,
    NODES,
    NONE,
    NOT_AT_ALL,
    NOTHING,
    OF_EVENT,
    OF_EVENT_END,
    ONE,
    OR,
    PARTNER,
    PENDING,
    QUICK,
    REASON,
    RESETS,
    RETURNED,
    START,
    STEPS,
    SUCCESS,
    TAIL,
    TIME,
    WAITING,
    PatternMemory,
)
from mesh.operators.patterns.program import compares, computed, passes
from mesh.operators.patterns.wait_lists import add, add_again, begin


@inner
def _advance_match(w: PatternMemory, step: int, instance: int, match: int) -> None:
    """Send a match that has a step's event to its next place."""
    w.flags[step, CHANGED] = 1
    w.matches[match, w.scalars[STEPS]] = w.nodes[w.matches[match, step], TIME]
    if w.plan[step, FINISHES] == 1:
        w.flags[step, RETURNED] = 1
    if w.plan[step, NEXT] != NONE:
        add(w, w.plan[step, NEXT], instance, match)
    if w.plan[step, EVERY] != NONE:
        add_again(w, w.plan[step, EVERY], instance, match)
    if w.plan[step, CALLBACK] != NONE:
        w.local[instance * w.scalars[STEPS] + w.plan[step, CALLBACK], RESETS] = 1


@inner
def _count(w: PatternMemory, step: int, instance: int, match: int) -> None:
    """Process an event of a step that takes several."""
    head = w.matches[match, step]
    length = w.nodes[head, LENGTH]
    w.flags[step, SUCCESS] = 1
    w.matches[match, w.scalars[STEPS]] = w.nodes[w.nodes[head, TAIL], TIME]
    if length < w.plan[step, LEAST]:
        return
    following, again = w.plan[step, NEXT], w.plan[step, EVERY]
    if w.scalars[IS_SEQUENCE] == 1:
        if following != NONE:
            add(w, following, instance, match)
        if length != w.plan[step, MOST]:
            add(w, step, instance, match)
    elif length == w.plan[step, LEAST]:
        if w.plan[step, FINISHES] == 1:
            w.flags[step, CHANGED] = 1
            w.flags[step, RETURNED] = 1
        if following != NONE:
            add(w, following, instance, match)
        if again != NONE:
            add_again(w, again, instance, match)
    if length == w.plan[step, MOST]:
        w.flags[step, CHANGED] = 1


@inner
def _after_condition(w: PatternMemory, step: int, instance: int, match: int) -> None:
    """Pass on a match that has met a step's condition."""
    kind = w.plan[step, KIND]
    if kind == ONE:
        _advance_match(w, step, instance, match)
    elif kind == COUNT:
        _count(w, step, instance, match)
    elif kind == LOGICAL:
        partner = w.plan[step, PARTNER]
        if w.plan[step, LOGIC] == OR:
            _advance_match(w, step, instance, match)
            if w.plan[partner, FINISHES] == 1 and w.plan[step, LAST] == partner:
                w.flags[partner, RETURNED] = 1
        else:
            if w.plan[partner, KIND] == ABSENT_LOGICAL:
                is_met = absent_lets(w, partner, instance, match)
            else:
                is_met = w.matches[match, partner] != NONE
            if is_met:
                _advance_match(w, step, instance, match)
            else:
                w.flags[step, CHANGED] = 1
    else:
        time_ms = w.nodes[w.matches[match, step], TIME]
        key = instance * w.scalars[STEPS] + step
        w.flags[step, CHANGED] = 1
        w.flags[step, RETURNED] = 1
        if kind == ABSENT:
            w.matches[match, w.scalars[STEPS]] = time_ms
            if w.plan[step, START] == 1 and w.plan[step, EVERY] == step:
                add_again(w, step, instance, match)
            w.local[key, DUE] = time_ms + w.plan[step, WAITING]
            schedule(w, step, instance, w.local[key, DUE])
        else:
            w.local[key, DUE] = time_ms


@inner
def _test(w: PatternMemory, step: int, instance: int, match: int) -> None:
    w.flags[step, CHANGED] = 0
    if passes(w, step, match):
        _after_condition(w, step, instance, match)


@inner
def _is_past(w: PatternMemory, step: int, match: int) -> bool:
    """Whether a match no longer waits at a step: a step after a count, or a partner, has it."""
    if w.plan[step, KIND] == COUNT:
        steps = w.scalars[STEPS]
        return bool(
            (step + 1 < steps and w.matches[match, step + 1] != NONE)
            or (step + 2 < steps and w.matches[match, step + 2] != NONE)
        )
    partner = w.plan[step, PARTNER]
    return bool(w.plan[step, LOGIC] == OR and w.matches[match, partner] != NONE)


@inner
def _first_alike(w: PatternMemory, step: int, pending: int, match: int) -> int:
    """The first cell of a list that waits for the value of the event that ``match`` now holds."""
    computed(w, match, w.plan[step, KEY_OF_EVENT], w.plan[step, KEY_OF_EVENT_END])
    if w.stack_nulls[0] != 0:
        return NONE
    bucket = bucket_of(w, pending, w.stack[0], False)
    return NONE if bucket == NONE else int(w.buckets[bucket, BUCKET_HEAD])


@inner
def _can_matter(w: PatternMemory, step: int, instance: int, event: int) -> bool:
    """Whether an event, or the absence of one, can change the matches that wait at the step."""
    kind = w.plan[step, KIND]
    is_absent = kind in (ABSENT, ABSENT_LOGICAL)
    if is_absent and w.local[instance * w.scalars[STEPS] + step, ACTIVE] == 0:
        return False
    if event != NOTHING:
        return True
    if w.plan[step, QUICK] != NONE or w.plan[step, KEY] != NONE:
        return False
    last = w.plan[step, LAST]
    is_sequence = w.scalars[IS_SEQUENCE] == 1
    return bool(is_sequence or kind not in (ONE, ABSENT) or w.flags[last, RETURNED] == 1)


@inner
def _first_cell(w: PatternMemory, step: int, pending: int, node: int) -> int:
    """The first cell whose match may take the event of ``node``, by key and quick comparison.

    ``stack[0]`` is then the event's side of the quick comparison, if the step has one.
    """
    cell = w.lists[pending, HEAD]
    match = w.cells[cell, HOLDS]
    w.matches[match, step] = node
    if w.plan[step, KEY] != NONE:
        cell = _first_alike(w, step, pending, match)
    if w.plan[step, QUICK] != NONE:
        computed(w, match, w.plan[step, OF_EVENT], w.plan[step, OF_EVENT_END])
        if w.stack_nulls[0] != 0:
            cell = NONE
    w.matches[match, step] = NONE
    return int(cell)


@inner
def _settle(
    w: PatternMemory, step: int, instance: int, before: int, cell: int, event: int, comes_out: int
) -> int:
    """After the event of a step: emit its match, remove it from the list, or let it wait on.

    Returns the cell before the next one.
    """
    kind = w.plan[step, KIND]
    match = w.cells[cell, HOLDS]
    last = w.plan[step, LAST]
    is_sequence = w.scalars[IS_SEQUENCE] == 1
    if w.flags[last, RETURNED] == 1:
        w.flags[last, RETURNED] = 0
        if kind != ABSENT and comes_out != NOT_AT_ALL:
            push(w, 0, match)
    is_removed = w.flags[step, CHANGED] == 1
    if kind == COUNT:
        if w.flags[step, SUCCESS] == 0:
            if event != NOTHING:
                remove_last_event(w, match, step)
            is_removed = is_removed or is_sequence
    elif not is_removed:
        w.matches[match, step] = NONE
        if is_sequence:
            is_removed = kind != ABSENT
            if kind in (ONE, ABSENT) and w.plan[step, CALLBACK] != NONE:
                w.local[instance * w.scalars[STEPS] + w.plan[step, CALLBACK], RESETS] = 1
    if not is_removed:
        return cell
    unlink(w, cell)
    remove(w, list_of(w, step, instance, PENDING), before, cell)
    return before


@inner
def _offer(
    w: PatternMemory, step: int, instance: int, match: int, event: int, time_ms: int, node: int
) -> bool:
    """Put an event into a match and test the condition; ``node`` is its chain of one.

    Returns False if the condition failed: then the match is unchanged.
    """
    held = w.matches[match, step]
    if w.plan[step, KIND] == COUNT:
        add_event(w, match, step, event, time_ms)
    else:
        w.matches[match, step] = node
    _test(w, step, instance, match)
    if w.scalars[FAILING] == 0:
        return True
    if w.plan[step, KIND] == COUNT:
        remove_last_event(w, match, step)
    else:
        w.matches[match, step] = held
    return False


@inner
def advance(
    w: PatternMemory, step: int, instance: int, event: int, time_ms: int, comes_out: int
) -> None:
    """Offer an event to all matches that wait at a step; ``event`` is -1 if no match can take it.

    Where a condition fails, ``FAILING`` is set: its match is unchanged, later matches are not
    evaluated, and nothing is emitted.
    """
    pending = list_of(w, step, instance, PENDING)
    cell = w.lists[pending, HEAD]
    if cell == NONE or not _can_matter(w, step, instance, event):
        return
    kind = w.plan[step, KIND]
    quick = w.plan[step, QUICK]
    is_keyed = w.plan[step, KEY] != NONE
    has_filter = quick != NONE or is_keyed
    # Chains of one are never added to, so that all matches may have the same.
    node = NONE
    event_bits = 0
    if has_filter:
        # A match that fails the first condition is left unchanged by this step.
        node = new_node(w, event, time_ms)
        cell = _first_cell(w, step, pending, node)
        event_bits = w.stack[0]
    is_used = False
    before = NONE
    while cell != NONE:
        after = w.cells[cell, ALIKE] if is_keyed else w.cells[cell, AFTER]
        if quick != NONE and (
            w.cells[cell, BITS_NULL] != 0 or not compares(quick, w.cells[cell, BITS], event_bits)
        ):
            before = cell
            cell = after
            continue
        if is_keyed:
            before = w.cells[cell, BEFORE]
        match = w.cells[cell, HOLDS]
        if _is_past(w, step, match):
            remove(w, pending, before, cell)
            cell = after
            continue
        if event == FAILS:
            w.scalars[FAILING] = 1
            w.scalars[REASON] = NONE
            clear(w, 0)
            return
        held = w.matches[match, step]
        w.flags[step, SUCCESS] = 0
        w.flags[step, CHANGED] = 0
        if event != NOTHING:
            if node == NONE and kind != COUNT:
                node = new_node(w, event, time_ms)
            if not _offer(w, step, instance, match, event, time_ms, node):
                clear(w, 0)
                return
        if kind == ABSENT_LOGICAL:
            before = settle_pair(w, step, instance, before, cell, held)
        else:
            is_used = is_used or w.flags[step, CHANGED] == 1
            before = _settle(w, step, instance, before, cell, event, comes_out)
        cell = after
    if has_filter and not is_used and node == w.scalars[NODES] - 1:
        w.scalars[NODES] -= 1
    emit_all(w, instance, comes_out == EACH)


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
