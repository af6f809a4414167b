"""Timers that are due while messages wait: time passes with the messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.spark.shared_query import pacing
from mesh.spark.shared_query.planner import RoundPlanner
from pyspark_nats.source.tail import Tails
from tests.support.shared_query import Hand, Instances, admitted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from mesh.spark.shared_query.members import WorkItem
    from mesh.spark.shared_query.part_position import PartPosition

pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]

COUNT = 600
APP = """@App:name('{name}')
define stream Numbers (n int);
from Numbers#window.time(1 millisec) select n insert expired events into Late;
"""


@pytest.fixture
def hand(tmp_path: Path, nats_server: NatsServer) -> Iterator[Hand]:
    made = Hand(tmp_path, nats_server)
    yield made
    made.end()


@pytest.mark.slow
def test_a_backlog_with_due_timers_is_read_as_it_comes(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[PartPosition] = []
    honest = RoundPlanner._next_of

    def look(self: RoundPlanner, place: PartPosition) -> WorkItem | None:
        looks.append(place)
        return honest(self, place)

    monkeypatch.setattr(RoundPlanner, "_next_of", look)
    monkeypatch.setattr(pacing, "ROWS_MAX", 20)
    hand.rows_first = 20
    app = Instances(hand, "T", app=APP)
    hand.make(app.spec)
    hand.publish("T", *range(COUNT))
    for one in app.by_group.values():
        one.start()
    hand.until_rows("T", "Late", COUNT)
    # Before it follows the stream, and for the last timer.
    assert len(looks) < COUNT / 20 / 2


def test_a_timer_is_due_although_expected_messages_are_gone(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Tails._received

    def received(self: Tails[object], tail: object, found: object) -> None:
        honest(self, tail, found)  # type: ignore[arg-type]
        # As if the stream had been purged after the last message.
        tail.pending = 5  # type: ignore[attr-defined]

    monkeypatch.setattr(Tails, "_received", received)
    app = admitted(hand, Instances(hand, "T", app=APP))
    assert app.statuses
    hand.publish("T", 1)
    hand.until_rows("T", "Late", 1)
