"""Number of virtual partitions of keyed channels.

Channels that one group reads by key have the same number, since an instance owns partition p of
each of them; and a channel has the same number for all readers.  So groups that are joined by
channels agree on one: ``@dist(partitions='n')`` of any of them, else the cluster's default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.errors import MeshError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.plan.groups import Group
    from mesh.plan.strategies import InputPartitioning

#: A stream and its key.
_Channel = tuple[str, "frozenset[str] | str"]


def partition_counts(
    groups: Sequence[Group], shared: Mapping[str, Sequence[InputPartitioning]], default: int
) -> dict[str, int]:
    """Number of partitions of the keyed channels of each group that reads by key, by its name.

    Raises:
        MeshError: MESH-P222 if two groups that share a channel have different numbers; MESH-P213 if
            a group has more instances than partitions.
    """
    keyed = {
        g.name: {(s.stream, s.key.identity) for s in shared[g.name] if s.key is not None}
        for g in groups
    }
    counts: dict[str, int] = {}
    for group in groups:
        if group.name in counts or not keyed[group.name]:
            continue
        together = _together(group, groups, keyed)
        count = _agreed(together, default)
        for one in together:
            _refuse_idle_instances(one, count)
            counts[one.name] = count
    return counts


def _together(
    first: Group, groups: Sequence[Group], keyed: Mapping[str, set[_Channel]]
) -> list[Group]:
    """``first`` and all groups that channels join to it, in their order."""
    names, channels = {first.name}, set(keyed[first.name])
    while True:
        members = {g.name for g in groups if keyed[g.name] & channels}
        if members <= names:
            return [g for g in groups if g.name in names]
        names |= members
        channels |= {channel for name in members for channel in keyed[name]}


def _agreed(groups: Sequence[Group], default: int) -> int:
    said = [(group, group.partitions) for group in groups if group.partitions is not None]
    for group, count in said:
        first, other = said[0]
        if count != other:
            raise MeshError(
                "MESH-P222",
                f'groups "{first.name}" and "{group.name}" share a keyed channel, and say two '
                "numbers of partitions",
                detail=f"They are {other} and {count}.",
                hint="Say the same, or say it for one of them.",
                position=group.elements[0].tree.position,
            )
    return said[0][1] if said else default


def _refuse_idle_instances(group: Group, count: int) -> None:
    if group.most > count:
        raise MeshError(
            "MESH-P213",
            f'group "{group.name}" has parallelism {group.most}, more than its partitions',
            detail=f"A keyed channel has {count} partitions, and each has one instance.",
            hint=f"Set {'parallel' if group.bounds is None else 'max'}='{count}' or less, or "
            f"@dist(partitions='{group.most}').",
            position=group.elements[0].tree.position,
        )
