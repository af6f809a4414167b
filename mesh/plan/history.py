"""The groups through which the history of streams runs before an app starts.

History is run group by group, without channels: rows go from a group straight to the next one.  A
group of several streams merges their events by time, as it does live.  What depends on the order in
which NATS stored events of two writers is refused: history does not have that order.

    past events ──▶ [partitioner] ──▶ group without state ──▶ group with state ──▶ ..
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.errors import MeshError
from mesh.language.syntax import find
from mesh.model.app import GroupKind
from mesh.plan.annotations import playback_times
from mesh.plan.bind.apps import bind_group

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from mesh.model.app import AppSpec, Channel, GroupSpec

#: Groups that compute over events; sources, sinks and triggers have nothing to do with the past.
_RUN = (GroupKind.QUERIES, GroupKind.PARTITIONER)


def fed_groups(spec: AppSpec, streams: Iterable[str]) -> tuple[str, ...]:
    """The names of the groups that history of ``streams`` runs through, each after its writers.

    Raises:
        MeshError: MESH-C160 for a stream that is not an input of the app, or a group whose result
            depends on more than the past events.
    """
    begin = set()
    for stream in streams:
        ids = {channel.id for channel in entrances(spec, stream)}
        if not ids:
            raise _refused("", f'no group reads stream "{stream}" from outside')
        begin |= ids
    fed = _fed(spec, begin)
    read = {one.channel.id for group in fed for one in group.inputs}
    # Events that no group reads have no effect on a state.
    fed = [g for g in fed if not _is_mixing(g) or any(o.id in read for o in g.outputs)]
    writers = _writers(spec)
    for group in fed:
        _check(group)
        for output in group.outputs:
            if len(writers[output.id]) > 1 and output.id in read:
                names = " and ".join(sorted(writers[output.id]))
                raise _refused(group.name, f"{names} write one stream that a group reads")
        if _is_mixing(group):
            why = "its events of several streams have no order, and a group reads them"
            raise _refused(group.name, why)
    return tuple(group.name for group in _ordered(fed, begin))


def entrances(spec: AppSpec, stream: str) -> tuple[Channel, ...]:
    """The channels by which events of an input stream enter the app.

    Raises:
        MeshError: MESH-C160 for a stream that groups of the app write.
    """
    writers = _writers(spec)
    channels: dict[tuple[str, str], Channel] = {}
    for group in spec.groups:
        for one in group.inputs if group.kind in _RUN else ():
            if one.channel.stream.name != stream:
                continue
            by = [spec.group(name) for name in writers.get(one.channel.id, ())]
            kinds = {g.kind for g in by if g is not None}
            if GroupKind.QUERIES in kinds:
                raise _refused("", f'the app computes stream "{stream}" itself')
            if GroupKind.PARTITIONER not in kinds:
                channels[one.channel.id] = one.channel
    return tuple(channels.values())


def _is_mixing(group: GroupSpec) -> bool:
    """Whether live events of several streams leave the group in the order of their arrival."""
    return not group.stateful and len(group.inputs) > 1


def _fed(spec: AppSpec, begin: Collection[tuple[str, str]]) -> list[GroupSpec]:
    """The groups that read these channels, or what such groups write."""
    reached = set(begin)
    fed: list[GroupSpec] = []
    waiting = [group for group in spec.groups if group.kind in _RUN]
    while more := [g for g in waiting if any(i.channel.id in reached for i in g.inputs)]:
        fed += more
        waiting = [group for group in waiting if group not in more]
        reached |= {output.id for group in more for output in group.outputs}
    return fed


def _ordered(fed: Iterable[GroupSpec], begin: Collection[tuple[str, str]]) -> list[GroupSpec]:
    """The groups, each after those that write what it reads; MESH-C160 where there is no order."""
    available, waiting = set(begin), list(fed)
    groups: list[GroupSpec] = []
    written = {output.id for group in waiting for output in group.outputs}
    while waiting:
        ready = [g for g in waiting if all(i.channel.id in available for i in g.inputs)]
        if not ready:
            raise _unfed(waiting, available | written)
        groups += ready
        available |= {output.id for group in ready for output in group.outputs}
        waiting = [group for group in waiting if group not in ready]
    return groups


def _unfed(waiting: Iterable[GroupSpec], available: Collection[tuple[str, str]]) -> MeshError:
    """The reason why the first group can't run: a stream without a history, or a circle."""
    for group in waiting:
        missing = [i.channel.stream.name for i in group.inputs if i.channel.id not in available]
        if missing:
            names = " and ".join(f'"{name}"' for name in dict.fromkeys(missing))
            return _refused(group.name, f"it reads stream {names} as well, without a history")
    return _refused(next(iter(waiting)).name, "it reads what it writes")


def _writers(spec: AppSpec) -> dict[tuple[str, str], list[str]]:
    writers: dict[tuple[str, str], list[str]] = {}
    for group in spec.groups:
        for channel in group.outputs:
            writers.setdefault(channel.id, []).append(group.name)
    return writers


def _check(group: GroupSpec) -> None:
    if group.kind is GroupKind.PARTITIONER:
        return
    app = bind_group(group)
    if app.scripts:
        raise _refused(group.name, "it has functions of its own (define function)")
    tables = {one.schema.name: one.annotations for one in app.tables}
    tables |= {one.schema.name: one.annotations for one in app.aggregations}
    for name, entries in tables.items():
        if find(entries, "store") is not None:
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
        hint="Give the history of each stream that it reads; or deploy the app with 'mesh deploy', "
        "and publish the events with Mesh-Timestamp.",
    )
