"""Decisions of a leader about one view of the cluster: invariants, and their deadlines."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mesh.control import reconcile
from mesh.control.actions import Discard, PlaceInstance, Withdraw
from mesh.control.manager_state import ROUNDING_S
from mesh.control.membership import HeartbeatStatus, heartbeat_status
from mesh.control.snapshot import ClusterSnapshot, Revisioned
from mesh.model.cluster import InstanceState, InstanceStatus, LeaseRecord
from tests.support.cluster_lines import MARGIN_S, SETTINGS, TTL_S, app, assignment, node, snapshot


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
    if later.now_s < reconcile.next_deadline_s(view, SETTINGS, view.now_s - ROUNDING_S):
        assert reconcile.decide(later, SETTINGS) == reconcile.decide(view, SETTINGS)


def test_the_next_deadline_is_when_a_silent_worker_is_gone() -> None:
    line = "now=10 lease=me@40 workers=w1:10,w2:8.5 apps=A:g*2 placed=A-g-1:w1@5,A-g-2:w2@5"
    view = snapshot(line)
    assert reconcile.decide(view, SETTINGS) == []
    assert 10.0 < reconcile.next_deadline_s(view, SETTINGS, view.now_s) <= 8.5 + TTL_S + MARGIN_S


def test_a_placement_is_a_deadline_only_until_its_instance_runs() -> None:
    view = ClusterSnapshot(now_s=10.0, assignments=(assignment("A-g-1", "w1@5", 8.0),))

    def with_report(state: InstanceState, epoch: int) -> ClusterSnapshot:
        status = InstanceStatus("A-g-1", "A", "w1", epoch, state, 1)
        return replace(view, statuses=(Revisioned(status, 7, 9.0),))

    def next_s(view: ClusterSnapshot) -> float:
        return reconcile.next_deadline_s(view, SETTINGS, 10.0)

    assert next_s(view) == 8.0 + reconcile.MOVE_S
    assert next_s(with_report(InstanceState.STARTING, 5)) == 8.0 + reconcile.MOVE_S
    assert next_s(with_report(InstanceState.RUNNING, 4)) == 8.0 + reconcile.MOVE_S
    assert next_s(with_report(InstanceState.RUNNING, 5)) == float("inf")


def test_an_undeployed_app_does_not_wait_for_a_worker_that_is_gone() -> None:
    view = snapshot("now=10 lease=me@40 workers=w1:10,w2:7 apps=-A:g*1 placed=A-g-1:w2@5>")
    assert any(isinstance(a, Discard) for a in reconcile.decide(view, SETTINGS))


def test_what_a_gone_worker_had_moves_even_below_the_least_number_of_workers() -> None:
    view = snapshot("now=10 lease=me@40 workers=w1:10 apps=A:g*2 placed=A-g-1:w1@5,A-g-2:w2@5")
    settings = replace(SETTINGS, manager=replace(SETTINGS.manager, min_workers=2))
    assert [a for a in reconcile.decide(view, settings) if isinstance(a, PlaceInstance)]
