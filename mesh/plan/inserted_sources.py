"""Streams with sources into which queries of their readers' group insert as well.

    @source(..) @sink(..) define stream S (k string);
    from A select k insert into S;
    from S select k insert into T;

is planned as it would be written with two streams:

    @source(..) define stream S (k string);
    @sink(..) define stream S_all (k string);
    from A select k insert into S_all;
    from S_all select k insert into T;
    @info(name='S_all') from S select k insert into S_all;

A group does not write to a channel that it reads: its own events would come back after others.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mesh.language.syntax import (
    AggregationDefinition,
    Annotation,
    InsertInto,
    OutputAttribute,
    Partition,
    Query,
    SelectClause,
    StreamDefinition,
    StreamInput,
    StreamKind,
    StreamReference,
    Variable,
    find,
)
from mesh.plan.connectors import connector_of
from mesh.plan.dist import read_dist
from mesh.plan.outside_objects import free_name, references, renamed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mesh.language.syntax import App


@dataclass(slots=True)
class _Group:
    """Queries of one group, as far as streams are concerned."""

    #: Its ``@dist``, which a query that is added has too.
    annotations: tuple[Annotation, ...]
    is_single: bool = True
    #: Names of the streams that each query reads, and of the one that it inserts into.
    queries: list[tuple[frozenset[str], str]] = field(default_factory=list)

    def needs(self, name: str) -> bool:
        """Whether it reads and writes a stream, and no loop of it has the stream."""
        is_read = any(name in read for read, _ in self.queries)
        is_written = any(name == written for _, written in self.queries)
        return is_read and is_written and name not in self._after(name)

    def _after(self, name: str) -> set[str]:
        """The streams that events of a stream reach."""
        reached: set[str] = set()
        new = {name}
        while new:
            new = {target for read, target in self.queries if read & new} - reached
            reached |= new
        return reached


def with_inserted_sources(app: App) -> App:
    """The app with a second stream for each such one; the same app if it has none.

    Groups of several instances stay as they are, and so do streams whose failed events are read.

    Raises:
        MeshError: as ``read_dist``.
    """
    targets = {one.name for one in inserts(app.elements)}
    candidates = {one.name: one for one in app.streams if one.name in targets and _is_sourced(one)}
    if not candidates:
        return app
    faults = {one.name for one in references(app.elements) if one.kind is StreamKind.FAULT}
    groups = _groups(app)
    homes = {
        name: group
        for name in candidates
        if name not in faults
        for group in groups.values()
        if group.is_single and group.needs(name)
    }
    if not homes:
        return app
    taken = {one.name for one in app.definitions}
    names = {name: free_name(f"{name}_all", taken) for name in homes}
    elements = [
        replace(one, annotations=tuple(a for a in one.annotations if _is_source(a)))
        if isinstance(one, StreamDefinition) and one.name in homes
        else renamed(one, names)
        for one in app.elements
    ]
    places = (n for n, one in enumerate(elements) if isinstance(one, Query | Partition))
    at = next(places, len(elements))
    streams = [
        replace(
            candidates[name],
            name=names[name],
            annotations=tuple(a for a in candidates[name].annotations if not _is_source(a)),
        )
        for name in homes
    ]
    queries = [
        _query(candidates[name], names[name], group.annotations) for name, group in homes.items()
    ]
    return replace(app, elements=(*elements[:at], *streams, *elements[at:], *queries))


def _is_source(annotation: Annotation) -> bool:
    return annotation.name.lower() == "source"


def _is_sourced(stream: StreamDefinition) -> bool:
    """Whether a source that the receiver runs fills it."""
    return any(not connector_of(one).is_native for one in stream.annotations if _is_source(one))


def inserts(elements: Iterable[object]) -> Iterator[StreamReference]:
    """The streams and tables into which queries insert, those of partitions included."""
    for one in elements:
        if isinstance(one, Partition):
            yield from inserts(one.queries)
        elif isinstance(one, Query) and isinstance(one.output, InsertInto):
            yield one.output.stream


def _groups(app: App) -> dict[str, _Group]:
    groups: dict[str, _Group] = {}
    aggregated: list[frozenset[str]] = []
    for one in app.elements:
        if isinstance(one, AggregationDefinition):
            aggregated.append(_read(one.input))
        if not isinstance(one, Query | Partition):
            continue
        dist = read_dist(one.annotations, one.position)
        own = find(one.annotations, "dist")
        group = groups.setdefault(dist.group, _Group((own,) if own is not None else ()))
        group.is_single = group.is_single and dist.parallel == 1 and dist.bounds is None
        for query in one.queries if isinstance(one, Partition) else (one,):
            target = next(inserts([query]), None)
            is_plain = target is not None and target.kind is StreamKind.PLAIN
            name = target.name if target is not None and is_plain else ""
            group.queries.append((_read(query.input), name))
    for group in groups.values():
        # An aggregation may be in the group of a query that joins it.
        group.queries += [(read, "") for read in aggregated]
    return groups


def _read(node: object) -> frozenset[str]:
    return frozenset(one.name for one in references(node) if one.kind is StreamKind.PLAIN)


def _query(stream: StreamDefinition, target: str, dist: tuple[Annotation, ...]) -> Query:
    place = stream.position
    selected = tuple(
        OutputAttribute(Variable(one.name, position=place), one.name) for one in stream.attributes
    )
    return Query(
        StreamInput(StreamReference(stream.name, position=place), position=place),
        SelectClause(selected),
        InsertInto(StreamReference(target)),
        (Annotation("info", (("name", target),)), *dist),
        position=place,
    )
