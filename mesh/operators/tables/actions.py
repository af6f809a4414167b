"""What becomes of a query's output in a table: ``insert into``, ``delete``, ``update`` and both.

Rows of one run are taken one after the other, since what one changes the next may ask for.

Source: observed on Siddhi 5.1.7, live; tests/cases/conformance/tables.jsonl.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mesh.functions import kernels
from mesh.functions.vectors import Vector, constant
from mesh.operators.base import RESET
from mesh.operators.expressions import Frame, compile_expression
from mesh.operators.tables.conditions import Condition
from mesh.plan.bound import Column, Delete, Insert, Update
from mesh.plan.bound.expressions import OUTPUT_STEP, TABLE_STEP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from mesh.operators.base import Events
    from mesh.operators.expressions import Key
    from mesh.operators.tables.store import Table


class TableAction:
    """One query's way of writing to one table."""

    def __init__(self, action: Insert | Delete | Update, table: Table) -> None:
        self._table = table
        self._action = action
        self._condition: Condition | None = None
        self._assignments: list[tuple[str, Callable[[Frame], Vector]]] = []
        if isinstance(action, Insert):
            return
        self._condition = Condition(action.on, table)
        if isinstance(action, Update):
            self._assignments = [
                (assignment.attribute.name, compile_expression(assignment.value))
                for assignment in action.assignments
            ]

    def perform(self, events: Events) -> dict[int, str]:
        """Take ``events``, the query's output.

        Returns:
            By number, the rows that the table refused, with the reason; the rest has gone in.
        """
        if events.kind.any():
            events = events.where(events.kind != RESET)
        if not len(events):
            return {}
        if isinstance(self._action, Insert):
            return self._table.insert(events.rows)
        frame = _OutputFrame(events.rows).timed(events)
        if isinstance(self._action, Delete):
            self._delete(frame)
            return {}
        return self._update(frame, events.rows)

    def _delete(self, frame: Frame) -> None:
        assert self._condition is not None
        for row in range(frame.length):
            self._table.remove(self._condition.find(frame, row))

    def _update(self, frame: Frame, rows: pa.RecordBatch) -> dict[int, str]:
        assert self._condition is not None
        assert isinstance(self._action, Update)
        values = self._values(frame, rows)
        failures = dict(frame.failures)
        # Where the primary key alone is asked for, the engine writes over the whole row.
        whole = self._action.inserts and self._condition.is_key
        own = self._inserted(frame, rows) if self._action.inserts else []
        for row in range(frame.length):
            if row in failures:
                continue
            at = np.array([row])
            if whole:
                refused = self._table.put([vector.take(at) for vector in own])
            else:
                slots = self._condition.find(frame, row)
                if len(slots):
                    one = {name: vector.take(at) for name, vector in values.items()}
                    refused = self._table.change(slots, one)
                elif self._action.inserts:
                    refused = self._table.add([vector.take(at) for vector in own], 1).get(0)
                else:
                    continue
            if refused is not None:
                failures[row] = refused
        return failures

    def _values(self, frame: Frame, rows: pa.RecordBatch) -> Mapping[str, Vector]:
        """What each attribute is set to, row by row; without assignments, to the output's."""
        types = {a.name: a.type for a in self._table.schema.attributes}
        if self._assignments:
            return {
                name: kernels.cast(evaluate(frame), types[name])
                if types[name].is_numeric
                else evaluate(frame)
                for name, evaluate in self._assignments
            }
        return {
            name: frame.column(Column(name, types[name], OUTPUT_STEP))
            for name in rows.schema.names
            if name in types
        }

    def _inserted(self, frame: Frame, rows: pa.RecordBatch) -> list[Vector]:
        """The output as rows of the table: by place, as ``insert into`` takes it."""
        attributes = self._table.schema.attributes
        return [
            frame.column(Column(name, attribute.type, OUTPUT_STEP))
            for name, attribute in zip(rows.schema.names, attributes, strict=True)
        ]


class _OutputFrame(Frame):
    """A query's output.  In what is assigned, the table's own attributes have no value."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        names = rows.schema.names
        columns: dict[Key, pa.Array[Any]] = {
            (OUTPUT_STEP, name): rows.column(i) for i, name in enumerate(names)
        }
        super().__init__(rows.num_rows, columns)

    def column(self, column: Column) -> Vector:
        """An attribute of the output; of the table, null."""
        if column.step == TABLE_STEP:
            return constant(None, column.type)
        return super().column(column)
