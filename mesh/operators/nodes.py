"""The nodes of an app: its queries with what becomes of their output."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mesh.operators.base import WHOLE
from mesh.operators.graph import Calls, Made, Node, entering
from mesh.operators.queries import start
from mesh.plan.bound import Insert

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.operators.base import Events, Longs, State, Timeline
    from mesh.plan.bound import BoundApp, BoundQuery


class QueryWork:
    """A query between channels.

    ``channels``: by channel, the name by which the query knows it.  ``target``: the channel that it
    writes.  ``leaves``: whether what it writes leaves a partition.
    """

    def __init__(
        self, query: BoundQuery, timer: int, channels: Mapping[str, str], target: str, leaves: bool
    ) -> None:
        self._channels = channels
        self._target = target
        self._leaves = leaves
        self.query = start(query, timer)
        self.calls = Calls(query.name)

    def process(self, inputs: Mapping[str, Sequence[Events]], timeline: Timeline) -> Made:
        """What the query makes of the events, for its target."""
        named: dict[str, list[Events]] = {}
        for channel, runs in inputs.items():
            named.setdefault(self._channels[channel], []).extend(runs)
        made = self.query.process(named, timeline)
        self.calls.record(made)
        made = entering(made)
        if self._leaves:
            made = replace(made, instance=np.full(len(made), WHOLE, dtype=np.int64))
        return [(self._target, made)]

    def next_time(self) -> int | None:
        """When the query's next timer is due."""
        return self.query.next_time()

    def forget(self, instances: Longs) -> None:
        """Drop these instances of the query's partition."""
        self.query.forget(instances)

    def snapshot(self) -> State:
        """The query's state."""
        return self.query.snapshot()

    def restore(self, state: State) -> None:
        """Take over the query's state."""
        self.query.restore(state)


def plain(number: int, query: BoundQuery) -> Node:
    """The node of a query outside of partitions."""
    assert isinstance(query.action, Insert), "the planner refuses tables"
    channels = {name: name for name in query.input_streams}
    target = query.target.name
    return Node(
        f"query{number}",
        tuple(channels),
        (target,),
        lambda timer: QueryWork(query, timer, channels, target, leaves=False),
    )


def nodes_of(app: BoundApp) -> list[Node]:
    """All nodes, in the order in which the engine subscribes them."""
    return [plain(number, query) for number, query in enumerate(app.queries)]
