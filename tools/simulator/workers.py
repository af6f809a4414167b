"""Workers: a shell of ``mesh.control.agent_state`` in simulated time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mesh.control.agent_events import (
    AgentView,
    Event,
    HeartbeatConflicted,
    HeartbeatFailed,
    HeartbeatStored,
    Instruction,
    KillSession,
    LeaveCluster,
    ReadRecord,
    RecordRead,
    Reject,
    ReportWritten,
    SessionEnded,
    StartSession,
    TimeReached,
    ViewChanged,
    WorkerStopRequested,
    WriteHeartbeat,
    WriteReport,
)
from mesh.control.agent_state import AgentState
from mesh.control.worker_reconcile import Start, Stop
from mesh.model import names
from mesh.model.cluster import NodeRecord, NodeRole
from tools.simulator.nodes import WRITE_S, SimulatedNode
from tools.simulator.store import CONFLICT, Store, read, send
from tools.simulator.world import SimulatedProcess, Write

if TYPE_CHECKING:
    from collections.abc import Callable

    from mesh.model.cluster import Assignment, InstanceStatus
    from mesh.settings import Settings
    from tools.simulator.session import SimulatedSession
    from tools.simulator.store import StoredWrite


@dataclass(frozen=True, slots=True)
class WorkerKind:
    """A worker's settings."""

    capacity: int = 0
    labels: tuple[str, ...] = ()
    takes_receivers: bool = True
    takes_queries: bool = True


class Worker(SimulatedNode):
    """One agent and its session."""

    def __init__(
        self,
        process: SimulatedProcess,
        store: Store,
        settings: Settings,
        kind: WorkerKind,
        session: SimulatedSession,
    ) -> None:
        super().__init__(process, store, settings)
        self.kind = kind
        self.session = session
        self._key = names.node_key(NodeRole.WORKER, self.name)
        #: None before the first start.
        self.state: AgentState | None = None
        #: The ``wake_s`` for which a timer is set.
        self._timer_s = 0.0
        #: The view's count of news at the last event.
        self._news = 0
        #: Called after it has ended because another process has its name.
        self.on_rejected: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Start the session and claim the name."""
        super().start()
        identity = NodeRecord(
            self.name,
            NodeRole.WORKER,
            self.incarnation,
            "",
            beat=0,
            labels=self.kind.labels,
            capacity=self.kind.capacity,
            takes_receivers=self.kind.takes_receivers,
            takes_queries=self.kind.takes_queries,
        )
        self.state = AgentState(identity, self.settings, self.now_s)
        self._timer_s, self._news = 0.0, 0
        self.session.start(self)
        self._soon(ViewChanged())

    def end(self) -> None:
        """End at once, and the session with it."""
        super().end()
        self.session.end()

    def leave(self) -> None:
        """Hand over and end, as on SIGTERM."""
        self._soon(WorkerStopRequested())

    def take(self, event: Event) -> None:
        """Respond to an event now."""
        state, records = self.state, self.watch.catch_up()
        assert state is not None
        view = AgentView(
            records.snapshot(self.now_s),
            records.revision(names.CONTROL_BUCKET, self._key),
            holder_has_ended=self._knows_ended,
        )
        is_new, self._news = records.news > self._news, records.news
        for instruction in state.handle(event, view):
            self._perform(instruction)
        if state.is_final:
            return
        self._set_timer(state.wake_s)
        if is_new and not isinstance(event, ViewChanged):
            self.take(ViewChanged())

    @property
    def incarnation(self) -> str:
        """Name of this process, unlike those of earlier ones."""
        return f"{self.name}.{self.process.life}"

    @property
    def is_leaving(self) -> bool:
        """Whether it was requested to end."""
        return self.state is not None and self.state.leaving

    @property
    def holding(self) -> frozenset[str]:
        """The instances of which it is the standby."""
        return frozenset(self.state.holding) if self.state is not None else frozenset()

    def runs(self, assignment: Assignment) -> bool:
        """Whether the agent means this to run, in this epoch or another."""
        return self.state is not None and assignment.instance in self.state.running

    @property
    def _knows_ended(self) -> bool:
        """Whether it can know that its name's earlier process has ended: it was on this machine."""
        return self.process.life % 3 != 0

    def _wake(self) -> None:
        self.take(ViewChanged())

    def _soon(self, event: Event) -> None:
        self.process.soon(self.world.now_s, lambda: self.take(event))

    def _set_timer(self, wake_s: float) -> None:
        if wake_s == self._timer_s:
            return
        self._timer_s = wake_s

        def ring() -> None:
            if self._timer_s == wake_s:
                self._timer_s = 0.0
                self.take(TimeReached())

        self.process.soon(self.process.true_s(wake_s), ring)

    def _perform(self, instruction: Instruction) -> None:
        control = names.CONTROL_BUCKET
        match instruction:
            case WriteHeartbeat(record, revision, limit_s):
                write = Write(control, self._key, record, (self._key, revision), limit_s)
                send(self.world, self.store, self.process, write, self._heartbeat_answered)
            case ReadRecord(limit_s):
                key = control, self._key
                read(self.world, self.store, self.process, key, limit_s, self._record_answered)
            case WriteReport(status):
                self._write_report(status)
            case Start(assignment, group):
                self.session.run(assignment, group)
            case Stop(assignment, settle):
                self.session.stop(assignment, settle=settle)
            case StartSession():
                self.session.start(self)
            case KillSession():
                self.session.end()
                self._soon(SessionEnded())
            case Reject():
                self.end()
                self.on_rejected()
            case LeaveCluster():
                self._leave()
            case _:
                # Copies of state cost nothing here, and the journal has no reader.
                pass

    def _heartbeat_answered(self, answer: int | str) -> None:
        if isinstance(answer, int):
            self.take(HeartbeatStored(answer))
        else:
            self.take(HeartbeatConflicted() if answer == CONFLICT else HeartbeatFailed())

    def _record_answered(self, stored: StoredWrite | str | None) -> None:
        if isinstance(stored, str):
            self.take(HeartbeatFailed())
        elif stored is None:
            self.take(RecordRead(0, None))
        else:
            self.take(RecordRead(stored.revision, stored.value, self._knows_ended))

    def _write_report(self, status: InstanceStatus) -> None:
        key = names.status_key(status.instance)

        def answer(result: int | str) -> None:
            records = self.watch.catch_up()
            if not isinstance(result, str):
                records.take(names.STATUS_BUCKET, key, status, result, self.now_s)
            self.take(ReportWritten(status))

        write = Write(names.STATUS_BUCKET, key, status, None, WRITE_S)
        send(self.world, self.store, self.process, write, answer)

    def _leave(self) -> None:
        self.session.end()
        assert self.state is not None
        expected = self._key, self.state.revision
        write = Write(names.CONTROL_BUCKET, self._key, None, expected, WRITE_S)
        send(self.world, self.store, self.process, write, lambda _: self.end())
