"""The tables of one app, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.operators.base import State, namespaced, restore_subset
from mesh.operators.environment import Environment, current, using
from mesh.operators.tables.conditions import Condition
from mesh.operators.tables.store import Table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mesh.functions.vectors import Mask
    from mesh.operators.frame import Frame
    from mesh.plan.bound import BoundExpression, BoundTable


class AppTable(Table):
    """A table as ``x in T`` uses it."""

    def __init__(self, definition: BoundTable, environment: Environment) -> None:
        super().__init__(definition.schema, definition.primary_key, definition.indexes)
        self._environment = environment
        #: By identity: the same expression is evaluated for each event.
        self._conditions: dict[int, tuple[BoundExpression, Condition]] = {}

    def contains(self, condition: BoundExpression, frame: Frame) -> Mask:
        """bool[n], the rows of ``frame`` for which ``condition`` holds for a row of the table."""
        known = self._conditions.get(id(condition))
        if known is None:
            with using(self._environment):
                known = condition, Condition(condition, self)
            self._conditions[id(condition)] = known
        return known[1].any(frame)


class Tables(dict[str, AppTable]):
    """All tables of an app, shared by its queries and by the keys of its partitions."""

    def define(self, definitions: Iterable[BoundTable]) -> None:
        """Make the tables; inside of ``using``, so that their conditions find functions."""
        for definition in definitions:
            self[definition.schema.name] = AppTable(definition, current())

    def snapshot(self) -> State:
        """The rows of all tables."""
        return namespaced({name: table.snapshot() for name, table in self.items()})

    def restore(self, state: State) -> None:
        """Restore the rows."""
        for name, table in self.items():
            restore_subset(table, state, name)
