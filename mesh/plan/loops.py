"""Loops inside a group: queries that read what they write, also through other queries.

Look-ups make no loop: an event never comes out of a table or an aggregation.  A group runs a loop
as the reference engine does, depth first.  Streams of a loop are internal ones, with two
exceptions.  One that nothing outside of the loop fills is read from its channel as well, and does
not go back there (``entrances_of``).  One that nothing outside of the loop reads is output
(``results``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError
from mesh.functions.catalogue.windows import IN_LOOPS, IN_LOOPS_OF_CURRENT, IN_LOOPS_OF_JOINS
from mesh.language.syntax import EventKind, RateKind
from mesh.plan.bound import BoundJoin, BoundPattern, Insert, SourceKind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from mesh.language.syntax import Query
    from mesh.plan.bound import BoundQuery

_LOOKUPS: Final = (SourceKind.TABLE, SourceKind.AGGREGATION)


@dataclass(frozen=True, slots=True)
class _Node:
    """A query with the streams that it reads and the one that it writes, if it is one."""

    tree: Query
    bound: BoundQuery
    reads: frozenset[str]
    writes: str


@dataclass(frozen=True, slots=True)
class Loop:
    """Queries of which each feeds each other, in the order written, and the streams between."""

    queries: tuple[tuple[Query, BoundQuery], ...]
    streams: frozenset[str]
    #: Whether nothing else of the group feeds it, and none of its queries reads another stream.
    is_closed: bool
    #: Those of ``streams`` that no other query of the group reads.
    results: frozenset[str]

    def __str__(self) -> str:
        return "; ".join(
            f'query "{bound.name}" reads '
            + " and ".join(n for n in bound.input_streams if n in self.names)
            + f" and writes {bound.target.name}"
            for _, bound in self.queries
        )

    @property
    def names(self) -> frozenset[str]:
        """The names of the streams in the text."""
        return frozenset(name.lstrip("0123456789") for name in self.streams)

    @property
    def is_inner(self) -> bool:
        """Whether all its streams are inside of a partition."""
        return all("#" in name for name in self.streams)


def loops_of(elements: Sequence[Sequence[tuple[Query, BoundQuery]]]) -> tuple[Loop, ...]:
    """The loops of a group, in the order of their first queries.

    Args:
        elements: the queries of each of its elements: one, or those inside of a partition.
    """
    nodes = list(_nodes(elements))
    readers: dict[str, list[int]] = {}
    for number, node in enumerate(nodes):
        for stream in node.reads:
            readers.setdefault(stream, []).append(number)
    after = [_reached(nodes, readers, number) for number in range(len(nodes))]
    loops: dict[frozenset[int], None] = {}
    for number in range(len(nodes)):
        if number in after[number]:
            loops[frozenset(n for n in after[number] if number in after[n])] = None
    return tuple(_loop(nodes, members) for members in loops)


def _nodes(elements: Sequence[Sequence[tuple[Query, BoundQuery]]]) -> Iterator[_Node]:
    for number, queries in enumerate(elements):
        # Inner streams of two partitions may have one name.
        def full_name(stream: str, number: int = number) -> str:
            return f"{number}{stream}" if stream.startswith("#") else stream

        for tree, query in queries:
            action = query.action
            is_stream = isinstance(action, Insert) and action.kind not in _LOOKUPS
            reads = frozenset(full_name(n) for n, kind in query.inputs if kind not in _LOOKUPS)
            yield _Node(tree, query, reads, full_name(query.target.name) if is_stream else "")


def _reached(nodes: list[_Node], readers: dict[str, list[int]], start: int) -> set[int]:
    """The queries that get what a query writes, also through others."""
    numbers: set[int] = set()
    pending = list(readers.get(nodes[start].writes, ()))
    while pending:
        number = pending.pop()
        if number not in numbers:
            numbers.add(number)
            pending += readers.get(nodes[number].writes, ())
    return numbers


def _loop(nodes: list[_Node], members: Collection[int]) -> Loop:
    inside = [node for number, node in enumerate(nodes) if number in members]
    others = [node for number, node in enumerate(nodes) if number not in members]
    read = frozenset[str]().union(*(node.reads for node in inside))
    streams = frozenset(node.writes for node in inside) & read
    return Loop(
        tuple((node.tree, node.bound) for node in inside),
        streams,
        read == streams and not any(node.writes in streams for node in others),
        streams - frozenset[str]().union(*(node.reads for node in others)),
    )


def entrances_of(loops: Collection[Loop], fed: Collection[str]) -> frozenset[str]:
    """The streams of loops that the group reads from their channels too.

    Args:
        loops: those of the group.
        fed: the streams that the app defines: clients may publish to them.
    """
    return frozenset(name for one in loops if one.is_closed for name in one.streams & set(fed))


def refuse_loops(loops: Collection[Loop], shared: str, to_unshare: str) -> None:
    """Refuse loops that a group would not run as the reference engine does.

    Args:
        loops: those of the group.
        shared: the group in words, if its instances share their input; else empty.
        to_unshare: the change that would reduce it to one instance, as the start of a hint.

    Raises:
        MeshError: MESH-P237 in a group of several instances, where an event of the loop may belong
            to another one; those inside of a partition stay in one.  MESH-P900 with a part that
            the engine runs in another order when it is entered again from within.
    """
    for loop in loops:
        position = loop.queries[0][0].output.position
        if shared and not loop.is_inner:
            raise MeshError(
                "MESH-P237",
                f"a loop in {shared}",
                detail=f"In the loop, {loop}.",
                hint=f"{to_unshare}, or use streams with # inside of the partition.",
                position=position,
            )
        for _, query in loop.queries:
            part = _not_run(query)
            if part is not None:
                raise MeshError(
                    "MESH-P900",
                    f'not supported yet: {part} in a loop inside a group, in query "{query.name}"',
                    detail=f"In the loop, {loop}.",
                    hint="Put the queries of the loop into different groups with @dist."
                    if len(loop.queries) > 1
                    else "Insert into another stream, and copy that back in a query of another "
                    "group: @dist(execGroup='back') from Other select * insert into "
                    f"{query.target.name};",
                    position=query.position,
                )


def _not_run(query: BoundQuery) -> str | None:
    """The part of a query with which it can't be in a loop."""
    if query.rate is not None and query.rate.kind is RateKind.SNAPSHOT:
        return "output snapshot"
    source = query.input
    if isinstance(source, BoundPattern):
        is_circular = query.target.name in query.input_streams
        return "a pattern that reads what it writes" if is_circular else None
    is_join = isinstance(source, BoundJoin)
    sides = (source.left, source.right) if isinstance(source, BoundJoin) else (source,)
    for side in sides:
        if side.kind is SourceKind.WINDOW:
            return f'named window "{side.schema.name}"'
        if side.window is None:
            continue
        if side.window.name not in (IN_LOOPS_OF_JOINS if is_join else IN_LOOPS):
            return f"window {side.window.name}{' of a join' if is_join else ''}"
        if side.window.name in IN_LOOPS_OF_CURRENT and query.events is EventKind.ALL:
            return f"window {side.window.name} with all events"
    return None
