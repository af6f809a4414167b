"""The tables of one app, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.operators.base import State, namespaced, restore_subset
from mesh.operators.expressions import current
from mesh.operators.tables.app_table import AppTable
from mesh.operators.tables.lookup_table import LookupTable
from mesh.operators.tables.written import NumberedTable, WrittenTable
from mesh.plan.stores import stored_table_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mesh.plan.bound import BoundTable


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
