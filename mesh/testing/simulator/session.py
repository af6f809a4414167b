"""A worker's session: the instances that truly run, independent of the cluster's records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from mesh.control.agent_events import Event, InstanceReported, SessionEnded, SessionReady
from mesh.testing.simulator.flows import Running
from mesh.testing.simulator.instances import Instance

if TYPE_CHECKING:
    from collections.abc import Callable

    from mesh.model.app import GroupSpec
    from mesh.model.cluster import Assignment, InstanceStatus
    from mesh.settings import Settings
    from mesh.testing.simulator.flows import Flows
    from mesh.testing.simulator.world import SimulatedProcess, World


class SimulatedAgent(Protocol):
    """The agent of a session."""

    process: SimulatedProcess
    settings: Settings

    @property
    def incarnation(self) -> str:
        """Name of its process, unlike those of earlier ones."""
        ...

    def take(self, event: Event) -> None:
        """Respond to an event."""
        ...


class SimulatedSession:
    """One worker's session."""

    def __init__(self, world: World, flows: Flows) -> None:
        self.world = world
        self.flows = flows
        self._worker: SimulatedAgent | None = None
        #: Grows with each start and end.
        self._life = 0
        #: Time at which its present command is done; it performs one after the other.
        self._free_s = 0.0
        self.is_warm = False
        #: Until when it is stopped in its tracks, and since when.
        self.paused_s = 0.0
        self.paused_since_s = 0.0
        #: Instances that read and write now.
        self.running: dict[str, Running] = {}
        #: The last run of each instance.
        self._instances: dict[str, Instance] = {}
        #: Instances that it has to stop, and whether they may drain.
        self._stopping: set[str] = set()

    @property
    def _agent(self) -> SimulatedAgent:
        assert self._worker is not None
        return self._worker

    @property
    def settings(self) -> Settings:
        """The worker's settings."""
        return self._agent.settings

    @property
    def worker_name(self) -> str:
        """The worker's name."""
        return self._agent.process.name

    def start(self, worker: SimulatedAgent) -> None:
        """Start; it is warm after a while."""
        self._worker = worker
        self._life += 1
        self._forget()
        self._free_s = 0.0
        self.later(self.world.random.uniform(3.0, 12.0), self._become_warm)

    def end(self) -> None:
        """End at once."""
        for running in self.running.values():
            self.flows.end(running)
        self._life += 1
        self._forget()

    def fail(self) -> None:
        """Fail one of the running instances, if any; it is restarted after its delay."""
        names = sorted(self.running.keys() - self._stopping)
        if names and self.paused_s <= self.world.now_s:
            self._instances[self.world.random.choice(names)].fail()

    def crash(self) -> None:
        """End on its own; the agent notices and starts another."""
        worker = self._worker
        self.end()
        if worker is not None and worker.process.is_up:
            worker.process.soon(self.world.now_s, lambda: worker.take(SessionEnded()))

    def run(self, assignment: Assignment, group: GroupSpec) -> None:
        """Run this; an older epoch of it is stopped first."""
        name = assignment.instance
        previous = self._instances.get(name)
        self._stopping.discard(name)
        self._instances[name] = instance = Instance(
            self, Running(assignment, group, self._agent.incarnation)
        )
        if previous is None or previous.has_stopped:
            instance.start()
        else:
            previous.then = instance.start
            previous.stop(settle=False)

    def stop(self, assignment: Assignment, *, settle: bool = False) -> None:
        """Stop this, if it runs in this epoch or an older one."""
        name = assignment.instance
        instance = self._instances.get(name)
        if instance is not None and instance.running.assignment.epoch <= assignment.epoch:
            self._stopping.add(name)
            instance.stop(settle=settle)

    def _forget(self) -> None:
        self.is_warm = False
        self.running.clear()
        self._instances.clear()
        self._stopping.clear()

    def stopped_s(self) -> float:
        """Time since which it is frozen; infinity if it isn't."""
        is_paused = self.paused_s > self.world.now_s
        return self.paused_since_s if is_paused else float("inf")

    def _become_warm(self) -> None:
        worker = self._agent
        self.is_warm = True
        worker.process.soon(self.world.now_s, lambda: worker.take(SessionReady()))

    def report(self, status: InstanceStatus) -> None:
        """Tell the agent about an instance."""
        worker = self._agent
        worker.process.soon(self.world.now_s, lambda: worker.take(InstanceReported(status)))

    def next(self, takes_s: float, do: Callable[[], None]) -> None:
        """Do something after its other commands; it takes so long, seconds."""
        self._free_s = max(self._free_s, self.world.now_s) + takes_s
        self.later(self._free_s - self.world.now_s, do)

    def later(self, delay_s: float, do: Callable[[], None]) -> None:
        """Do something after a delay, seconds, unless the session ends before."""
        life = self._life

        def call() -> None:
            if self._life != life:
                return
            if self.paused_s > self.world.now_s:
                self.world.at(self.paused_s, call)
            else:
                do()

        self.world.after(delay_s, call)
