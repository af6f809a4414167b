"""Effect of an edit: changes between the plan of a running app and that of its new text.

A pure function of two plans.  A group continues if its part of the plan is the same, whatever
happens around it; otherwise it restarts.  In a group that restarts, each query keeps its state if
it is the same query over the same streams, divided as before.  Tables and named windows keep theirs
if their definition is the same.  Queries without a name are identified by their text, because their
numbers change when other queries are inserted before them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from mesh.errors import MeshError
from mesh.model.app import GroupMode, Strategy
from mesh.plan.bind.apps import bind_group
from mesh.plan.states import (
    StateChange,
    StateFate,
    dropped_keepers,
    left_behind,
    state_changes,
    states_of,
    without_numbers,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from mesh.model.app import AppSpec, Channel, GroupInput, GroupSpec
    from mesh.plan.bound import BoundApp

_Thing = TypeVar("_Thing")


class GroupFate(StrEnum):
    """The effect of an edit on a group."""

    #: It continues, untouched.
    SAME = "same"
    #: It runs where other labels allow: instances on workers without them move.
    MOVED = "moved"
    #: It has other instances, of the same plan: virtual partitions move with their state.
    SCALED = "scaled"
    RESTARTED = "restarted"
    STARTED = "started"
    STOPPED = "stopped"


class ChannelFate(StrEnum):
    """The effect of an edit on a channel's JetStream streams."""

    ADDED = "added"
    #: With the events in them.
    REMOVED = "removed"
    #: Its events have other attributes from now on, or it has another number of partitions.
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class GroupChange:
    """A group and the effect on it."""

    group: str
    fate: GroupFate
    #: Fragments; empty when it continues, starts or stops.
    reasons: tuple[str, ...] = ()
    #: States of its old and new parts; empty when it continues.
    states: tuple[StateChange, ...] = ()

    @property
    def lost(self) -> tuple[StateChange, ...]:
        """The states that can't be kept although their queries, tables or windows stay."""
        return tuple(state for state in self.states if state.fate is StateFate.LOST)


@dataclass(frozen=True, slots=True)
class ChannelChange:
    """A channel and the effect on it; unchanged channels aren't listed."""

    channel: Channel
    fate: ChannelFate
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of an app: groups of the new plan in its order, then those that stop."""

    app: str
    groups: tuple[GroupChange, ...]
    channels: tuple[ChannelChange, ...]

    @property
    def is_same(self) -> bool:
        """Whether everything continues; the texts may differ in comments and form."""
        return not self.channels and all(g.fate is GroupFate.SAME for g in self.groups)

    @property
    def to_reset(self) -> tuple[str, ...]:
        """The groups in which a state is lost that a user may need."""
        return tuple(g.group for g in self.groups if g.lost)

    def fate(self, group: str) -> GroupFate:
        """The effect on a group of either plan."""
        return next(g.fate for g in self.groups if g.group == group)


def changes_between(old: AppSpec, new: AppSpec, *, reset: Collection[str] = ()) -> Changes:
    """Compute the changes when ``new`` is deployed in the place of ``old``.

    Args:
        old: the app that is desired now.
        new: the app that is to replace it.
        reset: groups that have to discard their state, whatever changes.

    Raises:
        MeshError: MESH-U127 if they are different apps.
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
        GroupChange(group.name, GroupFate.STOPPED, states=states_of(group, StateFate.DROPPED))
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
    """``new``, with the groups that continue exactly as in ``old``.

    Their queries keep the names under which their states are saved.
    """
    changes = changes_between(old, new, reset=reset)
    groups = []
    for group in _with_recorders_of(old, new).groups:
        was = old.group(group.name)
        if was is None or changes.fate(group.name) is GroupFate.RESTARTED:
            groups.append(group)
        else:
            groups.append(_with_places_of(group, was))
    return replace(new, groups=tuple(groups))


def _with_places_of(group: GroupSpec, was: GroupSpec) -> GroupSpec:
    """``was``, as wide as ``group``, where that may run, and with what it may read."""
    return replace(
        was,
        parallel=group.parallel,
        node=group.node,
        standby=group.standby,
        mode=group.mode,
        reads=group.reads,
    )


def _with_recorders_of(old: AppSpec, new: AppSpec) -> AppSpec:
    """``new``, with the same readers as in ``old`` recording the events that can't be read.

    The planner chooses the reader, and its choice is no reason for a restart.
    """
    recorder = {i.channel.id: g.name for g in old.groups for i in g.inputs if i.records_errors}
    reads = {(g.name, i.channel.id) for g in new.groups for i in g.inputs}
    survivors = {subject: g for subject, g in recorder.items() if (g, subject) in reads}

    def settled(group: GroupSpec) -> GroupSpec:
        inputs = tuple(
            replace(i, records_errors=survivors[i.channel.id] == group.name)
            if i.channel.id in survivors
            else i
            for i in group.inputs
        )
        return replace(group, inputs=inputs)

    return replace(new, groups=tuple(settled(group) for group in new.groups))


def _group(old: GroupSpec | None, new: GroupSpec, is_reset: bool) -> GroupChange:
    if old is None:
        return GroupChange(new.name, GroupFate.STARTED, states=states_of(new, StateFate.NEW))
    reasons = _reasons_to_restart(old, new, bind_group(old), bind_group(new))
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
    if old.mode != new.mode:
        others.append(f"it runs in mode {new.mode} rather than {old.mode}")
    if reasons:
        return GroupChange(new.name, GroupFate.RESTARTED, (*others, *reasons), states)
    if not others:
        return GroupChange(new.name, GroupFate.SAME)
    fate = GroupFate.SCALED if old.parallel != new.parallel else GroupFate.MOVED
    return GroupChange(new.name, fate, tuple(others), states)


def _forgotten(states: Iterable[StateChange]) -> Iterator[StateChange]:
    """The changes of states when the group discards all of them."""
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


def _reasons_to_restart(
    old: GroupSpec, new: GroupSpec, before: BoundApp, after: BoundApp
) -> tuple[str, ...]:
    """Differences between a group in two plans that prevent it from continuing, in words.

    Its parallelism and labels do not count.

    Args:
        old: the running group.
        new: the future group.
        before: the bound app of ``old``.
        after: the bound app of ``new``.

    Returns:
        Fragments as in "the group restarts because ..", each once; empty if nothing differs.
    """
    reasons = list(
        dict.fromkeys(_reasons(old, new, without_numbers(before), without_numbers(after)))
    )
    is_same = without_numbers(before) == without_numbers(after)
    if not reasons and not (is_same and _shape(old) == _shape(new)):
        # Every record has a word above; a difference without a word must not pass as none.
        return ("its part of the plan changed",)
    return tuple(reasons)


def _shape(group: GroupSpec) -> GroupSpec:
    """The relevant fields of a group besides its text and history; inputs by name, in any order."""
    inputs = tuple(sorted(group.inputs, key=lambda i: i.channel.subject()))
    return replace(
        group,
        text="",
        parallel=1,
        node=(),
        standby=0,
        mode=GroupMode.REAL_TIME,
        inputs=inputs,
        edit=0,
        resets=0,
        starts={},
    )


def _reasons(old: GroupSpec, new: GroupSpec, before: BoundApp, after: BoundApp) -> Iterator[str]:
    yield from _of(
        "query", before.queries, after.queries, lambda q: q.name, lambda q: q.target.name
    )
    if before.queries != after.queries and _moved(before.queries, after.queries) == ([], []):
        yield "its queries are in another order"
    yield from _of(
        "partition",
        before.partitions,
        after.partitions,
        lambda p: ", ".join(key.stream for key in p.keys),
    )
    schemas = {s.name: s for s in before.streams}
    for schema in after.streams:
        if schema.name in schemas and schemas[schema.name] != schema:
            yield f'stream "{schema.name}" has other attributes'
    yield from _of("table", before.tables, after.tables, lambda t: t.schema.name)
    yield from _of("window", before.windows, after.windows, lambda w: w.schema.name)
    yield from _of("aggregation", before.aggregations, after.aggregations, lambda a: a.schema.name)
    yield from _of("trigger", before.triggers, after.triggers, lambda t: t.schema.name)
    yield from _of("function", before.scripts, after.scripts, lambda f: f.name)
    for stream in dict.fromkeys(s.name for s in after.streams):
        annotations = [
            [a for s, a in app.stream_annotations if s == stream] for app in (before, after)
        ]
        if annotations[0] != annotations[1]:
            yield f'annotations of stream "{stream}" changed'
    yield from _inputs(old, new)
    yield from _outputs(old, new)


def _of(
    kind: str,
    before: Iterable[_Thing],
    after: Iterable[_Thing],
    name: Callable[[_Thing], str],
    other_name: Callable[[_Thing], str] | None = None,
) -> Iterator[str]:
    """Things that changed, appeared or vanished, by name, or else by ``other_name``."""

    def label(thing: _Thing) -> str:
        if not name(thing) and other_name is not None:
            return f'{kind} into "{other_name(thing)}"'
        return f'{kind} over "{name(thing)}"' if kind == "partition" else f'{kind} "{name(thing)}"'

    gone, come = _moved(before, after)
    names = {label(thing) for thing in gone}
    for thing in come:
        yield f"{label(thing)} changed" if label(thing) in names else f"{label(thing)} is new"
    changed = {label(thing) for thing in come}
    for thing in gone:
        if label(thing) not in changed:
            yield f"{label(thing)} is gone"


def _moved(before: Iterable[_Thing], after: Iterable[_Thing]) -> tuple[list[_Thing], list[_Thing]]:
    """Things that are gone and things that have come, whatever the order of the others."""
    gone, come = list(before), []
    for thing in after:
        if thing in gone:
            gone.remove(thing)
        else:
            come.append(thing)
    return gone, come


def _inputs(old: GroupSpec, new: GroupSpec) -> Iterator[str]:
    before = {i.channel.stream.name: i for i in old.inputs}
    after = {i.channel.stream.name: i for i in new.inputs}
    for name, now in after.items():
        was = before.get(name)
        if was is None:
            yield f'stream "{name}" is read from the wire'
            continue
        if _how(was) != _how(now):
            yield f'stream "{name}" is read {_how(now)} rather than {_how(was)}'
        if was.channel.format is not now.channel.format:
            yield (
                f'stream "{name}" comes as {now.channel.format} rather than {was.channel.format}'
            )
        if was.records_errors != now.records_errors:
            does = "records" if now.records_errors else "no longer records"
            yield f'it {does} events of stream "{name}" that can\'t be read'
    for name in before:
        if name not in after:
            yield f'stream "{name}" no longer is read from the wire'


def _how(one: GroupInput) -> str:
    if one.strategy is not Strategy.BY_KEY:
        return "as a whole" if one.strategy is Strategy.ALL else "round robin"
    return f"by ({one.channel.key_text}) in {one.channel.partitions} partitions"


def _outputs(old: GroupSpec, new: GroupSpec) -> Iterator[str]:
    before = {(c.stream.name, c.key_name): c for c in old.outputs}
    after = {(c.stream.name, c.key_name): c for c in new.outputs}
    for name, now in after.items():
        was = before.get(name)
        if was is None:
            yield f"it writes {_named(now)} to the wire"
        elif was.format is not now.format:
            yield f"it writes {_named(now)} as {now.format} rather than {was.format}"
        elif was.partitions != now.partitions:
            yield f"it writes {_named(now)} to {now.partitions} partitions, not {was.partitions}"
    for name, gone in before.items():
        if name not in after:
            yield f"it no longer writes {_named(gone)} to the wire"


def _named(channel: Channel) -> str:
    by = f" by ({channel.key_text})" if channel.is_keyed else ""
    return f'stream "{channel.stream.name}"{by}'
