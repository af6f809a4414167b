"""What the operators run and a cluster does not yet: refused when an app is planned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.errors import not_supported
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.errors import Position
    from mesh.plan.bound import BoundApp
    from mesh.plan.groups import Group


def check_deployable(app: BoundApp, groups: Sequence[Group]) -> None:
    """Refuse what a cluster can't run of an app that is right otherwise.

    Raises:
        MeshError: MESH-P900 at the first such part.
    """
    for annotation in app.annotations:
        if annotation.name.lower() == "app:playback":
            raise not_supported(
                "@App:playback in a cluster",
                annotation.position,
                hint="Give events their own times by the header Mesh-Timestamp.",
            )
    _check_objects(app, groups)
    for group in groups:
        _check_faults(group, groups)


def _check_objects(app: BoundApp, groups: Sequence[Group]) -> None:
    """What comes from outside comes as JSON, which has no objects but by a function."""
    written = {name for group in groups for name in group.uses.writes}
    read = {name for group in groups for name in group.uses.reads} - written
    positions = dict(app.stream_positions)
    for stream in app.streams:
        is_given = stream.name in read and not stream.name.startswith("!")
        if is_given and any(a.type is AttributeType.OBJECT for a in stream.attributes):
            raise not_supported(
                "attributes of type object in a stream from outside",
                positions.get(stream.name),
                hint="Take a string, and make an object of it: json:toObject(a).",
            )


def _check_faults(group: Group, groups: Sequence[Group]) -> None:
    """A fault stream is read where the stream is, by a group of one instance."""
    for fault in group.uses.faults:
        stream = fault.removeprefix("!")
        readers = [g.name for g in groups if stream in g.uses.reads]
        if readers != [group.name] or group.parallel > 1:
            raise not_supported(
                f'fault stream "{fault}" in another group than the readers of "{stream}"',
                _reader_of(group, fault),
                hint=f'Put all queries that read "{stream}" or "{fault}" into one group of '
                "parallel='1'.",
            )


def _reader_of(group: Group, stream: str) -> Position:
    trees = (tree for tree, query in group.queries if stream in query.input_streams)
    return next(trees).position
