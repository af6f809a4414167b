"""A worker's session: the instances that truly run, independent of the cluster's records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from mesh.control.agent_events import Event, InstanceReported, SessionEnded, SessionReady
from mesh.control.retries import Retries
from mesh.model.cluster import Assignment, InstanceState, InstanceStatus
from mesh.testing.simulator.flows import STREAM, Running

if TYPE_CHECKING:
    from collections.abc import Callable

    from mesh.model.app import GroupSpec
    from mesh.settings import Settings
    from mesh.testing.simulator.flows import Flows
    from mesh.testing.simulator.world import Process, World


class Agent(Protocol):
    """The agent of a session."""

    process: Process
    settings: Settings

    @property
    def incarnation(self) -> str:
        """Name of its process, unlike those of earlier ones."""
        ...

    def take(self, event: Event) -> None:
        """Respond to an event."""
        ...


class Session:
    """One worker's session."""

    def __init__(self, world: World, flows: Flows) -> None:
        self._world = world
        self._flows = flows
        self._worker: Agent | None = None
        #: Grows with each start and end.
        self._life = 0
        #: Time at which its present command is done; it performs one after the other.
        self._free_s = 0.0
        self.is_warm = False
        #: Until when it is stopped in its tracks, and since when.
        self.paused_s = 0.0
        self.paused_since_s = 0.0
        self.running: dict[str, Running] = {}
        #: Failed instances that wait for a restart, and the number of failures in their epoch.
        self._resting: dict[str, Running] = {}
        self._retries: dict[tuple[str, int], Retries] = {}
        #: Instances that it has to stop, and whether they may drain.
        self._stopping: dict[str, bool] = {}

    def start(self, worker: Agent) -> None:
        """Start; it is warm after a while."""
        self._worker = worker
        self._life += 1
        self._forget()
        self._free_s = 0.0
        self._later(self._world.random.uniform(3.0, 12.0), self._become_warm)

    def end(self) -> None:
        """End at once."""
        for running in self.running.values():
            self._flows.end(running)
        self._life += 1
        self._forget()

    def fail(self) -> None:
        """Fail one of the running instances, if any; it is restarted after its delay."""
        names = sorted(self.running.keys() - self._stopping.keys())
        if not names or self.paused_s > self._world.now_s:
            return
        failed = self.running.pop(self._world.random.choice(names))
        self._flows.end(failed)
        assignment = failed.assignment
        at = assignment.instance, assignment.epoch
        assert self._worker is not None
        worker = self._worker.settings.worker
        known = self._retries.get(at, Retries(worker.retry_s, worker.retry_max_s))
        self._retries[at] = found = known.failed(self._world.now_s)
        self._resting[assignment.instance] = failed
        self._say(assignment, InstanceState.RETRYING)

        def again() -> None:
            if self._resting.get(assignment.instance) is failed:
                del self._resting[assignment.instance]
                self.run(assignment, failed.group)

        self._later(found.rest_s, again)

    def crash(self) -> None:
        """End on its own; the agent notices and starts another."""
        worker = self._worker
        self.end()
        if worker is not None and worker.process.is_up:
            worker.process.soon(self._world.now_s, lambda: worker.take(SessionEnded()))

    def run(self, assignment: Assignment, group: GroupSpec) -> None:
        """Run this; an older epoch of it is stopped first."""
        assert self._worker is not None
        running = Running(assignment, group, self._worker.incarnation)
        self._resting.pop(assignment.instance, None)
        self._say(assignment, InstanceState.STARTING)

        def begin() -> None:
            self.running[assignment.instance] = running
            if self._flows.open(running, self._stopped_s):
                at = assignment.instance, assignment.epoch
                if at in self._retries:
                    self._retries[at] = self._retries[at].running(self._world.now_s)
                self._say(assignment, InstanceState.RUNNING)
                if assignment.until is not None:
                    self._next(self._world.random.uniform(0.1, 5.0), reach)
            else:
                del self.running[assignment.instance]
                newer_epoch, _ = self._flows.writer(running)
                self._say(assignment, InstanceState.STOPPED, newer_epoch=newer_epoch)

        def reach() -> None:
            if self.running.get(assignment.instance) is running:
                self._end(running, settles=True)

        self._next(self._world.random.uniform(0.05, 1.0), begin)

    def stop(self, assignment: Assignment, *, settle: bool = False) -> None:
        """Stop this, if it runs in this epoch or an older one."""
        # From now on, not from its turn on: later it would begin after that position.
        resting = self._resting.get(assignment.instance)
        if resting is not None and resting.assignment.epoch <= assignment.epoch:
            del self._resting[assignment.instance]
        if assignment.instance in self._stopping:
            self._stopping[assignment.instance] &= settle
            return
        self._stopping[assignment.instance] = settle

        def finish() -> None:
            settle = self._stopping.pop(assignment.instance)
            known = self.running.get(assignment.instance)
            if known is not None and known.assignment.epoch <= assignment.epoch:
                # Now and then a batch exceeds the time that a stop waits for it.
                self._end(known, settles=settle and self._world.random.random() < 0.85)
            else:
                self._say(assignment, InstanceState.STOPPED)

        self._next(self._world.random.uniform(0.05, 1.0), finish)

    def _forget(self) -> None:
        self.is_warm = False
        self.running.clear()
        self._resting.clear()
        self._retries.clear()
        self._stopping.clear()

    def _end(self, running: Running, *, settles: bool) -> None:
        assignment = running.assignment
        del self.running[assignment.instance]
        place = self._flows.settle(running) if settles else None
        if place is None:
            self._flows.end(running)
        self._say(assignment, InstanceState.STOPPED, place)

    def _stopped_s(self) -> float:
        """Time since which it is frozen; infinity if it isn't."""
        is_paused = self.paused_s > self._world.now_s
        return self.paused_since_s if is_paused else float("inf")

    def _become_warm(self) -> None:
        worker = self._worker
        assert worker is not None
        self.is_warm = True
        worker.process.soon(self._world.now_s, lambda: worker.take(SessionReady()))

    def _say(
        self,
        assignment: Assignment,
        state: InstanceState,
        settled_at: int | None = None,
        newer_epoch: int = 0,
    ) -> None:
        worker = self._worker
        assert worker is not None
        status = InstanceStatus(
            assignment.instance,
            assignment.app,
            worker.process.name,
            assignment.epoch,
            state,
            0,
            restarts=self._restarts(assignment),
            settled=settled_at is not None,
            position={STREAM: settled_at} if settled_at is not None else {},
            newer_epoch=newer_epoch,
        )
        worker.process.soon(self._world.now_s, lambda: worker.take(InstanceReported(status)))

    def _restarts(self, assignment: Assignment) -> int:
        found = self._retries.get((assignment.instance, assignment.epoch))
        return found.failures if found is not None else 0

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
