"""Builds the dataflow of an app from its triggers, named windows, queries and partitions.

Nodes are in the order in which the engine subscribes them: triggers, named windows, aggregations,
then queries and partitions as written. A partition is a key router and the queries that it feeds;
in bulk execution these are one node.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mesh.language.syntax import find
from mesh.operators.aggregations.rollup import milliseconds, zone_of
from mesh.operators.aggregations.tables import channels_in
from mesh.operators.dataflow.accesses import (
    accesses_of,
    aggregation_access,
    checked_tables,
    table_access,
    window_access,
)
from mesh.operators.dataflow.aggregation_node import AggregationNode, NamedWindowNode, window_input
from mesh.operators.dataflow.bulk import BulkDataflow
from mesh.operators.dataflow.depth_first import StepwiseDataflow, collapse_cycles
from mesh.operators.dataflow.graph import (
    DataflowNode,
    StateAccess,
    feeds_back_into,
    has_conflicts,
    stages_of,
    topological_order,
)
from mesh.operators.dataflow.key_router import KeyRouter, PurgePolicy
from mesh.operators.dataflow.partition import PartitionNode
from mesh.operators.dataflow.query_node import OutputTarget, QueryNode
from mesh.operators.dataflow.trigger import TriggerNode
from mesh.operators.failures import FAILED
from mesh.operators.joins.query import LOOKUPS, JoinQuery, is_stepwise
from mesh.operators.query.pattern import PatternQuery
from mesh.operators.query.stream import StreamQuery
from mesh.operators.tables import TableAction, Tables
from mesh.plan.bound import (
    AnswerOutput,
    BoundJoin,
    BoundPartition,
    BoundPattern,
    Insert,
    SourceKind,
)
from mesh.plan.dependencies import handler_expressions, joined_aggregations
from mesh.plan.stores import stored_table_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from mesh.language.syntax import Annotation
    from mesh.operators.base import Longs
    from mesh.operators.dataflow.graph import Dataflow, NodeOperator
    from mesh.operators.query.results import RunningQuery
    from mesh.plan.bound import (
        BoundAggregation,
        BoundApp,
        BoundNamedWindow,
        BoundQuery,
        BoundTrigger,
    )


@dataclass(frozen=True, slots=True)
class PartitionScope:
    """A partition: the first of its nodes is the key router."""

    name: str
    nodes: tuple[DataflowNode, ...]


class DataflowBuilder:
    """The nodes of ``app``.

    ``tables``: the tables, which exist already. ``windows``, ``aggregations``: filled with the
    named windows and the aggregations, by name. ``outputs``: the streams that leave. ``parts``:
    nodes and partitions, in order.
    """

    def __init__(
        self,
        app: BoundApp,
        tables: Tables,
        windows: dict[str, NamedWindowNode],
        outputs: Collection[str] = (),
        aggregations: dict[str, AggregationNode] | None = None,
    ) -> None:
        self.tables = tables
        self.windows = windows
        self.aggregations = {} if aggregations is None else aggregations
        streams = {stream.name: stream.arrow for stream in app.streams}
        # Events on a fault stream without a reader would be lost.
        queries = [*app.queries, *(query for part in app.partitions for query in part.queries)]
        taken = {name for query in queries for name in query.input_streams} | set(outputs)
        self._faults = {
            name[1:]: streams[name] for name in streams if name.startswith("!") and name in taken
        }
        self.parts: list[DataflowNode | PartitionScope] = [
            DataflowNode(
                f"trigger-{t.schema.name}", (), (t.schema.name,), _trigger(t), is_last=True
            )
            for t in app.triggers
        ]
        self.parts += [self._window(window) for window in app.windows]
        self._state_tables = {
            table.schema.name: table for table in app.tables if stored_table_of(table) is None
        }
        zone = zone_of(app.annotations)
        self._joined = joined_aggregations(app)
        self.parts += [self._aggregation(one, zone) for one in app.aggregations]
        elements: list[BoundQuery | BoundPartition] = [*app.queries, *app.partitions]
        numbers = {id(query): number for number, query in enumerate(app.queries)}
        numbers |= {id(partition): number for number, partition in enumerate(app.partitions)}
        elements.sort(key=lambda element: (element.position.line, element.position.column))
        for element in elements:
            number = numbers[id(element)]
            if isinstance(element, BoundPartition):
                self.parts.append(self._region(number, element))
            else:
                self.parts.append(self._query(f"query{number}", element, ""))

    @property
    def flat(self) -> list[DataflowNode]:
        """All nodes, including the key routers and queries of partitions."""
        nodes: list[DataflowNode] = []
        for part in self.parts:
            nodes += part.nodes if isinstance(part, PartitionScope) else [part]
        return nodes

    def grouped(self) -> list[DataflowNode] | None:
        """All nodes, with each partition and each cycle of queries as one node.

        None if the output of such a node leads to a write of state that its queries read: the
        write happens between one query of the node and the next.
        """
        units: list[DataflowNode] = []
        for part in self.parts:
            if isinstance(part, PartitionScope):
                units.append(_whole(part))
            else:
                units.append(part)
        regions = {part.name for part in self.parts if isinstance(part, PartitionScope)}
        nodes = collapse_cycles(units, regions)
        if nodes is None:
            return None
        composites = {node.name for node in nodes} - ({node.name for node in units} - regions)
        wholes = [number for number, node in enumerate(nodes) if node.name in composites]
        return None if any(feeds_back_into(nodes, number) for number in wholes) else nodes

    def _window(self, definition: BoundNamedWindow) -> DataflowNode:
        name = definition.schema.name

        def make(timer: int) -> NodeOperator:
            work = self.windows[name] = NamedWindowNode(definition, timer)
            return work

        access = StateAccess(window_access(name), f"window-{name}", True)
        return DataflowNode(
            f"window-{name}", (window_input(name),), (name,), make, accesses=(access,)
        )

    def _aggregation(self, definition: BoundAggregation, zone: str | None) -> DataflowNode:
        name, stream = definition.schema.name, definition.input.schema.name
        fault = self._faults.get(stream)

        def make(timer: int) -> NodeOperator:
            work = self.aggregations[name] = AggregationNode(
                definition, timer, fault, zone, is_joined=name in self._joined
            )
            return work

        reads = checked_tables(handler_expressions(definition.input.handlers))
        node_name = f"aggregation-{name}"
        tables = channels_in((definition,))
        return DataflowNode(
            node_name,
            (stream,),
            (*((f"!{stream}",) if fault is not None else ()), FAILED, *tables),
            make,
            accesses=(
                StateAccess(aggregation_access(name), node_name, True),
                *(StateAccess(table_access(table), node_name, False) for table in reads),
            ),
        )

    def _query(self, name: str, query: BoundQuery, inside: str) -> DataflowNode:
        channels = {
            f"{inside}{stream}": stream for stream, kind in query.inputs if kind not in LOOKUPS
        }
        channel, leaves = self._channel(query, inside)
        written = (channel,) if channel else self.tables.channels(query.target.name)
        accesses = accesses_of(name, query, inside, self._state_tables)
        reads = dict.fromkeys(channels.values())
        faults = tuple(f"!{s}" for s in reads if s in self._faults)
        return DataflowNode(
            name,
            tuple(channels),
            (*written, *faults, FAILED),
            lambda timer: QueryNode(
                query,
                make_query(query, timer, is_partitioned=bool(inside)),
                channels,
                self._target(query, channel, leaves),
                self._faults,
            ),
            accesses=accesses,
            is_stepwise=isinstance(query.input, BoundJoin) and is_stepwise(query.input),
            singles=_singles(query, inside),
        )

    def _channel(self, query: BoundQuery, inside: str) -> tuple[str, bool]:
        """The channel of the output, and whether that is outside of the partition."""
        action = query.action
        assert not isinstance(action, AnswerOutput), "an app's queries answer nobody"
        name = action.target.name
        if not isinstance(action, Insert) or action.kind is SourceKind.TABLE:
            return "", False
        match action.kind:
            case SourceKind.INNER:
                return f"{inside}{name}", False
            case SourceKind.WINDOW:
                return window_input(name), bool(inside)
            case SourceKind.FAULT:
                return f"!{name.removeprefix('!')}", bool(inside)
            case _:
                return name, bool(inside)

    def _target(self, query: BoundQuery, channel: str, leaves: bool) -> OutputTarget:
        action = query.action
        assert not isinstance(action, AnswerOutput), "an app's queries answer nobody"
        if channel:
            return OutputTarget(channel, leaves)
        return OutputTarget("", leaves, TableAction(action, self.tables[action.target.name]))

    def _region(self, number: int, partition: BoundPartition) -> PartitionScope:
        name = f"partition{number}"
        inside = f"{name}|"
        queries = [
            self._query(f"{name}.query{at}", query, inside)
            for at, query in enumerate(partition.queries)
        ]
        outer = {
            stream: f"{inside}{stream}"
            for query in partition.queries
            for stream, kind in query.inputs
            if kind is not SourceKind.INNER and kind not in LOOKUPS
        }
        keys = {key.stream: key for key in partition.keys if key.stream in outer}
        purge = _purge(partition.annotations)

        def running() -> Iterator[RunningQuery]:
            for node in queries:
                assert isinstance(node.work, QueryNode)
                yield node.work.query

        def begin(instances: Longs, clocks_ms: Longs) -> None:
            for query in running():
                query.begin(instances, clocks_ms)

        def forget(instances: Longs) -> None:
            for query in running():
                query.forget(instances)

        faults = {stream: self._faults[stream] for stream in keys if stream in self._faults}
        marked = tuple(f"!{stream}" for stream in faults)
        entrance = DataflowNode(
            f"{name}.entrance",
            tuple(outer),
            (*outer.values(), *marked, FAILED),
            lambda timer: KeyRouter(outer, keys, purge, begin, forget, name, faults),
            {
                stream: (channel, *((f"!{stream}",) if stream in faults else ()), FAILED)
                for stream, channel in outer.items()
            },
            accesses=tuple(
                StateAccess(table_access(table), name, False)
                for key in partition.keys
                for table in checked_tables(
                    e for e in (key.value, *(r.condition for r in key.ranges)) if e
                )
            ),
        )
        return PartitionScope(name, (entrance, *queries))


def make_dataflow(
    nodes: DataflowBuilder, outputs: Collection[str], *, in_bulk: bool
) -> tuple[list[DataflowNode], Dataflow]:
    """The nodes of an app and the dataflow that drives them.

    ``in_bulk``: whether to execute them in bulk, unless a partition's output returns to it.
    """
    grouped = nodes.grouped() if in_bulk else None
    order = None if grouped is None else topological_order(grouped, loops=True)
    if grouped is None or order is None:
        return nodes.flat, StepwiseDataflow(nodes.flat, outputs)
    return grouped, BulkDataflow(grouped, stages_of(grouped, order), outputs)


def make_query(query: BoundQuery, timer_path: int, is_partitioned: bool = False) -> RunningQuery:
    """The operators of ``query``, without state."""
    if isinstance(query.input, BoundPattern):
        return PatternQuery(query, query.input, timer_path, is_partitioned)
    if isinstance(query.input, BoundJoin):
        return JoinQuery(query, query.input, timer_path, is_partitioned)
    return StreamQuery(query, query.input, timer_path, is_partitioned)


def _trigger(trigger: BoundTrigger) -> Callable[[int], NodeOperator]:
    return lambda timer: TriggerNode(trigger)


def _whole(region: PartitionScope) -> DataflowNode:
    """A partition as one node: in bulk, unless its queries form a cycle or have conflicts."""
    entrance, *queries = region.nodes
    order = topological_order(queries)
    accesses = tuple(replace(t, by=None, keys=()) for node in region.nodes for t in node.accesses)
    steps = has_conflicts(accesses) or any(node.is_stepwise for node in region.nodes)
    inner = {channel for node in queries for channel in node.reads}
    written = (channel for node in region.nodes for channel in node.writes)
    writes = tuple(dict.fromkeys(channel for channel in written if channel not in inner))

    def make(timer: int) -> NodeOperator:
        flow: Dataflow
        if order is None or steps:
            flow = StepwiseDataflow(queries, writes, numbers=True)
        else:
            flow = BulkDataflow(queries, [(number,) for number in order], writes)
        for node, node_timer in zip(queries, flow.timers, strict=True):
            node.work = node.make(node_timer)
        work = entrance.work = entrance.make(timer)
        assert isinstance(work, KeyRouter)
        return PartitionNode(region.name, work, queries, flow)

    return DataflowNode(region.name, entrance.reads, writes, make, accesses=accesses)


def _singles(query: BoundQuery, inside: str) -> tuple[str, ...]:
    """The channels of a join's sides without a window: their events are processed one by one."""
    source = query.input
    if not isinstance(source, BoundJoin):
        return ()
    sides = (source.left, source.right)
    return tuple(
        f"{inside}{side.schema.name}"
        for side in sides
        if side.window is None and side.kind not in (*LOOKUPS, SourceKind.WINDOW)
    )


def _purge(annotations: Sequence[Annotation]) -> PurgePolicy | None:
    annotation = find(tuple(annotations), "purge")
    if annotation is None or (annotation.get("enable") or "").lower() != "true":
        return None
    idle = annotation.get("idle.period")
    assert idle is not None, "the binder refuses @purge without it"
    return PurgePolicy(milliseconds(annotation.get("interval") or "1 min"), milliseconds(idle))
