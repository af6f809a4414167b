"""The graph of an app as a page shows it: places of the plan, and what flows through them now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mesh.dashboard import shown
from mesh.manager.overview import BACKLOG_MIN
from mesh.manager.problems import failing_doors
from mesh.manager.rates import total
from mesh.model.cluster import InstanceState
from mesh.model.histogram import LATENCY_BOUNDS_S, merged, quantile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.control.lifecycle import AppStatus, InstanceView
    from mesh.dashboard.board import Seen
    from mesh.manager.rates import Flow
    from mesh.manager.streams import ChannelState
    from mesh.plan.picture import Drawing
    from mesh.plan.picture.places import Box

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
    state_bytes: int = 0
    #: Of its events: half of them, and 99 of 100, were published in this time, seconds.
    latency_s: tuple[float | None, float | None] = (None, None)


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


def groups_of(app: AppStatus, seen: Seen) -> list[GroupNow]:
    """The groups of an app, in the order of its plan."""
    members: dict[str, list[InstanceView]] = {}
    for one in app.instances:
        members.setdefault(one.group, []).append(one)
    return [_group(name, ones, seen) for name, ones in members.items()]


def _group(name: str, ones: Sequence[InstanceView], seen: Seen) -> GroupNow:
    flow = total(seen.flow(one.instance) for one in ones)
    running = sum(one.state == InstanceState.RUNNING for one in ones)
    state = "running"
    if any(one.state == InstanceState.RETRYING for one in ones):
        state = "failing"
    elif running < len(ones):
        state = next(one.state for one in ones if one.state != InstanceState.RUNNING)
    elif failing_doors(ones):
        state = "retrying"
    elif flow.backlog >= BACKLOG_MIN and flow.backlog_s >= LAG_MIN_S:
        state = "behind"
    counts: tuple[int, ...] = ()
    for one in ones:
        counts = merged(counts, one.latencies)
    latency_s = quantile(counts, LATENCY_BOUNDS_S, 0.5), quantile(counts, LATENCY_BOUNDS_S, 0.99)
    size = sum(one.state_bytes for one in ones)
    return GroupNow(name, len(ones), running, flow, state, size, latency_s)


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
    known = {group.name: group for group in groups}
    cells = []
    for one in drawing.nodes:
        lines = one.node.lines
        if one.is_group:
            group = known.get(one.name)
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
        radius = 4.0 if one.is_group else min(one.box.height / 2, 14.0)
        shape = str(one.node.shape)
        cells.append(Cell(href, one.node.title, shape, one.box, lines, tells, tone, radius))
    return cells


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
