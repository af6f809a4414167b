"""On-demand queries: one function from stores and a bound query to its rows.

A query reads a table, a window or an aggregation once, or changes a table once.  Its rows are
one chunk, as in the reference engine: with aggregates or ``group by`` the last row of each group is
the answer, and ``order by``, ``limit`` and ``offset`` apply to all of it.

Source: observed on Siddhi 5.1.7; tests/cases/conformance/on_demand.jsonl.

On-demand changes of tables, as messages of a group's log among its events.

A change has its place in the total order of events (``dataflow.merge``), so a replay makes it again
at the same place.  Its outcome is part of the state: an answer is read from there, and a change
whose id is known already is not made again.

Tables, windows and aggregations of a stored state, for readers that run none of its queries.

A table that is read from its database has no rows in the state: its reader is to be set.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from mesh.errors import MeshError
from mesh.functions.scripts import compile_scripts
from mesh.language.parser import parse_on_demand_query
from mesh.language.syntax import EventKind
from mesh.model.types import StreamSchema
from mesh.operators.aggregations.find import find_on_demand, table_rows
from mesh.operators.aggregations.rollup import Aggregation, zone_of
from mesh.operators.base import CURRENT, WHOLE, EventBatch, restore_subset, subset
from mesh.operators.dataflow.aggregation_node import AggregationNode, NamedWindowNode
from mesh.operators.expressions import Environment, Frame, compile_filter, using
from mesh.operators.joins.lookup_input import of_table
from mesh.operators.select.aggregates import Expiry
from mesh.operators.select.selector import Selector
from mesh.operators.tables import AppTable, TableAction
from mesh.operators.tables.lookup_table import LookupTable
from mesh.operators.tables.stored import FrozenRows
from mesh.plan.bind import bind_on_demand
from mesh.plan.bound import AnswerOutput, BoundQuery, BoundStream, SourceKind, TableCheck, walk
from mesh.plan.stores import stored_table_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from mesh.model.values import JsonMapping
    from mesh.operators.base import Longs, State
    from mesh.plan.bound import BoundApp, BoundExpression, BoundOnDemandQuery, BoundStore


#: Time of a table's rows, as the engine has it.
_NO_TIME_MS: Final = -1
#: The one row of a query without an input; a record batch without columns has no length.
_ONE: Final = pa.RecordBatch.from_pydict({"#one": pa.array([0])})

log = logging.getLogger(__name__)

#: Outcomes that are remembered, of the last changes.
OUTCOMES_MAX: Final = 256


class TableChanges:
    """Performs changes, and remembers their outcomes.

    An outcome is ``{"changed": rows}`` or ``{"error": MeshError.to_dict()}``.
    """

    def __init__(self, app: BoundApp, environment: Environment) -> None:
        self._app = app
        self._environment = environment
        #: By id, the oldest first.
        self.outcomes: dict[str, JsonMapping] = {}

    def perform(self, row: pa.RecordBatch, now_ms: int) -> None:
        """Make the change of one row of ``merge.CHANGE_SCHEMA``, unless it has been made."""
        (values,) = row.to_pylist()
        if values["id"] in self.outcomes:
            return
        self.outcomes[values["id"]] = self._outcome(values, now_ms)
        while len(self.outcomes) > OUTCOMES_MAX:
            del self.outcomes[next(iter(self.outcomes))]

    def _outcome(self, values: JsonMapping, now_ms: int) -> Mapping[str, object]:
        try:
            if values["refusal"] is not None:
                raise MeshError("MESH-O111", values["refusal"])
            query = bind_on_demand(parse_on_demand_query(values["query"]), self._app)
            # Two changes at one time don't make the same UUID().
            salt = f"{self._environment.salt}/{values['id']}"
            count = change(query, replace(self._environment, salt=salt), now_ms)
        except MeshError as error:
            return {"error": error.to_dict()}
        except Exception as error:
            # Raised, it would end the instance again at each replay.
            log.exception("a change of a table failed")
            return {
                "error": MeshError(
                    "MESH-O110", "the on-demand query fails", detail=f"{error!r}."
                ).to_dict()
            }
        return {"changed": count}


def answer(query: BoundOnDemandQuery, stores: Environment, now_ms: int) -> pa.RecordBatch:
    """The rows of ``query``, in its output schema; none for one that changes a table, and does.

    Args:
        query: on a table, a named window or an aggregation.
        stores: the app's tables, which a change is applied to, windows, aggregations, functions.
        now_ms: the present time, for functions that return it.

    Raises:
        MeshError: MESH-O110, an expression fails on a row; MESH-O111, the table refuses the change.
    """
    if not isinstance(query.action, AnswerOutput):
        change(query, stores, now_ms)
        return pa.RecordBatch.from_pylist([], query.action.target.arrow)
    with using(stores):
        return _selected(query, _matching_rows(query.store, stores, now_ms)).rows


def change(query: BoundOnDemandQuery, stores: Environment, now_ms: int) -> int:
    """Change a table, and return the number of rows that were added, changed or removed.

    Raises:
        MeshError: as ``answer``.
    """
    action = query.action
    assert not isinstance(action, AnswerOutput), "a query that reads"
    with using(stores):
        events = _selected(query, _matching_rows(query.store, stores, now_ms))
        table = _table(stores, action.target.name)
        outcome = TableAction(action, table).perform(events)
    _raise_first(outcome.failed)
    if outcome.refused:
        raise MeshError(
            "MESH-O111",
            f'table "{action.target.name}" refuses the change',
            detail=f"{next(iter(outcome.refused.values()))}.",
        )
    return outcome.changed


def _matching_rows(store: BoundStore | None, stores: Environment, now_ms: int) -> EventBatch:
    """The rows of ``store`` that meet its condition; one row without attributes for None."""
    if store is None:
        return as_chunk(_ONE, np.array([now_ms]), now_ms)
    if store.kind is SourceKind.TABLE:
        table = _table(stores, store.schema.name)
        if store.on is not None and any(isinstance(p, TableCheck) for p in walk(store.on)):
            return _met(store.on, _untimed(table.rows(), now_ms))
        frame = Frame.of_events(as_chunk(_ONE, np.array([now_ms]), now_ms))
        slots = table.condition(of_table(store.on, 0)).find(frame, 0)
        _raise_first(frame.failures)
        return _untimed(table.take(slots), now_ms)
    if store.kind is SourceKind.AGGREGATION:
        return _met(store.on, _untimed(_cells(store, stores, now_ms), now_ms))
    rows, times_ms = stores.windows[store.schema.name].content()
    rows = rows.select(store.schema.arrow.names)
    return _met(store.on, as_chunk(rows, times_ms, now_ms))


def _untimed(rows: pa.RecordBatch, now_ms: int) -> EventBatch:
    return as_chunk(rows, np.full(rows.num_rows, _NO_TIME_MS), now_ms)


def _cells(store: BoundStore, stores: Environment, now_ms: int) -> pa.RecordBatch:
    """The rows of an aggregation that ``within`` and ``per`` ask for, or of one of its tables."""
    if store.table_of is not None:
        name, duration = store.table_of
        aggregation = stores.aggregations[name].cells
        assert isinstance(aggregation, Aggregation), "see ``environment.Aggregated``"
        clock_ms = now_ms if stores.clock_ms is None else stores.clock_ms
        return table_rows(aggregation, duration, store.schema.arrow, now_ms=clock_ms)
    assert store.within is not None, "bound with both"
    assert store.per is not None, "bound with both"
    cells = stores.aggregations[store.schema.name].cells
    assert isinstance(cells, Aggregation), "see ``environment.Aggregated``"
    try:
        # Closed and running cells are found together, so a question need not close any.
        return find_on_demand(cells, store.within, store.per, store.on, now_ms=0)
    except ValueError as error:
        raise MeshError(
            "MESH-O110",
            f'the on-demand query of aggregation "{store.schema.name}" fails',
            detail=f"{error}.",
        ) from error


def _met(on: BoundExpression | None, events: EventBatch) -> EventBatch:
    """The events that meet a condition over their attributes."""
    if on is None:
        return events
    frame = Frame.of_events(events)
    met = compile_filter(on)(frame)
    _raise_first(frame.failures)
    return events.where(np.broadcast_to(met, len(events)))


def _table(stores: Environment, name: str) -> AppTable:
    table = stores.tables[name]
    assert isinstance(table, AppTable), "see ``environment.TableMembership``"
    return table


def as_chunk(rows: pa.RecordBatch, times_ms: Longs, now_ms: int) -> EventBatch:
    """Rows with their times as the events of one chunk, at ``now_ms``."""
    count = rows.num_rows
    none = np.zeros(count, dtype=np.int64)
    return EventBatch(
        times_ms.astype(np.int64),
        np.full(count, now_ms, dtype=np.int64),
        none,
        none,
        none,
        np.full(count, CURRENT, dtype=np.int8),
        np.full(count, WHOLE, dtype=np.int64),
        rows,
    )


def _selected(query: BoundOnDemandQuery, events: EventBatch) -> EventBatch:
    """The output of the select clause, which a change without one does not have."""
    if not query.outputs:
        return events
    schema = StreamSchema("", ()) if query.store is None else query.store.schema
    whole = BoundQuery(
        "on-demand",
        BoundStream(schema),
        query.outputs,
        query.group_by,
        query.having,
        query.action,
        EventKind.CURRENT,
        query.order_by,
        query.limit,
        query.offset,
    )
    frame = Frame.of_events(events)
    output = Selector(whole, Expiry.NEVER, batch=True).process(frame, events)
    _raise_first(frame.failures)
    return output


def _raise_first(failures: Mapping[int, str]) -> None:
    """Raise MESH-O110 for the first row that failed, if any."""
    if failures:
        raise MeshError(
            "MESH-O110",
            "the on-demand query fails on a row",
            detail=f"{failures[min(failures)]}.",
        )


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
