"""Errors of one carried instance don't affect others, with a real server and without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mesh.errors import MeshError
from mesh.model.cluster import InstanceState
from mesh.spark.shared_query import pacing, task
from mesh.spark.shared_query.work import ADMITTED, FAILED, UNANSWERED, WORK, WorkItem
from pyspark_nats.errors import UnavailableError
from pyspark_nats.source import offsets
from pyspark_nats.source.tail import Tails
from tests.support.shared_query import HandClock, Instances, OwnQuery, begun

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer
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
        one.tick(one._clock.monotonic_s())
    hand.until(WORK, "sums")
    assert hand.rows("Bad", "Sums") == [[1]]


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


def test_only_who_is_at_work_is_known_as_that(hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(hand, "A")
    hand.publish("A", 1, 2)
    honest, seen = task.run, []

    def run(item: WorkItem, **given: Any) -> task.PartRun:
        work = hand.at_work.look()
        assert work is not None
        seen.append((work.instance, item.member.name))
        return honest(item, **given)

    monkeypatch.setattr(task, "run", run)
    # Each of the three streams may bring its messages in a round of its own.
    while len(seen) < 3:
        hand.step()
    assert [known for known, _ in seen] == [name for _, name in seen]
    assert hand.at_work.look() is None


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
    (at,) = app.by_group["sums"]._snapshots.starts()[0].values()
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


def test_a_task_asks_for_the_server_before_it_blames_a_stream(
    hand: Hand,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = begun(hand, "A")

    def unanswered(*_: object, **__: object) -> task.PartRun:
        raise UnavailableError("no answer from NATS within 10 s: publishing")

    monkeypatch.setattr(task, "run", unanswered)
    hand.publish("A", 1)
    while {status.state for status in app.statuses.values()} != {InstanceState.RETRYING}:
        hand.step(0.2)
    assert all(str(status.error).startswith(UNANSWERED) for status in app.statuses.values())


def test_a_task_whose_server_is_gone_blames_nobody(
    hand: Hand,
    monkeypatch: pytest.MonkeyPatch,
    nats_server: NatsServer,
) -> None:
    begun(hand, "A")
    hand.publish("A", 1)
    monkeypatch.setattr(task, "_SERVER_S", 0.1)

    def unanswered(*_: object, **__: object) -> task.PartRun:
        nats_server.stop()
        raise UnavailableError("no answer from NATS within 10 s: publishing")

    monkeypatch.setattr(task, "run", unanswered)
    with pytest.raises(UnavailableError):
        hand.serving.round(5)
    assert hand.told == []
