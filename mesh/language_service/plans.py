"""The group of each query, in a line: strategy, partitions, instances, state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mesh.model.app import Strategy
from mesh.plan.bound import (
    AggregateCall,
    BoundPattern,
    BoundStream,
    BoundStreamFunction,
    walk,
)
from mesh.plan.dependencies import WITH_STATE
from mesh.plan.groups import split_app

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.errors import Position
    from mesh.language.syntax import App
    from mesh.model.app import GroupInput, GroupSpec
    from mesh.plan.bound import BoundQuery
    from mesh.plan.build import AppPlan


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A query and its group."""

    #: Of its ``from``.
    position: Position
    bound: BoundQuery
    group: GroupSpec

    @property
    def line(self) -> str:
        """``group watch, 2 instances | Cards by key card, 8 partitions | pattern, avg``."""
        group = self.group
        count = f"{group.parallel} instance{'s' if group.parallel != 1 else ''}"
        reads = [_read(one) for one in group.inputs]
        return " | ".join([f"group {group.name}, {count}", *reads, state_of(self.bound)])


def planned_queries(app: App, plan: AppPlan) -> Iterator[PlannedQuery]:
    """Each query of a planned app with its group."""
    specs = {spec.name: spec for spec in plan.spec.groups}
    planned = {id(element.tree) for group in plan.groups for element in group.elements}
    # The plan may be that of another tree, whose places and queries are not those of the text.
    is_of_app = planned and planned <= {id(element) for element in app.elements}
    for group in plan.groups if is_of_app else split_app(app, plan.bound):
        for tree, bound in group.queries:
            yield PlannedQuery(tree.position, bound, specs[group.name])


def state_of(query: BoundQuery) -> str:
    """The state that a query keeps: ``state: window time, avg``; ``no state``."""
    states: dict[str, None] = {}
    match query.input:
        case BoundPattern():
            states[query.input.kind.name.lower()] = None
        case BoundStream():
            sides = [query.input]
        case _:
            states["join"] = None
            sides = [query.input.left, query.input.right]
    if not isinstance(query.input, BoundPattern):
        for side in sides:
            if side.window is not None:
                states[f"window {side.window.name}"] = None
            for handler in side.handlers:
                if isinstance(handler, BoundStreamFunction) and handler.name in WITH_STATE:
                    states[handler.name] = None
    for output in query.outputs:
        for part in walk(output.expression):
            if isinstance(part, AggregateCall):
                states[part.function] = None
    if query.rate is not None:
        states["output rate"] = None
    if query.is_stateless:
        return "no state"
    return f"state: {', '.join(states)}" if states else "no state of its own"


def _read(one: GroupInput) -> str:
    channel = one.channel
    name = channel.stream.name
    match one.strategy:
        case Strategy.ALL:
            return f"{name} all"
        case Strategy.ROUND_ROBIN:
            return f"{name} round-robin"
        case Strategy.BY_KEY:
            return f"{name} by key {channel.key_text}, {channel.partitions} partitions"
