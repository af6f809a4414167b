"""How a group changes its form: more or fewer instances, another text, other channels.

Never beside each other: what runs in the old form is stopped, and when all of it has, the form is
replaced and instances of the new one are placed.  What must hold in between depends on the change.

- Of a group that is divided by key each partition has its own snapshot and its own markers, so it
  goes on exactly wherever it is next: it is enough that everything has stopped.
- Another text can't be trusted to put out again what the old one has: everything must have
  settled, that is, nothing may be out of events that the next form reads.
- Instances that take blocks of a stream in turn take other blocks when they are more or fewer:
  all must have settled in the same place, and the next form begins there.

What has not settled, or not far enough, is placed once more in the old form, to run up to a place
and to settle there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from mesh.model.app import Strategy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.model.app import GroupSpec
    from mesh.model.cluster import GroupForm


#: What the printer of a group's text puts on a line of its own.
_DIST: Final = re.compile(r"^@dist\(.*\)\n", re.MULTILINE)


class ChangeRequirement(Enum):
    """What must hold before the next form's instances may run."""

    #: Everything has stopped.
    STOPPED = "stopped"
    #: Everything has settled.
    SETTLED = "settled"
    #: Everything has settled in the same place.
    CUT = "cut"


def is_keyed(spec: GroupSpec) -> bool:
    """Whether the group is divided by key."""
    return any(i.strategy is Strategy.BY_KEY for i in spec.inputs)


def requirement_of(old: GroupSpec, new: GroupSpec) -> ChangeRequirement:
    """What a group that goes from ``old`` to ``new`` needs."""
    shares = old.parallel != new.parallel and bool(old.inputs or new.inputs)
    if shares and not (is_keyed(old) and is_keyed(new)):
        return ChangeRequirement.CUT
    return (
        ChangeRequirement.STOPPED
        if _substance(old) == _substance(new)
        else ChangeRequirement.SETTLED
    )


def _substance(spec: GroupSpec) -> GroupSpec:
    """What of a group decides what it puts out: not how many share the work, nor where."""
    inputs = tuple(
        i if i.strategy is Strategy.BY_KEY else replace(i, strategy=Strategy.ALL)
        for i in spec.inputs
    )
    text = _DIST.sub("", spec.text)
    return replace(spec, text=text, parallel=1, node=(), inputs=inputs)


@dataclass(frozen=True, slots=True)
class StopOutcome:
    """How an instance of the old form has ended."""

    #: Where it has settled, by JetStream stream; None where it has not.
    position: Mapping[str, int] | None
    #: Whether it has been placed in this form at all: otherwise it is where the form began.
    has_run: bool = True
    #: Whether it was given the chance to settle, and failed.
    has_failed: bool = False


def instances_to_catch_up(
    form: GroupForm, new: GroupSpec, stops: Mapping[str, StopOutcome]
) -> dict[str, Mapping[str, int]]:
    """The instances of a form that all have stopped which must run once more, and how far.

    Args:
        form: what they are instances of.
        new: what the group is to become.
        stops: how each instance of the form has ended, by name.

    Returns:
        ``Assignment.until`` by instance; none when the next form may begin, at ``cut``.
    """
    match requirement_of(form.spec, new):
        case ChangeRequirement.STOPPED:
            return {}
        case ChangeRequirement.SETTLED:
            # What fails with its old text can't be had to settle: the new one may be the cure.
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
                if not _is_known(form, stop) or _is_behind(form, stop, place)
            }


def next_revision(
    form: GroupForm, new: GroupSpec, stops: Mapping[str, StopOutcome], epoch: int, cause: str
) -> GroupForm:
    """What takes the place of a form of which nothing is left to run.

    Args:
        form: the old one.
        new: what the group is to become.
        stops: how each instance has ended.
        epoch: above all that the group has had.
        cause: why.
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
    """Whether nothing is out behind the snapshots of what an instance owns."""
    return stop.position is not None or (not stop.has_run and form.is_settled)


def _is_known(form: GroupForm, stop: StopOutcome) -> bool:
    """Whether it is known how far an instance's share is: where it settled, or at the start."""
    return stop.position is not None or (not stop.has_run and form.is_at_start)


def furthest_positions(form: GroupForm, stops: Mapping[str, StopOutcome]) -> dict[str, int]:
    """How far the furthest of the instances is, by JetStream stream."""
    found = dict(form.start)
    for stop in stops.values():
        for stream, sequence in (stop.position or {}).items():
            found[stream] = max(found.get(stream, 0), sequence)
    return found


def _is_behind(form: GroupForm, stop: StopOutcome, place: Mapping[str, int]) -> bool:
    reached = stop.position if stop.position is not None else form.start
    return any(reached.get(stream, 0) < sequence for stream, sequence in place.items())


def describe_change(old: GroupSpec, new: GroupSpec) -> str:
    """The change in a few words."""
    if old.parallel != new.parallel:
        return f"group {new.name} goes from {old.parallel} to {new.parallel} instances"
    return f"group {new.name} changes"
