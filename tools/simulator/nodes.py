"""Nodes, and managers: a shell of ``mesh.control.manager_state`` in simulated time.

The writes of an action follow ``mesh/jetstream/removal.py`` and ``removal.py``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mesh.control import membership
from mesh.control.actions import (
    AssignStandby,
    Discard,
    DropForm,
    ForgetNode,
    PlaceInstance,
    RemoveApp,
    RemoveStandby,
    Retire,
    Withdraw,
    WriteGroupForm,
)
from mesh.control.election import ManagerCandidate
from mesh.control.journal import JournalEntry
from mesh.control.manager_state import (
    ActionPerformed,
    ActionRefused,
    Event,
    LapsedAction,
    LeaseRefused,
    LeaseUnanswered,
    LeaseWritten,
    ManagerState,
    Observed,
    Perform,
    StartRemoval,
    Wait,
    WriteLease,
)
from mesh.model import names
from mesh.model.cluster import NodeRecord, NodeRole
from tools.simulator.store import CONFLICT, TIMEOUT, SimulatedWatch, Store, send
from tools.simulator.world import SimulatedProcess, Sleep, Work, Write

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import Any

    from mesh.control.actions import RecordAction, Removal
    from mesh.model.cluster import LeaseRecord
    from mesh.settings import Settings

_OBSERVED: Final[Event] = Observed()
#: Timeout of a write that isn't a heartbeat: nats-py's default.
WRITE_S = 5.0


class SimulatedNode:
    """A process that does work and watches the store."""

    def __init__(self, process: SimulatedProcess, store: Store, settings: Settings) -> None:
        self.process = process
        self.world = process.world
        self.store = store
        self.settings = settings
        self.watch: SimulatedWatch
        self._waiting: list[tuple[Work, int]] = []
        #: Grows for a loop each time that it is resumed, to identify waits that are over.
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

    def _go_on(self, work: Work, result: object) -> None:
        """Resume ``work``, and arrange its next wait."""
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


class SimulatedManager(SimulatedNode):
    """The loops of one manager; ``m1+`` is a second process with the id ``m1``."""

    def start(self) -> None:
        """Start heartbeats and candidacy."""
        super().start()
        self.me = ManagerCandidate(self.name.rstrip("+"), f"{self.name}.{self.process.life}")
        self.state: ManagerState | None = None
        #: Duration of a pause between its next decision and the decision's first write, seconds.
        self.stall_s = 0.0
        self.begin(self._beat())
        self.begin(self._lead())

    def _beat(self) -> Work:
        period_s = self.settings.worker.ttl_s / membership.BEATS_PER_TERM
        number = 0
        while True:
            number += 1
            record = NodeRecord(
                self.me.id, NodeRole.MANAGER, self.me.incarnation, "", number, ready=True
            )
            key = names.node_key(NodeRole.MANAGER, self.me.id)
            yield Write(names.CONTROL_BUCKET, key, record, None, WRITE_S)
            yield Sleep(self.now_s + period_s)

    @property
    def leads(self) -> bool:
        """Whether it held the lease at its last check."""
        return self.state is not None and self.state.leads

    def _lead(self) -> Work:
        records, state = self.watch.records, ManagerState(self.me, self.settings)
        self.state = state
        news, event = records.news, _OBSERVED
        while True:
            for instruction in state.handle(event, records.snapshot(self.now_s)):
                match instruction:
                    case WriteLease(record, revision, limit_s):
                        event = yield from self._write_lease(record, revision, limit_s)
                    case Perform(action, lease_revision):
                        event = yield from self._act(state, action, lease_revision)
                    case StartRemoval():
                        self.begin(self._remove(state, instruction))
                    case Wait(until_s):
                        yield Sleep(until_s, news)
                        news, event = records.news, _OBSERVED
                    case JournalEntry():
                        # The simulator has no reader of the journal.
                        continue

    def _write_lease(
        self, record: LeaseRecord, revision: int, limit_s: float
    ) -> Generator[Sleep | Write, Any, Event]:
        key = names.LEASE_KEY
        answer = yield Write(names.CONTROL_BUCKET, key, record, (key, revision), limit_s)
        if answer in (CONFLICT, TIMEOUT):
            return LeaseRefused() if answer == CONFLICT else LeaseUnanswered()
        self.watch.records.take(names.CONTROL_BUCKET, key, record, answer, self.now_s)
        return LeaseWritten()

    def _act(
        self, state: ManagerState, action: RecordAction, lease_revision: int
    ) -> Generator[Sleep | Write, Any, Event]:
        records = self.watch.records
        for write in self._writes(action, (names.LEASE_KEY, lease_revision)):
            if self.stall_s:
                self.process.paused_s = self.world.now_s + self.stall_s
                self.stall_s = 0.0
                yield Sleep(self.now_s)
            if not state.may_write(records.snapshot(self.now_s)):
                return ActionRefused(LapsedAction.LAPSED)
            answer = yield write
            if answer in (CONFLICT, TIMEOUT):
                is_refused = answer == CONFLICT
                return ActionRefused(
                    LapsedAction.REFUSED if is_refused else LapsedAction.UNANSWERED
                )
            records.take(write.bucket, write.key, write.value, answer, self.now_s)
        return ActionPerformed()

    def _remove(self, state: ManagerState, removal: StartRemoval) -> Work:
        records = self.watch.records
        why: LapsedAction | None = None
        for write in self._removal_writes(removal.action):
            if not state.may_remove(removal, records.snapshot(self.now_s)):
                why = LapsedAction.REFUSED
                break
            answer = yield write
            if answer in (CONFLICT, TIMEOUT):
                why = LapsedAction.REFUSED if answer == CONFLICT else LapsedAction.UNANSWERED
                break
            records.take(write.bucket, write.key, write.value, answer, self.now_s)
        state.removal_ended(removal, why, self.now_s)

    def _writes(self, action: RecordAction, fence: tuple[str, int]) -> Iterator[Write]:
        control = names.CONTROL_BUCKET
        match action:
            case PlaceInstance(assignment, _) | Withdraw(assignment, _):
                key = names.assignment_key(assignment.instance)
                yield Write(control, key, assignment, fence, WRITE_S)
            case WriteGroupForm(form, _):
                yield Write(control, names.form_key(form.app, form.group), form, fence, WRITE_S)
            case DropForm(app_name, group_name, _):
                yield Write(control, names.form_key(app_name, group_name), None, fence, WRITE_S)
            case Discard(instance, _, _):
                yield Write(control, names.assignment_key(instance), None, fence, WRITE_S)
            case AssignStandby(standby, _):
                yield Write(control, names.standby_key(standby.instance), standby, fence, WRITE_S)
            case RemoveStandby(instance, _, _):
                yield Write(control, names.standby_key(instance), None, fence, WRITE_S)
            case ForgetNode(role, node, _):
                yield Write(control, names.node_key(role, node), None, fence, WRITE_S)

    def _removal_writes(self, action: Removal) -> Iterator[Write]:
        match action:
            case Retire(app, revision, _):
                key = names.app_key(app.spec.name)
                done = replace(app, retired=None)
                yield Write(names.APPS_BUCKET, key, done, (key, revision), WRITE_S)
            case RemoveApp(app, revision, _):
                for group in app.spec.groups:
                    for instance in group.instances:
                        key = names.status_key(instance)
                        yield Write(names.STATUS_BUCKET, key, None, None, WRITE_S)
                key = names.app_key(app.spec.name)
                yield Write(names.APPS_BUCKET, key, None, (key, revision), WRITE_S)
