"""Decisions of the control plane: scripts for what happens when, properties for what never does."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.control import election, membership, reconcile
from mesh.control.actions import ForgetNode, Place, RemoveApp, Withdraw
from mesh.control.lifecycle import app_status
from mesh.control.placement import place
from mesh.control.snapshot import ClusterSnapshot, Seen
from mesh.model import names
from mesh.model.app import AppSpec, GroupSpec
from mesh.model.cluster import (
    AppRecord,
    Assignment,
    InstanceState,
    InstanceStatus,
    LeaseRecord,
    NodeRecord,
    Role,
)
from mesh.settings import Settings
from tests import case_files

CASES = Path(__file__).parent / "cases" / "control"
SETTINGS = Settings()
TTL_S, MARGIN_S = SETTINGS.worker.ttl_s, SETTINGS.worker.margin_s


def words(line: str) -> dict[str, str]:
    """``now=1 apps=A:g*2`` as a mapping; what has no ``=`` is the command and is left out."""
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


def listed(text: str) -> list[list[str]]:
    """``a:b,c:d`` as lists."""
    return [item.split(":") for item in text.split(",") if item]


def node(name: str, seen_at_s: float, *, ready: bool = True) -> Seen[NodeRecord]:
    record = NodeRecord(name, Role.WORKER, f"{name}-1", "", beat=1, ready=ready)
    return Seen(record, 1, seen_at_s)


def app(name: str, group: str, parallel: int, *, deleting: bool = False) -> Seen[AppRecord]:
    spec = GroupSpec(name, group, parallel, "", (), (), stateful=False)
    record = AppRecord(AppSpec(name, "", (), (spec,)), f"{name}-1", 0, deleting=deleting)
    return Seen(record, 9, 0.0)


def assignment(instance: str, worker: str, epoch: int) -> Seen[Assignment]:
    name, group, index = instance.rsplit("-", 2)
    made = Assignment(instance, name, group, int(index), f"{name}-1", worker, epoch, epoch)
    return Seen(made, 2, 0.0)


def report(instance: str, worker: str, epoch: int, state: str) -> Seen[InstanceStatus]:
    name = instance.rsplit("-", 2)[0]
    error = "boom" if state == "retrying" else None
    made = InstanceStatus(instance, name, worker, epoch, InstanceState(state), 0, error)
    return Seen(made, 3, 0.0)


def snapshot(line: str) -> ClusterSnapshot:
    """The cluster that a script's line tells of."""
    given_words = words(line)
    lease: Seen[LeaseRecord | None] | None = None
    if "lease" in given_words:
        holder, revision = given_words["lease"].split("@")
        lease = Seen(LeaseRecord(holder, 1), int(revision), 0.0)
    apps = []
    for name, groups in listed(given_words.get("apps", "")):
        group, parallel = groups.split("*")
        deleting = name.startswith("-")
        apps.append(app(name.removeprefix("-"), group, int(parallel), deleting=deleting))
    placed = []
    for instance, where in listed(given_words.get("placed", "")):
        worker, epoch = where.split("@")
        placed.append(assignment(instance, worker, int(epoch)))
    reports = []
    for instance, where, state in listed(given_words.get("reports", "")):
        worker, epoch = where.split("@")
        reports.append(report(instance, worker, int(epoch), state))
    return ClusterSnapshot(
        now_s=float(given_words["now"]),
        lease=lease,
        nodes=tuple(
            node(name, float(rest[0]), ready=len(rest) == 1)
            for name, *rest in listed(given_words.get("workers", ""))
        ),
        apps=tuple(apps),
        assignments=tuple(placed),
        statuses=tuple(reports),
    )


def run_election(line: str) -> str:
    given_words = words(line)
    lease: Seen[LeaseRecord | None] | None = None
    if "lease" in given_words:
        holder, at = given_words["lease"].split("@")
        revision, _, term = at.partition("/")
        record = None if holder == "given-up" else LeaseRecord(holder, int(term))
        lease = Seen(record, int(revision), float(given_words["seen"]))
    return repr(election.decide(lease, given_words["me"], float(given_words["now"]), 2.0))


def run_placement(line: str) -> str:
    given_words = words(line)
    target = place(
        given_words["instances"].split(","),
        dict(listed(given_words.get("current", ""))),
        [w for (w,) in listed(given_words.get("ready", ""))],
        [w for (w,) in listed(given_words.get("leaving", ""))],
    )
    return "\n".join(f"{i} {target[i]}" for i in sorted(target)) or "nothing"


def run_reconcile(line: str) -> str:
    shown = []
    for action in reconcile.decide(snapshot(line), SETTINGS):
        match action:
            case Place(made, cause):
                where = f"{made.instance} on {made.worker} epoch {made.epoch}"
                shown.append(f"place {where} fenced by {made.lease_revision}: {cause}")
            case Withdraw(instance, cause):
                shown.append(f"withdraw {instance}: {cause}")
            case ForgetNode(role, name, cause):
                shown.append(f"forget {role} {name}: {cause}")
            case RemoveApp(record, revision, cause):
                shown.append(f"remove {record.spec.name} at {revision}: {cause}")
    return "\n".join(shown) or "nothing"


def run_status(line: str) -> str:
    view = snapshot(line)
    ready = membership.ready_workers(view, TTL_S, MARGIN_S)
    status = app_status(view, view.apps[0].value, len(ready), 1)
    first = f"{status.state}: {status.reason}" if status.reason else status.state.value
    instances = [f"  {i.instance} {i.worker or 'nowhere'} {i.state}" for i in status.instances]
    return "\n".join([first, *instances])


@pytest.mark.parametrize(
    ("name", "run"),
    [
        ("election", run_election),
        ("placement", run_placement),
        ("reconcile", run_reconcile),
        ("status", run_status),
    ],
)
def test_scripts(name: str, run: object, rewrite: bool) -> None:
    assert callable(run)
    case_files.check(CASES / f"{name}.txt", run, rewrite=rewrite)


@given(now_s=st.floats(0, 1e6), ttl_s=st.floats(0.1, 1e3), holder=st.sampled_from("ab"))
def test_a_standing_lease_is_never_taken_from_its_holder(
    now_s: float, ttl_s: float, holder: str
) -> None:
    lease: Seen[LeaseRecord | None] = Seen(LeaseRecord(holder, 1), 3, 0.0)
    rival = "b" if holder == "a" else "a"
    takes_it = isinstance(election.decide(lease, rival, now_s, ttl_s), election.Acquire)
    assert takes_it == (now_s >= ttl_s)


@given(now_s=st.floats(0, 100), seen_at_s=st.floats(0, 100))
def test_who_holds_the_lease_is_never_told_to_stand_by_past_its_end(
    now_s: float, seen_at_s: float
) -> None:
    now_s = max(now_s, seen_at_s)
    lease: Seen[LeaseRecord | None] = Seen(LeaseRecord("me", 1), 3, seen_at_s)
    decision = election.decide(lease, "me", now_s, 2.0)
    if isinstance(decision, election.StandBy):
        assert now_s < decision.until_s < seen_at_s + 2.0


WORKERS = ("w1", "w2", "w3", "w4")
INSTANCES = tuple(names.instance_name("A", "g", i) for i in range(1, 9))


@st.composite
def placements(draw: st.DrawFn) -> tuple[tuple[str, ...], dict[str, str], list[str], list[str]]:
    """Instances, where they are, who is ready and who is gone; nobody is both."""
    instances = INSTANCES[: draw(st.integers(0, len(INSTANCES)))]
    current = {i: draw(st.sampled_from(WORKERS)) for i in instances if draw(st.booleans())}
    ready = sorted(draw(st.sets(st.sampled_from(WORKERS))))
    leaving = sorted(draw(st.sets(st.sampled_from(WORKERS))) - set(ready))
    return instances, current, ready, leaving


@given(placements())
def test_everything_is_placed_and_nothing_on_who_is_gone(
    case: tuple[tuple[str, ...], dict[str, str], list[str], list[str]],
) -> None:
    instances, current, ready, leaving = case
    target = place(instances, current, ready, leaving)
    assert not set(target.values()) & set(leaving)
    assert set(target) <= set(instances)
    if ready:
        assert set(target) == set(instances)


@given(placements())
def test_counts_of_ready_workers_differ_by_one_at_most(
    case: tuple[tuple[str, ...], dict[str, str], list[str], list[str]],
) -> None:
    instances, current, ready, leaving = case
    target = place(instances, current, ready, leaving)
    counts = Counter(worker for worker in target.values() if worker in ready)
    loads = [counts[worker] for worker in ready]
    assert not loads or max(loads) - min(loads) <= 1


@given(placements())
def test_placing_again_moves_nothing(
    case: tuple[tuple[str, ...], dict[str, str], list[str], list[str]],
) -> None:
    instances, current, ready, leaving = case
    target = place(instances, current, ready, leaving)
    assert place(instances, target, ready, leaving) == target


@given(placements())
def test_only_what_exceeds_an_even_share_is_moved_off_a_worker_that_is_there(
    case: tuple[tuple[str, ...], dict[str, str], list[str], list[str]],
) -> None:
    instances, current, ready, leaving = case
    target = place(instances, current, ready, leaving)
    moved = Counter(
        worker for i, worker in current.items() if worker not in leaving and target[i] != worker
    )
    had = Counter(current.values())
    kept = Counter(target.values())
    for worker, count in moved.items():
        assert worker in ready
        assert count == had[worker] - kept[worker]


@given(
    ages_s=st.lists(st.floats(0, 5), min_size=1, max_size=4),
    epochs=st.lists(st.integers(1, 100), min_size=0, max_size=4),
    revision=st.integers(1, 120),
)
def test_epochs_grow_and_only_the_gone_or_the_crowded_lose_an_instance(
    ages_s: list[float], epochs: list[int], revision: int
) -> None:
    workers = tuple(node(f"w{i}", 10.0 - age_s) for i, age_s in enumerate(ages_s))
    placed = tuple(
        assignment(f"A-g-{i}", f"w{i % len(workers)}", epoch) for i, epoch in enumerate(epochs, 1)
    )
    view = ClusterSnapshot(
        now_s=10.0,
        lease=Seen(LeaseRecord("me", 1), revision, 9.5),
        nodes=workers,
        apps=(app("A", "g", 4),),
        assignments=placed,
    )
    before = {a.value.instance: a.value for a in placed}
    grades = membership.workers(view, TTL_S, MARGIN_S)
    made = [a.assignment for a in reconcile.decide(view, SETTINGS) if isinstance(a, Place)]
    assert len({a.instance for a in made}) == len(made)
    for one in made:
        assert grades[one.worker] is membership.Presence.ALIVE
        assert one.lease_revision == revision
        known = before.get(one.instance)
        if known is not None:
            assert one.epoch > known.epoch
            assert grades[known.worker] is not membership.Presence.SUSPECT


def test_the_next_deadline_is_when_a_silent_worker_is_gone() -> None:
    line = "now=10 lease=me@40 workers=w1:10,w2:8.5 apps=A:g*2 placed=A-g-1:w1@5,A-g-2:w2@5"
    view = snapshot(line)
    assert reconcile.decide(view, SETTINGS) == []
    assert 10.0 < reconcile.next_deadline_s(view, SETTINGS) <= 8.5 + TTL_S + MARGIN_S


@pytest.mark.parametrize(
    ("age_s", "incarnation", "taken"),
    [(0.0, "w1-2", True), (2.4, "w1-2", True), (2.6, "w1-2", False), (0.0, "w1-1", False)],
)
def test_a_name_is_taken_while_another_process_beats(
    age_s: float, incarnation: str, taken: bool
) -> None:
    held = node("w1", 10.0 - age_s)
    assert membership.is_taken(held, incarnation, 10.0, TTL_S, MARGIN_S) == taken


def test_an_undeployed_app_does_not_wait_for_a_worker_that_is_gone() -> None:
    view = snapshot("now=10 lease=me@40 workers=w1:10,w2:7 apps=-A:g*1 reports=A-g-1:w2@5:running")
    assert any(isinstance(a, RemoveApp) for a in reconcile.decide(view, SETTINGS))


def test_what_a_gone_worker_had_moves_even_below_the_least_number_of_workers() -> None:
    view = snapshot("now=10 lease=me@40 workers=w1:10 apps=A:g*2 placed=A-g-1:w1@5,A-g-2:w2@5")
    settings = replace(SETTINGS, manager=replace(SETTINGS.manager, min_workers=2))
    assert [a for a in reconcile.decide(view, settings) if isinstance(a, Place)]
