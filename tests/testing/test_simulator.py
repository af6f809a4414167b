"""The control plane under simulated faults, and errors that the simulator has to detect."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from mesh.control.election import ManagerCandidate
from tools.simulator import run
from tools.simulator.scenario import read

if TYPE_CHECKING:
    from pathlib import Path


#: Scenarios that once failed.
FOUND = {
    # A leader with a broken watch mistook its own isolation for the death of workers.
    "deaf leader": """
        manager m1
        manager m2
        worker w1
        worker w2
        worker w3
        app A g*3 h*2
        at 100.0 cut m1 down 0.7
        at 160.0 cut m2 down 0.7
        at 220.0 cut m1 down 0.9
        at 280.0 cut m2 down 0.9
        at 340.0 cut m1 down 0.8
        at 400.0 cut m2 down 0.8
    """,
    # A leader stopped for long performed its earlier decision, as there was no other leader.
    "stale decision": """
        manager m1
        worker w1
        worker w2
        app A g*2 h*2
        at 100.0 stall m1 20.0
        at 100.1 cut w1 up 5.0
        at 200.0 stall m1 20.0
        at 200.1 cut w2 up 5.0
    """,
    # The last heartbeat of a killed worker arrived after its successor had claimed the name.
    "late heartbeat": """
        manager m1
        worker w1 capacity=3
        app A g*3 h*2
        at 100.0 kill w1 2.7
        at 164.8 outage 10.1
        at 170.6 kill w1 1.4
    """,
    # An instance with a final position was stopped at it, as its worker's term was over, and begun
    # once more in the same epoch, when the leader had counted the report as its end.
    "second run": """
        manager m1
        worker w1 capacity=4
        worker w2 capacity=4
        app A g*3&/1
        app B g*3
        at 100.0 reform A g*2&/1
        at 101.0 deploy C g*3
        at 102.0 outage 1.0
    """,
    # An instance that had to share its state was withdrawn from a worker that ended, and counted as
    # failed.
    "not at fault": """
        manager m1
        worker w1
        worker w2
        app C g*1%/1
        app D g*2
        at 100.0 crash-session w1
        at 100.3 reform C g*1%/2
        at 100.4 stop w1 0.2
    """,
    # An instance of an earlier revision, whose process had ended, kept its seat; others had taken
    # it, and the worker was full for good.
    "seat taken twice": """
        manager m1
        worker w1 capacity=3 labels=gpu,big
        app A g*3&/2+big h*1&/1+big
        at 1105.8 lose 0.9 5 60 0
        at 1937.6 lose 1.0 0.5 0.5 5
        at 1974.2 deploy A g*3%~/2 h*1!~+big
        at 3081.5 cut w1 up 30.0
        at 5685.8 deploy C g*2/1 h*1&/2
        at 10207.2 reform A g*1%/2 h*1/1
        at 10208.1 reform C g*1%~/2+gpu h*1&/2+gpu
        at 10288.0 kill w1 0.2
        at 10288.1 lose 20.1 60 5 60
    """,
}
#: Two processes with one id led both, and both acted.
TWINS = """
    manager m1
    manager m1+
    worker w1
    worker w2
    app A g*3 h*2
    at 60.0 deploy B g*2
    at 80.0 pause m1 0.5
    at 100.0 kill w1 2.0
    at 140.0 kill m1 3.0
    at 180.0 stall m1+ 4.0
    at 180.1 cut w2 up 5.0
    at 240.0 outage 4.0
"""
#: The seeds with which they did.
FAILED_WITH = {
    "deaf leader": (20,),
    "stale decision": (0, 5, 6),
    "late heartbeat": range(5),
    "second run": range(12),
    "not at fault": (6, 54, 56, 57),
    "seat taken twice": (9003,),
}


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_invariants_hold_under_faults(seed: int) -> None:
    total, failure = run.play_many(seed * 1000, hours=8, life_hours=2, bursts_per_hour=8)
    assert failure is None, f"{failure.violation}\n{run.shrink(failure).scenario}"
    assert total.simulated_s == pytest.approx(8 * 3600, rel=0.1)
    assert total.counts["withdrawals"]
    assert total.counts["forms"]
    assert total.counts["refused writes"]
    assert total.events["fail"]


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2])
def test_the_cluster_comes_to_rest_after_nats_has_lost_writes(seed: int) -> None:
    total, failure = run.play_many(
        seed * 1000, hours=6, life_hours=2, bursts_per_hour=8, loses=True
    )
    assert failure is None, f"{failure.violation}\n{run.shrink(failure).scenario}"
    assert total.events["lose"]


@pytest.mark.parametrize("name", FOUND)
def test_what_once_failed_holds(name: str) -> None:
    scenario = read(FOUND[name])
    for seed in FAILED_WITH[name]:
        assert run.play(scenario, seed).violation is None


@pytest.mark.slow
def test_two_processes_with_one_id_do_not_lead_together(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(4):
        assert run.play(read(TWINS), seed).violation is None
    monkeypatch.setattr(ManagerCandidate, "has", lambda self, lease: self.id == lease.holder)
    assert re.search("took a standing lease|leads", run.play(read(TWINS), 0).violation or "")


@pytest.mark.slow
def test_the_command_plays_and_tells(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tools.simulator", "--seed", "5"]
    said = subprocess.run([*command, "--hours", "1"], capture_output=True, text=True)
    assert said.returncode == 0, said.stdout + said.stderr
    assert "1 simulated hours" in said.stdout
    scenario = tmp_path / "scenario"
    scenario.write_text(FOUND["deaf leader"])
    said = subprocess.run([*command, "--scenario", str(scenario)], capture_output=True, text=True)
    assert said.returncode == 0, said.stdout + said.stderr
