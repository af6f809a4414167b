"""Names of the producers of an app: the writers of its channels, whether they have written or not.

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


def producers(groups: Iterable[GroupSpec], incarnation: str) -> set[tuple[str, str]]:
    """Each JetStream stream that the groups write, with each producer of it.

    Args:
        groups: the groups of an app; of one that was scaled, each size that may still run.
        incarnation: of the app.
    """
    return {pair for group in groups for pair in _of_group(group, incarnation)}


def _of_group(group: GroupSpec, incarnation: str) -> Iterator[tuple[str, str]]:
    if group.connectors:
        # A source continues where it was in the outside world, whatever the app went back to.
        return
    for index, name in enumerate(group.instances, 1):
        made = Assignment(name, group.app, group.name, index, incarnation, "", 0, lease_revision=0)
        io = InstanceIO(group, made)
        if group.kind is GroupKind.TRIGGER or group.stateful:
            for channel in group.outputs:
                for partition in io.partitions:
                    yield from _pairs(channel, io.producer(str(partition)))
        else:
            for one in positioned_routes(io):
                yield from _pairs(one.route.output, one.producer(io))


def _pairs(channel: Channel, producer: str) -> Iterator[tuple[str, str]]:
    for partition in range(channel.partitions):
        yield channel.js_stream(partition), producer
