"""Edit of a running app: its new desired state, or the reasons against it.

Groups whose part stays the same continue.  The others restart at their last position, with the
states that ``mesh.plan.changes`` keeps; a group that would lose a state has to be named for that.
An edit that would lose or repeat events is refused: the user has to undeploy the app and deploy it
again.

A group that begins to read an existing stream begins after the stream's last message at the time of
the edit; a new stream is read as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mesh.errors import MeshError
from mesh.model.app import GroupKind
from mesh.model.cluster import Retired
from mesh.plan.bind.apps import bind_group
from mesh.plan.changes import Changes, ChannelFate, GroupFate, changes_between, merge_specs
from mesh.plan.states import StateFate, division_changed, without_numbers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from mesh.model.app import AppSpec, GroupSpec
    from mesh.plan.bound import BoundQuery
    from mesh.plan.changes import GroupChange


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit of an app."""

    #: The new desired state.
    spec: AppSpec
    changes: Changes
    #: Channels and groups that are removed from the app.
    retired: Retired
    #: By group, the existing JetStream streams that it begins to read.
    joins: Mapping[str, tuple[str, ...]]

    def begun(self, ends: Mapping[str, int]) -> AppSpec:
        """``spec``, where each group begins after the ends of the streams that it begins to read.

        Args:
            ends: the last sequences of all of ``joins``.
        """
        groups = (
            replace(g, starts={**g.starts, **{s: ends[s] for s in self.joins.get(g.name, ())}})
            for g in self.spec.groups
        )
        return replace(self.spec, groups=tuple(groups))


def with_start_positions(spec: AppSpec, passed: Mapping[str, int]) -> AppSpec:
    """``spec`` as an app that begins after ``passed``, last sequences of JetStream streams."""

    def starts(group: GroupSpec) -> dict[str, int]:
        channels = (i.channel for i in group.inputs)
        streams = [name for channel in channels for name in channel.js_streams]
        return {stream: passed[stream] for stream in streams if stream in passed}

    return replace(spec, groups=tuple(replace(g, starts=starts(g)) for g in spec.groups))


def edit_app(old: AppSpec, new: AppSpec, number: int, reset: Collection[str] = ()) -> Edit:
    """Replace ``old`` by ``new`` while it runs.

    Args:
        old: the app that is desired now.
        new: another text of the same app.
        number: of this edit, 1 for the first of the app.
        reset: groups that discard their state; those that lose some must be among them.

    Raises:
        MeshError: MESH-C120 for a state that would be lost; MESH-C121 for events that would be lost
            or repeated; MESH-C122 if ``reset`` has a name without a group.
    """
    changes = changes_between(old, new, reset=reset)
    groups = {group.name for group in new.groups}
    unknown = [name for name in reset if name not in groups]
    if unknown:
        raise MeshError(
            "MESH-C122",
            f'app "{new.name}" has no group "{unknown[0]}" to reset',
            detail=f"Its groups are: {', '.join(sorted(groups))}.",
        )
    reasons = list(obstacles(old, new, changes))
    if reasons:
        raise MeshError(
            "MESH-C121",
            f'app "{new.name}" can\'t be changed like that while it runs',
            detail=f"Events would be lost or doubled: {'; '.join(reasons)}.",
            hint="'mesh deploy --replace' removes the app first, with its channels and states.",
        )
    lost = [group for group in changes.groups if group.lost and group.group not in reset]
    if lost:
        names = " ".join(f"--reset {group.group}" for group in lost)
        raise MeshError(
            "MESH-C120",
            f'app "{new.name}" would lose state in {_listed(g.group for g in lost)}',
            detail=f"{'; '.join(_described(group) for group in lost)}.",
            hint=f"With {names} such a group begins with none, from where it is in its streams.",
        )
    spec = merge_specs(old, new, reset=reset)
    after = tuple(
        _after(old.group(g.name), g, number, g.name in reset, changes) for g in spec.groups
    )
    spec = replace(spec, groups=after)
    retired = Retired(
        tuple(c.channel for c in changes.channels if c.fate is ChannelFate.REMOVED),
        tuple(g.group for g in changes.groups if g.fate is GroupFate.STOPPED),
    )
    joins = {g.name: tuple(_joined(old, g)) for g in spec.groups}
    return Edit(
        spec, changes, retired, {name: streams for name, streams in joins.items() if streams}
    )


def still_retired(before: Retired | None, now: Retired, spec: AppSpec) -> Retired | None:
    """Channels and groups to remove, of this edit and of earlier ones, if they still exist.

    Those that ``spec`` uses again stay.
    """
    earlier = before or Retired()
    there = {channel.js_stream() for channel in spec.channels}
    channels = {c.js_stream(): c for c in (*earlier.channels, *now.channels)}
    groups = dict.fromkeys((*earlier.groups, *now.groups))
    left = Retired(
        tuple(channel for name, channel in channels.items() if name not in there),
        tuple(name for name in groups if spec.group(name) is None),
    )
    return left if left.channels or left.groups else None


def _after(
    old: GroupSpec | None, new: GroupSpec, number: int, is_reset: bool, changes: Changes
) -> GroupSpec:
    """``new`` with the history of the running app.

    The output of a stateful group is counted, and the count continues.  The output of other groups
    has the numbers of its input events, which have no meaning beside those of another text.
    """
    if old is None:
        return replace(new, edit=number)
    if changes.fate(new.name) is not GroupFate.RESTARTED:
        return new
    counts_on = old.stateful and new.stateful
    return replace(
        new,
        edit=old.edit if counts_on else number,
        resets=old.resets + is_reset,
        starts=old.starts,
    )


def _joined(old: AppSpec, group: GroupSpec) -> Iterator[str]:
    """The existing JetStream streams that the group did not read so far."""
    there = {name for channel in old.channels for name in channel.js_streams}
    was = old.group(group.name)
    read = {s for i in was.inputs for s in i.channel.js_streams} if was is not None else set()
    for one in group.inputs:
        yield from (s for s in one.channel.js_streams if s in there and s not in read)


def obstacles(old: AppSpec, new: AppSpec, changes: Changes) -> Iterator[str]:
    """Reasons why ``old`` can't become ``new`` while it runs, as fragments for MESH-C121.

    Args:
        old: the app that is desired now.
        new: the app that is to replace it.
        changes: the result of ``changes_between`` for the two.
    """
    for group in new.groups:
        was = old.group(group.name)
        reason = None if was is None else division_changed(was, group)
        if reason is not None:
            yield f"group {group.name}: {reason}"
    for one in changes.groups:
        gone = old.group(one.group)
        if (
            one.fate is GroupFate.STOPPED
            and gone is not None
            and gone.kind is GroupKind.PARTITIONER
        ):
            names = {(c.stream.name, c.key_name) for c in gone.outputs}
            if any((c.stream.name, c.key_name) in names for c in new.channels):
                yield f"group {one.group} may stop before it has copied all events"
    yield from _moved(old, new)
    inside = {name for group in new.groups for name in _read_inside(group)}
    for change in changes.channels:
        if change.fate is ChannelFate.REMOVED and change.channel.stream.name in inside:
            yield f"stream {change.channel.stream.name} no longer goes over the wire"


def _moved(old: AppSpec, new: AppSpec) -> Iterator[str]:
    """Queries that another group has now: where that would begin to read isn't where this ended."""
    before = {group.name: _queries(group) for group in old.groups}
    after = {group.name: _queries(group) for group in new.groups}
    for source, queries in before.items():
        gone = [query for query in queries if query not in after.get(source, ())]
        for target, others in after.items():
            come = [query for query in others if query not in before.get(target, ())]
            for query in come:
                if query in gone and target != source:
                    yield f'the query into "{query.target.name}" moves from {source} to {target}'


def _queries(group: GroupSpec) -> list[BoundQuery]:
    """The queries of a group, without their names."""
    return list(without_numbers(bind_group(group)).all_queries)


def _read_inside(group: GroupSpec) -> set[str]:
    """The streams that queries of a group read and that the group writes itself."""
    if group.kind is GroupKind.PARTITIONER:
        return set()
    app = bind_group(group)
    wired = {i.channel.stream.name for i in group.inputs}
    read = {name for query in app.all_queries for name in query.input_streams}
    return (read | {one.input.schema.name for one in app.aggregations}) - wired


def _described(change: GroupChange) -> str:
    states = (
        f"{state.kind} {state.name}, for {state.reason}"
        for state in change.states
        if state.fate is StateFate.LOST
    )
    return f"group {change.group}: {', '.join(states)}"


def _listed(names: Iterator[str]) -> str:
    listed = list(names)
    return f"group{'s' if len(listed) > 1 else ''} {', '.join(listed)}"
