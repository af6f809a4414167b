"""Change of a group's number of instances: the same plan of the app in all else.

Three kinds of groups can be scaled without another change: a group that is divided by key, up to
the number of its partitions; a group without state, whose instances read blocks of their input in
turn; and a source of which several instances may take in events, as of ``kafka`` and ``http``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mesh.connect import registry
from mesh.connect.spec import Role
from mesh.errors import MeshError
from mesh.model.app import GroupKind, Strategy
from mesh.plan.name_errors import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.model.app import AppSpec, GroupSpec


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
