"""Routes of stateless groups: the paths from an input channel through queries to an output channel.

This module needs the plan only, not the operators: a session names producers with it and must not
load the native loops for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mesh.model.app import Channel, GroupKind
from mesh.plan.bind.apps import bind_group

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.model.app import GroupInput
    from mesh.plan.bound import BoundQuery
    from mesh.spark.instance_io import InstanceIO


@dataclass(frozen=True, slots=True)
class Route:
    """One path through a stateless group: an input channel, queries, an output channel."""

    input: GroupInput
    queries: tuple[BoundQuery, ...]
    output: Channel


def routes(io: InstanceIO) -> tuple[Route, ...]:
    """Every path from an input of the group to one of its outputs, in the order of its queries."""
    group = io.group
    if group.kind in (GroupKind.PARTITIONER, GroupKind.RECEIVER):
        return tuple(Route(i, (), output) for i in group.inputs for output in group.outputs)
    app = bind_group(group)
    paths: list[Route] = []

    def follow(group_input: GroupInput, stream: str, path: tuple[BoundQuery, ...]) -> None:
        for query in app.queries:
            if query.input_streams != (stream,) or query in path:
                continue
            outputs = io.outputs(query.target.name)
            paths.extend(Route(group_input, (*path, query), output) for output in outputs)
            follow(group_input, query.target.name, (*path, query))

    for group_input in group.inputs:
        follow(group_input, group_input.channel.stream.name, ())
    return tuple(paths)


@dataclass(frozen=True, slots=True)
class PositionedRoute:
    """A route with its number in the group, and the errors that it is to record."""

    route: Route
    #: Starts at 1.
    number: int
    #: Whether it records unreadable events of its input.
    records_unreadable: bool
    #: Names of the queries whose failures it records.
    records_failures: frozenset[str]

    def producer(self, io: InstanceIO) -> str:
        """Name of its markers."""
        return io.producer(self.salt(io))

    def salt(self, io: InstanceIO) -> str:
        """Suffix that differs between the group's routes, and between instances for one route."""
        return f"{io.assignment.index}of{io.group.parallel}-{self.number}"

    def error_part(self, io: InstanceIO) -> str:
        """Suffix of the producer of its error entries."""
        index = io.assignment.index
        return str(index) if self.records_unreadable else f"{index}-{self.number}"


def positioned_routes(io: InstanceIO) -> Iterator[PositionedRoute]:
    """The group's routes; each unreadable event and each failure is recorded by one of them."""
    read: set[str] = set()
    recorded: set[tuple[str, str]] = set()
    for number, route in enumerate(routes(io), 1):
        name = route.input.channel.stream.name
        records_unreadable = route.input.records_errors and name not in read
        read.add(name)
        failures = frozenset(q.name for q in route.queries if (name, q.name) not in recorded)
        recorded |= {(name, query) for query in failures}
        yield PositionedRoute(route, number, records_unreadable, failures)
