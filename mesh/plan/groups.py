"""Division of an app into execution groups.

Queries, aggregations and whole partitions with the same ``@dist(execGroup='g', parallel='n')`` are
a group; those without share the group ``default``, of one instance.  A table or a named window
belongs to one group, of one instance, also a table in a store.  An
aggregation without ``execGroup`` is in the group of the elements that join it, or in its own.

Change of a group's number of instances: the same plan of the app in all else.

Three kinds of groups can be scaled without another change: a group that is divided by key, up to
the number of its partitions; a group without state, whose instances read blocks of their input in
turn; and a source of which several instances may take in events, as of ``kafka`` and ``http``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeVar

from mesh.connect import registry
from mesh.connect.spec import Role
from mesh.errors import MeshError, Position
from mesh.language.syntax import AggregationDefinition, Annotation, App, Partition, Query, find
from mesh.model import names
from mesh.model.app import GroupKind, GroupMode, ScaleBounds, Strategy
from mesh.plan.aggregation_tables import dividing_attribute, joins_with
from mesh.plan.bound import BoundAggregation, BoundApp, BoundPartition, BoundQuery, BoundTable
from mesh.plan.dependencies import Uses, union, uses_of
from mesh.plan.diagnostics import nearest
from mesh.plan.dist import AGGREGATION_PREFIX, DEFAULT_GROUP, Dist, read_dist
from mesh.plan.loops import Loop, loops_of, refuse_loops
from mesh.plan.stores import is_in_file, is_lookup_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mesh.model.app import AppSpec, GroupSpec


Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Element:
    """A query, a partition or an aggregation: its tree, and its bound form."""

    tree: Query | Partition | AggregationDefinition
    bound: BoundQuery | BoundPartition | BoundAggregation

    @property
    def queries(self) -> tuple[tuple[Query, BoundQuery], ...]:
        """The query, or those inside of the partition; an aggregation has none."""
        if isinstance(self.tree, AggregationDefinition):
            return ()
        if isinstance(self.tree, Partition):
            assert isinstance(self.bound, BoundPartition), "bound in the order of the trees"
            return tuple(zip(self.tree.queries, self.bound.queries, strict=True))
        assert isinstance(self.bound, BoundQuery), "bound in the order of the trees"
        return ((self.tree, self.bound),)

    @property
    def uses(self) -> Uses:
        """The parts of the app that it uses."""
        return uses_of(self.bound)


@dataclass(frozen=True)
class Group:
    """The elements of one execution group, in the order written."""

    name: str
    parallel: int
    elements: tuple[Element, ...]
    #: Virtual partitions of the keyed channels that it reads; None if not specified.
    partitions: int | None = None
    #: Labels that a worker must have to run it.
    node: tuple[str, ...] = ()
    #: Standbys of each of its instances, 0 or 1.
    standby: int = 0
    mode: GroupMode = GroupMode.REAL_TIME
    #: Fault streams (``!S``) with a reader: of streams that this group reads, so that events on
    #: which its queries fail go there.
    faults: tuple[str, ...] = ()
    #: Bounds of its number of instances; None if the load does not decide it.
    bounds: ScaleBounds | None = None
    #: Tables that no element uses, and that it keeps for on-demand queries.
    unused_tables: tuple[str, ...] = ()

    @property
    def most(self) -> int:
        """The greatest number of instances that it gets without a person's order."""
        return self.bounds.most if self.bounds is not None else self.parallel

    @property
    def is_shared(self) -> bool:
        """Whether its instances share their input, or may once it is scaled."""
        return self.most > 1 or self.partitions is not None

    @property
    def width(self) -> str:
        """Its size in instances or partitions, for messages."""
        if self.bounds is not None:
            return f"of up to {self.bounds.most} instances"
        if self.parallel == 1 and self.partitions is not None:
            return f"of {self.partitions} partitions"
        return f"with parallelism {self.parallel}"

    @property
    def to_unshare(self) -> str:
        """The change that would reduce it to one instance, as the start of a hint."""
        name = f'for group "{self.name}"'
        if self.bounds is not None:
            return f"Leave 'min' and 'max' out {name}"
        if self.parallel == 1 and self.partitions is not None:
            return f"Leave 'partitions' out {name}"
        return f"Set parallel='1' {name}"

    @property
    def queries(self) -> tuple[tuple[Query, BoundQuery], ...]:
        """All its queries, including those in partitions."""
        return tuple(query for element in self.elements for query in element.queries)

    @cached_property
    def uses(self) -> Uses:
        """The parts of the app that its elements use, and the fault streams of their failures."""
        element_uses = union(element.uses for element in self.elements)
        return union([element_uses, Uses(writes=self.faults, tables=self.unused_tables)])

    @property
    def reads(self) -> tuple[str, ...]:
        """The streams that its queries read, each once."""
        return self.uses.reads

    @property
    def writes(self) -> tuple[str, ...]:
        """The streams that its queries insert into, each once."""
        return self.uses.writes

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """The loops of its queries."""
        return loops_of([element.queries for element in self.elements])

    @cached_property
    def is_stateful(self) -> bool:
        """Whether one of its queries keeps state, or its failures are events for a reader.

        Then the whole group runs as a stateful one, and one with a loop does.
        """
        is_stateless = all(
            isinstance(element.bound, BoundQuery) and element.bound.is_stateless
            for element in self.elements
        )
        return bool(self.faults or self.unused_tables or self.loops) or not is_stateless


def split_app(app: App, bound: BoundApp) -> tuple[Group, ...]:
    """The groups of ``app``, in the order of their first elements.

    Raises:
        MeshError: MESH-P2xx if ``@dist`` requests the impossible, MESH-P900 if it is not supported
            yet.
    """
    members: dict[str, list[Element]] = {}
    said: dict[str, list[Dist]] = {}
    elements = list(_elements(app, bound))
    homes = _homes(elements)
    for element in elements:
        dist = _dist(element)
        if isinstance(element.bound, BoundAggregation) and _is_placed_by_reader(element):
            home = homes.get(element.bound.schema.name)
            if home is not None:
                # Its own annotation says nothing about a group that it does not name.
                members.setdefault(home.group, []).append(element)
                said.setdefault(home.group, []).append(home)
                continue
        members.setdefault(dist.group, []).append(element)
        said.setdefault(dist.group, []).append(dist)
    groups = _with_faults(
        [_group(name, said[name], tuple(parts)) for name, parts in members.items()]
    )
    _refuse_scattered(groups, bound.tables)
    for group in groups:
        _refuse_far_aggregations(group)
        shared = f'group "{group.name}" {group.width}' if group.is_shared else ""
        refuse_loops(group.loops, shared, group.to_unshare)
    return _with_unused(groups, bound)


def _with_unused(groups: Sequence[Group], bound: BoundApp) -> tuple[Group, ...]:
    """The groups, one of which keeps the tables that no element uses.

    On-demand queries change and read them; a group of one instance that has a state is preferred.
    """
    used = union(group.uses for group in groups).tables
    left = tuple(t.schema.name for t in bound.tables if t.schema.name not in used)
    able = [group for group in groups if not group.is_shared and group.queries and group.reads]
    home = next((group for group in able if group.is_stateful), able[0] if able else None)
    if home is None or not left:
        return tuple(groups)
    return tuple(replace(group, unused_tables=left) if group is home else group for group in groups)


def _dist(element: Element) -> Dist:
    tree = element.tree
    otherwise = DEFAULT_GROUP
    if isinstance(tree, AggregationDefinition):
        otherwise = f"{AGGREGATION_PREFIX}{tree.name}"
    return read_dist(tree.annotations, tree.position, otherwise)


def _is_placed_by_reader(element: Element) -> bool:
    dist = find(element.tree.annotations, "dist")
    return dist is None or dist.get("execGroup") is None


def _homes(elements: Sequence[Element]) -> dict[str, Dist]:
    """By aggregation, the ``@dist`` of the first element that joins it."""
    homes: dict[str, Dist] = {}
    for element in elements:
        if not isinstance(element.bound, BoundAggregation):
            for name in element.uses.aggregations:
                homes.setdefault(name, _dist(element))
    return homes


def _group(name: str, said: Sequence[Dist], elements: tuple[Element, ...]) -> Group:
    """The group of ``elements``; MESH-P202 if they don't agree on its settings."""
    _agreed(name, "parallelisms", [(d, d.parallel) for d in said])
    partitions = _agreed(name, "numbers of partitions", [(d, d.partitions) for d in said])
    nodes = [(d, ", ".join(d.node) if d.node is not None else None) for d in said]
    _agreed(name, "nodes", nodes)
    standby = _agreed(name, "numbers of standbys", [(d, d.standby) for d in said])
    bounds = _agreed(name, "bounds of its instances", [(d, d.bounds) for d in said])
    mode = _agreed(name, "modes", [(d, d.mode) for d in said])
    return Group(
        name,
        said[0].parallel,
        elements,
        partitions,
        next((d.node for d in said if d.node is not None), ()),
        standby or 0,
        mode or GroupMode.REAL_TIME,
        bounds=bounds,
    )


def _agreed(name: str, what: str, said: Sequence[tuple[Dist, Value | None]]) -> Value | None:
    """A setting of a group that all elements which state it agree on; None if none does."""
    stated = [(dist, value) for dist, value in said if value is not None]
    for dist, value in stated:
        first, agreed = stated[0]
        if value != agreed:
            raise MeshError(
                "MESH-P202",
                f'group "{name}" is given two {what}',
                detail=f"It is {agreed} in line {{line}}, and {value} here.",
                hint="Give every element of a group the same; without one it is 1."
                if what == "parallelisms"
                else "Say it once for a group, or the same each time.",
                position=dist.position,
                related=first.position,
            )
    return stated[0][1] if stated else None


def _with_faults(groups: Sequence[Group]) -> tuple[Group, ...]:
    """Add to each group the fault streams that it writes."""
    read = dict.fromkeys(fault for group in groups for fault in group.uses.faults)
    return tuple(
        replace(group, faults=tuple(f for f in read if f.removeprefix("!") in group.reads))
        for group in groups
    )


def _elements(app: App, bound: BoundApp) -> Iterator[Element]:
    queries, partitions = iter(bound.queries), iter(bound.partitions)
    aggregations = iter(bound.aggregations)
    for tree in app.elements:
        if isinstance(tree, Query):
            yield Element(tree, next(queries))
        elif isinstance(tree, AggregationDefinition):
            yield Element(tree, next(aggregations))
        elif isinstance(tree, Partition):
            for query in tree.queries:
                _refuse_inner_dist(query)
            yield Element(tree, next(partitions))


def _refuse_inner_dist(query: Query) -> None:
    for annotation in query.annotations:
        if annotation.name.lower() == "dist":
            raise MeshError(
                "MESH-P215",
                "@dist inside of a partition",
                detail="A partition is in one group, with all its queries.",
                hint="Put @dist before 'partition with'.",
                position=annotation.position,
            )


def _refuse_scattered(groups: tuple[Group, ...], tables: Sequence[BoundTable]) -> None:
    """Refuse tables, windows and models in two groups, or in a group of several instances."""
    bound = (element.bound for group in groups for element in group.elements)
    aggregations = (one for one in bound if isinstance(one, BoundAggregation))
    stored = {table.schema.name for table in tables if find(table.annotations, "store")}
    stored |= {one.schema.name for one in aggregations if find(one.annotations, "store")}
    files = {table.schema.name for table in tables if is_in_file(table.annotations)}
    # They are read from their database, by any instance.
    anywhere = {table.schema.name for table in tables if is_lookup_table(table)} - files

    def also(kind: str, name: str) -> str:
        is_shareable = kind == "table" and name in stored and name not in files
        return ", or write kept='false' into its @store" if is_shareable else ""

    home: dict[tuple[str, str], Group] = {}
    for group in groups:
        for element in group.elements:
            uses = element.uses
            states = [("table", n) for n in uses.tables if n not in anywhere]
            states += [("window", n) for n in uses.windows]
            states += [("aggregation", n) for n in uses.aggregations]
            states += [("model", n) for n in uses.models]
            for kind, name in states:
                other = home.setdefault((kind, name), group)
                if other is not group:
                    raise MeshError(
                        "MESH-P217",
                        f'{kind} "{name}" is used in groups "{other.name}" and "{group.name}"',
                        detail="One of them keeps it, and writes it to its store."
                        if name in stored
                        else "It is kept in memory, by one of them.",
                        hint=f"Put the elements that use it into one group{also(kind, name)}.",
                        position=element.tree.position,
                    )
                if group.is_shared and kind != "aggregation":
                    raise MeshError(
                        "MESH-P216",
                        f'{kind} "{name}" in group "{group.name}" {group.width}',
                        detail="Each instance would keep a part of it.",
                        hint=f"{group.to_unshare}, or move the element to "
                        f"another group{also(kind, name)}.",
                        position=element.tree.position,
                    )


def _refuse_far_aggregations(group: Group) -> None:
    """Refuse joins whose events find rows in the state of other instances."""
    bound = [element.bound for element in group.elements] if group.is_shared else []
    for aggregation in (one for one in bound if isinstance(one, BoundAggregation)):
        joins: list[Mapping[str, str]] = []
        for element in group.elements:
            pairs = list(joins_with(aggregation, element.bound))
            joins += pairs
            if not pairs or dividing_attribute(joins) is not None:
                continue
            name = aggregation.schema.name
            is_alone = dividing_attribute(pairs) is None
            raise MeshError(
                "MESH-P221",
                f'aggregation "{name}" joined in group "{group.name}" {group.width}',
                detail="An event may find rows that are in the state of other instances."
                if is_alone
                else "Its joins have no attribute of 'group by' in common.",
                hint=f"Join 'on {name}.x == S.y and ..', where x is a string or a whole number of "
                "'group by'"
                + (", and y in a partition its key" if is_alone else ", the same in all of them")
                + f"; or {group.to_unshare[0].lower()}{group.to_unshare[1:]}.",
                position=element.tree.position,
            )


def app_name(app: App) -> str:
    """The app's name as in subjects and keys; MESH-P101 or MESH-P102 if it can't be there."""
    annotation = find(app.annotations, "App:name")
    name = annotation.get() if annotation else None
    if not name:
        raise MeshError(
            "MESH-P101",
            "the name of the app is empty",
            hint="Write @App:name('MyApp'), or leave @App:name out: the file's name is taken then.",
            position=annotation.position if annotation else Position(1, 1),
        )
    token = names.app_token(name)
    if not names.is_app_name(token):
        raise MeshError(
            "MESH-P102",
            f'app name "{name}" can\'t be used',
            detail=f'It would be "{token}" in subjects and keys.',
            hint="A letter of A to Z or a digit is first, and there are at most 100 characters.",
            position=annotation.position if annotation else None,
        )
    return token


def with_token(app: App) -> App:
    """``app`` under its name in subjects and keys."""
    header = (Annotation("App:name", ((None, app_name(app)),)),)
    others = tuple(a for a in app.annotations if a.name.lower() != "app:name")
    return replace(app, annotations=(*header, *others))


_NOT_SHARED: Final = (
    "What takes events in, or makes them, is not shared.",
    "Scale the groups behind it.",
)


def scaled(spec: AppSpec, group: str, parallel: int) -> AppSpec:
    """``spec`` with ``parallel`` instances of ``group``.

    Raises:
        MeshError: MESH-A404 if there is no such group, MESH-A422 if it can't have so many.
    """
    existing = spec.group(group)
    if existing is None:
        raise MeshError(
            "MESH-A404",
            f'app "{spec.name}" has no group "{group}"',
            detail=f"Groups are: {', '.join(g.name for g in spec.groups)}.",
            hint=nearest(group, [g.name for g in spec.groups]),
        )
    reason = _reason_against(existing, parallel)
    if reason is not None:
        detail, hint = reason
        times = f"{parallel} instance{'' if parallel == 1 else 's'}"
        raise MeshError(
            "MESH-A422", f'group "{group}" can\'t have {times}', detail=detail, hint=hint
        )
    groups = tuple(with_instances(g, parallel) if g is existing else g for g in spec.groups)
    return replace(spec, groups=groups)


def as_scaled(spec: AppSpec, parallels: Mapping[str, int]) -> AppSpec:
    """``spec`` with the requested numbers of instances for its groups, if still possible."""
    for group, parallel in parallels.items():
        existing = spec.group(group)
        if existing is None:
            continue
        if group in spec.bounds:
            parallel = spec.bounds[group].nearest(parallel)
        if _reason_against(existing, parallel) is None:
            spec = scaled(spec, group, parallel)
    return spec


def sizes_of(spec: AppSpec, group: GroupSpec) -> tuple[int, ...]:
    """Numbers of instances among which the load of ``group`` decides; none without bounds."""
    bounds = spec.bounds.get(group.name)
    if bounds is None:
        return ()
    return bounds.sizes(_partitions(group))


def with_instances(group: GroupSpec, parallel: int) -> GroupSpec:
    """``group`` with so many instances, unchecked."""
    if _partitions(group):
        return replace(group, parallel=parallel)
    strategy = Strategy.ROUND_ROBIN if parallel > 1 else Strategy.ALL
    inputs = tuple(replace(i, strategy=strategy) for i in group.inputs)
    return replace(group, parallel=parallel, inputs=inputs)


def _may_share(group: GroupSpec) -> bool:
    """Whether several instances may take in the events of its source."""
    specs = [registry.find(Role.SOURCE, c.partition(" ")[2]) for c in group.connectors]
    return all(spec is not None and spec.is_shared for spec in specs)


def _partitions(group: GroupSpec) -> int:
    """Number of virtual partitions of a group; 0 for one that isn't divided."""
    return group.partition_count if group.is_keyed else 0


def _reason_against(group: GroupSpec, parallel: int) -> tuple[str, str] | None:
    """The reason why a group can't have so many instances, and the remedy; None if it can."""
    if parallel < 1:
        return "A group has at least one instance.", "'mesh undeploy' stops an app."
    if parallel == group.parallel:
        return None
    partitions = _partitions(group)
    if parallel > partitions > 0:
        return (
            f"It is divided into {partitions} partitions, and each has one instance.",
            f"Deploy the app with @dist(partitions='{parallel}') for this group.",
        )
    if group.kind is GroupKind.PARTITIONER:
        return "It keeps the order of the events with one key.", "Publish events with their key."
    if group.kind is GroupKind.RECEIVER and group.connectors:
        return None if _may_share(group) else _NOT_SHARED
    if group.kind is not GroupKind.QUERIES or group.sources:
        return _NOT_SHARED
    if group.stateful and not partitions:
        return (
            "It keeps state, which is not divided by key.",
            "Put its queries into a partition, and say @dist(partitions=..) for the group.",
        )
    return None
