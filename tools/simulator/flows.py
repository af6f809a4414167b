"""True output of instances and true positions of their snapshots, unknown to the cluster.

Every group that reads reads one stream, which grows by ten events a second.  An instance that runs
and is admitted by the sink emits all of its share at once; it shares a snapshot now and then.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mesh.control.group_revisions import ChangeRequirement, is_keyed, requirement_of
from mesh.model.cluster import Assignment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mesh.model.app import GroupSpec
    from mesh.model.cluster import GroupForm
    from tools.simulator.world import World

#: The name of the stream, in positions.
STREAM: Final = "S"
#: A snapshot is this old at the most, seconds.
_SNAPSHOT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Running:
    """An instance that a session runs."""

    assignment: Assignment
    group: GroupSpec
    #: The process that runs it.
    by: str

    @property
    def parts(self) -> tuple[str, ...]:
        """Its parts of the group: partitions, or a share of the blocks that are read in turn."""
        if not is_keyed(self.group):
            return (f"{self.assignment.index}of{self.group.parallel}",)
        count = max(i.channel.partitions for i in self.group.inputs)
        owned = range(self.assignment.index - 1, count, self.group.parallel)
        return tuple(str(partition) for partition in owned)


@dataclass
class _Part:
    """Facts about a part of a group, from its markers and its snapshot."""

    #: Highest epoch that has opened its outputs, and the worker.
    epoch: int = 0
    by: str = ""
    #: Last sequence of it that is out.
    out: int = 0
    #: Where its last snapshot was taken.
    shared: int = 0
    #: The present writer, and since when it may have been frozen, seconds.
    writer: Running | None = None
    stopped_s: Callable[[], float] = field(default=lambda: float("inf"))
    #: The last form in which no output beyond a sequence is allowed, and the sequence.
    sealed: tuple[int, int] = (-1, 0)


class Flows:
    """The channels and the snapshots of a cluster."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._parts: dict[tuple[str, str, str], _Part] = {}
        #: Called with each instance before it opens its outputs.
        self.on_open: Callable[[Running], None] = lambda _: None
        #: Duplicate outputs.
        self.doubled: list[str] = []
        #: Apps whose group revisions NATS has lost a part of; see ``Invariants``.
        self.incomplete: set[str] = set()

    def writer(self, running: Running) -> tuple[int, str]:
        """The highest epoch that has opened a part of ``running``, and the worker."""
        return max((one.epoch, one.by) for one in self._owned(running))

    def open(self, running: Running, stopped_s: Callable[[], float]) -> bool:
        """Open the outputs of an instance; False if the sink has seen a later epoch.

        Args:
            running: the instance.
            stopped_s: time since which its session is frozen; infinity while it isn't.
        """
        epoch = running.assignment.epoch
        if self.writer(running)[0] > epoch:
            return False
        self.on_open(running)
        for part in self._owned(running):
            self._advance(part)
            part.epoch, part.by, part.writer = epoch, running.by, running
            part.stopped_s = stopped_s
            start = running.assignment.start.get(STREAM, 0)
            part.out, part.shared = max(part.out, start), max(part.shared, start)
        return True

    def end(self, running: Running) -> None:
        """End an instance without notice; it may have shared its state some time before."""
        for part in self._owned(running):
            if part.writer is running:
                self._advance(part)
                part.writer = None
                part.shared = max(part.shared, part.out - int(10 * _SNAPSHOT_S))

    def settle(self, running: Running) -> int | None:
        """Halt an instance and share its state: position, or None if the sink has a later epoch."""
        parts = list(self._owned(running))
        if any(part.epoch > running.assignment.epoch for part in parts):
            return None
        for part in parts:
            self._advance(part)
        place = max(part.out for part in parts)
        for part in parts:
            part.out = part.shared = place
            part.writer = None
        return place

    def changes(self, old: GroupForm, new: GroupForm, *, is_troubled: bool) -> str | None:
        """Lost or duplicate output when ``new`` replaces ``old``; None if there is none.

        ``is_troubled``: some worker is cut off, and may continue although it was given up.
        """
        if new.app_incarnation in self.incomplete:
            return None
        if new.number == old.number:
            return None if new == old else "a form was changed under its number"
        parts = {
            part: self._part(running, part) for running in _instances(old) for part in running.parts
        }
        writing = [name for name, part in parts.items() if self._writes(part)]
        need = requirement_of(old.spec, new.spec)
        # Of partitions the sink refuses the old owner once the new one has begun.
        if writing and (need is not ChangeRequirement.STOPPED or not is_troubled):
            return f"{', '.join(writing)} of {old.group} write still"
        if need is ChangeRequirement.SETTLED:
            ahead = [name for name, part in parts.items() if part.out > part.shared]
            return f"{', '.join(ahead)} of {old.group} have not settled" if ahead else None
        if need is ChangeRequirement.CUT:
            start = new.start.get(STREAM, 0)
            wrong = [
                f"{name} at {part.out}"
                for name, part in parts.items()
                if max(part.out, old.start.get(STREAM, 0)) != start
            ]
            if wrong:
                return f"{old.group} begins behind {start}, and {', '.join(wrong)}"
            for part in parts.values():
                part.sealed = old.number, start
        return None

    def _writes(self, part: _Part) -> bool:
        """Whether it has a writer that is not frozen."""
        return part.writer is not None and part.stopped_s() > self._world.now_s

    def _advance(self, part: _Part) -> None:
        """Advance the output to the present time, as its writer would."""
        if part.writer is not None:
            end = int(10 * min(self._world.now_s, part.stopped_s()))
            until = part.writer.assignment.until
            if until is not None:
                # The output ends at ``until``, that of this instance or of an earlier one.
                end = until.get(STREAM, 0)
            form, last = part.sealed
            is_sealed = part.writer.assignment.app_incarnation not in self.incomplete
            if is_sealed and part.writer.assignment.form <= form and end > last:
                name = part.writer.assignment.instance
                self.doubled.append(f"{name} of form {form} goes on to {end}, behind {last}")
            part.out = max(part.out, end)

    def _owned(self, running: Running) -> Iterator[_Part]:
        for part in running.parts:
            yield self._part(running, part)

    def _part(self, running: Running, part: str) -> _Part:
        assignment = running.assignment
        at = assignment.app_incarnation, assignment.group, part
        return self._parts.setdefault(at, _Part())


def _instances(form: GroupForm) -> Iterator[Running]:

    for index, name in enumerate(form.spec.instances, 1):
        assignment = Assignment(
            name, form.app, form.group, index, form.app_incarnation, "", 0, lease_revision=0
        )
        yield Running(assignment, form.spec, "")
