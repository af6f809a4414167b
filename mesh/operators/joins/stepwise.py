"""A join that looks into the other side for each event, as the reference engine does.

For sides that are known by what they hold rather than by what they put out: tables, named windows,
and windows that hold other rows than those, or in another order.  It has to be called step by step,
with one chunk of events or one timer at a time, so that what it finds is what is there then.

Source: observed on Siddhi 5.1.7, live; tests/cases/conformance/joins.jsonl and tables.jsonl.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mesh.language.syntax import JoinSide
from mesh.operators.base import (
    EXPIRED,
    OWN_TIMER,
    RESET,
    WHOLE,
    Events,
    Longs,
    State,
    concat,
    part,
    prefixed,
)
from mesh.operators.environment import current
from mesh.operators.expressions import Frame, compile_filter
from mesh.operators.joins.sides import ROW, TIME, Entrance, joined_events, pass_nothing
from mesh.operators.tables import Condition, Table
from mesh.plan.bound import (
    BinaryExpression,
    Column,
    FunctionCall,
    SourceKind,
    UnaryExpression,
)
from mesh.plan.bound.expressions import TABLE_STEP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.functions.vectors import Mask, Vector
    from mesh.operators.base import Timeline
    from mesh.operators.expressions import Key
    from mesh.operators.queries import Failures
    from mesh.plan.bound import BoundExpression, BoundJoin, BoundQuery, BoundStream

#: Windows of which rows that the other side has looked at keep their time when they leave.
KEEPING = frozenset({"batch", "lengthBatch", "timeBatch"})


class _Side(Entrance):
    """One side: what comes from it, and what is found in it; ``step`` is its number."""

    def __init__(self, query: BoundQuery, source: BoundStream, step: int, timer_path: int) -> None:
        super().__init__(query, source, step, timer_path)
        beside = [pa.field(ROW, pa.int64()), pa.field(TIME, pa.int64())]
        self._through = pa.schema([*beside, *self.schema])
        self._make_window(self._through)
        self._came = 0
        self.table: Table | None = None
        self._named: str | None = None
        self._windows = current().windows
        if source.kind is SourceKind.TABLE:
            table = current().tables[source.schema.name]
            assert isinstance(table, Table), "tables of an app are kept in memory"
            self.table = table
        elif source.kind is SourceKind.WINDOW:
            self._named = source.schema.name

    def enter(self, events: Events, timeline: Timeline, failures: Failures) -> Events:
        """What the events of the side, and its timers, put out, with all that is needed."""
        events = self.handle(events, timeline, failures)
        count = len(events)
        numbers = np.arange(self._came, self._came + count)
        self._came += count
        columns: list[pa.Array[Any]] = [
            pa.array(numbers, pa.int64()),
            pa.array(events.time_ms, pa.int64()),
        ]
        columns += [events.rows.column(name) for name in self.schema.names]
        rows = pa.RecordBatch.from_arrays(columns, schema=self._through)
        if self._named is not None:
            return events.with_rows(rows)
        if self.window is None:
            return pass_nothing(events.with_rows(rows))
        given = events.rows
        for name, column in zip((ROW, TIME), columns, strict=False):
            given = given.append_column(name, column)
        return self.window.process(events.with_rows(given), timeline)

    def content(self, instance: int) -> pa.RecordBatch | None:
        """The rows that are found in it now; None where there are never any."""
        if self._named is not None:
            return self._windows[self._named].content(WHOLE)[0]
        return None if self.window is None else self.window.content(instance)[0]

    def snapshot(self) -> State:
        """The window."""
        window = State() if self.window is None else self.window.snapshot()
        return prefixed({"window": window, "own": State({}, {"came": self._came})})

    def restore(self, state: State) -> None:
        """Take over the window."""
        came: Any = part(state, "own").scalars["came"]
        self._came = came
        if self.window is not None:
            self.window.restore(part(state, "window"))


class StepJoin:
    """``from A join T on ..`` and others of which one side is looked into."""

    def __init__(self, query: BoundQuery, source: BoundJoin, timer_path: int) -> None:
        self._timer_path = timer_path
        self._sides = (
            _Side(query, source.left, 0, timer_path),
            _Side(query, source.right, 1, timer_path),
        )
        self._is_self = (
            source.left.schema.name == source.right.schema.name
            and source.left.kind is not SourceKind.TABLE
        )
        self._outer = joined_events(source)
        self._sets_off = (
            source.trigger is not JoinSide.RIGHT and self._sides[0].table is None,
            source.trigger is not JoinSide.LEFT and self._sides[1].table is None,
        )
        self._met = None if source.on is None else compile_filter(source.on)
        self._tables = [
            None if side.table is None else Condition(_of_table(source.on, side.step), side.table)
            for side in self._sides
        ]
        windows = (source.left.window, source.right.window)
        self._keeps = [w is not None and w.name in KEEPING for w in windows]
        #: By side and partition instance, the last row that the other side has looked at.
        self._found: dict[tuple[int, int], int] = {}
        #: (order, clock, path) of the last event that went out, and the number of its chunk.
        self._last = (-1, -1, -1, -1)

    def process(
        self, inputs: Sequence[Events], timeline: Timeline, failures: Failures
    ) -> tuple[Events, Frame]:
        """As ``WindowJoin.process``, for one chunk or one timer."""
        found: list[_Found] = []
        if self._is_self and len(inputs[0]) > 1:
            for at in range(len(inputs[0])):
                one = inputs[0].slice(at, at + 1)
                found += self._both((one, one), timeline, failures)
        else:
            found = self._both(inputs, timeline, failures)
        return self._result(found)

    def _both(
        self, inputs: Sequence[Events], timeline: Timeline, failures: Failures
    ) -> list[_Found]:
        found: list[_Found] = []
        for side, events in zip(self._sides, inputs, strict=True):
            if side.table is not None:
                continue
            made = side.enter(events, timeline, failures)
            if len(made):
                found += self._find(side.step, made)
        return found

    def _find(self, step: int, made: Events) -> list[_Found]:
        """What each event of side ``step`` finds on the other."""
        other = self._sides[1 - step]
        if self._keeps[step]:
            made = self._own_times(step, made)
        if not self._sets_off[step]:
            return []
        frame = Frame.of_events(made, step)
        found: list[_Found] = []
        for row in range(len(made)):
            if made.kind[row] == RESET:
                found.append(_Found(step, made, row, None, None))
                continue
            rows = self._look(other, frame, row, int(made.instance[row]))
            mine = made.rows.slice(row, 1)
            if rows is not None and rows.num_rows:
                found.append(_Found(step, made, row, mine, rows))
            elif self._outer[step]:
                found.append(_Found(step, made, row, mine, None))
        return found

    def _look(self, other: _Side, frame: Frame, row: int, instance: int) -> pa.RecordBatch | None:
        condition = self._tables[other.step]
        if condition is not None:
            assert other.table is not None
            slots = condition.find(frame, row)
            return other.table.take(slots).select(other.schema.names) if len(slots) else None
        rows = other.content(instance)
        if rows is None or not rows.num_rows:
            return None
        if ROW in rows.schema.names and self._keeps[other.step]:
            last = rows.column(ROW)[rows.num_rows - 1].as_py()
            self._found[other.step, instance] = last
        rows = _select(rows, other.schema.names)
        if self._met is None:
            return rows
        met = self._met(_Beside(frame, row, rows, other.step))
        return rows.filter(pa.array(met))

    def _own_times(self, step: int, made: Events) -> Events:
        """Rows of a batch window that have been looked at keep their time when they leave."""
        limit = np.array([self._found.get((step, i), -1) for i in made.instance.tolist()])
        rows = made.rows.column(ROW).to_numpy(zero_copy_only=False)
        keeps = (made.kind == EXPIRED) & (rows <= limit)
        if not keeps.any():
            return made
        times = made.rows.column(TIME).to_numpy(zero_copy_only=False)
        return replace(made, time_ms=np.where(keeps, times, made.time_ms))

    def _result(self, found: Sequence[_Found]) -> tuple[Events, Frame]:
        counts = [1 if one.theirs is None else one.theirs.num_rows for one in found]
        whose = np.repeat(np.arange(len(found)), counts)
        arrays: dict[Key, pa.Array[Any]] = {}
        missing = []
        for side in self._sides:
            parts = [one.rows(side.step, c) for one, c in zip(found, counts, strict=True)]
            rows, none = _stacked(parts, side.schema, counts)
            missing.append(none)
            for name in side.schema.names:
                arrays[side.step, name] = rows.column(name)
        frame = Frame(len(whose), arrays)
        for side, none in zip(self._sides, missing, strict=True):
            if none.any():
                frame.add_missing(side.step, none)
        events = self._events(found, whose)
        return events, frame.timed(events)

    def _events(self, found: Sequence[_Found], whose: Longs) -> Events:
        columns: dict[str, Any] = {}
        for name in ("time_ms", "clock_ms", "order", "path", "kind", "instance"):
            values = [int(getattr(one.events, name)[one.row]) for one in found]
            columns[name] = np.array(values, dtype=np.int64)
        path = columns["path"]
        columns["path"] = np.where(path == OWN_TIMER, self._timer_path, path)
        chunk = []
        for order, clock, path in zip(
            columns["order"].tolist(),
            columns["clock_ms"].tolist(),
            columns["path"].tolist(),
            strict=True,
        ):
            number = self._last[3] + 1 if (order, clock, path) == self._last[:3] else 0
            chunk.append(number)
            self._last = (order, clock, path, number)
        rows = pa.RecordBatch.from_arrays(
            [pa.array(whose, pa.int64())], schema=pa.schema([pa.field(ROW, pa.int64())])
        )
        return Events(
            columns["time_ms"][whose],
            columns["clock_ms"][whose],
            columns["order"][whose],
            columns["path"][whose],
            np.array(chunk, dtype=np.int64)[whose],
            columns["kind"].astype(np.int8)[whose],
            columns["instance"][whose],
            rows,
        )

    def next_time(self) -> int | None:
        """When the next timer of a window is due."""
        times = [side.next_time() for side in self._sides]
        return min((time for time in times if time is not None), default=None)

    def forget(self, instances: Longs) -> None:
        """Be as if these partition instances had never been."""
        for side in self._sides:
            side.forget(instances)
        gone = set(instances.tolist())
        self._found = {key: row for key, row in self._found.items() if key[1] not in gone}

    def snapshot(self) -> State:
        """Both windows."""
        own: dict[str, object] = {
            "found": [[*key, row] for key, row in self._found.items()],
            "last": list(self._last),
        }
        left, right = (side.snapshot() for side in self._sides)
        return prefixed({"own": State({}, own), "left": left, "right": right})

    def restore(self, state: State) -> None:
        """Take over both windows."""
        own: Any = part(state, "own").scalars
        self._found = {(step, instance): row for step, instance, row in own["found"]}
        order, clock, path, chunk = own["last"]
        self._last = (order, clock, path, chunk)
        for side, name in zip(self._sides, ("left", "right"), strict=True):
            side.restore(part(state, name))


class _Found:
    """An event of one side and what it found; ``mine`` is None for one that resets."""

    def __init__(
        self,
        step: int,
        events: Events,
        row: int,
        mine: pa.RecordBatch | None,
        theirs: pa.RecordBatch | None,
    ) -> None:
        self.step, self.events, self.row = step, events, row
        self.mine, self.theirs = mine, theirs

    def rows(self, step: int, count: int) -> pa.RecordBatch | None:
        """The rows of side ``step`` in its pairs; None where there are none."""
        if step != self.step:
            return self.theirs
        if self.mine is None or count == 1:
            return self.mine
        return self.mine.take(np.zeros(count, dtype=np.int64))


class _Beside(Frame):
    """Rows of one side beside one event of the other, which is the same for all of them."""

    def __init__(self, own: Frame, row: int, rows: pa.RecordBatch, step: int) -> None:
        names = rows.schema.names
        super().__init__(
            rows.num_rows, {(step, name): rows.column(i) for i, name in enumerate(names)}
        )
        self._own, self._step, self._row = own, step, np.array([row])

    def column(self, column: Column) -> Vector:
        """A column of the rows, or of the one event, which broadcasts."""
        if column.step == self._step:
            return super().column(column)
        vector = self._own.column(column)
        return vector if len(vector) == 1 else vector.take(self._row)

    def missing(self, step: int, index: int | None) -> Mask:
        """There is always an event."""
        return np.zeros(self.length, dtype=np.bool_)


def _select(rows: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Some columns; where there are none to be selected, one stays, for the number of rows."""
    return rows.select(list(names)) if names else rows.select([0])


def _stacked(
    parts: Sequence[pa.RecordBatch | None], schema: pa.Schema, counts: Sequence[int]
) -> tuple[pa.RecordBatch, Mask]:
    """Rows one behind the other, nulls where there are none, and where that is."""
    none = np.repeat(np.array([rows is None for rows in parts], dtype=np.bool_), counts)
    given = [rows.select(schema.names) for rows in parts if rows is not None]
    if not given or not schema.names:
        nulls: list[pa.Array[Any]] = [pa.array([None] * len(none), f.type) for f in schema]
        return pa.RecordBatch.from_arrays(nulls, schema=schema), none
    rows = concat([one.cast(schema) if one.schema != schema else one for one in given])
    if not none.any():
        return rows, none
    index: Any = pa.array(np.cumsum(~none) - 1, mask=none)
    return rows.take(index), none


def _of_table(on: BoundExpression | None, step: int) -> BoundExpression | None:
    """``on`` with the columns of side ``step`` as those of a table's rows."""
    match on:
        case Column() if on.step == step:
            return replace(on, step=TABLE_STEP)
        case UnaryExpression():
            return replace(on, operand=_moved(on.operand, step))
        case BinaryExpression():
            return replace(on, left=_moved(on.left, step), right=_moved(on.right, step))
        case FunctionCall():
            return replace(on, arguments=tuple(_moved(a, step) for a in on.arguments))
        case _:
            return on


def _moved(part_: BoundExpression, step: int) -> BoundExpression:
    moved = _of_table(part_, step)
    assert moved is not None
    return moved
