"""The native machine and its memory, which grows at the machine's request.

The machine stops for two reasons: it needs room, or it needs answers to predicates that only Python
can compute.  For answers a run is repeated.  First it runs on a copy of the memory, where
predicates without an answer count as False, to collect as many requests as possible.  Once they are
answered, it runs on the memory itself, up to the first event that lacks an answer.  So the number
of evaluations is a small part of the number of events, for any answers.

The machine's initial memory: its tables, and a little room for everything else.

``empty_memory`` is longer than 60 lines because it is a table: one array for each field.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from mesh.language.syntax import StateKind
from mesh.operators.patterns import memory_layout, program
from mesh.operators.patterns.matches import add_requests, link_requests
from mesh.operators.patterns.memory_layout import PatternMemory, TableDirectory
from mesh.operators.patterns.nfa import STOPPED, prepare_all, run
from mesh.operators.select import hashing

if TYPE_CHECKING:
    from mesh.operators.base import Timeline
    from mesh.operators.patterns.evaluation import PredicateEvaluator
    from mesh.operators.patterns.events import EventStore
    from mesh.operators.patterns.layout import PatternBatch, PatternLayout
    from mesh.operators.patterns.memory_layout import Array
    from mesh.operators.patterns.state_by_log import MatchLog
    from mesh.plan.bound import BoundPattern


#: Room of the log, at least: a batch seldom fills it.
_LOG_ROOM: Final = 1 << 16
#: Rows of memory that are few.
_LITTLE: Final = 1 << 14
#: Room for requests, at least.
_FEW_REQUESTS: Final = 1 << 10
#: Unanswered requests that end a run: some megabytes of columns.
_MOST_REQUESTS: Final = 1 << 16
#: Answers that are kept at most, as long as a batch is processed.
_MOST_ANSWERS: Final = 1 << 20
#: Requests that a match makes at first before it is left alone until they are answered.
_FIRST_LOOK: Final = 8
#: A run that gets less far is followed by one that reads ahead.
_FAR: Final = 64
#: Number of events that are first searched for requests.
_FIRST_REACH: Final = 1 << 12

#: The variables of the machine, except for requests.
_CHANGED: Final = (
    "scalars", "flags", "matches", "nodes", "cells", "lists", "buckets", "hashes", "local",
    "tasks", "outputs", "items", "failed", "entries", "entered", "left", "ready",
)  # fmt: skip


class NativeMachine:
    """The machine of one pattern.

    ``memory``: its memory; ``log``: the log of its matches, if any.
    """

    def __init__(
        self,
        memory: PatternMemory,
        events: EventStore,
        evaluator: PredicateEvaluator,
        log: MatchLog | None,
    ) -> None:
        self._events = events
        self._evaluator = evaluator
        self._log = log
        self._has_lists = bool(memory.reads[:, 2].any())
        self._directory = TableDirectory()
        #: Whether the memory is a copy that may be thrown away.
        self._is_trial = False
        self.memory = memory
        self.reset(memory)

    def reset(self, memory: PatternMemory) -> None:
        """Continue with another memory; its events have their slots."""
        self.memory = memory
        if self._evaluator.most:
            memory.scalars[memory_layout.PREDICATES] = self._evaluator.most
            memory.scalars[memory_layout.MOST_REQUESTS] = np.iinfo(np.int64).max
            self.memory = memory._replace(
                references=self._evaluator.references,
                request_counts=np.zeros(len(memory.matches), dtype=np.int64),
            )
            self._forget_requests()
        self.refresh_events()

    @property
    def directory(self) -> Array:
        """The address by which native functions find the memory."""
        return self._directory.of(self.memory)

    def refresh_events(self) -> None:
        """Update the attributes of events, after their slots have changed."""
        store = self._events
        self.memory = self.memory._replace(
            values=store.values, floats=store.values.view(np.float64), nulls=store.nulls
        )

    def prepare(self) -> None:
        """Recompute the parts that are not state."""
        prepare_all(self.directory)

    def run(self, batch: PatternBatch, timeline: Timeline) -> None:
        """Process the events of a batch, and the timers up to the end of the timeline."""
        if not self._evaluator.most:
            self._run(batch, timeline, 0, len(batch))
            return
        self._forget_requests()
        at = 0
        look, reach = _FIRST_LOOK, _FIRST_REACH
        while at >= 0:
            last = min(at + reach, len(batch))
            before = {name: getattr(self.memory, name).copy() for name in _CHANGED}
            reached, unanswered = self._try(batch, timeline, at, last, look)
            if unanswered == memory_layout.NONE:
                at = reached
                continue
            requests = self.memory.scalars[memory_layout.REQUESTS]
            self.memory = self.memory._replace(
                **before, request_counts=np.zeros(len(before["matches"]), dtype=np.int64)
            )
            self.memory.scalars[memory_layout.REQUESTS] = requests
            if unanswered > at:
                self._run(batch, timeline, at, unanswered)
            if unanswered - at < _FAR:
                self._read_ahead(batch, unanswered, min(unanswered + reach, len(batch)))
            self._evaluator.answer(self.memory, self._events, batch.taken)
            look = 2 * look
            if unanswered > at and self.memory.scalars[memory_layout.REQUESTS] > _MOST_ANSWERS:
                self._forget_requests()
            # Short ways are no reason to try long ones.
            reach = max(_FAR, min(2 * reach, 16 * (unanswered - at)))
            at = unanswered

    def _try(
        self, batch: PatternBatch, timeline: Timeline, first: int, last: int, look: int
    ) -> tuple[int, int]:
        """Run without the answers that are missing.

        Returns:
            The event before which the run ended, -1 after all; and the first event that lacks an
            answer, ``NONE`` where all was as it should be.
        """
        scalars = self.memory.scalars
        answered = scalars[memory_layout.REQUESTS]
        scalars[[memory_layout.LOOKAHEAD, memory_layout.MOST_REQUESTS]] = (
            look,
            answered + _MOST_REQUESTS,
        )
        scalars[memory_layout.FIRST_UNANSWERED] = memory_layout.NONE
        self._is_trial = True
        reached = self._run(batch, timeline, first, last)
        self._is_trial = False
        return reached, int(self.memory.scalars[memory_layout.FIRST_UNANSWERED])

    def _run(self, batch: PatternBatch, timeline: Timeline, first: int, last: int) -> int:
        """Run up to event ``last``; the event before which the run ended, -1 after all."""
        at = first
        while True:
            at = run(
                self.directory, at, last, batch.taken, batch.slots, timeline.now_ms,
                timeline.clocks_ms, 2 * timeline.first,
            )  # fmt: skip
            if at < 0:
                return -1 if at > STOPPED else STOPPED - at
            self._grow()

    def _forget_requests(self) -> None:
        self.memory.scalars[memory_layout.REQUESTS] = 0
        self.memory.scalars[memory_layout.FIRST_UNANSWERED] = memory_layout.NONE
        self._evaluator.forget()
        requests = np.zeros((_FEW_REQUESTS, self._evaluator.columns), dtype=np.int64)
        self.memory = self.memory._replace(requests=requests)
        self._link_requests()

    def _link_requests(self) -> None:
        room = 1 << len(self.memory.requests).bit_length()
        heads = np.full(room, memory_layout.NONE, dtype=np.int64)
        self.memory = self.memory._replace(request_heads=heads)
        link_requests(self.directory, self._evaluator.widths)

    def _read_ahead(self, batch: PatternBatch, first: int, last: int) -> None:
        """Make requests for pairs of events that the machine may need."""
        for number, width in enumerate(self._evaluator.widths.tolist()):
            rows = self._evaluator.pairs_ahead(
                number, self.memory, batch.taken, batch.slots, first, last
            )
            if rows is not None:
                self._reserve_requests(len(rows))
                add_requests(self.directory, rows, width)

    def _reserve_requests(self, more: int) -> None:
        """Make room for that many further requests."""
        w = self.memory
        w.scalars[memory_layout.NEED_REQUESTS] = 0
        needed = int(w.scalars[memory_layout.REQUESTS]) + more + 1
        if needed > len(w.requests):
            room = np.zeros((2 * needed - len(w.requests), w.requests.shape[1]), dtype=np.int64)
            self.memory = w._replace(requests=np.concatenate([w.requests, room]))
            self._link_requests()

    def reserve_instances(self, count: int) -> None:
        """Make room for that many instances."""
        w = self.memory
        steps = int(w.scalars[memory_layout.STEPS])
        have = len(w.local) // steps
        if count <= have:
            return
        more = max(count, 2 * have) - have
        local = np.zeros((more * steps, memory_layout.LOCAL_COLUMNS), dtype=np.int64)
        local[:, [memory_layout.QUEUE, memory_layout.QUEUE_END]] = memory_layout.NONE
        lists = np.full(
            (2 * more * steps, memory_layout.LIST_COLUMNS), memory_layout.NONE, dtype=np.int64
        )
        lists[:, memory_layout.SIZE] = 0
        self.memory = w._replace(
            local=np.concatenate([w.local, local]),
            lists=np.concatenate([w.lists, lists]),
            ready=np.concatenate([w.ready, np.zeros(more * steps, dtype=np.int64)]),
        )

    def _grow(self) -> None:
        """Make room for more of everything."""
        w = self.memory
        if w.scalars[memory_layout.NEED_REQUESTS]:
            self._reserve_requests(int(w.scalars[memory_layout.NEED_REQUESTS]))
            return
        required = w.scalars[[memory_layout.NEED_ENTERED, memory_layout.NEED_LEFT]].tolist()
        if any(required):
            if self._is_trial:
                # The journal of a trial may be void: it is not absorbed.
                w.scalars[[memory_layout.NEED_ENTERED, memory_layout.NEED_LEFT]] = 0
                entered = np.zeros(
                    (max(required[0], _LOG_ROOM), memory_layout.ENTERED_COLUMNS), np.int64
                )
                left = np.zeros(max(required[1], _LOG_ROOM), dtype=np.int64)
                self.memory = w._replace(
                    entered=np.concatenate([w.entered, entered]),
                    left=np.concatenate([w.left, left]),
                )
            else:
                self.make_log_room(*required)
            return
        buckets = _larger(w.buckets)
        self.memory = w._replace(
            matches=_larger(w.matches),
            nodes=_larger(w.nodes),
            cells=_larger(w.cells),
            entries=_larger(w.entries),
            tasks=_larger(w.tasks),
            outputs=_larger(w.outputs),
            items=_larger(w.items) if self._has_lists else w.items,
            failed=_larger(w.failed),
            buckets=buckets,
            hashes=np.zeros(2 * len(buckets), dtype=np.int64),
            request_counts=_larger(w.request_counts),
        )
        self.prepare()

    def make_log_room(self, entered: int, left: int) -> None:
        """Make room in the log for that many matches that enter and leave."""
        self.absorb_log()
        w = self.memory
        w.scalars[[memory_layout.NEED_ENTERED, memory_layout.NEED_LEFT]] = 0
        if entered > len(w.entered):
            size = max(2 * entered, _LOG_ROOM)
            room = np.zeros((size, memory_layout.ENTERED_COLUMNS), dtype=np.int64)
            self.memory = self.memory._replace(entered=room)
        if left > len(w.left):
            self.memory = self.memory._replace(
                left=np.zeros(max(2 * left, _LOG_ROOM), dtype=np.int64)
            )

    def absorb_log(self) -> None:
        """Pass the machine's log on to its store."""
        assert self._log is not None, "others write no log"
        self._log.absorb(self.memory, self._events)


def _larger(array: Array) -> Array:
    """A copy with more room, in rows of zeros: twice as much, or a minimum if that is more."""
    times = 3 if len(array) < _LITTLE else 1
    room = np.zeros((times * len(array), *array.shape[1:]), dtype=np.int64)
    return np.concatenate([array, room])


def empty_memory(
    pattern: BoundPattern,
    layout: PatternLayout,
    reads: Array,
    conditions: tuple[Array, Array],
    events: EventStore,
) -> PatternMemory:
    """The empty memory of a pattern.

    Args:
        pattern: the pattern.
        layout: its tables.
        reads: the query's reads of a match (``SelectedColumns.table``).
        conditions: the program, as whole numbers and as doubles.
        events: the content of the slots of events.
    """
    steps = len(pattern.steps)
    scalars = np.zeros(memory_layout.SCALARS, dtype=np.int64)
    scalars[memory_layout.IS_SEQUENCE] = pattern.kind is StateKind.SEQUENCE
    within = pattern.within_ms
    scalars[memory_layout.WITHIN_MS] = memory_layout.NEVER if within is None else within
    scalars[memory_layout.STEPS] = steps
    scalars[[memory_layout.FREE_CELL, memory_layout.FIRST_UNANSWERED]] = memory_layout.NONE
    scalars[memory_layout.SKIPS] = layout.is_bounded
    scalars[memory_layout.READERS] = layout.readers.shape[1]
    timed = (memory_layout.ABSENT, memory_layout.ABSENT_LOGICAL)
    scalars[memory_layout.IS_TIMED] = np.isin(layout.plan[:, memory_layout.KIND], timed).any()
    scalars[[memory_layout.LAST_ORDER, memory_layout.LAST_CLOCK]] = memory_layout.NEVER
    scalars[memory_layout.CLOCK_MS] = np.iinfo(np.int64).min
    scalars[memory_layout.SERIAL] = 1
    scalars[memory_layout.SEED] = hashing.SEED.astype(np.int64)
    stack = np.zeros(program.STACK_SIZE, dtype=np.int64)
    lists = np.full(
        (memory_layout.SCRATCH, memory_layout.LIST_COLUMNS), memory_layout.NONE, dtype=np.int64
    )
    lists[:, memory_layout.SIZE] = 0
    return PatternMemory(
        plan=layout.plan,
        starts=layout.starts,
        initials=layout.initials,
        resets=layout.resets,
        updates=layout.updates,
        readers=layout.readers,
        receivers=layout.receivers,
        reads=reads,
        program=conditions[0],
        program_floats=conditions[1],
        scalars=scalars,
        flags=np.zeros((steps, memory_layout.FLAG_COLUMNS), dtype=np.int64),
        matches=np.zeros((256, steps + 2), dtype=np.int64),
        nodes=np.zeros((256, memory_layout.NODE_COLUMNS), dtype=np.int64),
        cells=np.zeros((512, memory_layout.CELL_COLUMNS), dtype=np.int64),
        lists=lists,
        buckets=np.zeros((256, memory_layout.BUCKET_COLUMNS), dtype=np.int64),
        hashes=np.full(512, memory_layout.NONE, dtype=np.int64),
        local=np.zeros((0, memory_layout.LOCAL_COLUMNS), dtype=np.int64),
        tasks=np.zeros((256, memory_layout.TASK_COLUMNS), dtype=np.int64),
        values=events.values,
        floats=events.values.view(np.float64),
        nulls=events.nulls,
        stack=stack,
        stack_floats=stack.view(np.float64),
        stack_nulls=np.zeros(program.STACK_SIZE, dtype=np.int64),
        path=np.zeros(steps + 1, dtype=np.int64),
        outputs=np.zeros((256, memory_layout.OUT_COLUMNS + 2 * len(reads)), dtype=np.int64),
        items=np.zeros(256, dtype=np.int64),
        failed=np.zeros((256, memory_layout.FAILED_COLUMNS), dtype=np.int64),
        entries=np.zeros(512, dtype=np.int64),
        entered=np.zeros((0, memory_layout.ENTERED_COLUMNS), dtype=np.int64),
        left=np.zeros(0, dtype=np.int64),
        ready=np.zeros(0, dtype=np.int64),
        references=np.zeros((0, 2), dtype=np.int64),
        requests=np.zeros((0, 1), dtype=np.int64),
        request_heads=np.zeros(0, dtype=np.int64),
        request_counts=np.zeros(0, dtype=np.int64),
    )
