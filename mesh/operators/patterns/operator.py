"""The operator of a pattern or sequence, with exactly the results of the reference engine.

The state is the memory of the native machine (``native_machine``) and the events of its partial
matches (``events``).  Unreferenced memory is freed when it is more than half of all.  The file is
longer than 400 lines because state, batches and sweeps share the machine.

Absences that are waited for again and again, in gaps of time: see ``operators.gaps``.

The columns of a match that a query reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mesh.functions.objects import FLOAT, INTEGER, to_binary
from mesh.language.syntax import StateKind
from mesh.model.types import AttributeType
from mesh.operators.base import CURRENT, EXPIRED, LOCAL_TIMER, WHOLE, EventBatch, State, no_events
from mesh.operators.expressions import (
    Frame,
    columns_of,
    compile_filter,
    current,
    selected_expressions,
)
from mesh.operators.gaps import later_ms
from mesh.operators.patterns import memory_layout, program, state_codec
from mesh.operators.patterns.conditions import compile_conditions
from mesh.operators.patterns.evaluation import PredicateEvaluator
from mesh.operators.patterns.events import EventStore
from mesh.operators.patterns.layout import PatternBatch, event_rows, lay_out, merge_order
from mesh.operators.patterns.memory_layout import (
    ABSENT,
    ABSENT_LOGICAL,
    AFTER,
    EVERY,
    FIRED,
    HOLDS,
    KIND,
    NEVER,
    NONE,
    QUEUE,
    START,
    STEPS,
    TASK_KEY,
    TASK_NUMBER,
    TASK_TIME,
    TASKS,
    WAITING,
)
from mesh.operators.patterns.native_machine import NativeMachine, empty_memory
from mesh.operators.patterns.nfa import (
    EVENT_CHUNK,
    EVENT_INSTANCE,
    enroll,
    leave_lists,
    start_at_once,
)
from mesh.operators.patterns.state_by_log import MatchLog
from mesh.operators.patterns.state_by_range import RangeState
from mesh.plan.bound import Column, EventIsNull, SomeEvents, walk
from pyspark_nats.arrow import FEW, ArrowArray
from pyspark_nats.few_rows import FewRows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.operators.base import Longs, Timeline
    from mesh.operators.expressions import Key
    from mesh.operators.patterns.memory_layout import Array, PatternMemory
    from mesh.operators.patterns.program import PredicatePrograms
    from mesh.operators.query.handlers import Failures
    from mesh.plan.bound import BoundElement, BoundPattern, BoundQuery


#: Number of unused entries after which memory is swept.
_SPARE = 4096


def counted_steps(element: BoundElement) -> frozenset[int]:
    """The steps that take several events."""
    steps: set[int] = set()
    pending = [element]
    while pending:
        part = pending.pop()
        if isinstance(part, SomeEvents):
            steps.add(part.step)
        for name in ("element", "elements", "left", "right"):
            below = getattr(part, name, ())
            pending.extend(below if isinstance(below, tuple) else (below,))
    return frozenset(steps)


class PatternOperator:
    """The partial matches of one query.

    ``is_partitioned``: instances begin with their first event, not with the first known time.
    """

    def __init__(
        self, query: BoundQuery, pattern: BoundPattern, is_partitioned: bool = False
    ) -> None:
        self._pattern = pattern
        self._streams = query.input_streams
        self._is_partitioned = is_partitioned
        self._layout = lay_out(pattern, self._streams)
        counted = counted_steps(pattern.element)
        programs = compile_conditions(pattern.steps, counted, *self._kinds(pattern))
        self._evaluator = PredicateEvaluator(programs)
        self._may_fail = any(programs.fails)
        self._static = [compile_filter(e) if e is not None else None for e in programs.static]
        self._stream_of = self._layout.plan[:, memory_layout.STREAM]
        self._is_plain = bool((self._layout.plan[:, memory_layout.KIND] == memory_layout.ONE).all())
        schemas = {step.schema.name: step.schema.arrow for step in pattern.steps}
        self._schemas = [schemas[stream] for stream in self._streams]
        self._selected = SelectedColumns(query, counted)
        self.schema = self._selected.schema
        self._events = EventStore(programs, self._event_schemas(programs, schemas), self._streams)
        for row, text in programs.texts:
            programs.rows[row] = (program.WHOLE_NUMBER, self._events.text_number(text), 0, 0)
        self._program = programs.arrays()
        for row, expression in programs.defaults.items():
            step = int(self._program[0][row - 1, 1])
            schema = schemas[pattern.steps[step].schema.name]
            bits = self._events.without_event(row, expression, schema)
            self._program[0][row, 1:3] = bits
        self._layout.plan[:, [memory_layout.PROGRAM, memory_layout.PROGRAM_END]] = programs.bounds
        for column, comparisons in (
            (memory_layout.QUICK, programs.quick),
            (memory_layout.KEY, programs.keys),
        ):
            for step, quick in enumerate(comparisons):
                if quick is not None:
                    values = (quick.operation, *quick.match, *quick.event)
                    self._layout.plan[step, column : column + len(values)] = values
        #: State of patterns of single events: a log of the matches that wait.
        event_schemas = [self._events.schema(number) for number in range(len(self._streams))]
        self._log = MatchLog(self._stream_of, event_schemas) if self._is_plain else None
        #: State of other patterns: the machine's memory.
        self._range_state = RangeState(len(pattern.steps), event_schemas)
        #: The last snapshot, and the events seen and timers fired up to it.
        self._stored: tuple[State, tuple[int, int]] | None = None
        #: Events seen.
        self._seen = 0
        self._is_started = False
        #: After the last sweep.
        self._held_nodes = self._held_events = 0
        self._machine = NativeMachine(self._empty(), self._events, self._evaluator, self._log)
        periods = periods_ms(self._layout.plan)
        #: The shortest time after which an absence is waited for again; None if none is.
        self.period_ms = int(periods[periods > 0].min()) if periods.any() else None
        current().periodic.append(self)

    def _event_schemas(
        self, programs: PredicatePrograms, schemas: Mapping[str, pa.Schema]
    ) -> dict[str, pa.Schema]:
        """By stream, the attributes that conditions read and that matches emit."""
        by_stream = {}
        for number, stream in enumerate(self._streams):
            names = self._selected.attributes(np.flatnonzero(self._stream_of == number))
            for expression in programs.attributes[stream].expressions:
                names |= {column.name for column in columns_of(expression)}
            for predicate in programs.predicates:
                columns = columns_of(predicate.expression)
                names |= {c.name for c in columns if self._stream_of[c.step] == number}
            # A record batch without columns has no length.
            names = names or {schemas[stream].names[0]}
            by_stream[stream] = pa.schema([f for f in schemas[stream] if f.name in names])
        return by_stream

    def _kinds(self, pattern: BoundPattern) -> tuple[frozenset[int], frozenset[int]]:
        """The steps of one event; and the steps that leave a match unchanged if it fails."""
        kinds = self._layout.plan[:, memory_layout.KIND]
        plain = frozenset(np.flatnonzero(kinds == memory_layout.ONE).tolist())
        absent = frozenset(np.flatnonzero(kinds == memory_layout.ABSENT).tolist())
        return plain, frozenset() if pattern.kind is StateKind.SEQUENCE else plain | absent

    def _empty(self) -> PatternMemory:
        return empty_memory(
            self._pattern, self._layout, self._selected.table, self._program, self._events
        )

    def process(
        self, inputs: Sequence[EventBatch], timeline: Timeline, failures: Failures
    ) -> EventBatch:
        """Process events of the pattern's streams, a run for each, in order of first mention.

        Returns the completed matches; ``failures`` receives the events on which a filter failed.
        """
        start_ms = timeline.now_ms
        if len(timeline.clocks_ms):
            start_ms = min(start_ms, int(timeline.clocks_ms[0]))
        if not self._is_started and not self._is_partitioned and start_ms > _UNKNOWN:
            self._begin(start_ms)
        count = sum(len(events) for events in inputs)
        tasks = self._memory.scalars[memory_layout.TASKS]
        if not count and (not tasks or self._memory.tasks[0, 0] > timeline.now_ms):
            return no_events(self.schema)
        merged = merge_order(inputs)
        slots, unmet = self._slots(inputs, merged)
        batch = PatternBatch(
            inputs, merged, event_rows(inputs, merged, self._may_fail), slots, unmet
        )
        self._memory.scalars[memory_layout.LOST_CHUNK] = memory_layout.NONE
        if count:
            self._machine.reserve_instances(int(batch.taken[:, EVENT_INSTANCE].max()) + 1)
        self._seen += count
        if self._is_partitioned and self._is_plain and not self._may_fail:
            # Instances of patterns of single events are independent of one another.
            batch.regroup(len(self._memory.local))
        self._machine.run(batch, timeline)
        if batch.regrouped is not None:
            self._memory.scalars[[memory_layout.CLOCK_MS, memory_layout.ORDER]] = batch.last_place
        if self._memory.scalars[memory_layout.FAILURES]:
            self._report(failures, batch)
        result = self._outputs(batch)
        self._sweep()
        return result

    @property
    def _memory(self) -> PatternMemory:
        return self._machine.memory

    def _begin(self, start_ms: int) -> None:
        """Begin the single instance outside of partitions."""
        self._is_started = True
        self._stored = None
        self._machine.reserve_instances(1)
        if self._memory.scalars[memory_layout.JOURNALS]:
            room = 2 * len(self._pattern.steps)
            self._machine.make_log_room(room, room)
        self._memory.scalars[memory_layout.CLOCK_MS] = start_ms
        start_at_once(self._machine.directory, WHOLE)

    def _slots(
        self, inputs: Sequence[EventBatch], merged: Longs | None
    ) -> tuple[Array, dict[tuple[int, int], str]]:
        """Find slots for events that pass a step's own condition.

        Returns:
            int64[n, steps], the slots of those that pass, ``FAILS`` for those that fail; and the
            reasons of failures, by place among all ``inputs`` and step.
        """
        unmet: dict[tuple[int, int], str] = {}
        steps = len(self._pattern.steps)
        counts = [len(events) for events in inputs]
        starts = np.cumsum([0, *counts])
        passes = np.zeros((int(starts[-1]), steps), dtype=np.bool_)
        frames = [Frame.of_events(events) for events in inputs]
        for step in range(steps):
            number = int(self._stream_of[step])
            if counts[number]:
                part = slice(starts[number], starts[number + 1])
                static = self._static[step]
                frames[number].failures = {}
                passes[part, step] = True if static is None else static(frames[number])
                for row, reason in frames[number].failures.items():
                    unmet[int(starts[number]) + row, step] = reason
        # By column: along rows of a few steps NumPy takes twenty times as long.
        needed: Array = reduce(np.logical_or, passes.T)
        rows, slot_frames = [], []
        for number, events in enumerate(inputs):
            mine = needed[starts[number] : starts[number + 1]]
            some = events.where(mine) if len(events) else events
            rows.append(some.rows)
            slot_frames.append(frames[number] if some is events else Frame.of_events(some))
        # Slots are given in the order of events, rows of a stream are in that order already.
        streams = np.repeat(np.arange(len(counts)), counts)
        places = np.flatnonzero(needed) if merged is None else merged[needed[merged]]
        slot_of = np.full(len(needed), memory_layout.NOTHING, dtype=np.int64)
        slot_of[places] = self._events.add(streams[places], rows, slot_frames)
        self._machine.refresh_events()
        slots: Array = np.where(passes, slot_of[:, None], memory_layout.NOTHING)
        if unmet:
            slots[tuple(np.array(list(unmet)).T)] = memory_layout.FAILS
        return slots if merged is None else slots[merged], unmet

    def _report(self, failures: Failures, batch: PatternBatch) -> None:
        """Report the events on which a filter failed, with all events sent with them."""
        scalars = self._memory.scalars
        starts = np.cumsum([0, *(len(events) for events in batch.inputs)])
        for at, step, why in self._memory.failed[: scalars[memory_layout.FAILURES]].tolist():
            chunks = batch.taken[:, EVENT_CHUNK]
            places = np.flatnonzero(chunks == chunks[at])
            if batch.merged is not None:
                at, places = int(batch.merged[at]), batch.merged[places]
            number = int(self._stream_of[step])
            lost = batch.inputs[number].take(places - starts[number])
            reason = self._reason(why) if why != memory_layout.NONE else batch.failures[at, step]
            failures.entries.append((lost, [reason] * len(lost), self._streams[number]))
        scalars[memory_layout.FAILURES] = 0

    def _reason(self, why: int) -> str:
        """The reason of a failed condition on several events."""
        if why <= memory_layout.PREDICATE_REASON:
            return self._evaluator.reason(why)
        return self._events.reason(why)

    def _outputs(self, batch: PatternBatch) -> EventBatch:
        """The matches that the machine recorded, as events, in the order of their causes."""
        w = self._memory
        count = int(w.scalars[memory_layout.OUTPUTS])
        if not count:
            return no_events(self.schema)
        rows = w.outputs[:count].copy()
        w.scalars[[memory_layout.OUTPUTS, memory_layout.ITEMS]] = 0
        if batch.regrouped is not None:
            rows[:, memory_layout.OUT_CAUSE] = batch.regrouped[rows[:, memory_layout.OUT_CAUSE]]
            rows = rows[np.argsort(rows[:, memory_layout.OUT_CAUSE], kind="stable")]
        cause = rows[:, memory_layout.OUT_CAUSE]
        by_timer = np.equal(cause, memory_layout.NONE)
        paths = np.full(count, LOCAL_TIMER, dtype=np.int64)
        paths[~by_timer] = batch.path[cause[~by_timer]]
        return EventBatch(
            rows[:, memory_layout.OUT_TIME].copy(),
            rows[:, memory_layout.OUT_CLOCK].copy(),
            rows[:, memory_layout.OUT_ORDER].copy(),
            paths,
            rows[:, memory_layout.OUT_CHUNK].copy(),
            np.where(rows[:, memory_layout.OUT_DROPPED] == 1, EXPIRED, CURRENT).astype(np.int8),
            rows[:, memory_layout.OUT_INSTANCE].copy(),
            self._selected.rows(
                rows,
                w.items,
                self._events,
                self._stream_of,
                is_few=any(isinstance(events.rows, FewRows) for events in batch.inputs),
            ),
        )

    def frame(self, matches: EventBatch) -> Frame:
        """The columns of ``matches``, by step, attribute and index."""
        return self._selected.frame(matches)

    def next_time(self) -> int | None:
        """Due time of the first timer."""
        w = self._memory
        return int(w.tasks[0, memory_layout.TASK_TIME]) if w.scalars[memory_layout.TASKS] else None

    def skip(self, to_ms: int) -> None:
        """Pass over a gap of time: see ``operators.gaps``."""
        self._stored = None
        skip(self._memory, to_ms)

    def _sweep(self, always: bool = False) -> None:
        """Forget the entries that no list refers to, when they are more than the others."""
        w = self._memory
        held = int(w.lists[:, memory_layout.SIZE].sum())
        few = 3 * held + _SPARE
        nodes = int(w.scalars[memory_layout.NODES])
        is_full = w.scalars[memory_layout.MATCHES] > few or nodes > 2 * self._held_nodes + _SPARE
        is_full = is_full or self._events.count > 2 * self._held_events + _SPARE
        if not (is_full or always):
            return
        if w.scalars[memory_layout.JOURNALS]:
            self._machine.absorb_log()
        slots, origins = state_codec.compact(w, self._events.count)
        if self._log is None:
            self._range_state.follow(origins)
        self._events.keep(slots)
        self._held_nodes = int(w.scalars[memory_layout.NODES])
        self._held_events = len(slots)
        self._machine.refresh_events()
        if (self._layout.plan[:, memory_layout.KEY] != memory_layout.NONE).any():
            self._machine.prepare()

    def forget(self, instances: Longs) -> None:
        """Reset these instances to the initial state."""
        self._stored = None
        w = self._memory
        if w.scalars[memory_layout.JOURNALS]:
            lists = state_codec.lists_of(state_codec.keys_of(w, instances))
            self._machine.make_log_room(0, int(w.lists[lists, memory_layout.SIZE].sum()))
            leave_lists(self._machine.directory, lists)
        state_codec.forget(self._memory, instances)
        self._machine.prepare()

    def snapshot(self) -> State:
        """Partial matches, timers, and the events that they refer to."""
        at = (self._seen, int(self._memory.scalars[memory_layout.FIRED]))
        if self._stored is None or self._stored[1] != at:
            state = self._memory_state() if self._log is None else self._logged_state(self._log)
            self._stored = state, at
        return self._stored[0]

    def _logged_state(self, log: MatchLog) -> State:
        """The state as a log of the matches that wait."""
        if not self._memory.scalars[memory_layout.JOURNALS]:
            self._sweep(always=True)
            self._machine.make_log_room(int(self._memory.scalars[memory_layout.CELLS]), 0)
            enroll(self._machine.directory)
        self._machine.absorb_log()
        pieces, scalars = log.snapshot(self._memory)
        machine = self._memory.scalars[list(state_codec.STATE_SCALARS)].tolist()
        progress = {"seen": self._seen, "started": self._is_started, "given": self._events.total}
        return State(pieces, {**scalars, **progress, "machine": machine})

    def _memory_state(self) -> State:
        """The state as the machine's memory."""
        self._sweep(always=True)
        pieces, scalars = self._range_state.snapshot(self._memory, self._events)
        return State(pieces, {**scalars, "seen": self._seen, "started": self._is_started})

    def restore(self, state: State) -> None:
        """Restore partial matches and timers."""
        scalars = state.scalars
        self._seen, self._is_started = scalars["seen"], scalars["started"]
        self._stored = None
        if self._log is None:
            self._put(self._range_state.restore(self._empty(), state.pieces, scalars, self._events))
        else:
            self._events.total = scalars["given"]
            empty = self._empty()
            empty.scalars[list(state_codec.STATE_SCALARS)] = scalars["machine"]
            self._put(self._log.restore(empty, state.pieces, scalars, self._events))

    def _put(self, stored: PatternMemory) -> None:
        """Continue with restored memory; its events have their slots."""
        self._machine.reset(stored)
        self._machine.prepare()


_UNKNOWN = int(np.iinfo(np.int64).min)


def periods_ms(plan: Array) -> Array:
    """By step, the time after which it waits for an absence again; 0 where it doesn't."""
    absent = np.isin(plan[:, KIND], [ABSENT, ABSENT_LOGICAL]) & (plan[:, WAITING] != NEVER)
    again = (plan[:, START] == 1) | (plan[:, EVERY] != NONE)
    return np.where(absent & again, plan[:, WAITING], 0)


def skip(w: PatternMemory, to_ms: int) -> None:
    """Move timers of such steps that are due before ``to_ms`` up to it or after it."""
    periods = periods_ms(w.plan)
    tasks = w.tasks[: w.scalars[TASKS]]
    steps = int(w.scalars[STEPS])
    due = np.flatnonzero(tasks[:, TASK_TIME] < to_ms)
    for at in due[periods[tasks[due, TASK_KEY] % steps] > 0].tolist():
        key = int(tasks[at, TASK_KEY])
        period = int(periods[key % steps])
        cell = int(w.local[key, QUEUE])
        while cell != NONE:
            w.cells[cell, HOLDS] = later_ms(int(w.cells[cell, HOLDS]), period, to_ms)
            cell = int(w.cells[cell, AFTER])
        tasks[at, TASK_TIME] = later_ms(int(tasks[at, TASK_TIME]), period, to_ms)
    if len(due):
        # A sorted list is a heap.
        tasks[:] = tasks[np.lexsort((tasks[:, TASK_NUMBER], tasks[:, TASK_TIME]))]
        w.scalars[FIRED] += 1


#: A table without columns still has as many rows.
_ROWS = "#"


@dataclass(frozen=True, slots=True)
class _Read:
    """A column of a match: an attribute of one event, a list of those of all, or a missing event.

    ``number``: that of the machine's read that supplies it.
    """

    name: str
    number: int
    key: Key | None
    type: AttributeType
    is_list: bool = False


class SelectedColumns:
    """All reads of ``query`` of a match; ``counted``: the steps that take several events.

    ``table``: int64[n, 3], the machine's record of a match (``PatternMemory.reads``).
    ``schema``: of the columns.
    """

    def __init__(self, query: BoundQuery, counted: frozenset[int]) -> None:
        numbers: dict[tuple[int, int, int], int] = {}
        columns: dict[str, _Read] = {}
        for expression in selected_expressions(query):
            for part in walk(expression):
                if isinstance(part, Column) and part.step >= 0:
                    is_list = (
                        part.type is AttributeType.OBJECT
                        and part.step in counted
                        and part.index is None
                    )
                    index = -1 if part.index is None else part.index
                    read = numbers.setdefault((part.step, index, int(is_list)), len(numbers))
                    mark = "" if part.index is None else f"[{part.index}]"
                    name = f"{part.step}{mark}.{part.name}"
                    key: Key = (part.step, part.name)
                    if part.index is not None:
                        key = (part.step, part.name, part.index)
                    columns[name] = _Read(name, read, key, part.type, is_list)
                elif isinstance(part, EventIsNull) and part.step is not None:
                    index = -1 if part.index is None else part.index
                    read = numbers.setdefault((part.step, index, 0), len(numbers))
                    name = f"{part.step}?" if part.index is None else f"{part.step}[{part.index}]?"
                    columns[name] = _Read(name, read, None, AttributeType.BOOL)
        self._columns = list(columns.values())
        #: Whether each column is an attribute of one event, and no object.
        self._is_plain = all(
            c.key is not None and not c.is_list and c.type is not AttributeType.OBJECT
            for c in self._columns
        )
        self.table: Array = np.array(list(numbers), dtype=np.int64).reshape(len(numbers), 3)
        self.schema = pa.schema(
            [pa.field(_ROWS, pa.int8()), *(pa.field(c.name, c.type.arrow) for c in self._columns)]
        )

    def attributes(self, steps: Longs) -> set[str]:
        """The attributes that are read of the events of ``steps``."""
        keys = (column.key for column in self._columns if column.key is not None)
        return {key[1] for key in keys if key[0] in steps}

    def rows(
        self,
        matches: Array,
        items: Array,
        events: EventStore,
        stream_of: Longs,
        *,
        is_few: bool = False,
    ) -> pa.RecordBatch:
        """The columns of matches that the machine wrote down.

        Args:
            matches: n rows of ``memory_layout.PatternMemory.outputs``.
            items: the slots of lists of events.
            events: the content of the slots.
            stream_of: by step, the number of its stream.
            is_few: whether lists of values are taken.
        """
        if is_few and len(matches) <= FEW and self._is_plain:
            lists: dict[str, list[Any]] = {_ROWS: [0] * len(matches)}
            for column in self._columns:
                assert column.key is not None, "asked before"
                slots = matches[:, memory_layout.OUT_COLUMNS + 2 * column.number]
                stream, name = int(stream_of[column.key[0]]), column.key[1]
                lists[column.name] = events.few_values(stream, name, slots)
            return FewRows(self.schema, lists, len(matches))
        arrays: list[ArrowArray] = [pa.array(np.zeros(len(matches), dtype=np.int8))]
        arrays += [self._column(c, matches, items, events, stream_of) for c in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(
        self, column: _Read, matches: Array, items: Array, events: EventStore, stream_of: Longs
    ) -> ArrowArray:
        at = memory_layout.OUT_COLUMNS + 2 * column.number
        if column.key is None:
            missing: ArrowArray = pa.array(matches[:, at + 1] == 1)
            return missing
        stream = int(stream_of[column.key[0]])
        if not column.is_list:
            return events.column(stream, column.key[1], np.ascontiguousarray(matches[:, at]))
        starts, lengths = matches[:, at], matches[:, at + 1] - matches[:, at]
        ends = np.cumsum(lengths)
        places = np.arange(int(lengths.sum())) - np.repeat(ends - lengths - starts, lengths)
        values = _objects(events.column(stream, column.key[1], items[places]))
        first = (ends - lengths).tolist()
        return to_binary([values[a:b] for a, b in zip(first, ends.tolist(), strict=True)])

    def frame(self, matches: EventBatch) -> Frame:
        """The columns of ``matches``, by step, attribute and index."""
        rows = matches.rows
        column_of = rows.lists.__getitem__ if isinstance(rows, FewRows) else rows.column
        arrays = {c.key: column_of(c.name) for c in self._columns if c.key is not None}
        frame = Frame(len(matches), arrays)
        for column in self._columns:
            if column.key is None:
                step, index = self.table[column.number, :2].tolist()
                has_index = column.name.endswith("]?")
                missing = matches.rows.column(column.name).to_numpy(zero_copy_only=False)
                frame.add_missing(step, missing, index if has_index else None)
        return frame


def _objects(values: ArrowArray) -> list[object]:
    """A column as the values that objects are."""
    items = values.to_pylist()
    if values.type == pa.int32():
        return [None if item is None else INTEGER(item) for item in items]
    if values.type == pa.float32():
        return [None if item is None else FLOAT(item) for item in items]
    return items
