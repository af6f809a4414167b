"""Workers: the loops of ``mesh/worker/agent.py`` around their decisions, in simulated time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mesh.control import duties, membership, standby
from mesh.model import names
from mesh.model.cluster import (
    Assignment,
    InstanceState,
    InstanceStatus,
    NodeRecord,
    Role,
    Standby,
)
from mesh.testing.simulator.nodes import WRITE_S, Node
from mesh.testing.simulator.store import CONFLICT, TIMEOUT, Store
from mesh.testing.simulator.world import Process, Sleep, Work, Write

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from mesh.control.snapshot import ClusterSnapshot
    from mesh.settings import Settings
    from mesh.testing.simulator.session import Session


@dataclass(frozen=True, slots=True)
class WorkerKind:
    """What a worker is set to."""

    capacity: int = 0
    labels: tuple[str, ...] = ()
    takes_receivers: bool = True
    takes_queries: bool = True


@dataclass
class _Told:
    """What the agent has told its session."""

    running: dict[str, Assignment] = field(default_factory=dict)
    #: The epoch of what it is to stop, and has not said that it has, by instance.
    stopping: dict[str, int] = field(default_factory=dict)
    #: What it stands by for, by instance.
    holding: dict[str, Standby] = field(default_factory=dict)


class Worker(Node):
    """The loops of one agent."""

    def __init__(
        self,
        process: Process,
        store: Store,
        settings: Settings,
        kind: WorkerKind,
        session: Session,
    ) -> None:
        super().__init__(process, store, settings)
        self.kind = kind
        self.session = session
        self._told = _Told()
        #: Called when another process has its name, and it has ended for that.
        self.on_rejected: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Claim the name, and then begin to beat and to work."""
        super().start()
        self.incarnation = f"{self.name}.{self.process.life}"
        self.ready = self._was_ready = False
        self.leaving = False
        self._told.running.clear()
        self._told.stopping.clear()
        self._told.holding.clear()
        self._unready_s = self.now_s
        self._revision = 0
        self._beats = 0
        self._renewed_s = 0.0
        self._is_out, self._rejoined = False, 0
        self.session.start(self)
        self.begin(self._claim())

    def end(self) -> None:
        """End at once, and the session with it."""
        super().end()
        self.session.end()

    def leave(self) -> None:
        """Hand over and end, as on SIGTERM."""
        self.leaving = True
        self.begin(self._leave())

    @property
    def _key(self) -> str:
        return names.node_key(Role.WORKER, self.name)

    @property
    def _is_member(self) -> bool:
        return self.now_s - self._renewed_s < self.settings.worker.ttl_s

    @property
    def _has_caught_up(self) -> bool:
        heard = self.watch.records.revision(names.CONTROL_BUCKET, self._key)
        return not self._is_out and heard >= self._rejoined

    @property
    def _knows_ended(self) -> bool:
        """Whether it can tell that its name's earlier process has ended: it was on this machine."""
        return self.process.life % 3 != 0

    def _own_record(self) -> tuple[int, NodeRecord | None]:
        stored = self.store.get(names.CONTROL_BUCKET, self._key)
        return (stored.revision, stored.value) if stored is not None else (0, None)

    def _claim(self) -> Work:
        worker = self.settings.worker
        while True:
            snapshot = self.watch.records.snapshot(self.now_s)
            mine = (n for n in snapshot.nodes if n.value.role is Role.WORKER)
            record = next((n for n in mine if n.value.id == self.name), None)
            if self._knows_ended or not membership.is_taken(
                record, self.incarnation, self.now_s, worker.ttl_s, worker.margin_s
            ):
                break
            yield Sleep(self.now_s + worker.ttl_s / membership.BEATS_PER_TERM)
        self._revision = self.watch.records.revision(names.CONTROL_BUCKET, self._key)
        self._renewed_s = self.now_s
        self.begin(self._beat())
        self.begin(self._work())

    def _beat(self) -> Work:
        ttl_s = self.settings.worker.ttl_s
        while True:
            self._stop_if_over()
            sent_s = self.now_s
            left_s = self._renewed_s + ttl_s - sent_s
            limit_s = min(left_s, ttl_s / 2) if left_s > 0 else ttl_s / 2
            self._beats += 1
            record = NodeRecord(
                self.name,
                Role.WORKER,
                self.incarnation,
                "",
                self._beats,
                ready=self.ready,
                starting_s=0.0 if self.ready else self.now_s - self._unready_s,
                cold=not self._was_ready,
                leaving=self.leaving,
                capacity=self.kind.capacity,
                labels=self.kind.labels,
                takes_receivers=self.kind.takes_receivers,
                takes_queries=self.kind.takes_queries,
            )
            expected = (self._key, self._revision)
            answer = yield Write(names.CONTROL_BUCKET, self._key, record, expected, limit_s)
            if answer == CONFLICT:
                # Asked for at the server, which a cut keeps it from.
                if self.process.link.up_cut_s <= self.world.now_s:
                    revision, stored = self._own_record()
                    is_other = stored is not None and stored.incarnation != self.incarnation
                    if is_other and not self._knows_ended:
                        self.end()
                        self.on_rejected()
                        return
                    self._revision = revision
            elif answer != TIMEOUT:
                self._revision = answer
                self._renewed_s = sent_s
                if self._is_out:
                    self._rejoined, self._is_out = answer, False
            self._stop_if_over()
            left_s = self._renewed_s + ttl_s - self.now_s
            period_s = ttl_s / membership.BEATS_PER_TERM
            yield Sleep(self.now_s + (min(period_s, left_s) if left_s > 0 else period_s))

    def _stop_if_over(self) -> None:
        # What a clock shows at a time that was computed from it may be a little less.
        if self.now_s - self._renewed_s >= self.settings.worker.ttl_s - 1e-6:
            self._is_out = True
            for assignment in list(self._told.running.values()):
                self._stop(assignment)

    def runs(self, assignment: Assignment) -> bool:
        """Whether the agent means this to run, in this epoch or another."""
        return assignment.instance in self._told.running

    def _work(self) -> Work:
        records = self.watch.records
        while True:
            news = records.news
            yield from self._do_duties()
            yield Sleep(self.now_s + self.settings.worker.ttl_s, news)

    @property
    def holding(self) -> frozenset[str]:
        """The instances that it stands by for."""
        return frozenset(self._told.holding)

    def _hold(self, snapshot: ClusterSnapshot) -> None:
        told = standby.duties(
            snapshot, self.name, self.incarnation, self._told.holding, may_start=self.ready
        )
        for duty in list(told):
            match duty:
                case standby.Hold(record, _):
                    self._told.holding[record.instance] = record
                case standby.Release(instance):
                    del self._told.holding[instance]

    def _do_duties(self) -> Generator[Sleep | Write, Any, None]:
        snapshot = self.watch.records.snapshot(self.now_s)
        self._hold(snapshot)
        found = duties.decide(
            snapshot,
            self.name,
            self.incarnation,
            self._told.running,
            self._told.stopping,
            may_start=self.ready and self._is_member and self._has_caught_up,
            at_ms=0,
        )
        for duty in list(found):
            match duty:
                case duties.Stop(assignment, settle):
                    self._stop(assignment, settle=settle)
                case duties.Start(assignment, group):
                    self._told.running[assignment.instance] = assignment
                    self.session.run(assignment, group)
                case duties.Tell(status):
                    yield from self._report(status)

    def _stop(self, assignment: Assignment, *, settle: bool = False) -> None:
        self._told.stopping[assignment.instance] = assignment.epoch
        self._told.running.pop(assignment.instance, None)
        self.session.stop(assignment, settle=settle)

    def _report(self, status: InstanceStatus) -> Generator[Sleep | Write, Any, None]:
        known = self.watch.records.snapshot(self.now_s).statuses
        newest = next((s.value for s in known if s.value.instance == status.instance), None)
        if newest is not None and newest.epoch > status.epoch:
            return
        key = names.status_key(status.instance)
        answer = yield Write(names.STATUS_BUCKET, key, status, None, WRITE_S)
        if not isinstance(answer, str):
            self.watch.records.take(names.STATUS_BUCKET, key, status, answer, self.now_s)

    def session_is_ready(self) -> None:
        """The session is warm."""
        self.ready = self._was_ready = True
        self.begin(self._do_duties())

    def session_says(self, status: InstanceStatus) -> None:
        """The session reports."""
        self.begin(self._report_and_look(status))

    def session_ended(self) -> None:
        """The session crashed; another one is on its way."""
        self.ready, self._unready_s = False, self.now_s
        self._told.stopping.clear()
        self._told.holding.clear()
        lost, self._told.running = self._told.running, {}
        for assignment in lost.values():
            status = InstanceStatus(
                assignment.instance,
                assignment.app,
                self.name,
                assignment.epoch,
                InstanceState.RETRYING,
                0,
                "the session ended",
            )
            self.begin(self._report(status))

    def _report_and_look(self, status: InstanceStatus) -> Work:
        yield from self._report(status)
        known = self._told.running.get(status.instance)
        if known is not None and duties.has_ended(status, known):
            del self._told.running[status.instance]
        epoch = self._told.stopping.get(status.instance)
        if epoch is not None and duties.has_stopped(status, epoch):
            del self._told.stopping[status.instance]
        # In the shell the report's own entry into the view wakes the loop that does duties.
        yield from self._do_duties()

    def _leave(self) -> Work:
        worker = self.settings.worker
        started_s = self.now_s
        while self.now_s - started_s < worker.leave_s:
            snapshot = self.watch.records.snapshot(self.now_s)
            mine = [n for n in snapshot.nodes if n.value.id == self.name]
            is_known = any(n.value.leaving for n in mine)
            if is_known and not duties.will_be_taken(snapshot, self.name, self.settings):
                break
            if not is_known and self.now_s - started_s >= worker.ttl_s:
                break
            yield Sleep(self.now_s + 0.2)
        self.session.end()
        expected = (self._key, self._revision)
        yield Write(names.CONTROL_BUCKET, self._key, None, expected, WRITE_S)
        self.end()
