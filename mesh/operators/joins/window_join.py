"""Join of two windows that hold the rows they emit: see ``WindowKind.holds_what_it_emits``.

Both windows process the whole run, and one native loop follows their output; see ``join_loop``.
Equalities of the condition select pairs by key; the rest is evaluated for many pairs at once.

Source: observed on Siddhi 5.1.7, live; tests/cases/conformance/joins.jsonl.

Pairs of a window join as columns: the place of the event that found the pair, and both rows.

A pair is (event, row): the event's number among all that the loop processed, and the row that it
found on the other side, or ``NIL`` for an event that is emitted alone.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from mesh.language.syntax import EventKind, JoinSide
from mesh.operators.base import (
    CURRENT,
    EXPIRED,
    LOCAL_TIMER,
    NIL,
    RESET,
    EventBatch,
    Longs,
    State,
    namespaced,
    subset,
)
from mesh.operators.expressions import Frame, compile_filter, conjunction
from mesh.operators.joins import join_loop as m
from mesh.operators.joins.input import ROW, TIME, NumberedJoinInput, joined_events
from mesh.operators.joins.join_loop import (
    E_CLOCK,
    E_ID,
    E_INSTANCE,
    E_KIND,
    E_ORDER,
    E_PATH,
    E_TIME,
)
from mesh.operators.joins.row_lists import RowLists, split
from mesh.operators.native import BYTE1, LONG1, LONG2, native, types
from mesh.operators.select.aggregates import is_safe
from mesh.operators.total_order import (
    cause_begins,
    instance_chunk_begins,
    is_same_cause,
    run_begins,
    run_starts,
)
from mesh.plan.bound import has_aggregate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.functions.vectors import Mask
    from mesh.operators.base import Timeline
    from mesh.operators.query.handlers import Failures
    from mesh.operators.state.row_store import RowStore
    from mesh.operators.windows import WindowKind
    from mesh.plan.bound import BoundJoin, BoundQuery
    from pyspark_nats.arrow import ArrowArray


#: Pairs that are evaluated together.
_PAIRS = 1 << 18
_NO_PAIRS = np.empty((0, 2), dtype=np.int64)
_ROW_SCHEMA = pa.schema([pa.field(ROW, pa.int64())])
#: The events that pairs refer to: side and index of each, and the events of both sides.
Run = tuple[Longs, Longs, Longs]

# mypy: disable-error-code="no-untyped-def,no-untyped-call"


#: Rows of the output of ``place``: rows of both sides, and the place of the event.
P_LEFT, P_RIGHT, P_TIME, P_CLOCK, P_ORDER, P_PATH, P_CHUNK, P_INSTANCE = range(8)
PAIR_ROWS = 8


class WindowJoin:
    """``from A#window.x(..) join B#window.y(..) on ..``, keyed by partition instance."""

    def __init__(self, query: BoundQuery, source: BoundJoin, timer_path: int) -> None:
        self._timer_path = timer_path
        self.sides = (
            NumberedJoinInput(query, source.left, 0, timer_path),
            NumberedJoinInput(query, source.right, 1, timer_path),
        )
        self._is_self = source.left.schema.name == source.right.schema.name
        self._outer = np.array(joined_events(source))
        equal, rest = split(source.on)
        self._rest = compile_filter(conjunction(rest)) if rest else None
        # Timers of both sides may be due at one instant.
        self._has_ties = all(side.kind is not None and side.kind.has_timers for side in self.sides)
        self._triggers = (
            source.trigger is not JoinSide.RIGHT,
            source.trigger is not JoinSide.LEFT,
        )
        self._rows = RowLists(
            self.sides,
            equal,
            self._triggers,
            timer_path,
            only_current=_only_current(query, source),
        )
        self._pairs = np.empty((_PAIRS, 2), dtype=np.int64)
        #: Events that arrived on both sides, as far as it matters.
        self._came = 0
        #: (order, clock, path) of the last emitted event, and the number of its chunk.
        self._last = np.full(4, -1, dtype=np.int64)

    # Events

    def process(
        self, inputs: Sequence[EventBatch], timeline: Timeline, failures: Failures
    ) -> tuple[EventBatch, Frame]:
        """Find the pairs of the events of both sides, and of the timers.

        Args:
            inputs: left and right, each in order; of a join with itself both are the same.
            timeline: as of any operator.
            failures: receives the events that failed.

        Returns:
            The pairs, each with time, kind and place of the event that found it, and a chunk for
            each such event; and their frame, where the step is the side.
        """
        coming = []
        for side, events in zip(self.sides, inputs, strict=True):
            batch = _one_by_one(events) if self._is_self else events
            coming.append(side.handle(batch, timeline, failures))
        outputs = [
            self._enter(side, events, ranks, timeline)
            for side, events, ranks in zip(self.sides, coming, self._ranks(coming), strict=True)
        ]
        if not any(len(events) for events in outputs):
            return self._result([], None)
        columns = [self._columns(events) for events in outputs]
        origin = np.empty((len(columns[0]) + len(columns[1]), 3), dtype=np.int64)
        run = (origin, columns[0], columns[1])
        alone = self._alone(outputs)
        rows = self._rows
        meta = rows.meta
        meta[[m.M_LEFT, m.M_RIGHT, m.M_DONE, m.M_NEED]] = 0
        meta[m.M_PLAYBACK] = timeline.playback
        parts: list[Longs] = []
        failed: dict[int, str] = {}
        while meta[m.M_LEFT] < len(columns[0]) or meta[m.M_RIGHT] < len(columns[1]):
            first = int(meta[m.M_DONE])
            if parts or meta[m.M_NEED] > len(self._pairs):
                # Rows found before are still in it.
                room = max(int(meta[m.M_NEED]), len(self._pairs))
                self._pairs = np.empty((room, 2), dtype=np.int64)
            meta[[m.M_PAIRS, m.M_NEED]] = 0
            m.join_loop(
                columns[0], columns[1], rows.node, rows.lists, rows.registers, meta, origin,
                self._pairs,
            )  # fmt: skip
            pairs = self._pairs[: meta[m.M_PAIRS]]
            parts.append(self._matching(first, run, alone, pairs, failed))
        if failed:
            self._report_failures(failed, origin, coming, outputs, failures)
        result = self._result(parts, run)
        rows.sweep()
        return result

    def _ranks(self, coming: Sequence[EventBatch]) -> list[Longs]:
        """By side, each event's number among all that ever arrived; 0 if timers need no order."""
        left, right = coming
        if not self._has_ties:
            return [np.zeros(len(left), dtype=np.int64), np.zeros(len(right), dtype=np.int64)]
        count = len(left) + len(right)
        keys = [
            np.concatenate([getattr(left, name), getattr(right, name)])
            for name in ("chunk", "path", "clock_ms", "order")
        ]
        ranks = np.empty(count, dtype=np.int64)
        ranks[np.lexsort(keys)] = np.arange(self._came, self._came + count)
        self._came += count
        return [ranks[: len(left)], ranks[len(left) :]]

    def _enter(
        self, side: NumberedJoinInput, events: EventBatch, ranks: Longs, timeline: Timeline
    ) -> EventBatch:
        """The output of the window of ``side``, as row numbers."""
        numbers = side.keep(events)
        if len(events):
            self._rows.add(side, events, numbers, ranks)
        output = side.pass_window(events, numbers, timeline)
        return output if side.kind is None else self._reset_times(side, side.kind, output)

    def _reset_times(
        self, side: NumberedJoinInput, kind: WindowKind, events: EventBatch
    ) -> EventBatch:
        """Give resets the time of the first event of their batch, as in the engine."""
        at = np.flatnonzero(events.kind == RESET)
        if not len(at) or not kind.resets_at_batch_time:
            return events
        times = events.time_ms.copy()
        if kind.is_periodic and len(side.arguments) < 2:
            # The batch follows its reset.
            at = at[at + 1 < len(events)]
            times[at] = events.time_ms[at + 1]
            return replace(events, time_ms=times)
        starts = run_starts(instance_chunk_begins(events))[at]
        # The expired batch precedes the reset.
        at, starts = at[events.kind[starts] != RESET], starts[events.kind[starts] != RESET]
        ids = events.rows.column(ROW).to_numpy(zero_copy_only=False)[starts]
        times[at] = side.rows.take(ids).column(TIME).to_numpy()
        return replace(events, time_ms=times)

    def _columns(self, events: EventBatch) -> Longs:
        columns = np.empty((len(events), m.EVENT_COLUMNS), dtype=np.int64)
        columns[:, m.E_ORDER], columns[:, m.E_CLOCK] = events.order, events.clock_ms
        columns[:, m.E_PATH] = np.where(events.path == LOCAL_TIMER, self._timer_path, events.path)
        columns[:, m.E_CHUNK], columns[:, m.E_KIND] = events.chunk, events.kind
        columns[:, m.E_ID] = events.rows.column(ROW).to_numpy(zero_copy_only=False)
        columns[:, m.E_INSTANCE], columns[:, m.E_TIME] = events.instance, events.time_ms
        return columns

    # Pairs

    def _alone(self, outputs: Sequence[EventBatch]) -> Longs | None:
        """The events that are emitted without a pair, for ``pairs.with_singles``; None: none."""
        may = np.array(self._triggers) & self._outer
        resets = [
            triggers and bool((events.kind == RESET).any())
            for triggers, events in zip(self._triggers, outputs, strict=True)
        ]
        if not may.any() and not any(resets):
            return None
        # Resets are emitted alone, and so are events without a match if the side is outer.
        return np.array([*may, *self._triggers, self._rows.meta[m.M_CURRENT]], dtype=np.int64)

    def _matching(
        self, first: int, run: Run, alone: Longs | None, pairs: Longs, failed: dict[int, str]
    ) -> Longs:
        """The pairs of the events from number ``first`` on that meet the condition, in order.

        An event for which the condition fails with any row has no pairs; ``failed`` receives the
        reason, by the event's number.
        """
        if self._rest is not None and len(pairs):
            rows = np.empty((PAIR_ROWS, len(pairs)), dtype=np.int64)
            both_rows(*run, pairs, rows)
            frame = self.frame(rows[P_LEFT], rows[P_RIGHT]).timed(partial(_causes, run, pairs))
            met = self._rest(frame)
            for pair in sorted(frame.failures):
                failed.setdefault(int(pairs[pair, 0]), frame.failures[pair])
            pairs = _without(pairs[met], failed)
        if alone is None:
            return pairs
        done = int(self._rows.meta[m.M_DONE])
        out = np.empty((len(pairs) + done - first, 2), dtype=np.int64)
        return _without(out[: with_singles(first, done, *run, pairs, alone, out)], failed)

    def _report_failures(
        self,
        failed: dict[int, str],
        origin: Longs,
        coming: Sequence[EventBatch],
        outputs: Sequence[EventBatch],
        failures: Failures,
    ) -> None:
        """Report the events that failed, as they arrived; ``origin``: side and row of each."""
        for side, came, events in zip(self.sides, coming, outputs, strict=True):
            at_once = side.kind is None or side.kind.emits_on_arrival
            by_kind: dict[bool, list[int]] = {}
            for number in sorted(failed):
                if origin[number, 0] == side.step:
                    has_come = at_once and events.kind[origin[number, 1]] == CURRENT
                    by_kind.setdefault(bool(has_come), []).append(number)
            for has_come, numbers in by_kind.items():
                lost = events.take(origin[numbers, 1])
                ids = lost.rows.column(ROW).to_numpy(zero_copy_only=False)
                if has_come:
                    rows = came.rows.take(pa.array(ids - (side.rows.came - len(came))))
                else:
                    # Of the rows of a window only the attributes are kept that are read.
                    rows = side.rows.take(ids, side.schema.names)
                reasons = [failed[number] for number in numbers]
                failures.entries.append((lost.with_rows(rows), reasons, side.stream))

    def frame(self, left: Longs, right: Longs) -> Frame:
        """The attributes of pairs of rows; -1 means no row."""
        sides = (left, right)
        if not any(bool((ids < 0).any()) for ids in sides):
            parts = [
                (side.rows, ids, side.schema.names)
                for side, ids in zip(self.sides, sides, strict=True)
            ]
            return Frame(len(left), cast("Any", PairMatches(parts)))
        arrays: dict[Any, ArrowArray] = {}
        missing = []
        for side, ids in zip(self.sides, sides, strict=True):
            none = ids < 0
            rows = side.rows.take(ids[~none], side.schema.names)
            missing.append(none)
            index = pa.array(np.cumsum(~none) - 1, mask=none)
            for name in side.schema.names:
                column = rows.column(name)
                arrays[side.step, name] = column.take(index) if none.any() else column
        frame = Frame(len(left), arrays)
        for side, none in zip(self.sides, missing, strict=True):
            if none.any():
                frame.add_missing(side.step, none)
        return frame

    def _result(self, parts: Sequence[Longs], run: Run | None) -> tuple[EventBatch, Frame]:
        pairs = np.concatenate(parts) if len(parts) > 1 else parts[0] if parts else _NO_PAIRS
        out = np.empty((PAIR_ROWS, len(pairs)), dtype=np.int64)
        kind = np.empty(len(pairs), dtype=np.int8)
        if run is not None:
            place(*run, pairs, self._last, out, kind)
            self._keep_times(run, pairs, out)
        frame = self.frame(out[P_LEFT], out[P_RIGHT])
        rows = pa.RecordBatch.from_arrays([pa.array(out[P_LEFT])], schema=_ROW_SCHEMA)
        events = EventBatch(
            out[P_TIME],
            out[P_CLOCK],
            out[P_ORDER],
            out[P_PATH],
            out[P_CHUNK],
            kind,
            out[P_INSTANCE],
            rows,
        )
        if run is not None:
            frame.calls = partial(_calls, run, pairs)
        return events, frame.timed(events)

    def _keep_times(self, run: Run, pairs: Longs, out: Longs) -> None:
        """Give expired events their arrival time where they keep it."""
        if not self._rows.meta[[m.M_KEEPS, m.M_KEEPS_RIGHT]].any():
            return
        of = run[0][pairs[:, 0]]
        for side, ids in zip(self.sides, (out[P_LEFT], out[P_RIGHT]), strict=True):
            at = np.flatnonzero((of[:, 2] == 1) & (of[:, 0] == side.step))
            if len(at):
                out[P_TIME, at] = side.rows.take(ids[at], [TIME]).column(0).to_numpy()

    # State

    def next_time(self) -> int | None:
        """Time of the next timer of a window; None without one."""
        times = [side.next_time() for side in self.sides]
        return min((time for time in times if time is not None), default=None)

    def forget(self, instances: Longs) -> None:
        """Remove all state of these partition instances."""
        for side in self.sides:
            side.forget(instances)
        self._rows.forget(instances)

    def snapshot(self) -> State:
        """Rows and windows; the registers of their instances hold the places of rows."""
        steps = int(self._rows.meta[m.M_STEPS])
        loop_state = State(
            {f"registers-{steps}": self._rows.snapshot()},
            {"steps": steps, "came": self._came, "last": self._last.tolist()},
        )
        left, right = (side.snapshot() for side in self.sides)
        return namespaced({"own": loop_state, "left": left, "right": right})

    def restore(self, state: State) -> None:
        """Restore rows and windows."""
        loop_state = subset(state, "own")
        scalars = loop_state.scalars
        self._last[:] = scalars["last"]
        self._came = scalars["came"]
        for side, name in zip(self.sides, ("left", "right"), strict=True):
            side.restore(subset(state, name))
        steps = scalars["steps"]
        self._rows.restore(loop_state.pieces[f"registers-{steps}"], steps)


def _only_current(query: BoundQuery, source: BoundJoin) -> bool:
    """True if pairs of expired events are not used: they neither count nor fail."""
    if query.events is not EventKind.CURRENT or query.rate is not None or query.group_by:
        return False
    expressions = [output.expression for output in query.outputs]
    expressions += [one for one in (query.having, source.on) if one is not None]
    return not any(map(has_aggregate, expressions)) and all(map(is_safe, expressions))


def _causes(run: Run, pairs: Longs) -> EventBatch:
    """The events that found ``pairs``, without their attributes."""
    origin = run[0][pairs[:, 0]]
    found = np.empty((len(pairs), m.EVENT_COLUMNS), dtype=np.int64)
    for step, columns in enumerate(run[1:]):
        at = np.flatnonzero(origin[:, 0] == step)
        found[at] = columns[origin[at, 1]]
    return EventBatch(
        found[:, m.E_TIME],
        found[:, m.E_CLOCK],
        found[:, m.E_ORDER],
        found[:, m.E_PATH],
        found[:, m.E_CHUNK],
        found[:, m.E_KIND].astype(np.int8),
        found[:, m.E_INSTANCE],
        pa.RecordBatch.from_arrays([pa.array(pairs[:, 0])], schema=_ROW_SCHEMA),
    )


def _calls(run: Run, pairs: Longs) -> Mask:
    """bool[m], where the pairs of another chunk of a side begin."""
    origin, at = run[0], pairs[:, 0]
    place = np.empty((6, len(pairs)), dtype=np.int64)
    place[0] = origin[at, 0]
    for side in (0, 1):
        of = origin[at, 0] == side
        columns = [m.E_ORDER, m.E_CLOCK, m.E_PATH, m.E_CHUNK, m.E_INSTANCE]
        place[1:, of] = run[1 + side][origin[at[of], 1]][:, columns].T
    return run_begins(*place)


def _one_by_one(events: EventBatch) -> EventBatch:
    """Each event as a chunk: a stream joined with itself passes them on one by one."""
    begins = cause_begins(events)
    if begins.all():
        return events
    return replace(events, chunk=np.arange(len(events)) - run_starts(begins))


def _without(pairs: Longs, failed: Mapping[int, str]) -> Longs:
    """The pairs of events that are not in ``failed``."""
    return pairs[~np.isin(pairs[:, 0], list(failed))] if failed else pairs


@native(types.void(LONG2, LONG2, LONG2, LONG2, LONG2))
def both_rows(origin, left, right, pairs, out):
    """Fill ``P_LEFT`` and ``P_RIGHT``."""
    for p in range(pairs.shape[0]):
        k = pairs[p, 0]
        at = origin[k, 1]
        if origin[k, 0] == 0:
            out[P_LEFT, p] = left[at, E_ID] if left[at, E_KIND] != RESET else NIL
            out[P_RIGHT, p] = pairs[p, 1]
        else:
            out[P_LEFT, p] = pairs[p, 1]
            out[P_RIGHT, p] = right[at, E_ID] if right[at, E_KIND] != RESET else NIL


@native(types.void(LONG2, LONG2, LONG2, LONG2, LONG1, LONG2, BYTE1))
def place(origin, left, right, pairs, last, out, kinds):
    """Fill all rows, and the events' kinds; each event's finds are a chunk, numbered under a cause.

    ``last``: (order, clock, path) of the last pair ever, and the number of its chunk.
    """
    before = -1
    for p in range(pairs.shape[0]):
        k, other = pairs[p, 0], pairs[p, 1]
        if k != before:
            side, at = origin[k, 0], origin[k, 1]
            events = left if side == 0 else right
            time, instance, kind = events[at, E_TIME], events[at, E_INSTANCE], events[at, E_KIND]
            order, clock, path = events[at, E_ORDER], events[at, E_CLOCK], events[at, E_PATH]
            mine = events[at, E_ID] if kind != RESET else NIL
            if not is_same_cause(order, clock, path, last[0], last[1], last[2]):
                last[0], last[1], last[2], last[3] = order, clock, path, 0
            else:
                last[3] += 1
            before = k
        out[P_LEFT, p] = mine if side == 0 else other
        out[P_RIGHT, p] = other if side == 0 else mine
        out[P_TIME, p] = time
        out[P_CLOCK, p] = clock
        out[P_ORDER, p] = order
        out[P_PATH, p] = path
        out[P_CHUNK, p] = last[3]
        out[P_INSTANCE, p] = instance
        kinds[p] = kind


@native(types.int64(types.int64, types.int64, LONG2, LONG2, LONG2, LONG2, LONG1, LONG2))
def with_singles(first, stop, origin, left, right, pairs, alone, out):
    """Insert events without a pair into ``pairs``; returns the new number of pairs."""
    count = p = 0
    for k in range(first, stop):
        has_pair = p < pairs.shape[0] and pairs[p, 0] == k
        while p < pairs.shape[0] and pairs[p, 0] == k:
            out[count, 0], out[count, 1] = k, pairs[p, 1]
            count += 1
            p += 1
        side, at = origin[k, 0], origin[k, 1]
        kind = left[at, E_KIND] if side == 0 else right[at, E_KIND]
        if kind == RESET:
            goes = alone[2 + side] != 0
        else:
            goes = alone[side] != 0 and not has_pair and not (alone[4] != 0 and kind == EXPIRED)
        if goes:
            out[count, 0], out[count, 1] = k, NIL
            count += 1
    return count


class PairMatches:
    """Attributes of rows of two stores, by (side, name), each looked up on request."""

    def __init__(self, sides: Sequence[tuple[RowStore, Longs, Sequence[str]]]) -> None:
        self._places = [store.find(ids, names) for store, ids, names in sides]
        self._keys = {(side, name) for side, (_, _, names) in enumerate(sides) for name in names}

    def __getitem__(self, key: tuple[int, str]) -> ArrowArray:
        side, name = key
        return self._places[side].column(name)

    def __contains__(self, key: object) -> bool:
        return key in self._keys
