"""A running app takes another text: what is desired from then on, or why it can't be had like that.

Groups whose part stays the same go on.  The others restart from where they stopped, with the states
that ``mesh.plan.changes`` says are kept; a group that would lose a state has to be named for that.
What would lose events, or give some twice, is refused: it is left to who takes the app apart and
deploys it anew.

A group that begins to read a stream which is there already begins behind what the stream holds at
the time of the edit; a new stream is read as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mesh.errors import MeshError
from mesh.model.app import GroupKind, Strategy
from mesh.model.cluster import Retired
from mesh.plan.build import bind_group
from mesh.plan.changes import Changes, ChannelFate, GroupFate, changes_between, merge_specs
from mesh.plan.states import StateFate, division_changed, without_numbers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from mesh.model.app import AppSpec, GroupInput, GroupSpec
    from mesh.plan.bound import BoundQuery
    from mesh.plan.changes import GroupChange


@dataclass(frozen=True, slots=True)
class Edit:
    """What becomes of an app."""

    #: What is desired from now on.
    spec: AppSpec
    found: Changes
    #: What is taken out of the app.
    retired: Retired
    #: By group, the JetStream streams that it begins to read and that are there already.
    joins: Mapping[str, tuple[str, ...]]

    def begun(self, ends: Mapping[str, int]) -> AppSpec:
        """``spec``, where each group begins behind the ends of the streams that it begins to read.

        Args:
            ends: the last sequences of all of ``joins``.
        """
        groups = (
            replace(g, starts={**g.starts, **{s: ends[s] for s in self.joins.get(g.name, ())}})
            for g in self.spec.groups
        )
        return replace(self.spec, groups=tuple(groups))


def with_start_positions(spec: AppSpec, passed: Mapping[str, int]) -> AppSpec:
    """``spec`` as an app that begins behind ``passed``, last sequences of JetStream streams."""

    def starts(group: GroupSpec) -> dict[str, int]:
        channels = (i.channel for i in group.inputs)
        streams = [c.js_stream(p) for c in channels for p in range(c.partitions)]
        return {stream: passed[stream] for stream in streams if stream in passed}

    return replace(spec, groups=tuple(replace(g, starts=starts(g)) for g in spec.groups))


def edit_app(old: AppSpec, new: AppSpec, number: int, reset: Collection[str] = ()) -> Edit:
    """What becomes of ``old`` when ``new`` takes its place while it runs.

    Args:
        old: as it is desired now.
        new: another text of the same app.
        number: of this edit, 1 for the first of the app.
        reset: groups that forget their state; those that lose some must be among them.

    Raises:
        MeshError: MESH-C120 for a state that would be lost; MESH-C121 for events that would be;
            MESH-C122 when ``reset`` names what is no group.
    """
    found = changes_between(old, new, reset=reset)
    groups = {group.name for group in new.groups}
    unknown = [name for name in reset if name not in groups]
    if unknown:
        raise MeshError(
            "MESH-C122",
            f'app "{new.name}" has no group "{unknown[0]}" to reset',
            detail=f"Its groups are: {', '.join(sorted(groups))}.",
        )
    reasons = list(obstacles(old, new, found))
    if reasons:
        raise MeshError(
            "MESH-C121",
            f'app "{new.name}" can\'t be changed like that while it runs',
            detail=f"Events would be lost or doubled: {'; '.join(reasons)}.",
            hint="'mesh deploy --replace' removes the app first, with its channels and states.",
        )
    lost = [group for group in found.groups if group.lost and group.group not in reset]
    if lost:
        names = " ".join(f"--reset {group.group}" for group in lost)
        raise MeshError(
            "MESH-C120",
            f'app "{new.name}" would lose state in {_listed(g.group for g in lost)}',
            detail=f"{'; '.join(_told(group) for group in lost)}.",
            hint=f"With {names} such a group begins with none, from where it is in its streams.",
        )
    spec = merge_specs(old, new, reset=reset)
    after = tuple(_after(old.group(g.name), g, number, g.name in reset, found) for g in spec.groups)
    spec = replace(spec, groups=after)
    retired = Retired(
        tuple(c.channel for c in found.channels if c.fate is ChannelFate.REMOVED),
        tuple(g.group for g in found.groups if g.fate is GroupFate.STOPPED),
    )
    joins = {g.name: tuple(_joined(old, g)) for g in spec.groups}
    return Edit(spec, found, retired, {name: streams for name, streams in joins.items() if streams})


def still_retired(before: Retired | None, now: Retired, spec: AppSpec) -> Retired | None:
    """What is to be removed, of this edit and of those before that nobody has removed yet.

    What ``spec`` has again stays.
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
    old: GroupSpec | None, new: GroupSpec, number: int, is_reset: bool, found: Changes
) -> GroupSpec:
    """``new`` with what it has of its past.

    What a stateful group puts out is counted, and the count goes on; what others put out has the
    numbers of the events that it is made of, which say nothing beside those of another text.
    """
    if old is None:
        return replace(new, edit=number)
    if found.fate(new.name) is not GroupFate.RESTARTED:
        return new
    counts_on = old.stateful and new.stateful
    return replace(
        new,
        edit=old.edit if counts_on else number,
        resets=old.resets + is_reset,
        starts=old.starts,
    )


def _joined(old: AppSpec, group: GroupSpec) -> Iterator[str]:
    """The JetStream streams that are there already and that the group did not read."""
    there = {c.js_stream(p) for c in old.channels for p in range(c.partitions)}
    was = old.group(group.name)
    read = {s for i in was.inputs for s in _js_streams(i)} if was is not None else set()
    for one in group.inputs:
        yield from (s for s in _js_streams(one) if s in there and s not in read)


def _js_streams(one: GroupInput) -> list[str]:
    if one.strategy is not Strategy.BY_KEY:
        return [one.channel.js_stream()]
    return [one.channel.js_stream(p) for p in range(one.channel.partitions)]


def obstacles(old: AppSpec, new: AppSpec, found: Changes) -> Iterator[str]:
    """Why ``old`` can't become ``new`` while it runs, in fragments: what MESH-C121 tells.

    Args:
        old: as it is desired now.
        new: what is to take its place.
        found: what ``changes`` says of the two.
    """
    for group in new.groups:
        was = old.group(group.name)
        reason = None if was is None else division_changed(was, group)
        if reason is not None:
            yield f"group {group.name}: {reason}"
    for one in found.groups:
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
    for change in found.channels:
        if change.fate is ChannelFate.REMOVED and change.channel.stream.name in inside:
            yield f"stream {change.channel.stream.name} no longer goes over the wire"


def _moved(old: AppSpec, new: AppSpec) -> Iterator[str]:
    """Queries that another group has now: where that would begin to read isn't where this ended."""
    before = {group.name: _queries(group) for group in old.groups}
    after = {group.name: _queries(group) for group in new.groups}
    for source, queries in before.items():
        gone = [query for query in queries if query not in after.get(source, ())]
        for target, found in after.items():
            come = [query for query in found if query not in before.get(target, ())]
            for query in come:
                if query in gone and target != source:
                    yield f'the query into "{query.target.name}" moves from {source} to {target}'


def _queries(group: GroupSpec) -> list[BoundQuery]:
    """The queries of a group, without their names."""
    app = without_numbers(bind_group(group))
    return [*app.queries, *(query for part in app.partitions for query in part.queries)]


def _read_inside(group: GroupSpec) -> set[str]:
    """The streams that queries of a group read and that it makes itself."""
    if group.kind is GroupKind.PARTITIONER:
        return set()
    app = bind_group(group)
    queries = [*app.queries, *(query for part in app.partitions for query in part.queries)]
    wired = {i.channel.stream.name for i in group.inputs}
    return {name for query in queries for name in query.input_streams} - wired


def _told(change: GroupChange) -> str:
    states = (
        f"{state.kind} {state.name}, for {state.reason}"
        for state in change.states
        if state.fate is StateFate.LOST
    )
    return f"group {change.group}: {', '.join(states)}"


def _listed(names: Iterator[str]) -> str:
    found = list(names)
    return f"group{'s' if len(found) > 1 else ''} {', '.join(found)}"
