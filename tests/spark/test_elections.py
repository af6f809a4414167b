"""A slot whose servers elect a leader, with a real server and without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mesh.spark.shared_query.members import FAILED
from pyspark_nats.errors import UnavailableError
from pyspark_nats.protocol import jetstream
from pyspark_nats.protocol.connection import DisconnectedError
from pyspark_nats.source import offsets
from tests.support.shared_query import Hand, begun

if TYPE_CHECKING:
    from mesh.spark.shared_query.part_position import PartPosition

pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]


@pytest.fixture
def electing(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names without a leader: ``cluster``, which makes consumers, or JetStream streams."""
    found: set[str] = set()
    honest_create, honest_look = jetstream.create_reader, offsets.StreamWatch.latest_now

    def create(*arguments: Any, **options: Any) -> Any:
        if "cluster" in found:
            raise DisconnectedError("no leader")
        return honest_create(*arguments, **options)

    def latest_now(self: offsets.StreamWatch, start: Any, limits: Any) -> Any:
        if found & set(start):
            raise UnavailableError("no answer from NATS")
        return honest_look(self, start, limits)

    monkeypatch.setattr(jetstream, "create_reader", create)
    monkeypatch.setattr(offsets.StreamWatch, "latest_now", latest_now)
    return found


def places(hand: Hand) -> list[PartPosition]:
    """All parts that are served."""
    return list(hand.serving.planner.all_places())


@pytest.mark.slow
def test_messages_are_read_without_consumers_until_these_can_be_made(
    hand: Hand, electing: set[str]
) -> None:
    electing.add("cluster")
    begun(hand, "A")
    hand.publish("A", 1, 2, 3)
    hand.until_rows("A", "Sums", 3)
    tails = hand.serving.planner.tails
    waiting = [place for place in places(hand) if place in hand.serving.planner.to_follow]
    assert waiting
    assert not any(place in tails for place in places(hand))
    electing.clear()
    while not all(place in tails for place in waiting):
        hand.step(0.1)
    hand.publish("A", 4)
    hand.until_rows("A", "Sums", 4)
    assert hand.rows("A", "Sums") == [[1], [3], [6], [9]]
    # Nothing looks at their streams any more.
    assert not any(place in readers for readers in hand.serving.planner.readers.values()
                   for place in waiting)  # fmt: skip


def test_a_stream_without_a_leader_holds_up_no_other_app(hand: Hand, electing: set[str]) -> None:
    begun(hand, "A")
    begun(hand, "B")
    hand.publish("A", 1)
    hand.until_rows("A", "Sums", 1)
    tails = hand.serving.planner.tails
    mine = [place for place in places(hand) if "mesh-A-Numbers" in place.at]
    electing.add("mesh-A-Numbers")
    for place in mine:
        # As if its consumer were gone.
        tails.forget(place)
    hand.publish("A", 2)
    hand.publish("B", 5)
    hand.until_rows("B", "Sums", 1)
    assert any(place.unanswered_s is not None for place in mine)
    assert hand.rows("A", "Sums") == [[1]]
    electing.clear()
    hand.until_rows("A", "Sums", 2)
    assert all(place.unanswered_s is None for place in mine if place in tails)


def test_a_stream_that_does_not_answer_for_long_fails_its_member(
    hand: Hand, electing: set[str]
) -> None:
    app = begun(hand, "A")
    electing.add("mesh-A-Numbers")
    for place in places(hand):
        hand.serving.planner.tails.forget(place)
    hand.step(0.1)
    for place in places(hand):
        if place.unanswered_s is not None:
            place.unanswered_s -= 60.0
    hand.until(FAILED, "sums")
    assert "no answer from a stream" in str(app.statuses["sums"].error)
