"""The producers of an app: the writers of its channels, whether they have written or not.

Producers of error streams are left out: an entry that is recorded twice does no harm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.model.app import GroupKind
from mesh.model.cluster import Assignment
from mesh.spark.instance_io import InstanceIO
from mesh.spark.routes import positioned_routes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mesh.model.app import Channel, GroupSpec


def producers(
    groups: Iterable[GroupSpec], incarnation: str
) -> dict[tuple[str, str], tuple[str, tuple[str, ...]]]:
    """Each JetStream stream that the groups write, with each producer of it.

    Args:
        groups: the groups of an app; of one that was scaled, each size that may still run.
        incarnation: of the app.

    Returns:
        By stream and producer: the group, and the streams whose sequences, times
        ``POSITIONS_PER_MESSAGE``, are its positions; none for one that counts its rows.
    """
    return {
        pair: (group.name, inputs)
        for group in groups
        for pair, inputs in _of_group(group, incarnation)
    }


def _of_group(
    group: GroupSpec, incarnation: str
) -> Iterator[tuple[tuple[str, str], tuple[str, ...]]]:
    if group.connectors:
        # A source continues where it was in the outside world, whatever the app went back to.
        return
    for index, name in enumerate(group.instances, 1):
        assignment = Assignment(
            name, group.app, group.name, index, incarnation, "", 0, lease_revision=0
        )
        io = InstanceIO(group, assignment)
        if group.kind is GroupKind.TRIGGER or group.stateful:
            for channel in group.outputs:
                for partition in io.partitions:
                    for pair in _pairs(channel, io.producer(str(partition))):
                        yield pair, ()
        else:
            for one in positioned_routes(io):
                read = one.route.input.channel
                inputs = tuple(read.js_stream(p) for p in range(read.partitions))
                for pair in _pairs(one.route.output, one.producer(io)):
                    yield pair, inputs


def _pairs(channel: Channel, producer: str) -> Iterator[tuple[str, str]]:
    for partition in range(channel.partitions):
        yield channel.js_stream(partition), producer


def of_parts(io: InstanceIO, parts: Iterable[str]) -> set[str]:
    """The producers of an instance that write in these parts of it."""
    if io.group.stateful:
        return {io.producer(part) for part in parts}
    return {one.producer(io) for one in positioned_routes(io)}
