"""The plan of a fork: an app under another name that reads the channels of the first one.

A stream is *given* if no query of the app writes it: events of clients, sources and triggers.  The
fork has no channel of its own for a given stream; its groups read the first app's.  So its input is
the same messages with the same sequences, and nothing is published to it.  Every other stream of
the fork has channels of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mesh.errors import MeshError
from mesh.language.parser import parse
from mesh.language.printer import print_app
from mesh.language.syntax import Annotation, StreamDefinition, find
from mesh.model.app import GroupKind
from mesh.plan.annotations import playback_times
from mesh.plan.bind.apps import bind_group
from mesh.plan.build import plan
from mesh.plan.changes import GroupFate, changes_between
from mesh.plan.channels import PARTITIONS
from mesh.plan.edits import edit_app
from mesh.plan.groups import as_scaled
from mesh.plan.nats_source import TYPE as NATS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from mesh.language.syntax import App
    from mesh.model.app import AppSpec, Channel, GroupSpec

#: Kinds of groups that bring events into the app; a fork has the events already.
_ENTRANCES = frozenset({GroupKind.RECEIVER, GroupKind.TRIGGER})


@dataclass(frozen=True, slots=True)
class StateFit:
    """Whether, and how, a fork may begin with the state of the first app."""

    #: The fork's plan, with the history of the first app's groups; None if it may not.
    spec: AppSpec | None
    #: Groups that restart with another text, and all that read their output.
    changed: frozenset[str] = frozenset()
    #: Why it may not, as a sentence.
    reason: str = ""


def fork_app(
    of: AppSpec,
    text: str | None,
    other: str,
    *,
    copies: bool,
    sinks: bool,
    scaled: Mapping[str, int],
) -> AppSpec:
    """The plan of app ``other`` over the given streams of ``of``.

    Args:
        of: the first app.
        text: SiddhiQL of the fork; None for that of ``of``.
        other: the fork's name, which replaces the one in the text.
        copies: whether it reads the keyed copies of given streams, which the first app makes;
            otherwise it makes its own from the plain channel, if there is one.
        sinks: whether its sinks are kept.
        scaled: numbers of instances by group.

    Raises:
        MeshError: MESH-L* and MESH-P* for faults of the text; MESH-C150 for a text that reads
            another stream under a name of the first app; MESH-C151 for one with effects outside.
    """
    tree = parse(of.text if text is None else text)
    _refuse_effects(tree)
    counts = [c.partitions for c in _channels(of) if c.is_keyed]
    spec = plan(_as_fork(tree, other, sinks), partitions=max(counts, default=PARTITIONS)).spec
    spec = as_scaled(spec, scaled)
    taken = dict(_taken(of, spec, copies))
    groups = [g for g in spec.groups if not _is_needless(g, taken)]
    read = {i.channel.id for g in groups for i in g.inputs}
    written = {c.id for g in groups for c in g.outputs}
    channels = tuple(
        c for c in spec.channels if c.id not in taken and (c.id in read or c.id in written)
    )
    return replace(spec, channels=channels, groups=tuple(_reading(g, taken) for g in groups))


def state_fit(of: AppSpec, base: AppSpec, fork: AppSpec, number: int) -> StateFit:
    """The plan of a fork with the state that the first app's groups have stored.

    The snapshots of groups are of different moments.  What is between them is copied from the first
    app's channels, which is right as long as the group that wrote it is the same in the fork.

    Args:
        of: the first app.
        base: its own text as a fork, by ``fork_app`` with ``copies``.
        fork: the fork's text, planned likewise.
        number: of the edit that turns one into the other, above all earlier ones.
    """
    begun = replace(base, groups=tuple(_with_history(of, group) for group in base.groups))
    try:
        edit = edit_app(begun, fork, number)
    except MeshError as error:
        return StateFit(None, reason=f"{error.message}: {error.detail or ''}".strip(": "))
    changes = edit.changes
    changed = {
        g.group for g in changes.groups if g.fate in (GroupFate.RESTARTED, GroupFate.STARTED)
    }
    after = _downstream(edit.spec, changed)
    for group in edit.spec.groups:
        if group.stateful and group.name in after:
            return StateFit(
                None,
                reason=f"group {group.name} has state of what another text of an earlier group "
                "has emitted",
            )
    if edit.joins:
        name = next(iter(edit.joins))
        return StateFit(None, reason=f"group {name} begins to read another stream")
    return StateFit(edit.spec, frozenset(changed | after))


def promoted_text(text: str, app: str) -> str:
    """A fork's text under the name of the app; unchanged if it has that name already."""
    tree = parse(text)
    return text if tree.name == app else print_app(_named(tree, app))


def _named(tree: App, name: str, without: str = "") -> App:
    """``tree`` under another name, and without an annotation of the app."""
    annotations = (a for a in tree.annotations if a.name.lower() not in ("app:name", without))
    return replace(tree, annotations=(Annotation("App:name", ((None, name),)), *annotations))


def promotion_states(old: AppSpec, new: AppSpec) -> tuple[list[str], list[str]]:
    """The groups whose state has to be the fork's, and the reasons why that of some can't be.

    A promotion is an edit of the app, which keeps the app's states.  A state of the fork is equal
    to it, at the same sequence, if its group and all groups before it are the same in both.  That
    of a changed group is the fork's, run on to where the app's group has drained.  That is a place
    in streams which the app and the fork share, or whose events are the same in both: a group
    that reads what a changed one emits has no such place.

    Args:
        old: the app.
        new: the fork's text under the app's name.

    Returns:
        Names, and fragments.
    """
    changes = changes_between(old, new)
    changed = {
        g.group for g in changes.groups if g.fate in (GroupFate.RESTARTED, GroupFate.STARTED)
    }
    after = _downstream(new, changed)
    taken, reasons = [], []
    for group in new.groups:
        if not group.stateful or not (group.name in changed or group.name in after):
            continue
        why = "it reads what a changed group emits" if group.name in after else ""
        why = why or _unadoptable(old.group(group.name), group)
        if why:
            reasons.append(f"group {group.name}: {why}")
        else:
            taken.append(group.name)
    return taken, reasons


def _unadoptable(old: GroupSpec | None, new: GroupSpec) -> str:
    """The reason against a state of the fork for a changed group; empty for none."""
    if old is None or not old.stateful:
        return "the app has no group of this name with a state, and so no place where it begins"
    if {i.channel.id for i in old.inputs} != {i.channel.id for i in new.inputs}:
        return "it reads other streams than in the app"
    if old.parallel != new.parallel:
        return "it has another number of instances"
    bound = bind_group(new)
    if bound.scripts:
        return "it has functions of its own (define function)"
    playback = find(bound.annotations, "app:playback")
    if playback is not None and playback_times(playback) is not None:
        return "its clock advances by idle time (@App:playback)"
    return ""


def read_by_others(specs: Iterable[AppSpec], app: str) -> dict[tuple[str, str], str]:
    """The channels of an app that forks read, by identity, each with the name of a fork."""
    return {
        i.channel.id: spec.name
        for spec in specs
        if spec.name != app
        for group in spec.groups
        for i in group.inputs
        if i.channel.app == app
    }


def read_streams(groups: Collection[GroupSpec]) -> Iterator[str]:
    """The JetStream streams that groups read."""
    for group in groups:
        for one in group.inputs:
            yield from one.channel.js_streams


def _refuse_effects(tree: App) -> None:
    """Refuse tables and aggregations in databases: the first app writes the same rows."""
    for definition in tree.definitions:
        store = find(getattr(definition, "annotations", ()), "store")
        if store is not None:
            raise MeshError(
                "MESH-C151",
                f'"{definition.name}" is in a database, which a fork would write as well',
                hint="Give --text a text in which it has no @store, or another database.",
                position=store.position,
            )


def _as_fork(tree: App, other: str, sinks: bool) -> App:
    """``tree`` under another name, without sources of its own, and without sinks unless wanted."""
    tree = _named(tree, other, without="app:transportchannelcreationenabled")
    elements = tuple(
        replace(e, annotations=tuple(a for a in e.annotations if _is_copied(a, sinks)))
        if isinstance(e, StreamDefinition)
        else e
        for e in tree.elements
    )
    return replace(tree, elements=elements)


def _is_copied(annotation: Annotation, sinks: bool) -> bool:
    match annotation.name.lower():
        case "sink":
            return sinks
        case "source":
            # A JetStream stream of others is read by the fork as it is by the first app.
            return annotation.get("type") == NATS and annotation.get("stream") is not None
        case _:
            return True


def _taken(of: AppSpec, spec: AppSpec, copies: bool) -> Iterator[tuple[tuple[str, str], Channel]]:
    """By the identity of a channel in the fork's own plan: the channel that it reads instead."""
    computed = of.computed_streams | spec.computed_streams
    channels = _channels(of)
    plain = {c.stream.name: c for c in channels if not c.is_keyed}
    keyed = {(c.stream.name, c.key_name, c.partitions): c for c in channels if c.is_keyed}
    names = {c.stream.name for c in channels}
    for channel in spec.channels:
        name = channel.stream.name
        if name in computed or name not in names:
            continue
        if channel.is_keyed:
            original = keyed.get((name, channel.key_name, channel.partitions))
            if original is None or not (copies or name not in plain):
                continue
        else:
            original = plain.get(name)
        if original is None:
            # Only keyed copies of it exist, and the fork's queries read them as the app's do.
            if any(c.is_keyed and c.stream.name == name for c in spec.channels):
                continue
            raise _other_input(of.name, name, "the app has it only divided by key")
        if original.stream != channel.stream:
            raise _other_input(of.name, name, "its attributes differ")
        yield channel.id, original


def _channels(spec: AppSpec) -> tuple[Channel, ...]:
    """The channels of an app, and those of another one that it reads if it is a fork."""
    inputs = (i.channel for g in spec.groups for i in g.inputs if i.channel.app != spec.name)
    return (*spec.channels, *inputs)


def _other_input(app: str, stream: str, why: str) -> MeshError:
    return MeshError(
        "MESH-C150",
        f'input stream "{stream}" of the fork is not that of app "{app}"',
        detail=f"{why[0].upper()}{why[1:]}.",
        hint="A fork reads the input of the app: define the stream as the app does.",
    )


def _is_needless(group: GroupSpec, taken: Mapping[tuple[str, str], Channel]) -> bool:
    """Whether the first app has done the work of a group of the planner."""
    kinds = (*_ENTRANCES, GroupKind.PARTITIONER)
    return group.kind in kinds and all(c.id in taken for c in group.outputs)


def _reading(group: GroupSpec, taken: Mapping[tuple[str, str], Channel]) -> GroupSpec:
    inputs = tuple(
        replace(i, channel=taken[i.channel.id]) if i.channel.id in taken else i
        for i in group.inputs
    )
    return replace(group, inputs=inputs)


def _with_history(of: AppSpec, group: GroupSpec) -> GroupSpec:
    """A group with the numbers of edits and resets, and the starts, of the first app's."""
    was = of.group(group.name)
    if was is None:
        return group
    names = {
        a.channel.js_stream(p): b.channel.js_stream(p)
        for a, b in zip(was.inputs, group.inputs, strict=False)
        for p in range(min(a.channel.partitions, b.channel.partitions))
    }
    starts = {names[s]: n for s, n in was.starts.items() if s in names}
    return replace(group, edit=was.edit, resets=was.resets, starts=starts)


def _downstream(spec: AppSpec, names: Collection[str]) -> set[str]:
    """The groups that read what groups write, directly or through others."""
    reached: set[str] = set()
    written = {c.id for g in spec.groups if g.name in names for c in g.outputs}
    waiting = list(spec.groups)
    while more := [g for g in waiting if any(i.channel.id in written for i in g.inputs)]:
        reached |= {g.name for g in more}
        written |= {c.id for g in more for c in g.outputs}
        waiting = [g for g in waiting if g.name not in reached]
    return reached
