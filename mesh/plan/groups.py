"""An app cut into execution groups.

What is annotated alike with ``@dist(execGroup='g', parallel='n')``, queries and whole partitions,
is a group; those without share the group ``default``, of one instance.  A table or a named window
lives in one group, of one instance.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError, Position, not_supported
from mesh.language.syntax import Annotation, App, Partition, Query, find
from mesh.model import names
from mesh.plan.bound import BoundApp, BoundPartition, BoundQuery
from mesh.plan.scopes import nearest
from mesh.plan.uses import Uses, union, uses_of

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The group of queries without ``@dist``; saying it in ``@dist`` means the same group.
DEFAULT_GROUP: Final = "default"
#: Groups that the planner adds are called so, and no others.
PARTITIONER_PREFIX: Final = "partition-"
#: A group's name stands in names of instances, keys and producers.
_GROUP_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}\Z")
PARALLEL_MAX: Final = 1024


@dataclass(frozen=True, slots=True)
class Element:
    """A query or a partition: its tree, and what it is bound to."""

    tree: Query | Partition
    bound: BoundQuery | BoundPartition

    @property
    def queries(self) -> tuple[tuple[Query, BoundQuery], ...]:
        """The query, or those inside of the partition."""
        if isinstance(self.tree, Partition):
            assert isinstance(self.bound, BoundPartition), "bound in the order of the trees"
            return tuple(zip(self.tree.queries, self.bound.queries, strict=True))
        assert isinstance(self.bound, BoundQuery), "bound in the order of the trees"
        return ((self.tree, self.bound),)

    @property
    def uses(self) -> Uses:
        """What it uses of the app."""
        return uses_of(self.bound)


@dataclass(frozen=True, slots=True)
class Group:
    """The elements of one execution group, in the order written."""

    name: str
    parallel: int
    elements: tuple[Element, ...]

    @property
    def queries(self) -> tuple[tuple[Query, BoundQuery], ...]:
        """All its queries, those inside of partitions among them."""
        return tuple(query for element in self.elements for query in element.queries)

    @property
    def uses(self) -> Uses:
        """What its elements use of the app."""
        return union(element.uses for element in self.elements)

    @property
    def reads(self) -> tuple[str, ...]:
        """The streams that its queries read, each once."""
        return self.uses.reads

    @property
    def writes(self) -> tuple[str, ...]:
        """The streams that its queries insert into, each once."""
        return self.uses.writes

    @property
    def is_stateful(self) -> bool:
        """Whether one of its queries keeps state; then the whole group runs as a stateful one."""
        return not all(
            isinstance(element.bound, BoundQuery) and element.bound.is_stateless
            for element in self.elements
        )


def cut(app: App, bound: BoundApp) -> tuple[Group, ...]:
    """The groups of ``app``, in the order of their first elements.

    Raises:
        MeshError: MESH-P2xx where ``@dist`` asks for what can't be, MESH-P900 for what can't yet.
    """
    members: dict[str, list[Element]] = {}
    parallels: dict[str, tuple[int, Position]] = {}
    for element in _elements(app, bound):
        name, parallel, position = _placed(element.tree)
        first, first_position = parallels.setdefault(name, (parallel, element.tree.position))
        if first != parallel:
            raise MeshError(
                "MESH-P202",
                f'group "{name}" is given two parallelisms',
                detail=f"It is {first} in line {first_position.line}, and {parallel} here.",
                hint="Give every element of a group the same; without one it is 1.",
                position=position,
            )
        members.setdefault(name, []).append(element)
    groups = tuple(Group(n, parallels[n][0], tuple(parts)) for n, parts in members.items())
    _refuse_scattered(groups)
    for group in groups:
        _refuse_loops(group)
    return groups


def _elements(app: App, bound: BoundApp) -> Iterator[Element]:
    queries, partitions = iter(bound.queries), iter(bound.partitions)
    for tree in app.elements:
        if isinstance(tree, Query):
            yield Element(tree, next(queries))
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


def _refuse_scattered(groups: tuple[Group, ...]) -> None:
    """Refuse tables and named windows in two groups, or in a group of several instances."""
    home: dict[str, Group] = {}
    for group in groups:
        for element in group.elements:
            uses = element.uses
            kept = [("table", n) for n in uses.tables] + [("window", n) for n in uses.windows]
            for kind, name in kept:
                other = home.setdefault(name, group)
                if other is not group:
                    raise MeshError(
                        "MESH-P217",
                        f'{kind} "{name}" is used in groups "{other.name}" and "{group.name}"',
                        detail="It is kept in memory, by one of them.",
                        hint="Put the elements that use it into one group.",
                        position=element.tree.position,
                    )
                if group.parallel > 1:
                    raise MeshError(
                        "MESH-P216",
                        f'{kind} "{name}" in group "{group.name}" with parallelism '
                        f"{group.parallel}",
                        detail="Each instance would keep a part of it.",
                        hint=f"Set parallel='1' for group \"{group.name}\", or move the element "
                        "to another group.",
                        position=element.tree.position,
                    )


def _placed(tree: Query | Partition) -> tuple[str, int, Position]:
    """The group of a query or partition and its parallelism, with where that is said."""
    annotations = [a for a in tree.annotations if a.name.lower() == "dist"]
    if not annotations:
        return DEFAULT_GROUP, 1, tree.position
    dist = annotations[0]
    if len(annotations) > 1:
        raise MeshError(
            "MESH-P203", "two @dist before one element", position=annotations[1].position
        )
    for key, _ in dist.elements:
        if key is None or key.lower() not in ("execgroup", "parallel"):
            if key is not None and key.lower() == "partitions":
                raise not_supported("@dist(partitions='n')", dist.position)
            raise MeshError(
                "MESH-P203",
                f'@dist has no element "{key}"' if key else "@dist has a text without a key",
                hint=(nearest(key, ("execGroup", "parallel")) if key else None)
                or "Write @dist(execGroup='name', parallel='2').",
                position=dist.position,
            )
    return _group_name(dist), _parallel(dist), dist.position


def _group_name(dist: Annotation) -> str:
    name = dist.get("execGroup")
    if name is None:
        return DEFAULT_GROUP
    if not _GROUP_NAME.match(name) or name.startswith(PARTITIONER_PREFIX):
        raise MeshError(
            "MESH-P204",
            f'group name "{name}" can\'t be used',
            detail="It stands in names of instances and in keys.",
            hint=f"Use letters, digits, '_' and '-'; not '{PARTITIONER_PREFIX}..', which are ours.",
            position=dist.position,
        )
    return name


def _parallel(dist: Annotation) -> int:
    text = dist.get("parallel")
    if text is None:
        return 1
    if not re.fullmatch(r"[0-9]{1,6}", text.strip()) or not 1 <= int(text) <= PARALLEL_MAX:
        raise MeshError(
            "MESH-P205",
            f'parallelism "{text}" is not a whole number from 1 to {PARALLEL_MAX}',
            position=dist.position,
        )
    return int(text)


def _refuse_loops(group: Group) -> None:
    """Refuse queries that read, through others of their own group, what they write."""
    readers: dict[str, list[tuple[BoundQuery, str]]] = {}
    writers: list[tuple[Query, BoundQuery, str]] = []
    for number, element in enumerate(group.elements):
        # Inner streams of two partitions may have one name.
        def own(stream: str, number: int = number) -> str:
            return f"{number}{stream}" if stream.startswith("#") else stream

        for tree, query in element.queries:
            writers.append((tree, query, own(query.target.name)))
            for stream in query.input_streams:
                readers.setdefault(own(stream), []).append((query, own(query.target.name)))
    for tree, query, target in writers:
        seen: set[str] = set()
        ahead = [target]
        while ahead:
            stream = ahead.pop()
            if any(reader is query for reader, _ in readers.get(stream, ())):
                raise not_supported(
                    f'a loop inside a group: query "{query.name}" reads what comes of its output',
                    tree.output.position,
                    hint="Put the queries of the loop into different groups with @dist.",
                )
            if stream not in seen:
                seen.add(stream)
                ahead.extend(written for _, written in readers.get(stream, ()))


def app_name(app: App) -> str:
    """The app's name, fit for subjects and keys; MESH-P101 or MESH-P102 otherwise."""
    annotation = find(app.annotations, "App:name")
    name = annotation.get() if annotation else None
    if not name:
        raise MeshError(
            "MESH-P101",
            "app has no name",
            hint="Start the text with @App:name('MyApp').",
            position=annotation.position if annotation else Position(1, 1),
        )
    if not names.is_app_name(name):
        raise MeshError(
            "MESH-P102",
            f'app name "{name}" can\'t be used',
            detail="It stands in subjects and in keys.",
            hint="Use letters, digits, '_' and '-', at most 100, a letter or digit first.",
            position=annotation.position if annotation else None,
        )
    return name
