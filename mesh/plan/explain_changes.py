"""Explanation of an edit, printed by ``mesh diff``: restarts with reasons, and kept states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.plan.changes import ChannelFate, GroupFate
from mesh.plan.states import StateFate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mesh.model.values import JsonObject
    from mesh.plan.changes import Changes, ChannelChange, GroupChange
    from mesh.plan.states import StateChange

_FATES: Final = {
    GroupFate.SAME: "goes on",
    GroupFate.MOVED: "may move",
    GroupFate.SCALED: "is scaled",
    GroupFate.RESTARTED: "restarts",
    GroupFate.STARTED: "starts",
    GroupFate.STOPPED: "stops",
}
_STATES: Final = {
    StateFate.KEPT: "is kept",
    StateFate.LOST: "is lost",
    StateFate.NEW: "starts from nothing",
    StateFate.DROPPED: "is dropped",
}
_CHANNELS: Final = {
    ChannelFate.ADDED: "is made",
    ChannelFate.REMOVED: "is removed, with its events",
    ChannelFate.CHANGED: "changes",
}


def explain_changes(changes: Changes, obstacles: Sequence[str] = ()) -> str:
    """The changes as text of several lines.

    Args:
        changes: those of the app.
        obstacles: reasons against this change while the app runs, as fragments.
    """
    if changes.is_same:
        return f"app {changes.app}: nothing restarts"
    counts = [(fate, sum(g.fate is fate for g in changes.groups)) for fate in GroupFate]
    counted = ", ".join(f"{count} {_verb(fate, count)}" for fate, count in counts if count)
    of = "1 group" if len(changes.groups) == 1 else f"{len(changes.groups)} groups"
    lines = [f"app {changes.app}: of {of} {counted}"]
    for group in changes.groups:
        lines += ["", *_group_lines(group)]
    if changes.channels:
        lines += ["", "channels"]
        lines += [f"  {_channel_line(change)}" for change in changes.channels]
    if changes.to_reset:
        lines += ["", f"state is lost in: {', '.join(changes.to_reset)}"]
    if obstacles:
        lines += ["", "can't be changed like that while it runs (MESH-C121)"]
        lines += [f"  {obstacle}" for obstacle in obstacles]
    return "\n".join(lines)


def _verb(fate: GroupFate, count: int) -> str:
    several = {GroupFate.SAME: "go on", GroupFate.MOVED: "may move", GroupFate.SCALED: "are scaled"}
    return _FATES[fate] if count == 1 else several.get(fate, _FATES[fate].removesuffix("s"))


def _group_lines(change: GroupChange) -> Iterator[str]:
    yield f"group {change.group} {_FATES[change.fate]}"
    for number, reason in enumerate(change.reasons):
        yield f"  {'because' if number == 0 else '       '}  {reason}"
    for number, state in enumerate(change.states):
        yield f"  {'state  ' if number == 0 else '       '}  {_state(state)}"


def _state(state: StateChange) -> str:
    reason = f": {state.reason}" if state.reason is not None else ""
    was = f", known as {state.was}" if state.was is not None else ""
    return f"{state.kind} {state.name} {_STATES[state.fate]}{was}{reason}"


def _channel_line(change: ChannelChange) -> str:
    channel = change.channel
    by = f" by ({channel.key_text})" if channel.is_keyed else ""
    reason = f": {change.reason}" if change.reason is not None else ""
    return f"{channel.stream.name}{by} {_CHANNELS[change.fate]}{reason}"


def changes_to_values(changes: Changes, obstacles: Sequence[str] = ()) -> JsonObject:
    """The changes as JSON values."""
    return {
        "app": changes.app,
        "same": changes.is_same,
        "groups": [
            {
                "name": group.group,
                "change": str(group.fate),
                "reasons": list(group.reasons),
                "states": [
                    {
                        "kind": state.kind,
                        "name": state.name,
                        "change": str(state.fate),
                        "reason": state.reason,
                        "was": state.was or state.name,
                    }
                    for state in group.states
                ],
            }
            for group in changes.groups
        ],
        "channels": [
            {
                "stream": change.channel.stream.name,
                "key": list(change.channel.key),
                "computed": change.channel.computed,
                "change": str(change.fate),
                "reason": change.reason,
            }
            for change in changes.channels
        ],
        "reset": list(changes.to_reset),
        "obstacles": list(obstacles),
    }
