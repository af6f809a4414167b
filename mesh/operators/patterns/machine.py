"""The exact pattern machine: what the reference engine does with each event and each timer.

A step has a side before its condition, where partial matches wait, and one behind it, which hands
them on.  An event goes to the steps of its stream; what passes a step's condition waits at the next
step, in its list ``NEW`` until the next event that the step is made ready for.  ``every`` puts a
copy back to its first step.  Steps that wait for absence are woken by timers; each has a queue of
times, served in the order in which they were put in, as the engine's schedulers do.

Names follow what happens rather than the engine's classes; the order of everything is the engine's,
because it decides what comes out, and in what order.

Source: Siddhi 5.1.7, observed, and its published description of states; every shape is held
against it by the cases in tests/cases.
"""

from __future__ import annotations

from mesh.operators.native import njit
from mesh.operators.patterns.program import passes
from mesh.operators.patterns.world import (
    ABSENT,
    ABSENT_LOGICAL,
    ACTIVE,
    AND,
    CALLBACK,
    CAUSE,
    CELLS,
    CHANGED,
    CHUNK,
    CLOCK_MS,
    COUNT,
    DUE,
    EACH,
    EVENT,
    EVERY,
    FINISHES,
    FIRED,
    FORWARD,
    HEAD,
    HIGH,
    INITIALIZED,
    IS_SEQUENCE,
    ITEMS,
    KIND,
    LAST,
    LAST_CLOCK,
    LAST_ORDER,
    LEAST,
    LENGTH,
    LOGIC,
    LOGICAL,
    LOW,
    MATCHES,
    MOST,
    NEVER,
    NEW,
    NEXT,
    NODES,
    NONE,
    NOT_AT_ALL,
    NOTHING,
    ONE,
    OR,
    ORDER,
    OUT_CAUSE,
    OUT_CHUNK,
    OUT_CLOCK,
    OUT_COLUMNS,
    OUT_DROPPED,
    OUT_INSTANCE,
    OUT_ORDER,
    OUT_TIME,
    OUTPUTS,
    PARTNER,
    PENDING,
    QUEUE,
    QUEUE_END,
    RESETS,
    RETURNED,
    RUNNING,
    SIZE,
    SKIPS,
    START,
    STARTED,
    STEPS,
    SUCCESS,
    TAIL,
    TASK_COUNT,
    TASK_KEY,
    TASK_NUMBER,
    TASK_ORDER,
    TASK_TIME,
    TASKS,
    TIME,
    WAITING,
    WITHIN_EVERY,
    WITHIN_MS,
    Array,
    World,
    add_event,
    append,
    clear,
    copy_match,
    free_cell,
    list_of,
    new_cell,
    new_match,
    new_node,
    node_at,
    push,
    remove,
    remove_last_event,
    sort,
)

# Timers


@njit
def _is_before(w: World, left: int, right: int) -> bool:
    if w.tasks[left, TASK_TIME] != w.tasks[right, TASK_TIME]:
        return bool(w.tasks[left, TASK_TIME] < w.tasks[right, TASK_TIME])
    return bool(w.tasks[left, TASK_NUMBER] < w.tasks[right, TASK_NUMBER])


@njit
def _swap(w: World, left: int, right: int) -> None:
    for column in range(4):
        held = w.tasks[left, column]
        w.tasks[left, column] = w.tasks[right, column]
        w.tasks[right, column] = held


@njit
def _add_task(w: World, key: int, time_ms: int, number: int) -> None:
    at = w.scalars[TASKS]
    w.scalars[TASKS] += 1
    w.tasks[at, TASK_TIME] = max(time_ms, w.scalars[CLOCK_MS])
    w.tasks[at, TASK_NUMBER] = number
    w.tasks[at, TASK_KEY] = key
    # Orders of events are odd; timers that they set off come behind them.
    w.tasks[at, TASK_ORDER] = w.scalars[ORDER] + (w.scalars[ORDER] & 1)
    while at > 0 and _is_before(w, at, (at - 1) // 2):
        _swap(w, at, (at - 1) // 2)
        at = (at - 1) // 2


@njit
def _wake_at(w: World, key: int, time_ms: int) -> None:
    """Have the queue of step and instance ``key`` served at a time, or behind what happens now."""
    _add_task(w, key, time_ms, w.scalars[TASK_COUNT])
    w.scalars[TASK_COUNT] += 1


@njit
def _pop_task(w: World) -> None:
    last = w.scalars[TASKS] - 1
    w.scalars[TASKS] = last
    _swap(w, 0, last)
    at = 0
    while True:
        least = at
        for child in (2 * at + 1, 2 * at + 2):
            if child < last and _is_before(w, child, least):
                least = child
        if least == at:
            return
        _swap(w, at, least)
        at = least


@njit
def _schedule(w: World, step: int, instance: int, time_ms: int) -> None:
    """Put a time at the end of a step's queue."""
    key = instance * w.scalars[STEPS] + step
    cell = new_cell(w, time_ms)
    if w.local[key, QUEUE] == NONE:
        w.local[key, QUEUE] = cell
    else:
        w.cells[w.local[key, QUEUE_END], 1] = cell
    w.local[key, QUEUE_END] = cell
    if w.local[key, RUNNING] == 0:
        w.local[key, RUNNING] = 1
        _wake_at(w, key, time_ms)


# What comes out


@njit
def _next_chunk(w: World) -> None:
    """Begin another chunk of outputs."""
    s = w.scalars
    is_same = s[LAST_ORDER] == s[ORDER] and s[LAST_CLOCK] == s[CLOCK_MS]
    s[CHUNK] = s[CHUNK] + 1 if is_same else 0
    s[LAST_ORDER] = s[ORDER]
    s[LAST_CLOCK] = s[CLOCK_MS]


@njit
def _put_out(w: World, instance: int, match: int) -> None:
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


# The side of a step before its condition


@njit
def _add_to_pair(w: World, step: int, instance: int, match: int) -> None:
    own = list_of(w, step, instance, NEW)
    partner = list_of(w, w.plan[step, PARTNER], instance, NEW)
    if w.plan[step, START] == 1 or w.scalars[IS_SEQUENCE] == 1:
        if w.lists[own, SIZE] == 0:
            push(w, own, match)
        if w.lists[partner, SIZE] == 0:
            push(w, partner, match)
    else:
        push(w, own, match)
        push(w, partner, match)


@njit
def _add_one(w: World, step: int, instance: int, match: int) -> None:
    """Let ``match`` wait at a step."""
    kind = w.plan[step, KIND]
    own = list_of(w, step, instance, NEW)
    key = instance * w.scalars[STEPS] + step
    if kind == ABSENT:
        if w.local[key, ACTIVE] == 0:
            return
        if w.scalars[IS_SEQUENCE] == 1:
            clear(w, own)
        push(w, own, match)
        if w.plan[step, START] == 0:
            w.local[key, DUE] = w.matches[match, w.scalars[STEPS]] + w.plan[step, WAITING]
            _schedule(w, step, instance, w.local[key, DUE])
    elif kind == LOGICAL:
        _add_to_pair(w, step, instance, match)
    elif kind == ABSENT_LOGICAL:
        if w.local[key, ACTIVE] == 0:
            return
        _add_to_pair(w, step, instance, match)
        if w.plan[step, START] == 0 and w.plan[step, WAITING] != NEVER:
            time_ms = w.matches[match, w.scalars[STEPS]]
            _schedule(w, step, instance, time_ms + w.plan[step, WAITING])
            partner = w.plan[step, PARTNER]
            if w.plan[partner, KIND] == ABSENT_LOGICAL:
                _schedule(w, partner, instance, time_ms + w.plan[partner, WAITING])
    elif w.scalars[IS_SEQUENCE] == 0 or w.lists[own, SIZE] == 0:
        push(w, own, match)


@njit
def _add_again(w: World, step: int, instance: int, match: int) -> None:
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
    push(w, list_of(w, step, instance, NEW), copy)
    if kind == LOGICAL:
        push(w, list_of(w, w.plan[step, PARTNER], instance, NEW), copy)
    elif kind == ABSENT:
        key = instance * steps + step
        w.local[key, DUE] = w.matches[match, steps] + w.plan[step, WAITING]
        _schedule(w, step, instance, w.local[key, DUE])


@njit
def _add(w: World, step: int, instance: int, match: int) -> None:
    """Let ``match`` wait at a step, and behind it as long as steps need no event."""
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
            _add_again(w, again, instance, match)


@njit
def _begin(w: World, step: int, instance: int) -> None:
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
        _add(w, step, instance, new_match(w))
        w.local[key, INITIALIZED] = 1


@njit
def _goes_on(w: World, step: int, instance: int) -> bool:
    """Whether a sequence without ``every`` is beyond its first step."""
    following = w.plan[step, NEXT]
    return bool(
        w.scalars[IS_SEQUENCE] == 1
        and w.plan[step, EVERY] == NONE
        and following != NONE
        and w.lists[list_of(w, following, instance, PENDING), SIZE] > 0
    )


@njit
def _reset(w: World, step: int, instance: int) -> None:
    """Drop what waits at a step of a sequence; a first step gets an empty match."""
    kind = w.plan[step, KIND]
    own = list_of(w, step, instance, PENDING)
    if kind in (LOGICAL, ABSENT_LOGICAL):
        other = list_of(w, w.plan[step, PARTNER], instance, PENDING)
        if w.plan[step, LOGIC] != OR and w.lists[own, SIZE] != w.lists[other, SIZE]:
            return
        clear(w, other)
    clear(w, own)
    if w.plan[step, START] == 0:
        return
    is_empty = w.lists[list_of(w, step, instance, NEW), SIZE] == 0
    if (is_empty or kind == ABSENT) and not _goes_on(w, step, instance):
        _begin(w, step, instance)


@njit
def _make_ready(w: World, step: int, instance: int) -> None:
    """Let what is new at a step wait for events."""
    kind = w.plan[step, KIND]
    key = instance * w.scalars[STEPS] + step
    if kind == COUNT and w.local[key, RESETS] == 1:
        w.local[key, RESETS] = 0
        _begin(w, step, instance)
    new = list_of(w, step, instance, NEW)
    sort(w, new)
    append(w, list_of(w, step, instance, PENDING), new)
    if kind in (LOGICAL, ABSENT_LOGICAL):
        partner = w.plan[step, PARTNER]
        new = list_of(w, partner, instance, NEW)
        sort(w, new)
        append(w, list_of(w, partner, instance, PENDING), new)


@njit
def _is_over(w: World, match: int, time_ms: int) -> bool:
    """Whether ``within`` drops a partial match at an event of this time."""
    within = w.scalars[WITHIN_MS]
    if within == NEVER:
        return False
    for step in w.starts:
        node = w.matches[match, step]
        if node != NONE and abs(w.nodes[node, TIME] - time_ms) > within:
            return True
    return False


@njit
def _drop_old(w: World, step: int, instance: int, time_ms: int) -> None:
    """Drop what ``within`` drops; of an ``every`` the last of it begins again."""
    steps = w.scalars[STEPS]
    dropped = NONE
    pending = list_of(w, step, instance, PENDING)
    cell = w.lists[pending, HEAD]
    while cell != NONE:
        match = w.cells[cell, 0]
        if not _is_over(w, match, time_ms):
            break
        remove(w, pending, NONE, cell)
        if w.matches[match, steps + 1] == 0:
            w.matches[match, steps + 1] = 1
            dropped = match
        cell = w.lists[pending, HEAD]
    new = list_of(w, step, instance, NEW)
    within = w.scalars[WITHIN_MS]
    may_skip = (
        w.scalars[SKIPS] == 1
        and time_ms - w.lists[new, LOW] <= within
        and w.lists[new, HIGH] - time_ms <= within
    )
    cell = NONE if may_skip else w.lists[new, HEAD]
    before = NONE
    while cell != NONE:
        after = w.cells[cell, 1]
        match = w.cells[cell, 0]
        if _is_over(w, match, time_ms):
            remove(w, new, before, cell)
            if w.matches[match, steps + 1] == 0:
                w.matches[match, steps + 1] = 1
                dropped = match
        else:
            before = cell
        cell = after
    again = w.plan[step, WITHIN_EVERY]
    if dropped != NONE and again != NONE:
        _add_again(w, again, instance, dropped)
        _make_ready(w, again, instance)


# The side of a step behind its condition


@njit
def _hand_on(w: World, step: int, instance: int, match: int) -> None:
    """Send a match that has a step's event to where it goes next."""
    w.flags[step, CHANGED] = 1
    w.matches[match, w.scalars[STEPS]] = w.nodes[w.matches[match, step], TIME]
    if w.plan[step, FINISHES] == 1:
        w.flags[step, RETURNED] = 1
    if w.plan[step, NEXT] != NONE:
        _add(w, w.plan[step, NEXT], instance, match)
    if w.plan[step, EVERY] != NONE:
        _add_again(w, w.plan[step, EVERY], instance, match)
    if w.plan[step, CALLBACK] != NONE:
        w.local[instance * w.scalars[STEPS] + w.plan[step, CALLBACK], RESETS] = 1


@njit
def _count(w: World, step: int, instance: int, match: int) -> None:
    """An event of a step that takes several."""
    head = w.matches[match, step]
    length = w.nodes[head, LENGTH]
    w.flags[step, SUCCESS] = 1
    w.matches[match, w.scalars[STEPS]] = w.nodes[w.nodes[head, TAIL], TIME]
    if length < w.plan[step, LEAST]:
        return
    following, again = w.plan[step, NEXT], w.plan[step, EVERY]
    if w.scalars[IS_SEQUENCE] == 1:
        if following != NONE:
            _add(w, following, instance, match)
        if length != w.plan[step, MOST]:
            _add(w, step, instance, match)
    elif length == w.plan[step, LEAST]:
        if w.plan[step, FINISHES] == 1:
            w.flags[step, CHANGED] = 1
            w.flags[step, RETURNED] = 1
        if following != NONE:
            _add(w, following, instance, match)
        if again != NONE:
            _add_again(w, again, instance, match)
    if length == w.plan[step, MOST]:
        w.flags[step, CHANGED] = 1


@njit
def _absent_lets(w: World, absent: int, instance: int, match: int) -> bool:
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
        _begin(w, absent, instance)
        return False
    return True


@njit
def _behind(w: World, step: int, instance: int, match: int) -> None:
    """What a match does that has passed a step's condition."""
    kind = w.plan[step, KIND]
    if kind == ONE:
        _hand_on(w, step, instance, match)
    elif kind == COUNT:
        _count(w, step, instance, match)
    elif kind == LOGICAL:
        partner = w.plan[step, PARTNER]
        if w.plan[step, LOGIC] == OR:
            _hand_on(w, step, instance, match)
            if w.plan[partner, FINISHES] == 1 and w.plan[step, LAST] == partner:
                w.flags[partner, RETURNED] = 1
        else:
            if w.plan[partner, KIND] == ABSENT_LOGICAL:
                is_met = _absent_lets(w, partner, instance, match)
            else:
                is_met = w.matches[match, partner] != NONE
            if is_met:
                _hand_on(w, step, instance, match)
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
                _add_again(w, step, instance, match)
            w.local[key, DUE] = time_ms + w.plan[step, WAITING]
            _schedule(w, step, instance, w.local[key, DUE])
        else:
            w.local[key, DUE] = time_ms


@njit
def _test(w: World, step: int, instance: int, match: int) -> None:
    w.flags[step, CHANGED] = 0
    if passes(w, step, match):
        _behind(w, step, instance, match)


# An event at a step


@njit
def _is_past(w: World, step: int, match: int) -> bool:
    """Whether a match no longer waits at a step: a step behind a count, or a partner has it."""
    if w.plan[step, KIND] == COUNT:
        steps = w.scalars[STEPS]
        return bool(
            (step + 1 < steps and w.matches[match, step + 1] != NONE)
            or (step + 2 < steps and w.matches[match, step + 2] != NONE)
        )
    partner = w.plan[step, PARTNER]
    return bool(w.plan[step, LOGIC] == OR and w.matches[match, partner] != NONE)


@njit
def _take(w: World, step: int, instance: int, event: int, time_ms: int, comes_out: int) -> None:
    """Give an event to all that waits at a step; ``event`` is -1 if no match can take it."""
    kind = w.plan[step, KIND]
    steps = w.scalars[STEPS]
    is_sequence = w.scalars[IS_SEQUENCE] == 1
    key = instance * steps + step
    last = w.plan[step, LAST]
    partner = w.plan[step, PARTNER]
    pending = list_of(w, step, instance, PENDING)
    if kind in (ABSENT, ABSENT_LOGICAL) and w.local[key, ACTIVE] == 0:
        return
    can_change = is_sequence or kind not in (ONE, ABSENT) or w.flags[last, RETURNED] == 1
    if event == NOTHING and not can_change:
        return
    # Chains of one are never added to, so that all matches may have the same.
    node = NONE
    before = NONE
    cell = w.lists[pending, HEAD]
    while cell != NONE:
        after = w.cells[cell, 1]
        match = w.cells[cell, 0]
        if _is_past(w, step, match):
            remove(w, pending, before, cell)
            cell = after
            continue
        held = w.matches[match, step]
        w.flags[step, SUCCESS] = 0
        w.flags[step, CHANGED] = 0
        if event != NOTHING:
            if kind == COUNT:
                add_event(w, match, step, event, time_ms)
            else:
                if node == NONE:
                    node = new_node(w, event, time_ms)
                w.matches[match, step] = node
            _test(w, step, instance, match)
        if kind == ABSENT_LOGICAL:
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
            if not is_gone:
                before = cell
            cell = after
            continue
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
                    w.local[instance * steps + w.plan[step, CALLBACK], RESETS] = 1
        if is_removed:
            remove(w, pending, before, cell)
        else:
            before = cell
        cell = after
    _put_out_all(w, instance, comes_out == EACH)


@njit
def _put_out_all(w: World, instance: int, is_each: bool) -> None:
    """Write down the matches in the first list, as they are behind the event."""
    cell = w.lists[0, HEAD]
    if cell == NONE:
        return
    is_new = True
    while cell != NONE:
        if is_new or is_each:
            _next_chunk(w)
        is_new = False
        _put_out(w, instance, w.cells[cell, 0])
        cell = w.cells[cell, 1]
    clear(w, 0)


@njit
def _remove_match(w: World, of: int, match: int) -> None:
    before = NONE
    cell = w.lists[of, HEAD]
    while cell != NONE:
        if w.cells[cell, 0] == match:
            remove(w, of, before, cell)
            return
        before = cell
        cell = w.cells[cell, 1]


@njit
def start_instance(w: World, instance: int) -> None:
    """Begin with an instance, at the time of the clock."""
    steps = w.scalars[STEPS]
    for step in range(steps):
        w.local[instance * steps + step, ACTIVE] = 1
        w.local[instance * steps + step, STARTED] = 1
    for step in w.initials:
        _begin(w, step, instance)
    for step in range(steps):
        is_timed = w.plan[step, WAITING] != NEVER and w.plan[step, START] == 1
        if is_timed and w.plan[step, KIND] in (ABSENT, ABSENT_LOGICAL):
            due_ms = w.scalars[CLOCK_MS] + w.plan[step, WAITING]
            if w.plan[step, KIND] == ABSENT:
                w.local[instance * steps + step, DUE] = due_ms
            _schedule(w, step, instance, due_ms)


@njit
def take_event(
    w: World, stream: int, instance: int, time_ms: int, slots: Array, number: int
) -> None:
    """Give event ``number`` of a batch to the steps of its stream.

    ``slots[number, step]`` is where the event's attributes are, or -1 where it can't pass.
    """
    steps = w.scalars[STEPS]
    if w.local[instance * steps, STARTED] == 0:
        start_instance(w, instance)
    if w.scalars[WITHIN_MS] != NEVER:
        for step in range(steps):
            _drop_old(w, step, instance, time_ms)
    if w.scalars[IS_SEQUENCE] == 1:
        for step in w.resets:
            _reset(w, step, instance)
        for step in w.updates:
            _make_ready(w, step, instance)
    else:
        for step in w.readers[stream]:
            if step != NONE:
                _make_ready(w, step, instance)
    # A stream read once hands on each match by itself, one read often those of a step at once.
    comes_out = w.receivers[stream]
    for place in range(w.readers.shape[1] - 1, -1, -1):
        step = w.readers[stream, place]
        if step != NONE:
            _take(w, step, instance, slots[number, step], time_ms, comes_out)


# A timer of an absent event


@njit
def _send(w: World, step: int, instance: int, match: int) -> None:
    """Let a match go on whose event has been absent for its time."""
    steps = w.scalars[STEPS]
    if w.plan[step, FINISHES] == 1:
        _next_chunk(w)
        _put_out(w, instance, match)
    if w.plan[step, NEXT] != NONE:
        _add(w, w.plan[step, NEXT], instance, match)
    if w.plan[step, EVERY] != NONE:
        _add_again(w, w.plan[step, EVERY], instance, match)
    elif w.plan[step, START] == 1:
        w.local[instance * steps + step, ACTIVE] = 0
        partner = w.plan[step, PARTNER]
        if (
            w.plan[step, KIND] == ABSENT_LOGICAL
            and w.plan[step, LOGIC] == OR
            and w.plan[partner, KIND] == ABSENT_LOGICAL
        ):
            w.local[instance * steps + partner, ACTIVE] = 0
    if w.plan[step, CALLBACK] != NONE:
        w.local[instance * steps + w.plan[step, CALLBACK], RESETS] = 1


@njit
def _absent(w: World, step: int, instance: int, time_ms: int) -> None:
    """The time of ``not S for t`` has come."""
    steps = w.scalars[STEPS]
    key = instance * steps + step
    if w.local[key, ACTIVE] == 0:
        return
    waiting = w.plan[step, WAITING]
    pending = list_of(w, step, instance, PENDING)
    new = list_of(w, step, instance, NEW)
    is_sequence = w.scalars[IS_SEQUENCE] == 1
    is_first = w.plan[step, START] == 1 and w.lists[new, SIZE] == 0 and w.lists[pending, SIZE] == 0
    if is_first and is_sequence and w.plan[step, EVERY] == NONE and w.local[key, DUE] > 0:
        is_first = False
    if is_first:
        _add(w, step, instance, new_match(w))
    elif is_sequence and w.lists[new, SIZE] > 0:
        _reset(w, step, instance)
    _make_ready(w, step, instance)
    clear(w, 0)
    again = w.plan[step, WITHIN_EVERY]
    before = NONE
    cell = w.lists[pending, HEAD]
    while cell != NONE:
        after = w.cells[cell, 1]
        match = w.cells[cell, 0]
        own_ms = w.matches[match, steps]
        if _is_over(w, match, time_ms):
            remove(w, pending, before, cell)
            if again != NONE and w.plan[step, EVERY] not in (step, NONE):
                _add_again(w, w.plan[step, EVERY], instance, match)
        elif (own_ms == NEVER and time_ms >= w.local[key, DUE]) or (
            own_ms != NEVER and time_ms >= own_ms + waiting
        ):
            remove(w, pending, before, cell)
            w.matches[match, steps] = time_ms
            push(w, 0, match)
        else:
            before = cell
        cell = after
    if again != NONE:
        _make_ready(w, again, instance)
    is_idle = w.lists[0, SIZE] == 0
    _send_all(w, step, instance)
    if w.scalars[CLOCK_MS] > waiting + time_ms:
        w.local[key, DUE] = w.scalars[CLOCK_MS] + waiting
    if is_idle and w.local[key, DUE] < time_ms:
        w.local[key, DUE] = time_ms + waiting
        _schedule(w, step, instance, w.local[key, DUE])


@njit
def _send_all(w: World, step: int, instance: int) -> None:
    cell = w.lists[0, HEAD]
    while cell != NONE:
        _send(w, step, instance, w.cells[cell, 0])
        cell = w.cells[cell, 1]
    clear(w, 0)


@njit
def _has_waited(w: World, step: int, match: int, time_ms: int) -> bool:
    node = w.matches[match, step]
    since = w.matches[match, w.scalars[STEPS]] if node == NONE else w.nodes[node, TIME]
    return bool(time_ms >= since + w.plan[step, WAITING])


@njit
def _absent_of_pair(w: World, step: int, instance: int, time_ms: int) -> None:
    """The time of an absent event beside another has come."""
    steps = w.scalars[STEPS]
    key = instance * steps + step
    if w.local[key, ACTIVE] == 0:
        return
    waiting = w.plan[step, WAITING]
    partner = w.plan[step, PARTNER]
    is_idle = True
    if time_ms >= w.local[key, DUE] + waiting:
        pending = list_of(w, step, instance, PENDING)
        new = list_of(w, step, instance, NEW)
        is_sequence = w.scalars[IS_SEQUENCE] == 1
        is_empty = w.lists[new, SIZE] == 0 and w.lists[pending, SIZE] == 0
        if w.plan[step, START] == 1 and is_sequence and is_empty:
            _add(w, step, instance, new_match(w))
        elif is_sequence and w.lists[new, SIZE] > 0:
            _reset(w, step, instance)
        _make_ready(w, step, instance)
        clear(w, 0)
        dropped = NONE
        before = NONE
        cell = w.lists[pending, HEAD]
        while cell != NONE:
            after = w.cells[cell, 1]
            match = w.cells[cell, 0]
            if _is_over(w, match, time_ms):
                dropped = match
                remove(w, pending, before, cell)
            elif _has_waited(w, step, match, time_ms):
                remove(w, pending, before, cell)
                is_alone = w.matches[match, partner] == NONE
                if w.plan[step, LOGIC] == OR and is_alone:
                    add_event(w, match, step, NOTHING, NEVER)
                    push(w, 0, match)
                elif w.plan[step, LOGIC] == AND and is_alone:
                    add_event(w, match, step, NOTHING, NEVER)
                elif w.plan[step, LOGIC] == AND:
                    push(w, 0, match)
            else:
                before = cell
            cell = after
        again = w.plan[step, WITHIN_EVERY]
        if dropped != NONE and again != NONE:
            _add_again(w, again, instance, dropped)
            _make_ready(w, again, instance)
        is_idle = w.lists[0, SIZE] == 0
        cell = w.lists[0, HEAD]
        while cell != NONE:
            w.matches[w.cells[cell, 0], steps] = time_ms
            _send(w, step, instance, w.cells[cell, 0])
            cell = w.cells[cell, 1]
        clear(w, 0)
        w.local[key, DUE] = 0
    if w.plan[step, EVERY] != NONE or (is_idle and w.plan[step, START] == 1):
        since = w.scalars[CLOCK_MS] if w.local[key, DUE] == 0 else w.local[key, DUE]
        _schedule(w, step, instance, since + waiting)


@njit
def fire_first(w: World, order: int) -> None:
    """Serve the queue of the task that is due first; ``order`` is its place."""
    key = w.tasks[0, TASK_KEY]
    steps = w.scalars[STEPS]
    step, instance = key % steps, key // steps
    w.scalars[CLOCK_MS] = max(w.scalars[CLOCK_MS], w.tasks[0, TASK_TIME])
    w.scalars[ORDER] = max(order, w.tasks[0, TASK_ORDER])
    w.scalars[CAUSE] = NONE
    w.scalars[FIRED] += 1
    number = w.tasks[0, TASK_NUMBER]
    _pop_task(w)
    cell = w.local[key, QUEUE]
    time_ms = w.cells[cell, 0]
    w.local[key, QUEUE] = w.cells[cell, 1]
    free_cell(w, cell)
    if w.plan[step, KIND] == ABSENT:
        _absent(w, step, instance, time_ms)
    else:
        _absent_of_pair(w, step, instance, time_ms)
    # What was done may have put further times into the queue; those that are due come at once.
    cell = w.local[key, QUEUE]
    if cell == NONE:
        w.local[key, RUNNING] = 0
    elif w.cells[cell, 0] <= w.scalars[CLOCK_MS]:
        _add_task(w, key, w.scalars[CLOCK_MS], number)
    else:
        _wake_at(w, key, w.cells[cell, 0])


@njit
def _has_room(w: World, instance: int) -> bool:
    """Whether there surely is room for what one event or timer of an instance can make."""
    s = w.scalars
    waiting = 0
    base = list_of(w, 0, instance, PENDING)
    for of in range(base, base + 2 * s[STEPS]):
        waiting += w.lists[of, SIZE]
    more = 4 * waiting + 8 * s[STEPS] + 16
    items = 0
    for number in range(len(w.reads)):
        if w.reads[number, 2] == 1:
            items += (waiting + 1) * (s[NODES] + more)
    return bool(
        s[MATCHES] + more <= len(w.matches)
        and s[NODES] + more <= len(w.nodes)
        and s[CELLS] + 2 * more <= len(w.cells)
        and s[TASKS] + more <= len(w.tasks)
        and s[OUTPUTS] + more <= len(w.outputs)
        and s[ITEMS] + items <= len(w.items)
    )


@njit
def run(
    w: World,
    first: int,
    streams: Array,
    instances: Array,
    times_ms: Array,
    clocks_ms: Array,
    orders: Array,
    slots: Array,
    now_ms: int,
    all_clocks_ms: Array,
    first_order: int,
) -> int:
    """Take the events of a batch from number ``first`` on, and the timers up to ``now_ms``.

    ``slots[number, step]`` is where an event's attributes are, -1 where it can't pass the step;
    ``all_clocks_ms`` and ``first_order`` are those of the timeline.

    Returns -1 if all is done, else the event before which more room is needed; the caller makes it
    and calls again.
    """
    count = len(streams)
    at = first
    while True:
        # Timers that come before the event, or before the end of the batch.
        while w.scalars[TASKS] > 0:
            time_ms = w.tasks[0, TASK_TIME]
            if at < count:
                if time_ms > clocks_ms[at] or w.tasks[0, TASK_ORDER] > orders[at]:
                    break
            elif time_ms > now_ms:
                break
            if not _has_room(w, w.tasks[0, TASK_KEY] // w.scalars[STEPS]):
                return at
            fire_first(w, first_order + 2 * _place(all_clocks_ms, time_ms))
        if at == count:
            return -1
        if not _has_room(w, instances[at]):
            return at
        w.scalars[CLOCK_MS] = max(w.scalars[CLOCK_MS], clocks_ms[at])
        w.scalars[ORDER] = orders[at]
        w.scalars[CAUSE] = at
        take_event(w, streams[at], instances[at], times_ms[at], slots, at)
        at += 1


@njit
def _place(clocks_ms: Array, time_ms: int) -> int:
    """The first of rising ``clocks_ms`` that is not before ``time_ms``."""
    low, high = 0, len(clocks_ms)
    while low < high:
        middle = (low + high) // 2
        if clocks_ms[middle] < time_ms:
            low = middle + 1
        else:
            high = middle
    return low
