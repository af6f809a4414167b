"""Errors of one carried instance don't affect others, with a real server and without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mesh.errors import MeshError
from mesh.model.cluster import InstanceState
from mesh.spark.shared_query import pacing
from mesh.spark.shared_query.members import ADMITTED, FAILED, WORK
from pyspark_nats.errors import UnavailableError
from pyspark_nats.source import offsets
from pyspark_nats.source.tail import Tails
from tests.support.shared_query import HandClock, Instances, OwnQuery, begun

if TYPE_CHECKING:
    from tests.support.shared_query import Hand

pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> dict[str, Exception]:
    """Errors that reading a stream raises, by its name; add entries to cause them."""
    wrong: dict[str, Exception] = {}
    honest, honest_take = offsets.StreamWatch.latest_now, Tails.take

    def latest_now(watch: offsets.StreamWatch, start: Any, limits: Any) -> Any:
        for stream in start:
            if stream in wrong:
                raise wrong[stream]
        return honest(watch, start, limits)

    def take(tails: Tails[Any], key: Any, at: int, most: int) -> Any:
        for stream in key.at:
            if stream in wrong:
                raise wrong[stream]
        return honest_take(tails, key, at, most)

    monkeypatch.setattr(offsets.StreamWatch, "latest_now", latest_now)
    monkeypatch.setattr(Tails, "take", take)
    return wrong


def test_what_goes_wrong_in_the_planner_is_told_of_one(
    hand: Hand,
    broken: dict[str, Exception],
) -> None:
    bad, good = begun(hand, "Bad"), begun(hand, "Good")
    broken["mesh-Bad-Numbers"] = KeyError("what nobody thought of")
    hand.publish("Bad", 1)
    hand.publish("Good", 2)
    hand.until_rows("Good", "Sums", 1)
    while {status.state for status in bad.statuses.values()} != {InstanceState.RETRYING}:
        hand.step(0.2)
    assert all("KeyError" in str(status.error) for status in bad.statuses.values())
    assert {status.state for status in good.statuses.values()} == {InstanceState.RUNNING}
    assert hand.rows("Good", "Sums") == [[2]]
    broken.clear()
    for one in bad.by_group.values():
        one.tick(one.context.clock.monotonic_s())
    hand.until(WORK, "sums")
    assert hand.rows("Bad", "Sums") == [[1]]


@pytest.mark.slow
def test_one_whose_stream_does_not_answer_is_set_apart_at_the_second_time(
    hand: Hand,
    broken: dict[str, Exception],
    own_queries: list[OwnQuery],
) -> None:
    clock = HandClock()
    bad, good = begun(hand, "Bad", clock), begun(hand, "Good")
    broken["mesh-Bad-Numbers"] = UnavailableError("no answer from NATS within 5 s")
    hand.publish("Bad", 1)
    hand.publish("Good", 2)
    for _ in range(2):
        assert not own_queries
        hand.until(FAILED, "sums")
        assert bad.told("sums") is InstanceState.RETRYING
        clock.now_s += 10
        for one in bad.by_group.values():
            one.tick(clock.now_s)
    hand.publish("Good", 2)
    hand.until_rows("Good", "Sums", 2)
    while not own_queries:
        hand.step(0.2)
    assert {own.io.assignment.app for own in own_queries} == {"Bad"}
    assert good.told("sums") is InstanceState.RUNNING
    assert hand.rows("Good", "Sums") == [[2], [4]]


def test_a_slow_part_gets_less_the_next_time(
    hand: Hand,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = begun(hand, "A")
    monkeypatch.setattr(pacing, "FAIR_MS", 0.0001)
    monkeypatch.setattr(pacing, "ROWS_MIN", 2)
    hand.publish("A", 1, 2, 3)
    hand.until(WORK, "sums")
    hand.publish("A", *range(4, 11))
    hand.until(WORK, "sums")
    (at,) = app.by_group["sums"].snapshots.starts()[0].values()
    assert at["mesh-A-Numbers"]["sequence"] == 5
    monkeypatch.setattr(pacing, "FAIR_MS", 1000.0)
    while len(hand.rows("A", "Sums")) < 10:
        hand.until(WORK, "sums")


def test_one_whose_state_can_not_be_restored_is_told_of_alone(hand: Hand) -> None:
    good = begun(hand, "Good")
    bad = Instances(hand, "Bad")
    hand.make(bad.spec)
    bad.stores["sums"].restore = refuse  # type: ignore[method-assign]
    for one in bad.by_group.values():
        one.start()
    hand.until(ADMITTED, "large")
    hand.publish("Good", 2)
    hand.until(WORK, "sums")
    assert bad.told("sums") is InstanceState.RETRYING
    assert "MESH-S101" in str(bad.statuses["sums"].error)
    assert bad.told("large") is InstanceState.RUNNING
    assert {status.state for status in good.statuses.values()} == {InstanceState.RUNNING}


def refuse(part: str, piece_path: object) -> bytes | None:
    raise MeshError("MESH-S101", f"snapshot of {part} has format 9, this version reads 2")
