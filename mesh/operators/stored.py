"""Tables, windows and aggregations of a stored state, for readers that run none of its queries.

A table that is read from its database has no rows in the state: its reader is to be set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.functions.scripts import compile_scripts
from mesh.operators.aggregations.settings import zone_of
from mesh.operators.base import restore_subset, subset
from mesh.operators.dataflow.aggregation_node import AggregationNode, NamedWindowNode
from mesh.operators.environment import Environment, using
from mesh.operators.tables.lookup_table import LookupTable
from mesh.operators.tables.stored import FrozenRows
from mesh.plan.stores import stored_table_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from mesh.operators.base import State
    from mesh.operators.tables import AppTable
    from mesh.plan.bound import BoundApp


def window_node(name: str) -> str:
    """The name of a named window among an executor's ``places``."""
    return f"window-{name}"


def aggregation_node(name: str) -> str:
    """The name of an aggregation among an executor's ``places``."""
    return f"aggregation-{name}"


def pieces_of(
    pieces: Iterable[str], places: Mapping[str, str], names: Collection[str]
) -> list[str]:
    """The names of those pieces of a state that ``stores_of`` needs."""
    nodes = [node(name) for name in names for node in (window_node, aggregation_node)]
    starts = [f"{places.get(node, node)}/" for node in nodes]
    starts += [f"tables/{name}/" for name in names]
    return [piece for piece in pieces if piece.startswith(tuple(starts))]


def stores_of(
    app: BoundApp,
    state: State,
    places: Mapping[str, str],
    names: Collection[str],
    shard: str = "",
) -> Environment:
    """Some stores of ``app`` as they are in ``state``, and its functions.

    Args:
        app: with their definitions.
        state: of an executor; those without a part in it are empty.
        places: of this executor, for windows and aggregations.
        names: the tables, windows and aggregations.
        shard: see ``Environment``.
    """
    tables: dict[str, AppTable] = {}
    windows: dict[str, NamedWindowNode] = {}
    aggregations: dict[str, AggregationNode] = {}
    scripts = compile_scripts(app.scripts)
    scalars = subset(state, "own").scalars
    clock_ms = scalars.get("now_ms", 0)
    stores = Environment(
        scripts, tables, windows, aggregations, salt=app.name, shard=shard, clock_ms=clock_ms
    )
    rows = subset(state, "tables")
    with using(stores):
        for table in app.tables:
            name = table.schema.name
            if name not in names:
                continue
            store = stored_table_of(table)
            tables[name] = (
                FrozenRows(table, stores, subset(rows, name))
                if store is None or store.is_in_state
                else LookupTable(table, stores, store)
            )
        for window in app.windows:
            if window.schema.name in names:
                windows[window.schema.name] = NamedWindowNode(window, 0)
        zone = zone_of(app.annotations)
        for one in app.aggregations:
            if one.schema.name in names:
                aggregations[one.schema.name] = AggregationNode(one, 0, None, zone)
    nodes: dict[str, AggregationNode | NamedWindowNode] = {
        **{window_node(name): node for name, node in windows.items()},
        **{aggregation_node(name): node for name, node in aggregations.items()},
    }
    for place, node in nodes.items():
        restore_subset(node, state, places.get(place, place))
    return stores
