"""Computations of a manager for on-demand queries, in its bounded process: plan and answer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.ipc

from mesh.errors import MeshError, not_supported
from mesh.functions.objects import json_rows
from mesh.language.parser import parse, parse_on_demand_query
from mesh.model.app import Strategy
from mesh.model.partition import partitions
from mesh.model.question import too_many_rows
from mesh.model.types import AttributeType
from mesh.model.values import JsonMapping
from mesh.operators.aggregations.find import group_keys
from mesh.operators.aggregations.layout import Layout
from mesh.operators.divided import divide, is_grouped, merge
from mesh.plan.bind import bind, bind_on_demand
from mesh.plan.bound import AnswerOutput, SourceKind
from mesh.plan.stores import is_lookup_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.model.app import GroupSpec
    from mesh.plan.bound import BoundApp, BoundOnDemandQuery

#: The text of a group-by value that is null.
_NULL: Final = "null"


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """The group that has the answer to a query, and the names and types of its columns."""

    #: execGroup name of the group that keeps the store; None if no group uses it, so that nothing
    #: can be in it.
    group: str | None
    columns: tuple[tuple[str, str], ...]
    #: Whether it changes a table.
    changes: bool = False
    #: Whether any part has the whole answer: the table is read from its database.
    is_anywhere: bool = False
    #: Of a query for one group of an aggregation: the stream, and by attribute the group's values.
    one_group: tuple[str, JsonMapping] | None = None
    #: Whether it has aggregates or groups, whose rows in the parts are those of their base values.
    is_grouped: bool = False

    def part_of(self, group: GroupSpec) -> int | None:
        """The virtual partition that has the only group that is asked for; None: there are more."""
        stream, values = self.one_group or ("", {})
        for one in group.inputs:
            channel = one.channel
            is_by_key = one.strategy is Strategy.BY_KEY and bool(channel.key)
            if is_by_key and channel.stream.name == stream and values.keys() >= set(channel.key):
                columns = [pa.array([values[name]]) for name in channel.key]
                return int(partitions(columns, channel.partitions)[0])
        return None


@lru_cache(maxsize=64)
def plan_query(app_text: str, groups: tuple[tuple[str, str], ...], query: str) -> QueryPlan:
    """The plan of an on-demand query.

    Args:
        app_text: of the app.
        groups: the name and the text of each group.
        query: as written.

    Raises:
        MeshError: MESH-L* for a faulty query; MESH-P900 for one that does not run yet.
    """
    bound = bind_on_demand(parse_on_demand_query(query), _bound(app_text))
    changes = not isinstance(bound.action, AnswerOutput)
    if not changes and bound.store is None:
        raise not_supported("on-demand queries that neither read nor change", bound.action.position)
    if changes or bound.store is None:
        target = bound.action.target.name
    else:
        target = bound.store.table_of[0] if bound.store.table_of else bound.store.schema.name
    home = _home(target, groups)
    if changes and home is None:
        raise not_supported(
            f'an on-demand change of table "{bound.action.target.name}", which no query uses',
            bound.action.position,
            hint="No group of one instance can keep it: add a query that inserts into it.",
        )
    for name in bound.reads:
        other = _home(name, groups)
        if home is not None and other not in (home, None):
            raise not_supported(
                f'an on-demand query of group "{home}" with table "{name}" of group "{other}"',
                bound.action.position,
                hint="Each group keeps its own tables.  Ask for both, or use one group.",
            )
    columns = tuple(
        (o.name, (o.expression.type or AttributeType.OBJECT).value) for o in bound.outputs
    )
    is_anywhere = any(
        t.schema.name == target and is_lookup_table(t) for t in _bound(app_text).tables
    )
    one_group = _one_group(bound, _bound(app_text))
    return QueryPlan(home, columns, changes, is_anywhere, one_group, is_grouped(bound))


def _one_group(query: BoundOnDemandQuery, app: BoundApp) -> tuple[str, JsonMapping] | None:
    """The only group of an aggregation that a query asks for; None if there may be others."""
    store = query.store
    if store is None or store.kind is not SourceKind.AGGREGATION or store.on is None:
        return None
    aggregation = next((a for a in app.aggregations if a.schema.name == store.schema.name), None)
    if aggregation is None:
        return None
    layout = Layout.of(aggregation)
    keys = group_keys(store.on, store.schema.names, layout)
    if keys is None:
        return None
    values = [key.to_arrow(1)[0].as_py() for key in keys]
    if _NULL in values:
        # The group of events without a value as well, which another partition has.
        return None
    names = [key.name for key in layout.keys]
    return aggregation.input.schema.name, dict(zip(names, values, strict=True))


def _home(name: str, groups: tuple[tuple[str, str], ...]) -> str | None:
    """The group that keeps a store; None if none does."""
    return next((group for group, text in groups if name in _state_names(text)), None)


def check_aggregation(app_text: str, name: str) -> None:
    """Check that an app has an aggregation; MESH-A404."""
    names = [one.schema.name for one in _bound(app_text).aggregations]
    if name not in names:
        raise MeshError(
            "MESH-A404",
            f'aggregation "{name}" is not defined',
            detail=f"There are {', '.join(names)}." if names else "The app has none.",
        )


def records_of(answers: Sequence[bytes]) -> bytes:
    """The rows of Arrow IPC streams as a JSON list of lists."""
    return json_rows([batch for data in answers for batch in pa.ipc.open_stream(data)])


def merged_records(app_text: str, query: str, answers: Sequence[bytes], rows_max: int) -> bytes:
    """The answer to a query as a JSON list of lists, from the answers of several parts.

    A table or a window is in one partition of one instance; an aggregation may be in several.

    Args:
        app_text: of the app.
        query: as written.
        answers: Arrow IPC streams, those of ``divide(query).part``.
        rows_max: the most rows of an answer.

    Raises:
        MeshError: MESH-O110, an expression fails on a row; MESH-A413, there are too many rows;
            MESH-P900, see ``divide``.
    """
    bound = bind_on_demand(parse_on_demand_query(query), _bound(app_text))
    parts = [batch for data in answers for batch in pa.ipc.open_stream(data)]
    table = merge(divide(bound), parts)
    if table.num_rows > rows_max:
        raise too_many_rows(table.num_rows, rows_max)
    return json_rows(table.to_batches())


@lru_cache(maxsize=32)
def _bound(text: str) -> BoundApp:
    return bind(parse(text))


@lru_cache(maxsize=64)
def _state_names(text: str) -> frozenset[str]:
    """The tables, named windows and aggregations that a group keeps."""
    app = _bound(text)
    schemas = [table.schema for table in app.tables]
    schemas += [window.schema for window in app.windows]
    schemas += [aggregation.schema for aggregation in app.aggregations]
    return frozenset(schema.name for schema in schemas)
