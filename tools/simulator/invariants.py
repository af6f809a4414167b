"""Invariants that hold whatever faults occur in the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.model import names
from mesh.model.cluster import AppRecord, Assignment, LeaseRecord

if TYPE_CHECKING:
    from mesh.settings import Settings
    from tools.simulator.flows import Flows, Running
    from tools.simulator.store import Store, StoredWrite
    from tools.simulator.workers import Worker
    from tools.simulator.world import World


#: Time after a loss of writes in which views are not certain, seconds.
LOSS_S: Final = 60.0


class Violation(Exception):
    """An invariant does not hold."""


class Invariants:
    """Checks the writes of the store and the openings of sinks, from outside of the cluster."""

    def __init__(
        self,
        world: World,
        store: Store,
        flows: Flows,
        workers: dict[str, Worker],
        settings: Settings,
    ) -> None:
        self._world = world
        self._store = store
        self._flows = flows
        self._workers = workers
        self._settings = settings
        #: (app's incarnation, instance) to its highest epoch.
        self._epochs: dict[tuple[str, str], int] = {}
        self._leased_s = 0.0
        self._lost_s = float("-inf")
        #: Apps whose records NATS has lost a part of: their epochs may come again.
        self._incomplete: set[str] = set()
        #: Worker to the end of a fault that kept it from receiving or sending.
        self.troubled_s: dict[str, float] = {}
        self.placed = self.withdrawn = self.elected = self.opened = 0
        self.stood_by = self.reformed = 0
        store.on_stored = self._stored
        flows.on_open = self._opens

    def lose(self) -> None:
        """NATS has lost writes: of the present apps, only what the sink guards still holds."""
        self._lost_s = self._world.now_s
        self._incomplete |= {incarnation for incarnation, _ in self._epochs}
        self._incomplete |= {
            one.value.incarnation for one in self._store.all() if isinstance(one.value, AppRecord)
        }
        self._flows.incomplete = self._incomplete

    def _stored(self, stored: StoredWrite) -> None:
        if stored.key == names.LEASE_KEY:
            self._lease(stored)
        elif stored.key.startswith("assignment."):
            self._assignment(stored)
        elif stored.bucket == names.CONTROL_BUCKET and stored.key.startswith("standby."):
            self._by_leader(stored)
            self.stood_by += stored.value is not None
        elif stored.key.startswith("form."):
            self._form(stored)
        elif stored.bucket == names.APPS_BUCKET and stored.value is None:
            before = self._store.get(stored.bucket, stored.key)
            self._removal(before.value if before is not None else None)

    def _lease(self, stored: StoredWrite) -> None:
        """The lease changes its holder only if the term is over, or the holder gave it up."""
        before = self._store.get(stored.bucket, stored.key)
        now_s, ttl_s = self._world.now_s, self._settings.manager.lease_ttl_s
        held = before.value if before is not None else None
        if isinstance(held, LeaseRecord) and _process(held) != stored.by:
            self.elected += 1
            # Clocks may differ by their drift in a term.  After a loss, revisions come again, and a
            # view that was not read again yet may know the same revision of an earlier lease.
            is_over = now_s - self._leased_s >= ttl_s * 0.98
            is_certain = now_s - self._lost_s >= LOSS_S
            self._must(is_over or not is_certain, f"{stored.by} took a standing lease")
        self._leased_s = now_s

    def _assignment(self, stored: StoredWrite) -> None:
        """Only the holder of the lease writes assignments, in epochs that grow."""
        self._by_leader(stored)
        assignment = stored.value
        if isinstance(assignment, Assignment):
            at = assignment.app_incarnation, assignment.instance
            last_epoch = 0 if at[0] in self._incomplete else self._epochs.get(at, 0)
            self._must(
                assignment.epoch > last_epoch,
                f"{assignment.instance}: epoch {assignment.epoch} after {last_epoch}",
            )
            self._epochs[at] = assignment.epoch
            self.withdrawn += assignment.stop
            self.placed += not assignment.stop

    def _by_leader(self, stored: StoredWrite) -> None:
        lease = self._store.get(names.CONTROL_BUCKET, names.LEASE_KEY)
        holder = _process(lease.value) if lease is not None and lease.value is not None else None
        self._must(holder == stored.by, f"{stored.by} wrote {stored.key}, and {holder} leads")

    def _form(self, stored: StoredWrite) -> None:
        """A form replaces another only if no output is lost or duplicated."""
        before = self._store.get(stored.bucket, stored.key)
        old, new = before.value if before is not None else None, stored.value
        if old is None or new is None or old.app_incarnation != new.app_incarnation:
            return
        self.reformed += 1
        is_troubled = any(map(self.is_troubled, self._workers))
        wrong = self._flows.changes(old, new, is_troubled=is_troubled)
        self._must(wrong is None, f"{new.app} form {new.number}: {wrong}")

    def _removal(self, record: AppRecord | None) -> None:
        """An app is removed only on request, and when nothing of it is assigned."""
        if not isinstance(record, AppRecord):
            return
        name = record.spec.name
        self._must(record.deleting, f"{name} was removed and nobody asked for it")
        if record.incarnation in self._incomplete:
            return
        for group in record.spec.groups:
            for instance in group.instances:
                left = self._store.get(names.CONTROL_BUCKET, names.assignment_key(instance))
                gone = left is None or left.value is None
                self._must(gone, f"{name} was removed while {instance} is assigned")

    def _opens(self, running: Running) -> None:
        """One process writes in an epoch; while no worker is cut off, only one runs at all."""
        self.opened += 1
        self._must(not self._flows.doubled, "; ".join(self._flows.doubled))
        assignment = running.assignment
        epoch, by = self._flows.writer(running)
        is_incomplete = assignment.app_incarnation in self._incomplete
        self._must(
            is_incomplete or epoch < assignment.epoch or by == running.by,
            f"{assignment.instance}: {by} and {running.by} write in epoch {epoch}",
        )
        host = self._workers[assignment.worker]
        labels = set(running.group.node)
        self._must(labels <= set(host.kind.labels), f"{assignment.instance} on {host.name}: labels")
        if host.kind.capacity and not self.is_troubled(host.name):
            room = len(host.session.running) <= host.kind.capacity
            self._must(room, f"{host.name} runs more than its capacity")
        for peer in self._workers.values():
            if peer is host:
                continue
            self._must(
                self.is_troubled(host.name)
                or self.is_troubled(peer.name)
                or not any(_differ(one, running) for one in peer.session.running.values()),
                f"{assignment.instance} begins on {host.name} while {peer.name} runs an older form",
            )
            rival = next((r for r in peer.session.running.values() if _share(r, running)), None)
            if rival is None:
                continue
            theirs = rival.assignment.instance
            both = f"{assignment.instance} begins on {host.name} while {peer.name}"
            self._must(self.is_troubled(peer.name), f"{both} runs {theirs}")
            # A worker that is cut off has stopped its session by now, unless its process does not
            # run.
            is_stopped = peer.process.paused_s + 1.0 > self._world.now_s
            if peer.process.is_up and not is_stopped and not is_incomplete:
                self._must(not peer.runs(rival.assignment), f"{both} means {theirs} to go on")

    def is_troubled(self, worker: str) -> bool:
        """Whether something was wrong with a worker or its link a short time ago."""
        settings = self._settings.worker
        after_s = 3 * (settings.ttl_s + settings.margin_s)
        return self._world.now_s < self.troubled_s.get(worker, 0.0) + after_s

    def _must(self, holds: bool, otherwise: str) -> None:
        if not holds:
            raise Violation(otherwise)


def _process(lease: LeaseRecord) -> str:
    """The process that wrote a lease; two may have one id."""
    return lease.incarnation.rpartition(".")[0]


def _share(one: Running, other: Running) -> bool:
    """Whether two instances own something in common."""
    return _group(one) == _group(other) and bool({*one.parts} & {*other.parts})


def _differ(one: Running, other: Running) -> bool:
    """Whether two instances of one group are of different revisions of it."""
    return _group(one) == _group(other) and one.assignment.form != other.assignment.form


def _group(running: Running) -> tuple[str, str]:
    return running.assignment.app_incarnation, running.assignment.group
