"""A simulated cluster: plays a scenario, and checks that it comes to rest correctly."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from mesh.control import reconcile
from mesh.control.actions import ForgetNode
from mesh.control.cluster_state import cluster_state_of
from mesh.control.placement import Admits
from mesh.model import names
from mesh.model.cluster import Admission, AppRecord, NodeOrder
from mesh.settings import Settings
from tools.simulator import scenario as scenarios
from tools.simulator.flows import Flows
from tools.simulator.invariants import Invariants, Violation
from tools.simulator.nodes import SimulatedManager, SimulatedNode
from tools.simulator.seating import most_placeable
from tools.simulator.session import SimulatedSession
from tools.simulator.store import HISTORY_S, Store
from tools.simulator.workers import Worker
from tools.simulator.world import SimulatedProcess, World, Write

if TYPE_CHECKING:
    from mesh.control.cluster_state import ClusterState
    from tools.simulator.scenario import Event, Scenario

#: A cluster that nothing happens to must be at rest after this, simulated seconds.
REST_S = 240.0
#: Remaining part of a quiet time when the cluster is at rest; the rest of it is skipped, because
#: only heartbeats would happen in it.
QUIET_S = 3.0
#: Time after a loss of writes in which instances may run twice until they are placed again.
RECOVERY_S = 60.0


@dataclass
class RunTally:
    """Counts of a run."""

    simulated_s: float = 0.0
    #: Of these, played event by event.
    played_s: float = 0.0
    events: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, other: RunTally) -> None:
        """Add another run's."""
        self.simulated_s += other.simulated_s
        self.played_s += other.played_s
        self.events += other.events
        self.counts += other.counts


class Cluster:
    """Managers, workers and their store."""

    def __init__(self, scenario: Scenario, seed: int, settings: Settings | None = None) -> None:
        self.scenario = scenario
        self.settings = settings or Settings()
        self.world = World(Random(seed))
        self.store = Store(self.world)
        self.flows = Flows(self.world)
        self.tally = RunTally()
        self._skipped_s = 0.0
        self._trouble_s = 0.0
        self._deployed = 0
        self.managers = {
            name: SimulatedManager(self._process(name), self.store, self.settings)
            for name in scenario.managers
        }
        self.workers = {
            name: Worker(
                self._process(name),
                self.store,
                self.settings,
                kind,
                SimulatedSession(self.world, self.flows),
            )
            for name, kind in scenario.workers
        }
        for worker in self.workers.values():
            worker.on_rejected = partial(self._start_later, worker)
        self.nodes: dict[str, SimulatedNode] = {**self.managers, **self.workers}
        self.invariants = Invariants(
            self.world, self.store, self.flows, self.workers, self.settings
        )

    @property
    def now_s(self) -> float:
        """The simulated time, with the skipped times."""
        return self.world.now_s + self._skipped_s

    def play(self) -> RunTally:
        """Play the scenario to its end.

        Raises:
            Violation: an invariant does not hold.
        """
        for node in self.nodes.values():
            self.world.after(self.world.random.uniform(0.0, 3.0), node.start)
        for name, groups in self.scenario.apps:
            self._deploy(name, groups)
        self._trouble_s = 5.0
        try:
            for event in self.scenario.events:
                self._advance_to(event.at_s)
                self.tally.events[event.kind] += 1
                self._happen(event)
            self._rest()
        except Violation as violation:
            raise Violation(f"at {self.now_s:.1f}: {violation}") from violation
        finally:
            self._count()
        return self.tally

    def _process(self, name: str) -> SimulatedProcess:
        random = self.world.random
        # Crystals drift by 50 ppm; this is 40 times that.
        rate, offset_s = random.uniform(0.998, 1.002), random.uniform(0.0, 1e5)
        return SimulatedProcess(self.world, name, rate, offset_s)

    def _advance_to(self, at_s: float) -> None:
        """Let time pass, and skip it while the cluster is at rest."""
        while (left_s := at_s - self.now_s) > QUIET_S:
            if self.world.now_s >= self._trouble_s and self._unrest() is None:
                self._skipped_s += left_s - QUIET_S
                break
            if self.world.now_s > self._trouble_s + REST_S:
                raise Violation(f"no rest: {self._unrest()}")
            self.world.run_until(self.world.now_s + min(1.0, left_s))
        self.world.run_until(at_s - self._skipped_s)

    def _rest(self) -> None:
        self._advance_to(self.now_s + max(0.0, self._trouble_s - self.world.now_s) + REST_S + 60)

    def _unrest(self) -> str | None:
        """The reason why the cluster is not at rest; None if it is.

        Raises:
            Violation: it is at rest, and an instance that could be placed is not.
        """
        leader = next((m for m in self.managers.values() if m.process.is_up and m.leads), None)
        if leader is None:
            return "nobody leads"
        for node in self.nodes.values():
            if not node.process.is_up:
                return f"{node.name} is down"
        for worker in self.workers.values():
            if not worker.session.is_warm:
                return f"{worker.name} starts its session"
        snapshot = leader.watch.catch_up().snapshot(leader.now_s)
        cluster = cluster_state_of(snapshot, self.settings)
        if len(cluster.hosts) != len(self.workers):
            return "not every worker is seen"
        actions = reconcile.decide(snapshot, self.settings)
        if any(not isinstance(action, ForgetNode) for action in actions):
            return f"{actions[0]} is to be done"
        if any(app.value.deleting for app in snapshot.apps):
            return "an app is being removed"
        for change in cluster.changes.values():
            # An instance that has to run once more may have no place.
            if not change.left or any(name in cluster.placement.where for name in change.left):
                return f"group {change.form.group} is to have another form"
        for name, where in cluster.placement.where.items():
            assignment = cluster.assignments.get(name)
            running = self.workers[where].session.running.get(name)
            if assignment is None or running is None or running.assignment != assignment:
                return f"{name} does not run on {where}"
        for worker in self.workers.values():
            for name in worker.session.running:
                if cluster.placement.where.get(name) != worker.name:
                    return f"{worker.name} runs {name} still"
        self._check_most(cluster)
        return self._unheld(cluster)

    def _unheld(self, cluster: ClusterState) -> str | None:
        """A worker or instance without its standby; None when all have theirs.

        Raises:
            Violation: a worker is the standby of its own instance, or a possible standby is
                missing.
        """
        seats = Counter(cluster.placement.where.values())
        seats.update(s.worker for s in cluster.standbys.values())
        for name, item in cluster.desired.items():
            active = cluster.placement.where.get(name)
            standby = cluster.standbys.get(name)
            if standby is not None:
                if standby.worker == active:
                    raise Violation(f"{active} stands by for {name}, which it runs")
                if name not in self.workers[standby.worker].holding:
                    return f"{standby.worker} does not hold {name} yet"
            elif item.form.spec.standby and active is not None:
                could = [
                    h.name
                    for h in cluster.hosts
                    if h.admits is Admits.OPEN and h.name != active and item.need.fits(h)
                    and (not h.capacity or seats[h.name] < h.capacity)
                ]  # fmt: skip
                if could:
                    raise Violation(f"nobody stands by for {name}, and {could[0]} could")
        for worker in self.workers.values():
            for name in worker.holding:
                if name not in cluster.standbys or cluster.standbys[name].worker != worker.name:
                    return f"{worker.name} holds {name} still"
        return None

    def _check_most(self, cluster: ClusterState) -> None:
        """Check that as many instances as possible are placed."""
        shut = {host.name for host in cluster.hosts if host.admits is not Admits.OPEN}
        where = cluster.placement.where
        needs = [w.need for name, w in cluster.desired.items() if where.get(name) not in shut]
        placed = sum(1 for worker in where.values() if worker not in shut)
        most = most_placeable(needs, [h for h in cluster.hosts if h.admits is Admits.OPEN])
        if placed != most:
            raise Violation(f"{placed} instances are placed, and {most} could be")

    def _happen(self, event: Event) -> None:
        self._trouble_s = max(self._trouble_s, self.world.now_s)
        match event.kind, event.arguments:
            case "pause", (name, lasts):
                self._pause(name, float(lasts), with_session=True)
            case "pause-agent", (name, lasts):
                self._pause(name, float(lasts), with_session=False)
            case "stall", (name, lasts):
                if self.managers[name].process.is_up:
                    self.managers[name].stall_s = float(lasts)
            case "cut", (name, way, lasts):
                self._cut(name, way, float(lasts))
            case "outage", (lasts,):
                for name in self.nodes:
                    self._cut(name, "both", float(lasts))
            case "lose", (lasts, *spans):
                self._lose(float(lasts), [float(span) for span in spans])
            case "flaky", (name, lasts):
                self.nodes[name].process.link.flaky_s = self._trouble(name, float(lasts))
            case "kill", (name, lasts):
                self._kill(name, float(lasts))
            case "stop", (name, lasts):
                self._stop(name, float(lasts))
            case "crash-session", (name,):
                self._trouble(name, 0.0)
                if self.workers[name].session.is_warm:
                    self.workers[name].session.crash()
            case "fail", (name,):
                self.workers[name].session.fail()
            case "deploy", (name, *groups):
                self._deploy(name, tuple(groups))
            case "undeploy", (name,):
                self._undeploy(name)
            case "reform", (name, *groups):
                self._reform(name, tuple(groups))
            case (("cordon" | "drain" | "uncordon"), (name,)):
                standby = {"cordon": Admission.CORDONED, "drain": Admission.DRAINING}
                order = NodeOrder(name, standby.get(event.kind, Admission.OPEN))
                self._put(names.order_key(name), order)
            case _:
                raise ValueError(f"not an event: {event}")

    def _trouble(self, name: str, lasts_s: float) -> float:
        """Record that ``name`` has trouble, with its end."""
        until_s = self.world.now_s + lasts_s
        self._trouble_s = max(self._trouble_s, until_s)
        current_s = self.invariants.troubled_s.get(name, 0.0)
        self.invariants.troubled_s[name] = max(current_s, until_s)
        return until_s

    def _pause(self, name: str, lasts_s: float, *, with_session: bool) -> None:
        until_s = self._trouble(name, lasts_s)
        self.nodes[name].process.paused_s = until_s
        if with_session and name in self.workers:
            session = self.workers[name].session
            if session.paused_s <= self.world.now_s:
                session.paused_since_s = self.world.now_s
            session.paused_s = until_s

    def _cut(self, name: str, way: str, lasts_s: float) -> None:
        until_s = self._trouble(name, lasts_s)
        node = self.nodes[name]
        link = node.process.link
        if way in ("up", "both"):
            link.up_cut_s = until_s
        if way in ("down", "both"):
            link.down_cut_s = until_s
            if node.process.is_up and hasattr(node, "watch"):
                node.watch.cut(until_s)

    def _lose(self, lasts_s: float, spans_s: list[float]) -> None:
        """NATS is away, and has lost the last writes of its buckets when it is back."""
        for name in self.nodes:
            self._cut(name, "both", lasts_s)
        buckets = (names.CONTROL_BUCKET, names.APPS_BUCKET, names.STATUS_BUCKET)
        for bucket, span_s in zip(buckets, spans_s, strict=True):
            if span_s:
                # No user of the simulator deploys lost apps again.
                is_apps = bucket == names.APPS_BUCKET
                self.store.lose(bucket, min(span_s, HISTORY_S) if is_apps else span_s)
        self.invariants.lose()
        for name in self.nodes:
            self._trouble(name, lasts_s + RECOVERY_S)

    def _kill(self, name: str, again_s: float) -> None:
        node = self.nodes[name]
        if node.process.is_up:
            node.end()
            self.world.at(self._trouble(name, again_s), lambda: self._start_again(node))

    def _stop(self, name: str, again_s: float) -> None:
        worker = self.workers[name]
        self._trouble(name, again_s + self.settings.worker.leave_s)
        if not worker.process.is_up or worker.state is None or worker.is_leaving:
            return
        worker.leave()
        life = worker.process.life

        def start() -> None:
            if worker.process.is_up and worker.process.life == life:
                # A supervisor that restarts it has a time limit.
                worker.end()
            self._start_again(worker)

        self.world.after(again_s + self.settings.worker.leave_s, start)

    def _start_later(self, worker: Worker) -> None:
        """Restart later, as a supervisor of processes does after an error."""
        self.world.at(self._trouble(worker.name, 1.0), lambda: self._start_again(worker))

    def _start_again(self, node: SimulatedNode) -> None:
        if not node.process.is_up:
            node.process.is_up = True
            node.process.paused_s = 0.0
            node.start()

    def _app(self, name: str) -> AppRecord | None:
        stored = self.store.get(names.APPS_BUCKET, names.app_key(name))
        return None if stored is None else stored.value

    def _put(self, key: str, record: AppRecord | NodeOrder) -> None:
        """Write a record as a user of the mesh."""
        self.store.write(Write(names.APPS_BUCKET, key, record, None, 0), "ada")

    def _deploy(self, name: str, groups: tuple[str, ...]) -> None:
        if self._app(name) is None:
            self._deployed += 1
            spec = scenarios.app_spec(name, groups)
            record = AppRecord(spec, f"{name}.{self._deployed}", self._deployed)
            self._put(names.app_key(name), record)

    def _reform(self, name: str, groups: tuple[str, ...]) -> None:
        """Request other numbers or texts for the groups of an app."""
        current = self._app(name)
        if current is not None and not current.deleting:
            changed = tuple(scenarios.reformed(group, groups) for group in current.spec.groups)
            record = replace(current, spec=replace(current.spec, groups=changed))
            self._put(names.app_key(name), record)

    def _undeploy(self, name: str) -> None:
        if (current := self._app(name)) is not None:
            self._put(names.app_key(name), replace(current, deleting=True))

    def _count(self) -> None:
        invariants = self.invariants
        self.tally.simulated_s = self.now_s
        self.tally.played_s = self.world.now_s
        self.tally.counts.update(
            {
                "elections": invariants.elected,
                "placements": invariants.placed,
                "withdrawals": invariants.withdrawn,
                "starts": invariants.opened,
                "standbys": invariants.stood_by,
                "forms": invariants.reformed,
                "writes": self.store.taken,
                "refused writes": self.store.refused,
            }
        )
