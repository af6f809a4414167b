"""One run of an instance in a simulated session: a driver of ``InstanceLifecycle``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from mesh.control import instance_events as events
from mesh.control.instance_lifecycle import InstanceLifecycle, Phase
from mesh.control.retries import Retries
from mesh.model.cluster import InstanceStatus
from mesh.testing.simulator.flows import STREAM, Running

if TYPE_CHECKING:
    from collections.abc import Callable

    from mesh.control.instance_events import Event, Instruction
    from mesh.settings import Settings
    from mesh.testing.simulator.flows import Flows
    from mesh.testing.simulator.world import World

#: Share of stops in which a batch exceeds the time that a stop waits for it.
_EXCEEDS: Final = 0.15


class InstanceSession(Protocol):
    """The session that runs an instance."""

    world: World
    flows: Flows
    #: Instances that read and write now.
    running: dict[str, Running]

    @property
    def settings(self) -> Settings:
        """The worker's settings."""
        ...

    @property
    def worker_name(self) -> str:
        """The worker's name."""
        ...

    def next(self, takes_s: float, do: Callable[[], None]) -> None:
        """Do something after the session's other commands."""
        ...

    def later(self, delay_s: float, do: Callable[[], None]) -> None:
        """Do something after a delay, seconds, unless the session ends before."""
        ...

    def report(self, status: InstanceStatus) -> None:
        """Tell the agent about an instance."""
        ...

    def stopped_s(self) -> float:
        """Time since which the session is frozen; infinity if it isn't."""
        ...


class Instance:
    """An instance from its start to its end."""

    def __init__(self, session: InstanceSession, running: Running) -> None:
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

    def _take(self, event: Event) -> None:
        for instruction in self._life.handle(event, self._world.now_s):
            self._perform(instruction)

    def _perform(self, instruction: Instruction) -> None:
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

    def _answer(self, takes_s: float, event: Event) -> None:
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
