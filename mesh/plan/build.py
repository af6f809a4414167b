"""Planning: from the text of an app to the plan that ``mesh deploy`` stores and workers compile."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mesh.errors import MeshError
from mesh.language.naming import named
from mesh.language.parser import parse
from mesh.language.print_expressions import print_name
from mesh.language.printer import print_app
from mesh.language.syntax import (
    AggregationDefinition,
    Annotation,
    App,
    AttributeDefinition,
    FunctionDefinition,
    Partition,
    Query,
    StreamDefinition,
    TableDefinition,
    TriggerDefinition,
    WindowDefinition,
    find,
)
from mesh.model.app import AppSpec, GroupKind, GroupSpec
from mesh.plan.bind import bind, parse_bindable
from mesh.plan.channels import (
    PARTITIONS,
    ChannelLayout,
    Partitioner,
    layout_channels,
    trigger_group,
)
from mesh.plan.connectors import address_of, connector_of
from mesh.plan.groups import Element, Group, app_name, split_app, with_instances, with_token
from mesh.plan.guarantees import check_guarantee
from mesh.plan.history_source import check_history
from mesh.plan.limits import check_deployable
from mesh.plan.outside_calls import as_planned
from mesh.plan.supported import check_supported

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mesh.language.syntax import Definition
    from mesh.model.types import StreamSchema
    from mesh.plan.bound import BoundApp, BoundTrigger
    from mesh.plan.dependencies import Uses
    from mesh.plan.receivers import Connections, ConnectorGroup, Receiver


@dataclass(frozen=True, slots=True)
class AppPlan:
    """An app as bound, and as the cluster will store it."""

    bound: BoundApp
    spec: AppSpec
    #: The groups of its elements; empty where only what is stored was at hand.
    groups: tuple[Group, ...] = field(default=(), compare=False, repr=False)


def plan(app: str | App, *, partitions: int = PARTITIONS) -> AppPlan:
    """Plan an app, from its text or its tree; a text without a name is given one.

    Args:
        app: the text; or a tree, whose printed form is the text then.
        partitions: virtual partitions of each keyed channel, at least 1.

    Raises:
        MeshError: MESH-L for violations of the language, its names and types, MESH-P for parts that
            can't be deployed; with the position in the text.
    """
    if isinstance(app, str):
        text = named(app)
        tree = parse_bindable(text)
        # Positions of what is stored are those of the text with the name.
        text = str(text)
    else:
        text, tree = print_app(app), app
    name = app_name(tree)
    if name != tree.name:
        tree = with_token(tree)
    return plan_bound(text, tree, bind(tree), partitions=partitions)


def plan_bound(text: str, tree: App, bound: BoundApp, *, partitions: int = PARTITIONS) -> AppPlan:
    """Plan an app that has a name and is bound; as ``plan``."""
    divided = as_planned(tree, bound, of_clients=True)
    if divided is not tree:
        tree, bound = divided, bind(divided)
    name = app_name(tree)
    groups = split_app(tree, bound)
    wiring = layout_channels(bound, groups, partitions, {d.name for d in tree.streams})
    receivers = wiring.connections.receivers
    specs = [_receiver_spec(r, bound, tree, wiring) for r in receivers]
    specs += [_partitioner_spec(p, bound, tree, wiring) for p in wiring.partitioners]
    specs += [_trigger_spec(t, bound, tree, wiring) for t in wiring.triggers]
    specs += [_group_spec(g, bound, tree, wiring) for g in groups]
    specs += [_connector_spec(d, tree, wiring) for d in wiring.connections.connectors]
    _refuse_same_addresses(wiring.connections.connectors, name)
    check_guarantee(tree, wiring.connections.connectors)
    check_history(tree)
    creates = _creates_channels(tree)
    bounds = {g.name: g.bounds for g in groups if g.bounds is not None}
    spec = AppSpec(name, text, wiring.channels, tuple(specs), creates, bounds)
    check_supported(bound)
    check_deployable(bound, groups, wiring.channels)
    return AppPlan(bound, spec, groups)


def _creates_channels(tree: App) -> bool:
    """Whether the mesh creates the app's JetStream streams; MESH-P225 for another word."""
    annotation = find(tree.annotations, "App:transportChannelCreationEnabled")
    said = (annotation.get() or "").strip().lower() if annotation is not None else "true"
    if annotation is not None and said not in ("true", "false"):
        raise MeshError(
            "MESH-P225",
            f'@{annotation.name} is true or false, not "{annotation.get() or ""}"',
            hint=f"Write @{annotation.name}('false') for streams that are there already.",
            position=annotation.position,
        )
    return said == "true"


def _group_spec(group: Group, bound: BoundApp, tree: App, wiring: ChannelLayout) -> GroupSpec:
    uses = group.uses
    # The definition of its stream also defines a fault stream.
    touched = frozenset(name.removeprefix("!") for name in (*uses.reads, *uses.writes))
    others = [d for d in tree.definitions if _is_used(d, uses)]
    elements = tuple(
        _with_names(element)
        for element in group.elements
        if not isinstance(element.tree, AggregationDefinition)
    )
    part = _Part(bound, tree, wiring.connections, group.name)
    spec = GroupSpec(
        app=bound.name,
        name=group.name,
        parallel=group.parallel,
        text=part.text([s for s in bound.streams if s.name in touched], others, elements),
        inputs=wiring.inputs[group.name],
        outputs=wiring.outputs[group.name],
        stateful=group.is_stateful,
        sources=part.sources,
        node=group.node,
        standby=group.standby,
        mode=group.mode,
    )
    return spec if group.bounds is None else with_instances(spec, group.parallel)


def _partitioner_spec(
    partitioner: Partitioner, bound: BoundApp, tree: App, wiring: ChannelLayout
) -> GroupSpec:
    stream = partitioner.source.stream
    computed = _computing(stream.name, partitioner.target.computed)
    scripts = _called(tree, [partitioner.target.computed])
    part = _Part(bound, tree, wiring.connections, partitioner.name)
    return GroupSpec(
        app=bound.name,
        name=partitioner.name,
        parallel=1,
        text=part.text([stream], scripts, computed),
        inputs=wiring.inputs[partitioner.name],
        outputs=wiring.outputs[partitioner.name],
        stateful=False,
        kind=GroupKind.PARTITIONER,
    )


def _computing(stream: str, key: str) -> tuple[Partition, ...]:
    """A partition with a computed key, for a group that has to place events by it."""
    if not key:
        return ()
    name = print_name(stream)
    query = f"from {name} select * insert into #{name};"
    return parse(
        f"define stream {name} (a int); partition with ({key} of {name}) begin {query} end;"
    ).partitions


def _called(tree: App, keys: Iterable[str]) -> list[Definition]:
    """The functions of the app that computed keys call."""
    texts = tuple(keys)
    return [
        d
        for d in tree.definitions
        if isinstance(d, FunctionDefinition)
        and any(re.search(rf"\b{re.escape(d.name)}\s*\(", text) for text in texts)
    ]


def _receiver_spec(
    receiver: Receiver, bound: BoundApp, tree: App, wiring: ChannelLayout
) -> GroupSpec:
    outputs = wiring.outputs[receiver.name]
    keys = [key for c in outputs for key in _computing(receiver.stream, c.computed)]
    scripts = _called(tree, [c.computed for c in outputs])
    part = _Part(bound, tree, wiring.connections, receiver.name)
    return GroupSpec(
        app=bound.name,
        name=receiver.name,
        parallel=receiver.parallel,
        text=part.text([bound.stream(receiver.stream)], scripts, keys),
        inputs=wiring.inputs[receiver.name],
        outputs=outputs,
        stateful=False,
        kind=GroupKind.RECEIVER,
        sources=part.sources,
    )


def _connector_spec(connector: ConnectorGroup, tree: App, wiring: ChannelLayout) -> GroupSpec:
    """A group of the connector host; its text is the stream with that source or sink alone."""
    (written,) = {d.name: d for d in tree.streams if d.name == connector.stream}.values()
    definition = replace(written, annotations=(connector.annotation,))
    name = app_name(tree)
    return GroupSpec(
        app=name,
        name=connector.name,
        parallel=connector.parallel,
        text=print_app(App((Annotation("App:name", ((None, name),)),), (definition,))),
        inputs=wiring.inputs[connector.name],
        outputs=wiring.outputs[connector.name],
        stateful=False,
        kind=GroupKind.RECEIVER if connector.is_source else GroupKind.SINK,
        sources=(connector.stream,) if connector.is_source else (),
        sinks=() if connector.is_source else (connector.stream,),
        connectors=(connector.kind,),
        address=address_of(connector_of(connector.annotation), name, connector.stream),
    )


def _refuse_same_addresses(connectors: Iterable[ConnectorGroup], app: str) -> None:
    """Refuse two sources that bind the same address and path; MESH-P233."""
    seen: dict[str, ConnectorGroup] = {}
    for connector in connectors:
        address = address_of(connector_of(connector.annotation), app, connector.stream)
        first = seen.setdefault(address, connector) if address else connector
        if first is not connector:
            raise MeshError(
                "MESH-P233",
                f'sources of streams "{first.stream}" and "{connector.stream}" accept at {address}',
                hint="Give one of them another port or path.",
                position=connector.annotation.position,
            )


def _trigger_spec(
    trigger: BoundTrigger, bound: BoundApp, tree: App, wiring: ChannelLayout
) -> GroupSpec:
    name = trigger_group(trigger)
    definitions = [
        d
        for d in tree.definitions
        if isinstance(d, TriggerDefinition) and d.name == trigger.schema.name
    ]
    return GroupSpec(
        app=bound.name,
        name=name,
        parallel=1,
        text=_Part(bound, tree, wiring.connections, name).text([], definitions, ()),
        inputs=(),
        outputs=wiring.outputs[name],
        stateful=False,
        kind=GroupKind.TRIGGER,
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """One group's part of an app, as an app of its own."""

    bound: BoundApp
    tree: App
    connections: Connections
    group: str

    @property
    def sources(self) -> tuple[str, ...]:
        """Streams whose sources run in the group."""
        return self.connections.sources.get(self.group, ())

    def text(
        self,
        streams: Iterable[StreamSchema],
        others: Iterable[Definition],
        elements: Iterable[Query | Partition],
    ) -> str:
        """Its text: every stream that it touches has its definition."""
        written = {definition.name: definition for definition in self.tree.streams}
        definitions = (
            self._local(written[s.name]) if s.name in written else _definition(s) for s in streams
        )
        annotations = [Annotation("App:name", ((None, self.bound.name),))]
        for name in ("App:playback", "App:aggTimeZone"):
            annotation = find(self.tree.annotations, name)
            if annotation is not None:
                annotations.append(annotation)
        return print_app(App(tuple(annotations), (*definitions, *others, *elements)))

    def _local(self, definition: StreamDefinition) -> StreamDefinition:
        """A definition without the sources and sinks that run in other groups."""
        foreign = {"sink"}
        if definition.name not in self.sources:
            foreign.add("source")
        annotations = tuple(a for a in definition.annotations if a.name.lower() not in foreign)
        return (
            definition
            if annotations == definition.annotations
            else replace(definition, annotations=annotations)
        )


def _is_used(definition: Definition, uses: Uses) -> bool:
    """Whether a group needs ``definition``, which is not that of a stream, for itself."""
    match definition:
        case TableDefinition():
            return definition.name in uses.tables
        case WindowDefinition():
            return definition.name in uses.windows
        case FunctionDefinition():
            return definition.name in uses.scripts
        case AggregationDefinition():
            return definition.name in uses.aggregations
        # For a reader, a trigger is a stream like any other.
        case StreamDefinition() | TriggerDefinition():
            return False


def _definition(schema: StreamSchema) -> StreamDefinition:
    attributes = tuple(AttributeDefinition(a.name, a.type) for a in schema.attributes)
    return StreamDefinition(schema.name, attributes)


def _with_names(element: Element) -> Query | Partition:
    """The tree of ``element`` with all names written out: alone, the numbers would be others."""
    queries = tuple(_named(query, bound.name) for query, bound in element.queries)
    if isinstance(element.tree, Partition):
        return replace(element.tree, queries=queries)
    return queries[0]


def _named(query: Query, name: str) -> Query:
    if query.name is not None:
        return query
    info = find(query.annotations, "info")
    named = Annotation(
        info.name if info else "info",
        (("name", name), *(info.elements if info else ())),
        info.annotations if info else (),
    )
    others = tuple(a for a in query.annotations if a is not info)
    return replace(query, annotations=(named, *others))
