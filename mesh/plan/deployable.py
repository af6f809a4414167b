"""Limits of a cluster: parts that operators run and a cluster can't yet, refused at planning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.errors import not_supported
from mesh.language.syntax import find
from mesh.model.types import AttributeType
from mesh.plan.annotations import playback_times
from mesh.plan.bound import Insert, SourceKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.language.syntax import Annotation
    from mesh.plan.bound import BoundApp
    from mesh.plan.groups import Group


def check_deployable(app: BoundApp, groups: Sequence[Group]) -> None:
    """Refuse parts that a cluster can't run, in an app that is otherwise correct.

    Raises:
        MeshError: MESH-P900 at the first such part.
    """
    playback = find(app.annotations, "app:playback")
    if playback is not None:
        if playback_times(playback) is not None:
            _check_idle_time(playback, groups)
        for trigger in app.triggers:
            raise not_supported(
                "a trigger in playback in a cluster",
                trigger.position,
                hint="A trigger goes by the clock on the wall, and the app by its events.",
            )
    _check_objects(app, groups)
    for group in groups:
        _check_faults(group)
        _check_fault_inserts(group, groups)


def _check_idle_time(playback: Annotation, groups: Sequence[Group]) -> None:
    """Refuse idle time of a group with several inputs: its events wait for each other."""
    for group in groups:
        if len(group.reads) > 1:
            raise not_supported(
                f'@App:playback with idle.time and increment in group "{group.name}", which reads '
                f"{len(group.reads)} streams",
                playback.position,
                hint="Insert the events of all of them into one stream in another group, and "
                "read that; or write @App:playback.",
            )


def _check_objects(app: BoundApp, groups: Sequence[Group]) -> None:
    """Refuse objects in input from outside: JSON has objects only through a function."""
    written = {name for group in groups for name in group.uses.writes}
    read = {name for group in groups for name in group.uses.reads} - written
    positions = dict(app.stream_positions)
    for stream in app.streams:
        is_external = stream.name in read and not stream.name.startswith("!")
        if is_external and any(a.type is AttributeType.OBJECT for a in stream.attributes):
            raise not_supported(
                "attributes of type object in a stream from outside",
                positions.get(stream.name),
                hint="Take a string, and make an object of it: json:toObject(a).",
            )


def _check_faults(group: Group) -> None:
    """Refuse fault streams of several instances: failures aren't divided as readers need it."""
    if group.faults and group.is_shared:
        fault = group.faults[0]
        raise not_supported(
            f'reading fault stream "{fault}" of what fails in group "{group.name}" {group.width}',
            group.elements[0].tree.position,
            hint=f"{group.to_unshare}; or read no "
            f"'{fault}': failed events go to the app's error stream then.",
        )


def _check_fault_inserts(group: Group, groups: Sequence[Group]) -> None:
    """Refuse inserts into a fault stream that other groups use: the events stay in their group."""
    for tree, query in group.queries:
        action = query.action
        if not isinstance(action, Insert) or action.kind is not SourceKind.FAULT:
            continue
        fault = f"!{action.target.name.removeprefix('!')}"
        others = [g for g in groups if g is not group and fault in (*g.reads, *g.faults)]
        if others:
            raise not_supported(
                f'inserting into fault stream "{fault}" in group "{group.name}", which group '
                f'"{others[0].name}" has a part in',
                tree.output.position,
                hint=f'Put all queries that have to do with "{fault}" into one group.',
            )
