"""A text to a plan: what ``mesh deploy`` stores and what workers compile their part from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mesh.errors import MeshError, Position
from mesh.language.parser import parse
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
from mesh.plan.bind import bind
from mesh.plan.channels import PARTITIONS, Partitioner, Wiring, wire
from mesh.plan.deployable import check_deployable
from mesh.plan.groups import Element, Group, app_name, cut
from mesh.plan.supported import check_supported

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mesh.language.syntax import Definition
    from mesh.model.types import StreamSchema
    from mesh.plan.bound import BoundApp
    from mesh.plan.uses import Uses


@dataclass(frozen=True, slots=True)
class AppPlan:
    """An app as bound, and as the cluster will hold it."""

    bound: BoundApp
    spec: AppSpec


def plan(app: str | App, *, partitions: int = PARTITIONS) -> AppPlan:
    """Plan an app, from its text or its tree.

    Args:
        app: the text; or a tree, whose printed form is the text then.
        partitions: virtual partitions of each keyed channel, at least 1.

    Raises:
        MeshError: MESH-L for what the language or its names and types don't allow, MESH-P for what
            can't be deployed; with the position in the text.
    """
    text, tree = (app, parse(app)) if isinstance(app, str) else (print_app(app), app)
    name = app_name(tree)
    bound = bind(tree)
    if not (tree.queries or tree.partitions):
        raise MeshError(
            "MESH-P103",
            f'app "{name}" has no query',
            hint="Add one: from S select * insert into T;",
            position=Position(1, 1),
        )
    groups = cut(tree, bound)
    wiring = wire(bound, groups, partitions)
    check_supported(bound)
    check_deployable(bound, groups)
    specs = [_partitioner_spec(p, name, tree, wiring) for p in wiring.partitioners]
    specs += [_group_spec(g, bound, tree, wiring) for g in groups]
    return AppPlan(bound, AppSpec(name, text, wiring.channels, tuple(specs)))


def bind_group(spec: GroupSpec) -> BoundApp:
    """What a worker runs for ``spec``: its text, parsed and bound.

    A partitioner has no queries; it copies its input to its output.
    """
    return bind(parse(spec.text))


def _group_spec(group: Group, bound: BoundApp, tree: App, wiring: Wiring) -> GroupSpec:
    uses = group.uses
    touched = frozenset((*uses.reads, *uses.writes))
    streams = [schema for schema in bound.streams if schema.name in touched]
    others = [d for d in tree.definitions if _is_used(d, uses)]
    elements = tuple(_with_names(element) for element in group.elements)
    return GroupSpec(
        app=bound.name,
        name=group.name,
        parallel=group.parallel,
        text=_part(bound.name, streams, tree, others, elements),
        inputs=wiring.inputs[group.name],
        outputs=wiring.outputs[group.name],
        stateful=group.is_stateful,
    )


def _partitioner_spec(partitioner: Partitioner, app: str, tree: App, wiring: Wiring) -> GroupSpec:
    return GroupSpec(
        app=app,
        name=partitioner.name,
        parallel=1,
        text=_part(app, [partitioner.source.stream], tree, (), ()),
        inputs=wiring.inputs[partitioner.name],
        outputs=wiring.outputs[partitioner.name],
        stateful=False,
        kind=GroupKind.PARTITIONER,
    )


def _part(
    app: str,
    streams: Iterable[StreamSchema],
    tree: App,
    others: Iterable[Definition],
    elements: Iterable[Query | Partition],
) -> str:
    """A part of ``tree`` as an app by itself: every stream that it touches has its definition."""
    written = {definition.name: definition for definition in tree.streams}
    definitions = (written.get(s.name) or _definition(s) for s in streams)
    annotations = (Annotation("App:name", ((None, app),)),)
    return print_app(App(annotations, (*definitions, *others, *elements)))


def _is_used(definition: Definition, uses: Uses) -> bool:
    """Whether a group needs ``definition``, which is not that of a stream, for itself."""
    match definition:
        case TableDefinition():
            return definition.name in uses.tables
        case WindowDefinition():
            return definition.name in uses.windows
        case TriggerDefinition():
            return definition.name in uses.triggers
        case FunctionDefinition():
            return definition.name in uses.scripts
        case StreamDefinition() | AggregationDefinition():
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
