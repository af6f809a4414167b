"""A worker's session: the instances that truly run, independent of the cluster's records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from mesh.control import instance_lifecycle as events
from mesh.control.agent_events import Event, InstanceReported, SessionEnded, SessionReady
from mesh.control.instance_lifecycle import InstanceLifecycle, Phase
from mesh.control.retries import Retries
from mesh.model.cluster import InstanceStatus
from tools.simulator.flows import STREAM, Running

if TYPE_CHECKING:
    from collections.abc import Callable

    from mesh.model.app import GroupSpec
    from mesh.model.cluster import Assignment
    from mesh.settings import Settings
    from tools.simulator.flows import Flows
    from tools.simulator.world import SimulatedProcess, World

#: Share of stops in which a batch exceeds the time that a stop waits for it.
_EXCEEDS: Final = 0.15


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
        self._instances: dict[str, _Instance] = {}
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
        self._instances[name] = instance = _Instance(
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


class _Instance:
    """One run of an instance, from its start to its end: a driver of ``InstanceLifecycle``."""

    def __init__(self, session: SimulatedSession, running: Running) -> None:
        self.running = running
        self._session = session
        self._world = session.world
        worker = session.settings.worker
        retries = Retries(worker.retry_s, worker.retry_max_s)
        self._settle_s = worker.settle_s
        self._life = InstanceLifecycle(retries, worker.settle_s, running.assignment.until)
        #: Grows with each thing that it begins, so that answers to an earlier one are ignored.
        self._activity = 0
        self._newer_epoch = 0
        #: Called at its end.
        self.then: Callable[[], None] = lambda: None

    @property
    def has_stopped(self) -> bool:
        """Whether its life is over."""
        return self._life.phase is Phase.STOPPED

    def start(self) -> None:
        """Begin."""
        self._take(events.Started())

    def stop(self, *, settle: bool) -> None:
        """End, perhaps after a drain."""
        self._take(events.StopRequested(drains=settle))
        if settle:
            self._session.later(self._settle_s, lambda: self._take(events.Ticked()))

    def fail(self) -> None:
        """Fail; it is started again after its rest."""
        self._forget()
        self._take(events.Failed("a simulated failure"))

    def _take(self, event: events.Event) -> None:
        for instruction in self._life.handle(event, self._world.now_s):
            self._perform(instruction)

    def _perform(self, instruction: events.Instruction) -> None:
        choose = self._world.random
        match instruction:
            case events.Restore():
                self._answer(choose.uniform(0.05, 1.0), events.Restored())
            case events.Run(until):
                self._open()
                if until is not None and self._life.phase is Phase.RUNNING:
                    self._answer(choose.uniform(0.1, 5.0), events.Left())
            case events.Leave(at_once):
                if not at_once and choose.random() < _EXCEEDS:
                    # No answer: the deadline ends it.
                    self._activity += 1
                else:
                    self._answer(choose.uniform(0.05, 1.0), events.Left())
            case events.Settle(drains):
                self._settle(drains=drains)
            case events.ReportState():
                self._report()
                if self._life.rest_s is not None:
                    self._session.later(self._life.rest_s, lambda: self._take(events.Ticked()))
            case events.End():
                self._forget()
                self._report()
                self.then()
            case other:
                raise RuntimeError(f"{other} is for the shared query")

    def _open(self) -> None:
        flows, session = self._session.flows, self._session
        if flows.open(self.running, session.stopped_s):
            session.running[self.running.assignment.instance] = self.running
            self._take(events.Up())
        else:
            self._newer_epoch, _ = flows.writer(self.running)
            self._take(events.Replaced("a newer epoch writes", has_ended=True))

    def _settle(self, *, drains: bool) -> None:
        place = self._session.flows.settle(self.running) if drains else None
        if drains and place is None:
            self._take(events.Replaced("a newer epoch writes", has_ended=True))
        else:
            self._take(events.Settled({STREAM: place} if place is not None else None))

    def _forget(self) -> None:
        """Read and write no more."""
        self._activity += 1
        name = self.running.assignment.instance
        if self._session.running.get(name) is self.running:
            del self._session.running[name]
        if self._life.settled is None:
            self._session.flows.end(self.running)

    def _answer(self, takes_s: float, event: events.Event) -> None:
        """Take an event when the session has done what it answers."""
        self._activity += 1
        activity = self._activity

        def call() -> None:
            if self._activity == activity:
                self._take(event)

        self._session.next(takes_s, call)

    def _report(self) -> None:
        assignment, life = self.running.assignment, self._life
        self._session.report(
            InstanceStatus(
                assignment.instance,
                assignment.app,
                self._session.worker_name,
                assignment.epoch,
                life.state,
                0,
                restarts=life.failures,
                settled=life.settled is not None,
                position=life.settled or {},
                newer_epoch=self._newer_epoch,
            )
        )
