"""Waits of a slot: signs of life of idle consumers do not end them, and a command does."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from pyspark_nats.source import tail
from tests.support.shared_query import Hand, Instances, admitted

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]

APP = """@App:name('{name}')
define stream Numbers (n int);
from Numbers select n insert into Copies;
"""
WAIT_S = 0.5


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
        planner = hand.serving._planner
        (reader,) = planner._tails._by_key.values()
        before_s, began_s = reader.heard_s, time.monotonic()
        # The output wakes nobody: nothing of this slot reads it.
        assert planner.next(WAIT_S, reads) == []
        assert time.monotonic() - began_s >= WAIT_S
        assert reader.heard_s > before_s
        os.write(writes, b"x")
        began_s = time.monotonic()
        assert planner.next(60.0, reads) == []
        assert time.monotonic() - began_s < 30
        hand.publish("T", 2)
        hand.until_rows("T", "Copies", 2)
    finally:
        hand.end()
        os.close(reads)
        os.close(writes)
