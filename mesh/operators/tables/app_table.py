"""A table of an app, as expressions search it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.operators.expressions import using
from mesh.operators.tables.conditions import Condition
from mesh.operators.tables.store import Table

if TYPE_CHECKING:
    from mesh.functions.vectors import Mask
    from mesh.operators.expressions import Environment, Frame
    from mesh.plan.bound import BoundExpression, BoundTable


class AppTable(Table):
    """A table as ``x in T`` uses it."""

    def __init__(self, definition: BoundTable, environment: Environment) -> None:
        super().__init__(definition.schema, definition.primary_key, definition.indexes)
        self._environment = environment
        #: By identity: the same expression is evaluated for each event.
        self._conditions: dict[int, tuple[BoundExpression, Condition]] = {}

    def condition(self, on: BoundExpression | None) -> Condition:
        """A condition over its rows, compiled; inside of ``using``."""
        return Condition(on, self)

    def contains(self, condition: BoundExpression, frame: Frame) -> Mask:
        """bool[n], the rows of ``frame`` for which ``condition`` holds for a row of the table."""
        entry = self._conditions.get(id(condition))
        if entry is None:
            with using(self._environment):
                entry = condition, self.condition(condition)
            self._conditions[id(condition)] = entry
        return entry[1].any(frame)
