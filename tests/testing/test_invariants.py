"""Faults that are planted in the control plane: each is noticed."""

from __future__ import annotations

import re
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from mesh.control import membership, reconcile
from mesh.control.cluster_state import ClusterState
from mesh.control.manager_state import ManagerState
from mesh.control.snapshot import Records
from tools.simulator import run
from tools.simulator.scenario import draw, read
from tools.simulator.store import Store

if TYPE_CHECKING:
    from tools.simulator.world import Write

#: Stopped between a decision and its writes, a leader wakes up when another one leads.
STALLED = """
    manager m1
    manager m2
    worker w1
    worker w2
    app A g*4
    at 100.0 stall m1 6.0
    at 100.0 stall m2 9.0
    at 101.0 kill w1 1.0
"""


@pytest.mark.thorough
def test_a_view_that_never_goes_back_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def take_all(
        self: Records, bucket: str, found: dict[str, tuple[Any, int]], upto: float, now_s: float
    ) -> None:
        for key, (value, revision) in found.items():
            self.take(bucket, key, value, revision, now_s)

    monkeypatch.setattr(Records, "take_all", take_all)
    _, failure = run.play_many(1, hours=6, life_hours=2, bursts_per_hour=8, loses=True)
    assert failure is not None


@pytest.mark.thorough
def test_epochs_that_are_never_raised_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "_behind", lambda found, snapshot, ttl_s: ())
    _, failure = run.play_many(1, hours=20, life_hours=2, bursts_per_hour=8, loses=True)
    assert failure is not None


def _first_failure(seeds: range) -> run.RunOutcome:
    for seed in seeds:
        outcome = run.play(draw(Random(seed), hours=2, bursts_per_hour=8), seed)
        if outcome.violation is not None:
            return outcome
    raise AssertionError("nothing was noticed")


def test_placing_before_the_old_copy_has_stopped_is_noticed_and_shrunk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ClusterState, "is_over", lambda self, assignment: assignment.stop)
    failure = _first_failure(range(1, 20))
    assert "while" in (failure.violation or "")
    shortest = run.shrink(failure, tries=40)
    assert shortest.violation is not None
    assert len(shortest.scenario.events) <= len(failure.scenario.events)
    assert run.play(read(str(shortest.scenario)), shortest.seed).scenario.workers


def test_a_form_that_begins_too_early_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "mesh.control.cluster_state.instances_to_catch_up", lambda form, new, stops: {}
    )
    failure = _first_failure(range(1, 40))
    assert re.search("have not settled|begins behind", failure.violation or ""), failure.violation


def test_a_leader_that_is_not_fenced_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = Store.write

    def write(self: Store, asked: Write, by: str) -> int | str:
        if asked.key.startswith("assignment."):
            asked = type(asked)(asked.bucket, asked.key, asked.value, None, asked.limit_s)
        return checked(self, asked, by)

    scenario = read(STALLED)
    # A leader's own check of its lease would prevent most late writes, but not all.
    monkeypatch.setattr(ManagerState, "may_write", lambda self, snapshot: True)
    assert run.play(scenario, 1).violation is None
    monkeypatch.setattr(Store, "write", write)
    assert re.search("m[12] wrote .* and m[12] leads", run.play(scenario, 1).violation or "")


def test_workers_given_up_too_early_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    true = membership.heartbeat_status

    def hasty(
        node: object, now_s: float, ttl_s: float, margin_s: float
    ) -> membership.HeartbeatStatus:
        return true(node, now_s, ttl_s / 8, margin_s / 8)  # type: ignore[arg-type]  # a node

    monkeypatch.setattr("mesh.control.placement.heartbeat_status", hasty)
    assert _first_failure(range(1, 20)).violation
