"""What-if: instances, workers and state that an app needs for a rate, from measured costs.

    costs of groups, rate, keys ──▶ capacity ──▶ instances, workers, state, what saturates first

A group that reads ``m`` messages for each event of the input, of which a busy instance reads ``r``
in a second, has ``rate m / r`` instances' work.  It gets the next possible number above that at
``UTILISATION``, the one of the autoscaler.  An app's limit is the rate at which a group has no
more instances to get; of a group without state, whose instances all write one stream, that is the
rate at which NATS stores it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mesh.model.app import GroupKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.model.app import AppSpec, GroupSpec
    from mesh.model.cost import GroupCost, StateCost

#: Part of its time for which an instance, or a core, is to be busy.
UTILISATION: Final = 0.8


@dataclass(frozen=True, slots=True)
class GroupNeed:
    """Needs of one group at the rate."""

    group: str
    #: Origin of its costs: ``calibrated`` or ``running``.
    source: str
    #: Messages, and events in them, that it reads in a second.
    messages: float
    events: float
    #: By stream: events that it emits for each of these events.
    rows: Mapping[str, float]
    #: Instances of the text, those that the rate needs, and the most that it can have.
    present: int
    instances: int
    most: int | None
    #: Part of their time for which these are busy; above 1 if even the most are too few.
    utilisation: float
    #: Events of the app's input a second at which ``present`` and the most instances saturate.
    present_limit: float
    limit: float
    #: Processor cores of workers, and of NATS.
    worker_cores: float
    nats_cores: float
    #: Stored bytes of all its instances; None for a group without state.
    state_bytes: float | None = None
    #: Whether the state was still growing, so that its bound is the longest time of the text; None
    #: in ``state_bytes`` where the text names none, and ``event_bytes`` says by how much.
    event_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Capacity:
    """The answer to what-if."""

    app: str
    #: Events of all input streams a second.
    rate: float
    keys: int
    groups: tuple[GroupNeed, ...]
    #: Cores of one worker, and the workers that are needed.
    cores: int
    workers: int
    nats_cores: float
    state_bytes: float
    #: The group that saturates first with the instances of the text, and with the most; at these
    #: events a second.
    present_first: str
    present_limit: float
    first: str
    limit: float

    @property
    def is_enough(self) -> bool:
        """Whether the app can have what the rate needs."""
        return self.limit >= self.rate


def capacity(
    spec: AppSpec, costs: Sequence[GroupCost], rate: float, keys: int, cores: int
) -> Capacity:
    """Needs of an app at a rate.

    Args:
        spec: its plan.
        costs: of the groups with operators, at least one.
        rate: events of all input streams a second, above 0.
        keys: different values of each key.
        cores: processor cores of a worker.
    """
    needs = tuple(
        _need(group, cost, rate, keys)
        for cost in costs
        if (group := spec.group(cost.group)) is not None
    )
    present = min(needs, key=lambda one: one.present_limit)
    first = min(needs, key=lambda one: one.limit)
    used = sum(one.worker_cores for one in needs)
    return Capacity(
        spec.name,
        rate,
        keys,
        needs,
        cores,
        max(1, math.ceil(used / (cores * UTILISATION))),
        sum(one.nats_cores for one in needs),
        sum(one.state_bytes or 0.0 for one in needs),
        present.group,
        present.present_limit,
        first.group,
        first.limit,
    )


def _need(group: GroupSpec, cost: GroupCost, rate: float, keys: int) -> GroupNeed:
    messages = rate * cost.messages
    #: Instances that would have no pause.
    work = messages / cost.rate if messages else 0.0
    most = most_instances(group)
    instances = _instances(group, work / UTILISATION, most)
    of_one = cost.rate / cost.messages if cost.messages else math.inf
    stored = 1 / (cost.nats_s * cost.messages) if cost.nats_s and cost.messages else math.inf
    limit = max(of_one, stored) if most is None else of_one * effective(group, most)
    return GroupNeed(
        group.name,
        cost.source,
        messages,
        rate * cost.events,
        cost.rows,
        group.parallel,
        instances,
        most,
        work / effective(group, instances),
        min(of_one * effective(group, group.parallel), limit),
        limit,
        messages * cost.worker_s,
        messages * cost.nats_s,
        None if cost.state is None else state_bytes(cost.state, rate * cost.events, keys),
        0.0 if cost.state is None else cost.state.event_bytes,
    )


def most_instances(group: GroupSpec) -> int | None:
    """The most instances of a group; None for one without state, which has no bound of its own."""
    if group.is_keyed:
        return group.partition_count
    return 1 if group.stateful and group.kind is GroupKind.QUERIES else None


def effective(group: GroupSpec, instances: int) -> float:
    """Instances' worth of work that so many do: the one with most partitions saturates first."""
    if not group.is_keyed:
        return float(instances)
    return group.partition_count / math.ceil(group.partition_count / instances)


def _instances(group: GroupSpec, demand: float, most: int | None) -> int:
    count = max(1, math.ceil(demand - 1e-9))
    if most is None:
        return count
    sizes = range(min(count, most), most + 1)
    return next((size for size in sizes if effective(group, size) >= demand), most)


def state_bytes(cost: StateCost, events: float, keys: int) -> float | None:
    """Stored bytes of a group's state; None for one that grows without a bound in the text."""
    if not cost.event_bytes:
        return cost.base_bytes + cost.key_bytes * keys
    if not cost.longest_s:
        return None
    return cost.base_bytes + cost.event_bytes * events * cost.longest_s
