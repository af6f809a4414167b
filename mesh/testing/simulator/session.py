"""A worker's session, and the sinks that it writes to: what truly runs, whoever knows of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mesh.model.cluster import Assignment, InstanceState, InstanceStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from mesh.model.app import GroupSpec
    from mesh.testing.simulator.workers import Worker
    from mesh.testing.simulator.world import World


@dataclass(frozen=True, slots=True)
class Running:
    """An instance that a session runs."""

    assignment: Assignment
    group: GroupSpec
    #: The process that runs it.
    by: str


@dataclass
class Sinks:
    """The markers in the channels: who has opened each instance's outputs last."""

    #: (app's incarnation, instance) to its highest epoch, and who opened it.
    opened: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict)
    #: Called with what opens, before it does.
    on_open: Callable[[Running], None] = lambda _: None

    def open(self, running: Running) -> bool:
        """Whether the sink lets this one write: it has seen no later epoch."""
        assignment = running.assignment
        at = assignment.app_incarnation, assignment.instance
        highest, _ = self.opened.get(at, (0, ""))
        if assignment.epoch < highest:
            return False
        self.on_open(running)
        self.opened[at] = assignment.epoch, running.by
        return True


class Session:
    """One worker's session."""

    def __init__(self, world: World, sinks: Sinks) -> None:
        self._world = world
        self._sinks = sinks
        self._worker: Worker | None = None
        #: Grows with each start and end.
        self._life = 0
        #: When it is done with what it was told: it does one thing after the other.
        self._free_s = 0.0
        self.is_warm = False
        self.paused_s = 0.0
        self.running: dict[str, Running] = {}

    def start(self, worker: Worker) -> None:
        """Start; it is warm after a while."""
        self._worker = worker
        self._life += 1
        self.is_warm = False
        self.running.clear()
        self._free_s = 0.0
        self._later(self._world.random.uniform(3.0, 12.0), self._become_warm)

    def end(self) -> None:
        """End at once."""
        self._life += 1
        self.is_warm = False
        self.running.clear()

    def crash(self) -> None:
        """End by itself; the agent sees it and starts another."""
        worker = self._worker
        self.end()
        if worker is not None and worker.process.is_up:

            def see() -> None:
                worker.session_ended()
                self.start(worker)

            worker.process.soon(self._world.now_s, see)

    def run(self, assignment: Assignment, group: GroupSpec) -> None:
        """Run this; an older epoch of it is stopped first."""
        assert self._worker is not None
        running = Running(assignment, group, self._worker.incarnation)
        self._say(assignment, InstanceState.STARTING)

        def begin() -> None:
            self.running[assignment.instance] = running
            if self._sinks.open(running):
                self._say(assignment, InstanceState.RUNNING)
            else:
                del self.running[assignment.instance]
                self._say(assignment, InstanceState.RETRYING)

        self._next(self._world.random.uniform(0.05, 1.0), begin)

    def stop(self, assignment: Assignment) -> None:
        """Stop this, if it runs in this epoch or an older one."""

        def finish() -> None:
            known = self.running.get(assignment.instance)
            if known is not None and known.assignment.epoch <= assignment.epoch:
                del self.running[assignment.instance]
            self._say(assignment, InstanceState.STOPPED)

        self._next(self._world.random.uniform(0.05, 1.0), finish)

    def _become_warm(self) -> None:
        assert self._worker is not None
        self.is_warm = True
        self._worker.process.soon(self._world.now_s, self._worker.session_is_ready)

    def _say(self, assignment: Assignment, state: InstanceState) -> None:
        worker = self._worker
        assert worker is not None
        status = InstanceStatus(
            assignment.instance, assignment.app, worker.name, assignment.epoch, state, 0
        )
        worker.process.soon(self._world.now_s, lambda: worker.session_says(status))

    def _next(self, takes_s: float, do: Callable[[], None]) -> None:
        self._free_s = max(self._free_s, self._world.now_s) + takes_s
        self._later(self._free_s - self._world.now_s, do)

    def _later(self, delay_s: float, do: Callable[[], None]) -> None:
        life = self._life

        def call() -> None:
            if self._life != life:
                return
            if self.paused_s > self._world.now_s:
                self._world.at(self.paused_s, call)
            else:
                do()

        self._world.after(delay_s, call)
