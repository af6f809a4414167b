"""Waits of a slot: signs of life of idle consumers do not end them, and a command does.

Times of a slot's parts: the earliest first, and fewer of them where many parts are busy.
"""

from __future__ import annotations

import math
import os
import random
import time
from typing import TYPE_CHECKING, Any

import pytest

from mesh.spark.shared_query import planner
from mesh.spark.shared_query.planner import DueQueue
from pyspark_nats.source.offsets import StreamWatch
from pyspark_nats.source.tail import TailOptions
from tests.support.shared_query import Hand, Instances, admitted

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer


pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]

APP = """@App:name('{name}')
define stream Numbers (n int);
from Numbers select n insert into Copies;
"""
#: A part that reads two streams is planned from looks at them.
TWO = """@App:name('{name}')
define stream Numbers (n int);
define stream Others (n int);
from every a=Numbers -> b=Others select a.n as a, b.n as b insert into Both;
"""
WAIT_S = 0.5
LATE_S = 0.2


@pytest.mark.slow
def test_signs_of_life_do_not_end_a_wait(tmp_path: Path, nats_server: NatsServer) -> None:
    hand = Hand(tmp_path, nats_server)
    hand.serving.planner.tails.options = TailOptions(beat_s=0.1, silent_beats=300)
    reads, writes = os.pipe()
    try:
        admitted(hand, Instances(hand, "T", app=APP))
        hand.publish("T", 1)
        hand.until_rows("T", "Copies", 1)
        rounds = hand.serving.planner
        (reader,) = rounds.tails.by_key.values()
        before_s = reader.last_activity_s

        def waited_s() -> float:
            began_s = time.monotonic()
            assert rounds.next(WAIT_S, reads) == []
            return time.monotonic() - began_s

        # The output wakes nobody: nothing of this slot reads it. The server's first PING, which
        # it sends once and early, ends one wait at most.
        assert max(waited_s(), waited_s()) >= WAIT_S
        assert reader.last_activity_s > before_s
        os.write(writes, b"x")
        began_s = time.monotonic()
        assert rounds.next(60.0, reads) == []
        assert time.monotonic() - began_s < 30
        hand.publish("T", 2)
        hand.until_rows("T", "Copies", 2)
    finally:
        hand.end()
        os.close(reads)
        os.close(writes)


@pytest.mark.parametrize("is_heard", [True, False])
def test_a_message_is_found_that_the_server_stored_late(
    tmp_path: Path, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, is_heard: bool
) -> None:
    """Whether it passed the server after the slot had subscribed to its subject, or before."""
    hand = Hand(tmp_path, nats_server)
    hand.serving.planner.late_s = LATE_S
    honest, doubt = StreamWatch.latest_now, planner.RoundPlanner._doubt
    stored_s = math.inf

    def doubted(self: planner.RoundPlanner, stream: str, now_s: float, count: int) -> None:
        nonlocal stored_s
        doubt(self, stream, now_s, count)
        if stream == "mesh-T-Others" and count == len(planner._DOUBT_S):
            stored_s = min(stored_s, now_s + LATE_S / 2)

    def late(self: StreamWatch, at: Any, limits: Any) -> Any:
        return honest(self, at, limits) if time.monotonic() > stored_s else at

    try:
        app = Instances(hand, "T", app=TWO)
        if is_heard:
            admitted(hand, app)
            hand.publish("T", 1)
            hand.step()
        monkeypatch.setattr(planner.RoundPlanner, "_doubt", doubted)
        monkeypatch.setattr(StreamWatch, "latest_now", late)
        if not is_heard:
            hand.make(app.spec)
            for number, stream in enumerate(("Numbers", "Others"), 1):
                hand.ask((f"mesh.T.{stream}", b'{"n": %d}' % number))
            admitted(hand, app)
        else:
            hand.ask(("mesh.T.Others", b'{"n": 2}'))
        # Rounds end before the last look is due, as they do when other parts have work.
        deadline_s = time.monotonic() + 30
        while not hand.rows("T", "Both") and time.monotonic() < deadline_s:
            hand.step(LATE_S / 10)
        assert hand.rows("T", "Both") == [[1, 2]]
    finally:
        hand.end()


def test_items_are_due_at_the_last_time_given_for_each() -> None:
    chosen = random.Random(7)
    queue: DueQueue[int] = DueQueue()
    expected: dict[int, float] = {}
    for now_s in range(3000):
        item = chosen.randrange(40)
        at_s = None if chosen.random() < 0.2 else now_s + chosen.random() * 30
        queue.set(item, at_s)
        expected.pop(item, None)
        if at_s is not None:
            expected[item] = at_s
        assert len(queue) == len(expected)
        assert queue.next_s == min(expected.values(), default=float("inf"))
        # Obsolete entries must not pile up.
        assert len(queue._heap) <= 2 * 40 + 64 + 1
        if chosen.random() < 0.1:
            most = chosen.choice([None, 1, 2])
            due = sorted((s, one) for one, s in expected.items() if s <= now_s)[:most]
            assert queue.take(now_s, most) == [one for _, one in due]
            for _, one in due:
                del expected[one]
