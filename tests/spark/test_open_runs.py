"""Small runs of several parts: all output is sent before the first ack is waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.model.cluster import InstanceState
from mesh.spark.shared_query import serving, task
from pyspark_nats.errors import DivergedError
from tests.support.shared_query import Hand, Instances, admitted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from mesh.spark.shared_query.background import BackgroundPublisher
    from mesh.spark.shared_query.work import WorkItem

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]

APP = """@App:name('{name}')
define stream Numbers (n int);
from Numbers#window.length(5) select sum(n) as total insert into Sums;
"""
NAMES = ("A", "B", "C", "D")


@pytest.fixture
def hand(tmp_path: Path, nats_server: NatsServer) -> Iterator[Hand]:
    made = Hand(tmp_path, nats_server)
    yield made
    made.end()


def begun(hand: Hand) -> dict[str, Instances]:
    return {name: admitted(hand, Instances(hand, name, app=APP)) for name in NAMES}


def until_all_came(hand: Hand) -> None:
    """Publish one event to each app, and wait until all of them are here."""
    for name in NAMES:
        hand.publish(name, 1)
    tails = hand.serving._planner._tails
    while len(tails.ready()) < len(NAMES):
        assert not tails.receive()


@pytest.mark.parametrize("most", [8, 2])
def test_runs_of_a_round_overlap(hand: Hand, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    steps: list[str] = []
    run, finish = task.run, task.PartRun.finish

    def running(item: WorkItem, background: BackgroundPublisher | None = None) -> task.PartRun:
        steps.append("run")
        return run(item, background)

    def finishing(self: task.PartRun) -> task.PartRun:
        steps.append("finish")
        return finish(self)

    begun(hand)
    until_all_came(hand)
    monkeypatch.setattr(serving, "OPEN_MAX", most)
    monkeypatch.setattr(task, "run", running)
    monkeypatch.setattr(task.PartRun, "finish", finishing)
    hand.step()
    turn = ["run"] * min(most, len(NAMES)) + ["finish"] * min(most, len(NAMES))
    assert steps == turn * (len(NAMES) * 2 // len(turn))
    assert {name: hand.rows(name, "Sums") for name in NAMES} == {name: [[1]] for name in NAMES}


def test_one_whose_output_is_refused_fails_alone(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    apps = begun(hand)
    until_all_came(hand)
    finish = task.PartRun.finish
    refused: list[task.PartRun] = []

    def finishing(self: task.PartRun) -> task.PartRun:
        # The second of the four whose output is sent.
        if not refused and self.publisher is not None and "B" in str(self.publisher.pairs):
            refused.append(self)
            raise DivergedError("planted")
        return finish(self)

    monkeypatch.setattr(task.PartRun, "finish", finishing)
    hand.step()
    states = {name: {s.state for s in app.statuses.values()} for name, app in apps.items()}
    assert states.pop("B") == {InstanceState.RETRYING}
    assert states == {name: {InstanceState.RUNNING} for name in "ACD"}
    # It goes back to its last position, and what was published already is not published again.
    while {s.state for s in apps["B"].statuses.values()} != {InstanceState.RUNNING}:
        for one in apps["B"].by_group.values():
            one.tick(one._clock.monotonic_s())
        hand.step(0.2)
    for name in NAMES:
        hand.publish(name, 2)
        hand.until_rows(name, "Sums", 2)
        assert hand.rows(name, "Sums") == [[1], [3]]
