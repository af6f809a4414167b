"""What becomes of a running app when another text is deployed under its name.

A pure function of two plans.  A group goes on when its part of the plan is the same, whatever
happens around it, and restarts when that changed.  Of a group that restarts each query keeps its
state when it is the same query over the same streams, divided as before; so do tables and named
windows that are defined as before.  Queries without a name are known by what they say: their
numbers change when others come before them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from mesh.errors import MeshError
from mesh.plan.build import bind_group
from mesh.plan.differences import reasons_to_restart
from mesh.plan.states import (
    StateChange,
    StateFate,
    dropped_keepers,
    dropped_states,
    first_states,
    left_behind,
    state_changes,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from mesh.model.app import AppSpec, Channel, GroupSpec


class GroupFate(StrEnum):
    """What becomes of a group."""

    #: It goes on, untouched.
    SAME = "same"
    #: It runs where other labels allow: instances on workers without them move.
    MOVED = "moved"
    #: It has other instances, of the same plan: virtual partitions move with their state.
    SCALED = "scaled"
    RESTARTED = "restarted"
    STARTED = "started"
    STOPPED = "stopped"


class ChannelFate(StrEnum):
    """What becomes of a channel's JetStream streams."""

    ADDED = "added"
    #: With the events in them.
    REMOVED = "removed"
    #: Its events have other attributes from now on, or it has another number of partitions.
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class GroupChange:
    """A group and what becomes of it."""

    group: str
    fate: GroupFate
    #: Fragments; empty when it goes on, starts or stops.
    reasons: tuple[str, ...] = ()
    #: Of what keeps state, before or from now on; empty when it goes on.
    states: tuple[StateChange, ...] = ()

    @property
    def lost(self) -> tuple[StateChange, ...]:
        """The states that can't be kept although what keeps them stays."""
        return tuple(state for state in self.states if state.fate is StateFate.LOST)


@dataclass(frozen=True, slots=True)
class ChannelChange:
    """A channel and what becomes of it; those that stay as they are aren't listed."""

    channel: Channel
    fate: ChannelFate
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Changes:
    """All of it: groups of the new plan in its order, then those that stop."""

    app: str
    groups: tuple[GroupChange, ...]
    channels: tuple[ChannelChange, ...]

    @property
    def is_same(self) -> bool:
        """Whether everything goes on; the texts may differ in comments and form."""
        return not self.channels and all(g.fate is GroupFate.SAME for g in self.groups)

    @property
    def to_reset(self) -> tuple[str, ...]:
        """The groups in which a state is lost that somebody may want."""
        return tuple(g.group for g in self.groups if g.lost)

    def fate(self, group: str) -> GroupFate:
        """What becomes of a group of either plan."""
        return next(g.fate for g in self.groups if g.group == group)


def changes_between(old: AppSpec, new: AppSpec, *, reset: Collection[str] = ()) -> Changes:
    """What becomes of ``old`` when ``new`` is deployed in its place.

    Args:
        old: as it is desired now.
        new: what is to take its place.
        reset: groups that are to forget their state, whatever changes.

    Raises:
        MeshError: MESH-U127 when they are two apps.
    """
    if old.name != new.name:
        raise MeshError(
            "MESH-U127",
            f'apps "{old.name}" and "{new.name}" are two',
            detail="An app takes the place of another by its name alone.",
            hint="Give them one name with @App:name.",
        )
    new = _with_recorders_of(old, new)
    groups = [_group(old.group(group.name), group, group.name in reset) for group in new.groups]
    groups += [
        GroupChange(group.name, GroupFate.STOPPED, states=tuple(dropped_states(group)))
        for group in old.groups
        if new.group(group.name) is None
    ]
    dropped = {
        change.group: dropped_keepers(group, change.states)
        for change in groups
        if (group := old.group(change.group)) is not None
    }
    groups = [
        replace(change, states=tuple(left_behind(group, change.states, dropped)))
        if (group := new.group(change.group)) is not None
        else change
        for change in groups
    ]
    return Changes(new.name, tuple(groups), tuple(_channels(old, new)))


def merge_specs(old: AppSpec, new: AppSpec, *, reset: Collection[str] = ()) -> AppSpec:
    """``new``, with the groups that go on as they stand in ``old``.

    Their queries keep the names under which their states are saved.
    """
    found = changes_between(old, new, reset=reset)
    groups = []
    for group in _with_recorders_of(old, new).groups:
        was = old.group(group.name)
        if was is None or found.fate(group.name) is GroupFate.RESTARTED:
            groups.append(group)
        else:
            groups.append(_with_places_of(group, was))
    return replace(new, groups=tuple(groups))


def _with_places_of(group: GroupSpec, was: GroupSpec) -> GroupSpec:
    """``was``, as wide as ``group`` and where that may run."""
    return replace(was, parallel=group.parallel, node=group.node, standby=group.standby)


def _with_recorders_of(old: AppSpec, new: AppSpec) -> AppSpec:
    """``new``, where the readers of ``old`` that record what can't be read go on doing so.

    Which reader does is the planner's choice, and no reason to restart one.
    """
    recorder = {i.channel.id: g.name for g in old.groups for i in g.inputs if i.records_errors}
    reads = {(g.name, i.channel.id) for g in new.groups for i in g.inputs}
    kept = {subject: g for subject, g in recorder.items() if (g, subject) in reads}

    def settled(group: GroupSpec) -> GroupSpec:
        inputs = tuple(
            replace(i, records_errors=kept[i.channel.id] == group.name)
            if i.channel.id in kept
            else i
            for i in group.inputs
        )
        return replace(group, inputs=inputs)

    return replace(new, groups=tuple(settled(group) for group in new.groups))


def _group(old: GroupSpec | None, new: GroupSpec, is_reset: bool) -> GroupChange:
    if old is None:
        return GroupChange(new.name, GroupFate.STARTED, states=tuple(first_states(new)))
    reasons = reasons_to_restart(old, new, bind_group(old), bind_group(new))
    states = tuple(state_changes(old, new))
    if is_reset:
        reasons += ("it is reset",)
        states = tuple(_forgotten(states))
    others = []
    if old.parallel != new.parallel:
        others.append(f"parallelism {old.parallel} becomes {new.parallel}")
    if old.node != new.node:
        others.append(f"it runs on {_labels(new.node)} rather than on {_labels(old.node)}")
    if old.standby != new.standby:
        others.append(f"{new.standby or 'no'} worker stands by for each instance")
    if reasons:
        return GroupChange(new.name, GroupFate.RESTARTED, (*others, *reasons), states)
    if not others:
        return GroupChange(new.name, GroupFate.SAME)
    fate = GroupFate.SCALED if old.parallel != new.parallel else GroupFate.MOVED
    return GroupChange(new.name, fate, tuple(others), states)


def _forgotten(states: Iterable[StateChange]) -> Iterator[StateChange]:
    """What becomes of states when the group forgets all of them."""
    for state in states:
        if state.fate in (StateFate.KEPT, StateFate.LOST):
            state = replace(state, fate=StateFate.LOST, reason=state.reason or "it is reset")
        yield state


def _labels(labels: tuple[str, ...]) -> str:
    return f"workers with {', '.join(labels)}" if labels else "any worker"


def _channels(old: AppSpec, new: AppSpec) -> Iterator[ChannelChange]:
    before = {(c.stream.name, c.key_name): c for c in old.channels}
    after = {(c.stream.name, c.key_name): c for c in new.channels}
    for name, channel in after.items():
        was = before.get(name)
        if was is None:
            yield ChannelChange(channel, ChannelFate.ADDED)
        elif was.partitions != channel.partitions:
            yield ChannelChange(
                channel,
                ChannelFate.CHANGED,
                f"{was.partitions} partitions become {channel.partitions}",
            )
        elif was.stream != channel.stream:
            reason = "its events have other attributes"
            yield ChannelChange(channel, ChannelFate.CHANGED, reason)
    for name, channel in before.items():
        if name not in after:
            yield ChannelChange(channel, ChannelFate.REMOVED)
