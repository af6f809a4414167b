"""Writes of a query to a table: ``insert into``, ``delete``, ``update`` and ``update or insert``.

Rows of one run are processed one after the other, since the change of one may affect the next.
Where a condition or an assignment fails, the rows after it in its chunk are dropped.

Source: observed on Siddhi 5.1.7, live; tests/cases/conformance/tables.jsonl.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from mesh.functions import kernels
from mesh.operators.base import RESET
from mesh.operators.expressions import Frame, compile_expression
from mesh.operators.tables.conditions import TableFrame
from mesh.operators.tables.written import WrittenTable
from mesh.operators.total_order import instance_chunk_begins
from mesh.plan.bound import Column, Delete, Insert, Update
from mesh.plan.bound.expressions import OUTPUT_STEP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from mesh.functions.vectors import Vector
    from mesh.operators.base import EventBatch, Longs
    from mesh.operators.tables.app_table import AppTable
    from mesh.operators.tables.conditions import Condition


@dataclass(slots=True)
class ActionOutcome:
    """The rows that didn't go in, by number, with the reason; all others did.

    ``refused``: by the table, which has such a row already.  ``failed``: a condition or an
    assignment could not be computed, or did so for a row of the same chunk before.
    ``changed``: the number of rows of the table that were added, changed or removed.
    """

    refused: dict[int, str] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    changed: int = 0


class TableAction:
    """The write access of one query to one table."""

    def __init__(self, action: Insert | Delete | Update, table: AppTable) -> None:
        self._table = table
        self._action = action
        self._condition: Condition | None = None
        self._types = {a.name: a.type for a in table.schema.attributes}
        self._assignments: list[tuple[str, Callable[[Frame], Vector]]] = []
        if isinstance(action, Insert):
            return
        self._condition = table.condition(action.on)
        if isinstance(action, Update):
            self._assignments = [
                (assignment.attribute.name, compile_expression(assignment.value))
                for assignment in action.assignments
            ]

    def perform(self, events: EventBatch) -> ActionOutcome:
        """Apply ``events``, the query's output, to the table."""
        if events.kind.any():
            events = events.where(events.kind != RESET)
        if not len(events):
            return ActionOutcome()
        if isinstance(self._action, Insert):
            refused = self._table.insert(events.rows)
            return ActionOutcome(refused=refused, changed=len(events) - len(refused))
        frame = Frame.of_events(events, OUTPUT_STEP)
        if isinstance(self._action, Delete):
            return self._delete(frame, events)
        return self._update(frame, events)

    def changes(self, events: EventBatch) -> tuple[str, EventBatch] | None:
        """The changes of a table in a store by ``perform``, with their channel; None for none."""
        table = self._table
        entries = table.take_changes() if isinstance(table, WrittenTable) else None
        if entries is None:
            return None
        assert isinstance(table, WrittenTable), "asked above"
        causes, rows = entries
        return table.channel, events.at(causes).with_rows(rows)

    def _delete(self, frame: Frame, events: EventBatch) -> ActionOutcome:
        assert self._condition is not None
        outcome = ActionOutcome()
        for row in self._rows(events, outcome):
            slots = self._condition.find(frame, row)
            if row in frame.failures:
                outcome.failed[row] = frame.failures[row]
            else:
                self._table.remove(slots)
                outcome.changed += len(slots)
        return outcome

    def _update(self, frame: Frame, events: EventBatch) -> ActionOutcome:
        condition, action = self._condition, self._action
        assert condition is not None
        assert isinstance(action, Update)
        outcome = ActionOutcome()
        # Where the condition is the primary key alone, the engine's tables in memory overwrite the
        # whole row; the original's stores apply ``set`` to the row that is there.
        is_set = bool(self._assignments) and isinstance(self._table, WrittenTable)
        whole = action.inserts and condition.is_key and not is_set
        vectors = self._inserted(frame, events.rows) if action.inserts else []
        if whole and self._table.put_all(vectors, frame.length):
            return ActionOutcome(changed=frame.length)
        for row in self._rows(events, outcome):
            at, changed = np.array([row]), 1
            if whole:
                refused = self._table.put([vector.take(at) for vector in vectors])
            else:
                slots = condition.find(frame, row)
                if row in frame.failures:
                    outcome.failed[row] = frame.failures[row]
                    continue
                if len(slots):
                    changed = len(slots)
                    refused = self._change(slots, frame, row, outcome)
                elif action.inserts:
                    refused = self._table.add([vector.take(at) for vector in vectors], 1).get(0)
                else:
                    continue
            if refused is not None:
                outcome.refused[row] = refused
            elif row not in outcome.failed:
                outcome.changed += changed
        return outcome

    def _rows(self, events: EventBatch, outcome: ActionOutcome) -> Iterator[int]:
        """As ``_rows``; a table in a store learns which row causes its changes."""
        table = self._table
        if not isinstance(table, WrittenTable):
            yield from _rows(events, outcome)
            return
        for row in _rows(events, outcome):
            table.cause = row
            yield row
        table.cause = None

    def _change(self, slots: Longs, frame: Frame, row: int, outcome: ActionOutcome) -> str | None:
        """Apply the assignments to the rows at ``slots``; without assignments, all outputs.

        Returns why the table refuses the change; ``outcome`` receives failed computations.
        """
        beside = TableFrame(self._table, slots, frame, np.array([row]))
        if self._assignments:
            values = {
                name: kernels.cast(evaluate(beside), self._types[name])
                if self._types[name].is_numeric
                else evaluate(beside)
                for name, evaluate in self._assignments
            }
        else:
            values = {
                name: beside.column(Column(name, type, OUTPUT_STEP))
                for name, type in self._types.items()
                if frame.has((OUTPUT_STEP, name))
            }
        if beside.failures:
            outcome.failed[row] = next(iter(beside.failures.values()))
            return None
        return self._table.change(slots, values)

    def _inserted(self, frame: Frame, rows: pa.RecordBatch) -> list[Vector]:
        """The output as rows of the table: by position, as ``insert into`` does."""
        attributes = self._table.schema.attributes
        return [
            frame.column(Column(name, attribute.type, OUTPUT_STEP))
            for name, attribute in zip(rows.schema.names, attributes, strict=True)
        ]


def _rows(events: EventBatch, outcome: ActionOutcome) -> Iterator[int]:
    """The rows one after the other, without those after a failed one of their chunk."""
    first = instance_chunk_begins(events)
    reason: str | None = None
    for row in range(len(events)):
        reason = None if first[row] else reason
        if reason is None:
            yield row
            reason = outcome.failed.get(row)
        else:
            outcome.failed[row] = reason
