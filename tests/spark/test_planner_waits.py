"""Waits of a slot: signs of life of idle consumers do not end them, and a command does."""

from __future__ import annotations

import math
import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from mesh.spark.shared_query import planner
from pyspark_nats.source import tail
from pyspark_nats.source.offsets import Watch
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


def test_signs_of_life_do_not_end_a_wait(
    tmp_path: Path, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "_BEAT_S", dict.fromkeys((True, False), 0.1))
    monkeypatch.setattr(tail, "_SILENT_BEATS", 300)
    hand = Hand(tmp_path, nats_server)
    reads, writes = os.pipe()
    try:
        admitted(hand, Instances(hand, "T", app=APP))
        hand.publish("T", 1)
        hand.until_rows("T", "Copies", 1)
        rounds = hand.serving._planner
        (reader,) = rounds._tails._by_key.values()
        before_s = reader.heard_s

        def waited_s() -> float:
            began_s = time.monotonic()
            assert rounds.next(WAIT_S, reads) == []
            return time.monotonic() - began_s

        # The output wakes nobody: nothing of this slot reads it. The server's first PING, which
        # it sends once and early, ends one wait at most.
        assert max(waited_s(), waited_s()) >= WAIT_S
        assert reader.heard_s > before_s
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


def test_a_message_is_found_that_the_server_stored_late(
    tmp_path: Path, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "_LATE_S", LATE_S)
    hand = Hand(tmp_path, nats_server)
    try:
        admitted(hand, Instances(hand, "T", app=TWO))
        hand.publish("T", 1)
        hand.step()
        honest, doubt = Watch.latest_now, planner.RoundPlanner._doubt
        given_up_s = math.inf

        def doubted(self: planner.RoundPlanner, stream: str, now_s: float) -> None:
            nonlocal given_up_s
            doubt(self, stream, now_s)
            if stream not in self._doubts:
                given_up_s = min(given_up_s, now_s)

        def late(self: Watch, at: Any, limits: Any) -> Any:
            # When it listens again, it looks at once.
            is_stored = time.monotonic() > given_up_s + LATE_S / 2
            return honest(self, at, limits) if is_stored else at

        monkeypatch.setattr(planner.RoundPlanner, "_doubt", doubted)
        monkeypatch.setattr(Watch, "latest_now", late)
        hand.ask(("mesh.T.Others", b'{"n": 2}'))
        hand.until_rows("T", "Both", 1)
        assert hand.rows("T", "Both") == [[1, 2]]
    finally:
        hand.end()
