"""The groups through which the history of a stream runs before an app starts.

History is run group by group, without channels: rows go from a group straight to the next one.  So
what a group makes of it may depend on one channel only, because the order of events between two
channels is that of their storing, which history does not have.

    files ──▶ [partitioner] ──▶ group without state ──▶ group with state ──▶ ..
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.errors import MeshError
from mesh.language.syntax import find
from mesh.model.app import GroupKind
from mesh.plan.annotations import playback_times
from mesh.plan.build import bind_group

if TYPE_CHECKING:
    from mesh.model.app import AppSpec, Channel, GroupSpec

#: Groups that compute over events; sources, sinks and triggers have nothing to do with the past.
_RUN = (GroupKind.QUERIES, GroupKind.PARTITIONER)


def fed_groups(spec: AppSpec, stream: str) -> tuple[str, ...]:
    """The names of the groups that history of ``stream`` runs through, each after its writers.

    Raises:
        MeshError: MESH-C160 for a stream that is not an input of the app, or a group whose result
            depends on more than the files.
    """
    writers = _writers(spec)
    readers: dict[tuple[str, str], list[GroupSpec]] = {}
    for group in spec.groups:
        for one in group.inputs if group.kind in _RUN else ():
            readers.setdefault(one.channel.id, []).append(group)
    waiting = [c.id for c in entrances(spec, stream)]
    found: dict[str, GroupSpec] = {}
    for channel in waiting:
        for group in readers.get(channel, ()):
            if group.name in found:
                raise _refused(group.name, "it reads what it writes")
            _check(group)
            found[group.name] = group
            for output in group.outputs:
                if len(writers[output.id]) > 1 and output.id in readers:
                    names = " and ".join(sorted(writers[output.id]))
                    raise _refused(group.name, f"{names} write one stream that a group reads")
                waiting.append(output.id)
    if not found:
        raise _refused("", f'no group reads stream "{stream}" from outside')
    return tuple(found)


def entrances(spec: AppSpec, stream: str) -> tuple[Channel, ...]:
    """The channels by which events of an input stream enter the app.

    Raises:
        MeshError: MESH-C160 for a stream that groups of the app write.
    """
    writers = _writers(spec)
    found: dict[tuple[str, str], Channel] = {}
    for group in spec.groups:
        for one in group.inputs if group.kind in _RUN else ():
            if one.channel.stream.name != stream:
                continue
            by = [spec.group(name) for name in writers.get(one.channel.id, ())]
            kinds = {g.kind for g in by if g is not None}
            if GroupKind.QUERIES in kinds:
                raise _refused("", f'the app computes stream "{stream}" itself')
            if GroupKind.PARTITIONER not in kinds:
                found[one.channel.id] = one.channel
    return tuple(found.values())


def _writers(spec: AppSpec) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    for group in spec.groups:
        for channel in group.outputs:
            found.setdefault(channel.id, []).append(group.name)
    return found


def _check(group: GroupSpec) -> None:
    if group.kind is GroupKind.PARTITIONER:
        return
    if len(group.inputs) != 1:
        names = ", ".join(i.channel.stream.name for i in group.inputs)
        raise _refused(group.name, f"it reads several streams: {names}")
    app = bind_group(group)
    if app.scripts:
        raise _refused(group.name, "it has functions of its own (define function)")
    kept = {one.schema.name: one.annotations for one in app.tables}
    kept |= {one.schema.name: one.annotations for one in app.aggregations}
    for name, given in kept.items():
        if find(given, "store") is not None:
            raise _refused(group.name, f'"{name}" is in a database')
    playback = find(app.annotations, "app:playback")
    if playback is not None and playback_times(playback) is not None:
        raise _refused(group.name, "its clock advances by idle time (@App:playback)")


def _refused(group: str, why: str) -> MeshError:
    what = f'group "{group}"' if group else "this app"
    return MeshError(
        "MESH-C160",
        f"the history can't be run through {what}",
        detail=f"{why[0].upper()}{why[1:]}.",
        hint="Deploy the app with 'mesh deploy', and publish the events with Mesh-Timestamp.",
    )
