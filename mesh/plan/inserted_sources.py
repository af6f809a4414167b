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
    Partition,
    Query,
    StreamDefinition,
    StreamKind,
    find,
)
from mesh.plan.connectors import connector_of
from mesh.plan.dist import read_dist
from mesh.plan.second_streams import copying, extended, free_name, inserts, references, renamed

if TYPE_CHECKING:
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
    streams = [
        replace(
            candidates[name],
            name=names[name],
            annotations=tuple(a for a in candidates[name].annotations if not _is_source(a)),
        )
        for name in homes
    ]
    queries = [
        copying(candidates[name], names[name], dist=group.annotations)
        for name, group in homes.items()
    ]
    return extended(app, elements, streams, queries)


def _is_source(annotation: Annotation) -> bool:
    return annotation.name.lower() == "source"


def _is_sourced(stream: StreamDefinition) -> bool:
    """Whether a source that the receiver runs fills it."""
    return any(not connector_of(one).is_native for one in stream.annotations if _is_source(one))


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
