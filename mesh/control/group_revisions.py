"""Change of a group's revision: its number of instances, its text or its channels.

Two revisions never run at the same time.  The instances of the old revision are stopped.  When all
have stopped, the revision is replaced and instances of the new one are placed.  The condition in
between depends on the change.

- STOPPED, for a group that is divided by key: each partition has its own snapshot and markers, so
  it continues exactly on any instance.  All must have stopped.
- SETTLED, for another text: it can't be trusted to repeat the output of the old one.  All must have
  drained, so that no output stems from events that the next revision reads.
- CUT, for another number of instances that read blocks of a stream in turn: each then reads other
  blocks.  All must have drained at the same position, and the next revision begins there.

An instance that has not drained, or at an earlier position than others, is placed once more in the
old revision.  It runs up to a given position and drains there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from mesh.model.app import GroupMode, Strategy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.model.app import GroupSpec
    from mesh.model.cluster import GroupForm


#: A line that the printer of a group's text adds.
_DIST: Final = re.compile(r"^@dist\(.*\)\n", re.MULTILINE)


class ChangeRequirement(Enum):
    """The condition for running instances of the next revision."""

    #: Everything has stopped.
    STOPPED = "stopped"
    #: All instances have drained.
    SETTLED = "settled"
    #: All instances have drained at the same position.
    CUT = "cut"


def is_keyed(spec: GroupSpec) -> bool:
    """Whether the group is divided by key."""
    return any(i.strategy is Strategy.BY_KEY for i in spec.inputs)


def requirement_of(old: GroupSpec, new: GroupSpec) -> ChangeRequirement:
    """The condition for changing a group from ``old`` to ``new``."""
    shares = old.parallel != new.parallel and bool(old.inputs or new.inputs)
    if shares and not (is_keyed(old) and is_keyed(new)):
        return ChangeRequirement.CUT
    return (
        ChangeRequirement.STOPPED
        if _substance(old) == _substance(new)
        else ChangeRequirement.SETTLED
    )


def _substance(spec: GroupSpec) -> GroupSpec:
    """The part of a group that decides its output, not the number or place of its instances."""
    inputs = tuple(
        i if i.strategy is Strategy.BY_KEY else replace(i, strategy=Strategy.ALL)
        for i in spec.inputs
    )
    text = _DIST.sub("", spec.text)
    mode = GroupMode.REAL_TIME
    return replace(spec, text=text, parallel=1, node=(), mode=mode, inputs=inputs)


@dataclass(frozen=True, slots=True)
class StopOutcome:
    """The end of an instance of the old revision."""

    #: Position at which it has drained, by JetStream stream; None if it has not.
    position: Mapping[str, int] | None
    #: Whether it has been placed in this revision; otherwise it is where the revision began.
    has_run: bool = True
    #: Whether it was given the chance to drain, and failed.
    has_failed: bool = False


def instances_to_catch_up(
    form: GroupForm, new: GroupSpec, stops: Mapping[str, StopOutcome]
) -> dict[str, Mapping[str, int]]:
    """Choose the instances of a stopped revision that must run once more, and up to which position.

    Args:
        form: the revision of the instances.
        new: the desired group.
        stops: the end of each instance of the revision, by name.

    Returns:
        ``Assignment.until`` by instance; empty if the next revision may begin, at ``cut``.
    """
    match requirement_of(form.spec, new):
        case ChangeRequirement.STOPPED:
            return {}
        case ChangeRequirement.SETTLED:
            # An instance that fails with its old text can't drain; the new text may be the cure.
            return {
                name: {}
                for name, stop in stops.items()
                if not has_drained(form, stop) and not stop.has_failed
            }
        case ChangeRequirement.CUT:
            place = furthest_positions(form, stops)
            return {
                name: place
                for name, stop in stops.items()
                if not _has_position(form, stop) or _is_behind(form, stop, place)
            }


def next_revision(
    form: GroupForm, new: GroupSpec, stops: Mapping[str, StopOutcome], epoch: int, cause: str
) -> GroupForm:
    """Return the successor of a revision without instances left to run.

    Args:
        form: the old revision.
        new: the desired group.
        stops: the end of each instance, by name.
        epoch: greater than all epochs that the group has had.
        cause: the reason, for the journal.
    """
    need = requirement_of(form.spec, new)
    return replace(
        form,
        spec=new,
        number=form.number + 1,
        start=furthest_positions(form, stops) if need is ChangeRequirement.CUT else form.start,
        epoch=epoch,
        is_settled=all(has_drained(form, stop) for stop in stops.values()),
        is_at_start=need is ChangeRequirement.CUT
        or (form.is_at_start and not any(stop.has_run for stop in stops.values())),
        cause=cause,
    )


def has_drained(form: GroupForm, stop: StopOutcome) -> bool:
    """Whether an instance has no output beyond the snapshots of its partitions."""
    return stop.position is not None or (not stop.has_run and form.is_settled)


def _has_position(form: GroupForm, stop: StopOutcome) -> bool:
    """Whether the position of an instance's share is known: it has drained, or is at the start."""
    return stop.position is not None or (not stop.has_run and form.is_at_start)


def furthest_positions(form: GroupForm, stops: Mapping[str, StopOutcome]) -> dict[str, int]:
    """The latest position of any instance, by JetStream stream."""
    positions = dict(form.start)
    for stop in stops.values():
        for stream, sequence in (stop.position or {}).items():
            positions[stream] = max(positions.get(stream, 0), sequence)
    return positions


def _is_behind(form: GroupForm, stop: StopOutcome, place: Mapping[str, int]) -> bool:
    reached = stop.position if stop.position is not None else form.start
    return any(reached.get(stream, 0) < sequence for stream, sequence in place.items())


def describe_change(old: GroupSpec, new: GroupSpec) -> str:
    """The change in a few words."""
    if old.parallel != new.parallel:
        return f"group {new.name} goes from {old.parallel} to {new.parallel} instances"
    return f"group {new.name} changes"
