"""Managers and workers: the loops of ``mesh.manager`` and ``mesh.worker`` around their decisions.

The decisions are the real ones of ``mesh.control``; what stands around them here follows
``mesh/manager/manager.py``, ``mesh/worker/agent.py`` and ``mesh/jetstream/apply.py`` step by step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mesh.control import duties, election, membership, reconcile
from mesh.control.actions import Discard, ForgetNode, Place, RemoveApp, Withdraw
from mesh.model import names
from mesh.model.cluster import (
    Assignment,
    InstanceState,
    InstanceStatus,
    LeaseRecord,
    NodeRecord,
    Role,
)
from mesh.testing.simulator.store import CONFLICT, TIMEOUT, Store, Watch, send
from mesh.testing.simulator.world import Process, Sleep, Work, Write

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import Any

    from mesh.control.actions import Action
    from mesh.settings import Settings
    from mesh.testing.simulator.session import Session

#: How long a write that isn't a heartbeat waits for its answer: nats-py's default.
WRITE_S = 5.0


class Node:
    """A process that does work and watches the store."""

    def __init__(self, process: Process, store: Store, settings: Settings) -> None:
        self.process = process
        self.world = process.world
        self.store = store
        self.settings = settings
        self.watch: Watch
        self._waiting: list[tuple[Work, int]] = []
        #: Grows for a loop each time it is resumed, so that what it no longer waits for is told.
        self._tickets: dict[Work, int] = {}

    @property
    def name(self) -> str:
        """Its id."""
        return self.process.name

    @property
    def now_s(self) -> float:
        """Its clock."""
        return self.process.clock_s()

    def start(self) -> None:
        """Begin to watch; subclasses begin their work."""
        quiet_s = self.settings.worker.ttl_s / 2
        self.watch = self.store.watch(self.process, quiet_s, self._wake)

    def end(self) -> None:
        """End at once."""
        self.process.is_up = False
        self.process.life += 1
        self._waiting.clear()
        self._tickets.clear()
        self.store.forget(self.process)

    def begin(self, work: Work) -> None:
        """Begin a loop."""
        self.process.soon(self.world.now_s, lambda: self._go_on(work, None))

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for work, ticket in waiting:
            if ticket == self._tickets.get(work):
                self._go_on(work, None)

    def _go_on(self, work: Work, result: Any) -> None:
        """Resume ``work``, and see to what it waits for next."""
        self._tickets[work] = ticket = self._tickets.get(work, 0) + 1
        records = self.watch.catch_up()
        try:
            effect = work.send(result)
        except StopIteration:
            self._tickets.pop(work, None)
            return
        match effect:
            case Write():
                send(
                    self.world,
                    self.store,
                    self.process,
                    effect,
                    lambda answer: self._go_on(work, answer),
                )
            case Sleep(until_s, news):
                if news is not None and records.news > news:
                    until_s = self.now_s
                elif news is not None:
                    self._waiting.append((work, ticket))

                def wake() -> None:
                    if self._tickets.get(work) == ticket:
                        self._go_on(work, None)

                self.process.soon(self.process.true_s(until_s), wake)


class Manager(Node):
    """The loops of one manager."""

    def start(self) -> None:
        """Begin to beat and to stand for election."""
        super().start()
        self.leads = False
        #: How long it is stopped between its next decision and the first write of it, seconds.
        self.stall_s = 0.0
        self.begin(self._beat())
        self.begin(self._lead())

    def _beat(self) -> Work:
        period_s = self.settings.worker.ttl_s / membership.BEATS_PER_TERM
        number = 0
        incarnation = f"{self.name}.{self.process.life}"
        while True:
            number += 1
            record = NodeRecord(self.name, Role.MANAGER, incarnation, "", number, ready=True)
            key = names.node_key(Role.MANAGER, self.name)
            yield Write(names.CONTROL_BUCKET, key, record, None, WRITE_S)
            yield Sleep(self.now_s + period_s)

    def _lead(self) -> Work:
        records = self.watch.records
        while True:
            news = records.news
            wake_s = yield from self._elect()
            if self.leads:
                yield from self._reconcile()
                snapshot = records.snapshot(self.now_s)
                wake_s = min(wake_s, reconcile.next_deadline_s(snapshot, self.settings))
            yield Sleep(max(wake_s, self.now_s + 0.01), news)

    def _elect(self) -> Generator[Sleep | Write, Any, float]:
        ttl_s = self.settings.manager.lease_ttl_s
        records = self.watch.records
        now_s = self.now_s
        lease = records.snapshot(now_s).lease
        wake_s = now_s + ttl_s / 3
        match election.decide(lease, self.name, now_s, ttl_s):
            case election.StandBy(until_s):
                wake_s = until_s
            case election.Acquire(revision, term) | election.Renew(revision, term):
                record = LeaseRecord(self.name, term)
                expected = (names.LEASE_KEY, revision)
                key = names.LEASE_KEY
                answer = yield Write(names.CONTROL_BUCKET, key, record, expected, ttl_s)
                if answer == CONFLICT:
                    wake_s = now_s + 0.1
                elif answer == TIMEOUT:
                    wake_s = now_s + 0.2
                else:
                    records.take(names.CONTROL_BUCKET, key, record, answer, self.now_s)
        self.leads = self._holds()
        return wake_s

    def _may_write(self) -> bool:
        """Whether what was decided may still be done: it may have been stopped since."""
        return self._holds()

    def _holds(self) -> bool:
        snapshot = self.watch.records.snapshot(self.now_s)
        return election.holds(snapshot, self.name, self.settings.manager.lease_ttl_s)

    def _reconcile(self) -> Generator[Sleep | Write, Any, None]:
        snapshot = self.watch.records.snapshot(self.now_s)
        assert snapshot.lease is not None
        fence = (names.LEASE_KEY, snapshot.lease.revision)
        for action in reconcile.decide(snapshot, self.settings):
            for asked in self._writes(action, fence):
                if self.stall_s:
                    self.process.paused_s = self.world.now_s + self.stall_s
                    self.stall_s = 0.0
                    yield Sleep(self.now_s)
                if not self._may_write():
                    return
                answer = yield asked
                if answer in (CONFLICT, TIMEOUT):
                    return
                self.watch.records.take(asked.bucket, asked.key, asked.value, answer, self.now_s)

    def _writes(self, action: Action, fence: tuple[str, int]) -> Iterator[Write]:
        control = names.CONTROL_BUCKET
        match action:
            case Place(made, _) | Withdraw(made, _):
                key = names.assignment_key(made.instance)
                yield Write(control, key, made, fence, WRITE_S)
            case Discard(instance, _):
                yield Write(control, names.assignment_key(instance), None, fence, WRITE_S)
            case ForgetNode(role, node, _):
                yield Write(control, names.node_key(role, node), None, fence, WRITE_S)
            case RemoveApp(app, revision, _):
                for group in app.spec.groups:
                    for instance in group.instances:
                        key = names.status_key(instance)
                        yield Write(names.STATUS_BUCKET, key, None, None, WRITE_S)
                key = names.app_key(app.spec.name)
                yield Write(names.APPS_BUCKET, key, None, (key, revision), WRITE_S)


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
    stopping: set[str] = field(default_factory=set)


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
        self.ready = False
        self.leaving = False
        self._told.running.clear()
        self._told.stopping.clear()
        self._unready_s = self.now_s
        self._revision = 0
        self._beats = 0
        self._renewed_s = 0.0
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
            self._stop_if_over()
            left_s = self._renewed_s + ttl_s - self.now_s
            period_s = ttl_s / membership.BEATS_PER_TERM
            yield Sleep(self.now_s + (min(period_s, left_s) if left_s > 0 else period_s))

    def _stop_if_over(self) -> None:
        # What a clock shows at a time that was computed from it may be a little less.
        if self.now_s - self._renewed_s >= self.settings.worker.ttl_s - 1e-6:
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

    def _do_duties(self) -> Generator[Sleep | Write, Any, None]:
        found = duties.decide(
            self.watch.records.snapshot(self.now_s),
            self.name,
            self.incarnation,
            self._told.running,
            self._told.stopping,
            may_start=self.ready and self._is_member,
            at_ms=0,
        )
        for duty in list(found):
            match duty:
                case duties.Stop(assignment):
                    self._stop(assignment)
                case duties.Start(assignment, group):
                    self._told.running[assignment.instance] = assignment
                    self.session.run(assignment, group)
                case duties.Tell(status):
                    yield from self._report(status)

    def _stop(self, assignment: Assignment) -> None:
        self._told.stopping.add(assignment.instance)
        self._told.running.pop(assignment.instance, None)
        self.session.stop(assignment)

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
        self.ready = True
        self.begin(self._do_duties())

    def session_says(self, status: InstanceStatus) -> None:
        """The session reports."""
        if status.state is InstanceState.STOPPED:
            self._told.stopping.discard(status.instance)
        self.begin(self._report_and_look(status))

    def session_ended(self) -> None:
        """The session crashed; another one is on its way."""
        self.ready, self._unready_s = False, self.now_s
        self._told.stopping.clear()
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
