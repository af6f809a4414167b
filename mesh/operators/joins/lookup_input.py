"""One side of a lookup join: its window, table or named window, and frames of rows found in it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mesh.operators.base import WHOLE, State, namespaced, subset
from mesh.operators.expressions import Frame, TimedByAnother, current
from mesh.operators.joins.input import ROW, TIME, JoinSideInput
from mesh.operators.tables import AppTable
from mesh.plan.bound import BinaryExpression, Column, FunctionCall, SourceKind, UnaryExpression
from mesh.plan.bound.expressions import TABLE_STEP

if TYPE_CHECKING:
    from mesh.functions.vectors import Mask, Vector
    from mesh.operators.base import EventBatch, Timeline
    from mesh.operators.expressions import Key
    from mesh.operators.query.handlers import Failures
    from mesh.plan.bound import BoundExpression, BoundQuery, BoundStream
    from pyspark_nats.arrow import ArrowArray


class LookupInput(JoinSideInput):
    """One side: its input, and the rows that events find in it; ``step`` is its number."""

    def __init__(self, query: BoundQuery, source: BoundStream, step: int, timer_path: int) -> None:
        super().__init__(query, source, step, timer_path)
        beside = [pa.field(ROW, pa.int64()), pa.field(TIME, pa.int64())]
        self._through = pa.schema([*beside, *self.schema])
        self._make_window(self._through)
        self._came = 0
        self.table: AppTable | None = None
        self._named: str | None = None
        self._windows = current().windows
        if source.kind is SourceKind.TABLE:
            table = current().tables[source.schema.name]
            assert isinstance(table, AppTable), "see ``environment.TableMembership``"
            self.table = table
        elif source.kind is SourceKind.WINDOW:
            self._named = source.schema.name
        #: Whether it is an aggregation.
        self.is_aggregation = source.kind is SourceKind.AGGREGATION

    @property
    def has_events(self) -> bool:
        """Whether it is a stream or a window: tables and aggregations have rows only."""
        return self.table is None and not self.is_aggregation

    @property
    def is_passing(self) -> bool:
        """True if its events expire on arrival."""
        return self.window is None and self._named is None

    def enter(self, events: EventBatch, timeline: Timeline, failures: Failures) -> EventBatch:
        """Process the events of the side; its output, with all columns that the join needs.

        If events expire on arrival (``is_passing``), the caller adds their expiry.
        """
        events = self.handle(events, timeline, failures)
        count = len(events)
        numbers = np.arange(self._came, self._came + count)
        self._came += count
        columns: list[ArrowArray] = [
            pa.array(numbers, pa.int64()),
            pa.array(events.time_ms, pa.int64()),
        ]
        columns += [events.rows.column(name) for name in self.schema.names]
        rows = pa.RecordBatch.from_arrays(columns, schema=self._through)
        if self.window is None:
            return events.with_rows(rows)
        batch = events.rows
        for name, column in zip((ROW, TIME), columns, strict=False):
            batch = batch.append_column(name, column)
        return self.window.process(events.with_rows(batch), timeline)

    def content(self, instance: int) -> pa.RecordBatch | None:
        """The rows that events find in it now; None where there are never any."""
        if self._named is not None:
            return self._windows[self._named].content(WHOLE)[0]
        return None if self.window is None or self.hides else self.window.content(instance)[0]

    def snapshot(self) -> State:
        """Functions and window."""
        functions = self.functions.snapshot()
        window = State() if self.window is None else self.window.snapshot()
        counts = State({}, {"came": self._came})
        return namespaced({"window": window, "own": counts, "functions": functions})

    def restore(self, state: State) -> None:
        """Restore functions and window."""
        self.functions.restore(subset(state, "functions"))
        came = subset(state, "own").scalars["came"]
        self._came = came
        if self.window is not None:
            self.window.restore(subset(state, "window"))


class BesideFrame(TimedByAnother):
    """Rows of one side beside one event of the other, which is the same for all of them."""

    def __init__(self, other: Frame, row: int, rows: pa.RecordBatch, step: int) -> None:
        names = rows.schema.names
        arrays: dict[Key, ArrowArray | list[object]] = {
            (step, name): rows.column(i) for i, name in enumerate(names)
        }
        super().__init__(rows.num_rows, arrays, other, np.array([row]))
        self._other, self._step, self._row = other, step, np.array([row])

    def column(self, column: Column) -> Vector:
        """A column of the rows, or of the one event, which broadcasts."""
        if column.step == self._step:
            return super().column(column)
        vector = self._other.column(column)
        return vector if len(vector) == 1 else vector.take(self._row)

    def missing(self, step: int, index: int | None) -> Mask:
        """An event is always present."""
        return np.zeros(self.length, dtype=np.bool_)


def of_table(on: BoundExpression | None, step: int) -> BoundExpression | None:
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


def _moved(part: BoundExpression, step: int) -> BoundExpression:
    moved = of_table(part, step)
    assert moved is not None
    return moved
