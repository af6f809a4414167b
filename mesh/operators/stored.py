"""Tables and named windows of a stored state, for readers that run none of its queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.functions.scripts import compile_scripts
from mesh.operators.base import restore_subset, subset
from mesh.operators.dataflow.named_window import NamedWindowNode
from mesh.operators.environment import Environment, using
from mesh.operators.tables.stored import StoredTable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from mesh.operators.base import State
    from mesh.plan.bound import BoundApp


def window_node(name: str) -> str:
    """The name of a named window among an executor's ``places``."""
    return f"window-{name}"


def pieces_of(
    pieces: Iterable[str], places: Mapping[str, str], names: Collection[str]
) -> list[str]:
    """The names of those pieces of a state that ``stores_of`` needs."""
    starts = [f"{_place(places, name)}/" for name in names]
    starts += [f"tables/{name}/" for name in names]
    return [piece for piece in pieces if piece.startswith(tuple(starts))]


def stores_of(
    app: BoundApp, state: State, places: Mapping[str, str], names: Collection[str]
) -> Environment:
    """Some tables and named windows of ``app`` as they are in ``state``, and its functions.

    Args:
        app: with their definitions.
        state: of an executor; those without a part in it are empty.
        places: of this executor, for the windows.
        names: the tables and windows.
    """
    tables: dict[str, StoredTable] = {}
    windows: dict[str, NamedWindowNode] = {}
    stores = Environment(compile_scripts(app.scripts), tables, windows, salt=app.name)
    rows = subset(state, "tables")
    with using(stores):
        for table in app.tables:
            name = table.schema.name
            if name in names:
                tables[name] = StoredTable(table, stores, subset(rows, name))
        for window in app.windows:
            if window.schema.name in names:
                windows[window.schema.name] = NamedWindowNode(window, 0)
    for name, node in windows.items():
        restore_subset(node, state, _place(places, name))
    return stores


def _place(places: Mapping[str, str], name: str) -> str:
    return places.get(window_node(name), window_node(name))
