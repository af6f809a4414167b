"""The graph of an app as a page shows it: places of the plan, with its figures or its changes."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from heapq import nsmallest
from typing import TYPE_CHECKING, Final

from mesh.dashboard import shown
from mesh.dashboard.shown import badge_kind
from mesh.manager.overview import BACKLOG_MIN
from mesh.manager.problems import failing_connectors
from mesh.manager.rates import total
from mesh.manager.telemetry import LastMinute
from mesh.model.cluster import InstanceState
from mesh.model.histogram import LATENCY_BOUNDS_S, quantile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.control.lifecycle import AppStatus, InstanceView
    from mesh.dashboard.board import Seen
    from mesh.manager.rates import Flow
    from mesh.manager.streams import ChannelState
    from mesh.model.values import JsonMapping
    from mesh.plan.picture import Drawing
    from mesh.plan.picture.graph import Box
    from mesh.plan.picture.svg import DrawnNode

#: Seconds of backlog from which a group is the place where events wait.
LAG_MIN_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class GroupNow:
    """A group with the sums over its instances."""

    name: str
    instances: int
    running: int
    flow: Flow
    #: One word: ``running``, ``behind``, ``retrying`` for its source or sink, ``failing``,
    #: ``starting``, ``waiting``, ``paused``.
    state: str
    #: Size of its stored state; 0 for a group without state.
    state_bytes: int
    recent: LastMinute


@dataclass(frozen=True, slots=True)
class Cell:
    """A box of the graph."""

    href: str
    title: str
    shape: str
    box: Box
    lines: Sequence[str]
    #: Lines that change.
    tells: Sequence[str]
    tone: str
    radius: float
    #: Of a group, the streams that it reads and writes; None for a channel.
    streams: GroupStreams | None = None


@dataclass(frozen=True, slots=True)
class GroupStreams:
    """Names of the streams at a group, each with its key if it has one."""

    reads: Sequence[str]
    writes: Sequence[str]


def groups_of(app: AppStatus, seen: Seen) -> list[GroupNow]:
    """The groups of an app, in the order of its plan."""
    members: dict[str, list[InstanceView]] = {}
    for one in app.instances:
        members.setdefault(one.group, []).append(one)
    return [_group(app.app, name, ones, seen) for name, ones in members.items()]


def worst_groups(seen: Seen, count: int) -> list[tuple[str, GroupNow]]:
    """The groups that need an operator most, the worst first, each with its app."""
    ranks: dict[tuple[str, str], tuple[float, ...]] = {}
    for app in seen.apps.values():
        for one in app.instances:
            key, rank = (app.app, one.group), _rank(one, seen.flow(one.instance))
            ranks[key] = max(rank, ranks.get(key, rank))
    worst = nsmallest(count, ranks, key=lambda key: (tuple(-one for one in ranks[key]), key))
    groups = []
    for name, group in worst:
        ones = [one for one in seen.apps[name].instances if one.group == group]
        groups.append((name, _group(name, group, ones, seen)))
    return groups


def _rank(one: InstanceView, flow: Flow) -> tuple[float, ...]:
    """Greater for a worse instance; coarse, so that small differences change no order."""
    p99_s = quantile(flow.latencies, LATENCY_BOUNDS_S, 0.99) if flow.latencies else None
    return (
        one.state == InstanceState.RETRYING,
        one.state != InstanceState.RUNNING,
        flow.errors > 0,
        flow.backlog_s // LAG_MIN_S,
        bisect_left(LATENCY_BOUNDS_S, p99_s) if p99_s is not None else -1,
    )


def _group(app: str, name: str, ones: Sequence[InstanceView], seen: Seen) -> GroupNow:
    flow = total(seen.flow(one.instance) for one in ones)
    running = sum(one.state == InstanceState.RUNNING for one in ones)
    state = "running"
    if any(one.state == InstanceState.RETRYING for one in ones):
        state = "failing"
    elif running < len(ones):
        state = next(one.state for one in ones if one.state != InstanceState.RUNNING)
    elif failing_connectors(ones):
        state = "retrying"
    elif flow.backlog >= BACKLOG_MIN and flow.backlog_s >= LAG_MIN_S:
        state = "behind"
    size = sum(one.state_bytes for one in ones)
    recent = seen.recent("group", f"{app}/{name}")
    return GroupNow(name, len(ones), running, flow, state, size, recent)


def cells_of(
    drawing: Drawing,
    app: str,
    groups: Sequence[GroupNow],
    channels: Mapping[str, ChannelState],
) -> list[Cell]:
    """The boxes of the graph.

    Args:
        drawing: the places.
        app: the app's name.
        groups: its groups now.
        channels: its channels now, by subject; those that are not known are left without numbers.
    """
    by_name = {group.name: group for group in groups}
    streams = _streams_of(drawing)
    cells = []
    for one in drawing.nodes:
        lines = one.node.lines
        if one.is_group:
            group = by_name.get(one.name)
            tells, tone = _of_group(group)
            if group is not None and group.state_bytes:
                # Beside its kind: "stateful, 23.2 kB".
                kind = f"{lines[1]}, {shown.size(group.state_bytes)}"
                lines = (lines[0], kind, *lines[2:])
            href = f"/apps/{app}?tab=instances&group={one.name}"
        else:
            channel = channels.get(one.name)
            tells, tone = _of_channel(channel), ""
            href = f"/apps/{app}/s/{channel.stream}" if channel is not None else ""
        cells.append(_cell(one, streams, href=href, lines=lines, tells=tells, tone=tone))
    return cells


def planned_cells(drawing: Drawing, changes: JsonMapping | None) -> list[Cell]:
    """The boxes of the graph of a text, with the effect of its deploy on each group.

    Args:
        drawing: the places.
        changes: as ``mesh diff --output json`` prints them; None for a new app.
    """
    effects = {one["name"]: one for one in changes["groups"]} if changes is not None else {}
    streams = _streams_of(drawing)
    cells = []
    for one in drawing.nodes:
        effect = effects.get(one.name) if one.is_group else None
        tells, tone = _of_effect(effect) if effect is not None else (["", ""], "")
        cells.append(_cell(one, streams, lines=one.node.lines, tells=tells, tone=tone))
    return cells


def _cell(
    one: DrawnNode,
    streams: Mapping[str, GroupStreams],
    *,
    lines: Sequence[str],
    tells: Sequence[str],
    tone: str,
    href: str = "",
) -> Cell:
    radius = 4.0 if one.is_group else min(one.box.height / 2, 14.0)
    shape, title = str(one.node.shape), one.node.title
    return Cell(href, title, shape, one.box, lines, tells, tone, radius, streams.get(one.node.id))


def _streams_of(drawing: Drawing) -> dict[str, GroupStreams]:
    """The streams of each group by its node, in the order of the edges."""
    names = {one.node.id: " ".join(one.node.lines[:2]) for one in drawing.nodes}
    edges = [one.edge for one in drawing.edges]
    return {
        one.node.id: GroupStreams(
            [names[edge.source] for edge in edges if edge.target == one.node.id],
            [names[edge.target] for edge in edges if edge.source == one.node.id],
        )
        for one in drawing.nodes
        if one.is_group
    }


def _of_effect(effect: JsonMapping) -> tuple[list[str], str]:
    """Lines and tone of a group that a deploy changes or leaves."""
    fates = {one["change"] for one in effect["states"]}
    state = "its state is lost" if "lost" in fates else "keeps its state" if fates else ""
    tone = "bad" if "lost" in fates else badge_kind(effect["change"])
    return [effect["change"], state], tone


def _of_group(group: GroupNow | None) -> tuple[list[str], str]:
    if group is None:
        return ["", ""], ""
    now = group.flow
    flow = f"{shown.rate(now.events_in)}/s in, {shown.rate(now.events_out)}/s out"
    match group.state:
        case "running":
            return [flow, f"keeps up, {shown.rate(now.backlog)} wait"], ""
        case "behind":
            # Short, for the width of a box.
            age = shown.duration(now.backlog_s).split(" ")[0]
            return [flow, f"behind {age}, {shown.rate(now.backlog)} wait"], "warn"
        case "retrying":
            return [flow, f"retrying, {shown.rate(now.backlog)} wait"], "bad"
        case "failing":
            return [flow, f"failing: {group.running}/{group.instances} run"], "bad"
        case state:
            return [flow, f"{state}: {group.running}/{group.instances} run"], "warn"


def _of_channel(channel: ChannelState | None) -> list[str]:
    if channel is None:
        return ["", ""]
    return [f"{shown.number(channel.messages)} messages", shown.size(channel.bytes)]
