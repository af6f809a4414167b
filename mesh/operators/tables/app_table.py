"""A table of an app, as expressions search it.

The tables of one app, by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.operators.base import State, current, namespaced, restore_subset, using
from mesh.operators.tables.conditions import Condition
from mesh.operators.tables.lookup_table import LookupTable
from mesh.operators.tables.store import Table
from mesh.operators.tables.written import NumberedTable, WrittenTable
from mesh.plan.stores import stored_table_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mesh.functions.vectors import Mask
    from mesh.operators.base import Environment
    from mesh.operators.expressions import Frame
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


class Tables(dict[str, AppTable]):
    """All tables of an app, shared by its queries and by the keys of its partitions."""

    #: The names of tables that began without a state, among others that had one.
    begun: tuple[str, ...] = ()

    def define(self, definitions: Iterable[BoundTable]) -> None:
        """Make the tables; inside of ``using``, so that their conditions find functions."""
        for definition in definitions:
            store = stored_table_of(definition)
            name = definition.schema.name
            if store is None:
                self[name] = AppTable(definition, current())
            elif store.is_in_state:
                kind = WrittenTable if definition.primary_key else NumberedTable
                self[name] = kind(definition, current(), store)
            else:
                self[name] = LookupTable(definition, current(), store)

    def channels(self, name: str) -> tuple[str, ...]:
        """The channel of a table's changes, if it is in a store."""
        table = self.get(name)
        return (table.channel,) if isinstance(table, WrittenTable) else ()

    def snapshot(self) -> State:
        """The rows of all tables."""
        return namespaced({name: table.snapshot() for name, table in self.items()})

    def restore(self, state: State) -> None:
        """Restore the rows; a table without a state begins."""
        self.begun = tuple(
            name
            for name in self
            if not any(key.startswith(f"{name}/") for key in (*state.pieces, *state.scalars))
        )
        for name, table in self.items():
            restore_subset(table, state, name)
