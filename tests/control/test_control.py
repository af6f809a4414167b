"""Decisions of the control plane: scripts of events, and invariants as properties."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.control import election, membership, reconcile, standby, worker_reconcile
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
from mesh.control.cluster_state import cluster_state_of
from mesh.control.journal import JournalEntry, story
from mesh.control.lifecycle import app_status
from mesh.control.membership import HeartbeatStatus, heartbeat_status
from mesh.control.placement import place
from mesh.control.retries import Retries
from mesh.control.snapshot import ClusterSnapshot, Revisioned
from mesh.model.cluster import InstanceState, InstanceStatus, LeaseRecord
from tests.support import case_files, paths
from tests.support.cluster_lines import (
    MARGIN_S,
    SETTINGS,
    TTL_S,
    app,
    assignment,
    hosts,
    listed,
    need,
    node,
    snapshot,
    stands_by,
    words,
)

CASES = paths.CASES / "control"


def _candidate(name: str) -> election.ManagerCandidate:
    """``a2`` is process 2 of manager ``a``."""
    return election.ManagerCandidate(name[0], name[1:])


def run_election(line: str) -> str:
    given_words = words(line)
    lease: Revisioned[LeaseRecord | None] | None = None
    if "lease" in given_words:
        holder, at = given_words["lease"].split("@")
        revision, _, term = at.partition("/")
        record = None if holder == "given-up" else LeaseRecord(holder[0], int(term), holder[1:])
        lease = Revisioned(record, int(revision), float(given_words["seen"]))
    return repr(
        election.decide(lease, _candidate(given_words["me"]), float(given_words["now"]), 2.0)
    )


def run_placement(line: str) -> str:
    given_words = words(line)
    found = place(
        [need(text) for text in given_words["needs"].split(",")],
        dict(listed(given_words.get("current", ""))),
        hosts(given_words.get("hosts", "")),
        dict(listed(given_words.get("standbys", ""))),
    )
    shown = {name: f"{name} {worker}" for name, worker in found.where.items()}
    for name, why in found.moved.items():
        shown[name] += f", moved: {why}"
    for name, waiting in found.waiting.items():
        shown[name] = f"{name} waits: {waiting.reason}.  {waiting.cure}"
    for name, waiting in found.stuck.items():
        shown[name] += f", stuck: {waiting.reason}.  {waiting.cure}"
    return "\n".join(shown[name] for name in sorted(shown))


def run_reconcile(line: str) -> str:
    shown = []
    for action in reconcile.decide(snapshot(line), SETTINGS):
        match action:
            case PlaceInstance(made, cause):
                where = f"{made.instance} on {made.worker} epoch {made.epoch}"
                where += f" up to {dict(made.until)}" if made.until is not None else ""
                shown.append(f"place {where} fenced by {made.lease_revision}: {cause}")
            case Withdraw(made, cause):
                target = f" for {made.next_worker}" if made.next_worker else ""
                where = f"{made.instance} from {made.worker}{target} epoch {made.epoch}"
                where += f" up to {dict(made.until)}" if made.until is not None else ""
                shown.append(f"withdraw {where}: {cause}")
            case WriteGroupForm(made_form, cause):
                begins = f" behind {dict(made_form.start)}" if made_form.start else ""
                which = f"{made_form.app}-{made_form.group}*{made_form.spec.parallel}{begins}"
                shown.append(f"shape {which} as {made_form.number} from {made_form.epoch}: {cause}")
            case DropForm(name, dropped, cause):
                shown.append(f"drop form {name}-{dropped}: {cause}")
            case Discard(instance, cause, _):
                shown.append(f"discard {instance}: {cause}")
            case AssignStandby(told, cause):
                shown.append(f"standby {told.worker} for {told.instance}: {cause}")
            case RemoveStandby(instance, cause, _):
                shown.append(f"dismiss {instance}: {cause}")
            case ForgetNode(role, name, cause):
                shown.append(f"forget {role} {name}: {cause}")
            case RemoveApp(record, revision, cause):
                shown.append(f"remove {record.spec.name} at {revision}: {cause}")
            case Retire(record, revision, cause):
                assert record.retired is not None
                what = ", ".join(record.retired.groups)
                shown.append(f"retire {what} of {record.spec.name} at {revision}: {cause}")
    return "\n".join(shown) or "nothing"


def run_duties(line: str) -> str:
    given_words = words(line)
    running = {
        instance: assignment(instance, where).value
        for instance, where in listed(given_words.get("running", ""))
    }
    stopping = set(filter(None, given_words.get("stopping", "").split(",")))
    may_start = given_words.get("start", "yes") == "yes"
    shown = []
    me = given_words.get("me", "w1-1")
    for duty in worker_reconcile.decide(
        snapshot(line), "w1", me, running, stopping, may_start=may_start, at_ms=0
    ):
        match duty:
            case worker_reconcile.Start(made, _):
                shown.append(f"start {made.instance} epoch {made.epoch}")
            case worker_reconcile.Stop(made, settle):
                how = "" if settle else " at once"
                shown.append(f"stop {made.instance} epoch {made.epoch}{how}")
            case worker_reconcile.ReportStatus(status):
                settled = f", settled at {dict(status.position)}" if status.settled else ""
                told = f"tell {status.instance} epoch {status.epoch} {status.state}{settled}"
                shown.append(told)
    holding = {i: stands_by(i, *rest).value for i, *rest in listed(given_words.get("holding", ""))}
    for one in standby.duties(snapshot(line), "w1", me, holding, may_start=may_start):
        match one:
            case standby.Hold(record, _):
                shown.append(f"hold {record.instance}")
            case standby.Release(instance):
                shown.append(f"release {instance}")
    return "\n".join(shown) or "nothing"


def run_status(line: str) -> str:
    view = snapshot(line)
    status = app_status(cluster_state_of(view, SETTINGS), view.apps[0].value)
    first = f"{status.state}: {status.reason}" if status.reason else status.state.value
    first += f".  {status.cure}" if status.cure else ""
    instances = [
        f"  {i.instance} {i.worker or 'nowhere'} {i.state}"
        + (f", {i.reason}" if i.reason else "")
        + (f"; {i.standby} holds {i.standby_snapshots}, {i.standby_bytes} B" if i.standby else "")
        + (f"; no standby: {i.standby_reason}" if i.standby_reason else "")
        for i in status.instances
    ]
    return "\n".join([first, *instances])


def run_retries(line: str) -> str:
    """``fails@2``: fails at 2 s, for another reason than ``waited``; ``runs@3``."""
    options, _, events = line.partition(" | ")
    given_words = words(options)
    found = Retries(float(given_words["first"]), float(given_words["most"]))
    shown = []
    for event in events.split():
        what, _, at = event.partition("@")
        if what == "runs":
            found = found.running(float(at))
        else:
            found = found.failed(float(at), has_waited=what == "waited")
            shown.append(f"{event} rests {found.rest_s:g} s")
    return "\n".join(shown)


@pytest.mark.parametrize(
    ("name", "run"),
    [
        ("election", run_election),
        ("placement", run_placement),
        ("reconcile", run_reconcile),
        ("moves", run_reconcile),
        ("standbys", run_reconcile),
        ("forms", run_reconcile),
        ("duties", run_duties),
        ("status", run_status),
        ("retries", run_retries),
    ],
)
def test_scripts(name: str, run: object, rewrite: bool) -> None:
    assert callable(run)
    case_files.check(CASES / f"{name}.txt", run, rewrite=rewrite)


@given(
    first_s=st.floats(0, 100),
    most_s=st.floats(0, 1e4),
    times=st.lists(st.tuples(st.booleans(), st.floats(0, 1e5)), max_size=60),
)
def test_a_rest_is_never_shorter_than_the_first_nor_longer_than_its_bound(
    first_s: float, most_s: float, times: list[tuple[bool, float]]
) -> None:
    found, now_s = Retries(first_s, most_s), 0.0
    for fails, later_s in times:
        now_s += later_s
        found = found.failed(now_s) if fails else found.running(now_s)
        assert first_s <= found.rest_s <= max(first_s, most_s)


@given(now_s=st.floats(0, 1e6), ttl_s=st.floats(0.1, 1e3), holder=st.sampled_from("ab"))
def test_a_standing_lease_is_never_taken_from_its_holder(
    now_s: float, ttl_s: float, holder: str
) -> None:
    lease: Revisioned[LeaseRecord | None] = Revisioned(LeaseRecord(holder, 1), 3, 0.0)
    rival = _candidate("b" if holder == "a" else "a")
    takes_it = isinstance(election.decide(lease, rival, now_s, ttl_s), election.Acquire)
    assert takes_it == (now_s >= ttl_s)


@given(now_s=st.floats(0, 100), seen_at_s=st.floats(0, 100))
def test_who_holds_the_lease_is_never_told_to_stand_by_past_its_end(
    now_s: float, seen_at_s: float
) -> None:
    now_s = max(now_s, seen_at_s)
    lease: Revisioned[LeaseRecord | None] = Revisioned(LeaseRecord("a", 1), 3, seen_at_s)
    decision = election.decide(lease, _candidate("a"), now_s, 2.0)
    if isinstance(decision, election.StandBy):
        assert now_s < decision.until_s < seen_at_s + 2.0


@given(
    ages_s=st.lists(st.floats(0, 5), min_size=1, max_size=4),
    epochs=st.lists(st.integers(1, 100), min_size=0, max_size=4),
    stopped=st.sets(st.integers(1, 4)),
    revision=st.integers(1, 120),
)
def test_epochs_grow_and_nothing_is_placed_twice(
    ages_s: list[float], epochs: list[int], stopped: set[int], revision: int
) -> None:
    workers = tuple(node(f"w{i}", 10.0 - age_s) for i, age_s in enumerate(ages_s))
    placed = tuple(
        assignment(f"A-g-{i}", f"w{i % len(workers)}@{epoch}{'>' if i in stopped else ''}")
        for i, epoch in enumerate(epochs, 1)
    )
    view = ClusterSnapshot(
        now_s=10.0,
        lease=Revisioned(LeaseRecord("me", 1), revision, 9.5),
        nodes=workers,
        apps=(app("A", "g*4"),),
        assignments=placed,
    )
    before = {a.value.instance: a.value for a in placed}
    grades = {w.value.id: heartbeat_status(w, 10.0, TTL_S, MARGIN_S) for w in workers}
    made = [a for a in reconcile.decide(view, SETTINGS) if isinstance(a, PlaceInstance | Withdraw)]
    assert len({a.assignment.instance for a in made}) == len(made)
    for action in made:
        one = action.assignment
        known = before.get(one.instance)
        assert one.lease_revision == revision
        assert known is None or one.epoch > known.epoch
        if isinstance(action, PlaceInstance):
            assert grades[one.worker] is HeartbeatStatus.ALIVE
            # Nobody has said that it stopped, so only who is gone has lost it.
            assert known is None or grades[known.worker] is HeartbeatStatus.GONE


@given(
    ages_s=st.lists(st.floats(0, 70), min_size=1, max_size=3),
    options=st.lists(st.sampled_from(["", "starting", "cold", "leaving"]), min_size=3, max_size=3),
    placed=st.lists(st.floats(0, 40), min_size=0, max_size=4),
    reports=st.lists(st.tuples(st.integers(4, 6), st.floats(0, 5)), min_size=4, max_size=4),
    later_s=st.floats(0.001, 40),
)
def test_a_decision_stays_the_same_until_a_deadline(
    ages_s: list[float],
    options: list[str],
    placed: list[float],
    reports: list[tuple[int, float]],
    later_s: float,
) -> None:
    names = [f"A-g-{i}" for i in range(1, len(placed) + 1)]
    view = ClusterSnapshot(
        now_s=100.0,
        lease=Revisioned(LeaseRecord("me", 1), 50, 99.5),
        nodes=tuple(node(f"w{i}", 100.0 - a, options[i]) for i, a in enumerate(ages_s)),
        apps=(app("A", "g*4"),),
        assignments=tuple(
            assignment(name, f"w{i % len(ages_s)}@5", 100.0 - placed[i])
            for i, name in enumerate(names)
        ),
        statuses=tuple(
            Revisioned(
                InstanceStatus(name, "A", f"w{i % len(ages_s)}", epoch, InstanceState.RUNNING, 1),
                7,
                100.0 - age_s,
            )
            for i, (name, (epoch, age_s)) in enumerate(zip(names, reports, strict=False))
        ),
    )
    later = replace(view, now_s=view.now_s + later_s)
    if not reconcile.has_deadline_since(later, SETTINGS, view.now_s):
        assert reconcile.decide(later, SETTINGS) == reconcile.decide(view, SETTINGS)


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
    assert membership.is_id_in_use(held, incarnation, 10.0, TTL_S, MARGIN_S) == taken


def test_an_undeployed_app_does_not_wait_for_a_worker_that_is_gone() -> None:
    view = snapshot("now=10 lease=me@40 workers=w1:10,w2:7 apps=-A:g*1 placed=A-g-1:w2@5>")
    assert any(isinstance(a, Discard) for a in reconcile.decide(view, SETTINGS))


def test_a_story_has_what_the_cluster_did_beside_the_app() -> None:
    told = [
        JournalEntry("leads", by="manager m1", at_ms=1),
        JournalEntry("deployed app A", by="user ada", at_ms=2, app="A"),
        JournalEntry("deployed app B", by="user ada", at_ms=3, app="B"),
        JournalEntry("is ready", by="worker w9", at_ms=4, worker="w9"),
        JournalEntry("placed A-g-1 on w1", by="manager m1", at_ms=5, app="A", worker="w1"),
        JournalEntry("leads", by="manager m2", at_ms=8),
        # Noted while it was cut off, and stored late.
        JournalEntry("stops A-g-1", by="worker w1", at_ms=7, worker="w1"),
    ]
    found = [f"{entry.at_ms} {entry.text}" for entry in story(told, "A")]
    assert found == ["2 deployed app A", "5 placed A-g-1 on w1", "7 stops A-g-1", "8 leads"]
    assert story(told, "C") == []


def test_what_a_gone_worker_had_moves_even_below_the_least_number_of_workers() -> None:
    view = snapshot("now=10 lease=me@40 workers=w1:10 apps=A:g*2 placed=A-g-1:w1@5,A-g-2:w2@5")
    settings = replace(SETTINGS, manager=replace(SETTINGS.manager, min_workers=2))
    assert [a for a in reconcile.decide(view, settings) if isinstance(a, PlaceInstance)]


def test_new_sources_wait_for_enough_workers_that_take_them() -> None:
    settings = replace(SETTINGS, manager=replace(SETTINGS.manager, min_receivers=2))
    view = snapshot("now=10 lease=me@40 workers=w1:10,w2:10:queries apps=A:r!:g")
    found = cluster_state_of(view, settings)
    assert found.placement.waiting["A-r-1"].reason == "1 of at least 2 receivers ready"
    assert list(found.placement.where) == ["A-g-1"]
    both = snapshot("now=10 lease=me@40 workers=w1:10,w2:10 apps=A:r!:g")
    assert set(cluster_state_of(both, settings).placement.where) == {"A-r-1", "A-g-1"}
    # One that ran already moves to what is left.
    ran = snapshot("now=10 lease=me@40 workers=w1:10 apps=A:r! placed=A-r-1:w2@5")
    assert cluster_state_of(ran, settings).placement.where == {"A-r-1": "w1"}
