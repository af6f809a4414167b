"""The backlog of an instance is counted by the server, and equals a count from outside.

Latencies of runs: exact for a few events, and by samples in order for many.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mesh.model.histogram import LATENCY_BOUNDS_S, Histogram
from mesh.spark import instance_metrics
from mesh.spark.instance_io import ROUND_ROBIN_BLOCK
from mesh.spark.instance_metrics import SAMPLES, count
from pyspark_nats.source.ranges import Blocks
from tests.support.latencies import NOW, column
from tests.support.shared_query import Hand, HandClock, Instances, Snapshots, admitted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from mesh.jetstream.server import NatsServer


pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]

APP = """@App:name('{name}')
define stream Numbers (n int);
@dist(execGroup='first', parallel='PARALLEL')
from Numbers[n > 0] select n insert into Middle;
@dist(execGroup='second')
from Middle[n > 0] select n insert into Same;
"""
#: Longer than an instance rests between two counts.
LONG_S = 100.0


@pytest.fixture
def hand(tmp_path: Path, nats_server: NatsServer) -> Iterator[Hand]:
    made = Hand(tmp_path, nats_server)
    yield made
    made.end()


class Counted(Snapshots):
    """A store that asks the server for the ends of streams."""

    def __init__(self, hand: Hand) -> None:
        super().__init__()
        self._hand = hand

    def bounds(self, streams: Collection[str]) -> dict[str, tuple[int, int]]:
        return {one: state(self._hand, one) for one in streams}


def state(hand: Hand, js_stream: str) -> tuple[int, int]:
    """The first and the last sequence, as anybody may ask for."""
    found = json.loads(hand.ask((f"$JS.API.STREAM.INFO.{js_stream}", b"")))["state"]
    return found["first_seq"], found["last_seq"]


def begun(hand: Hand, clock: HandClock, parallel: int = 1) -> Instances:
    stores: dict[str, Snapshots] = {name: Counted(hand) for name in ("first", "second")}
    text = APP.replace("PARALLEL", str(parallel))
    return admitted(hand, Instances(hand, "A", stores, clock, app=text))


def store(hand: Hand, count: int) -> None:
    """Store events that no slot takes."""
    calls = [("mesh.A.Numbers", b'{"n": %d}' % n) for n in range(1, count + 1)]
    hand.broker.retry_while_unavailable("publishing", lambda: hand.broker.requests(calls))


def said(app: Instances, clock: HandClock, hand: Hand, group: str) -> int:
    """The number of waiting messages in a report after a long rest."""
    clock.now_s += LONG_S
    for _ in range(2):
        app.by_group[group].tick(clock.now_s)
        hand.until_idle()
        clock.now_s += 1.5
    app.by_group[group].tick(clock.now_s)
    hand.until_idle()
    return app.statuses[group].behind


def test_messages_that_no_slot_has_taken_wait(hand: Hand) -> None:
    clock = HandClock()
    app = begun(hand, clock)
    hand.publish("A", 1, 2, 3)
    hand.until_rows("A", "Same", 3)
    assert said(app, clock, hand, "first") == 0
    # The slot does not come to read: no outcome tells of these.
    store(hand, 50)
    _, last = state(hand, "mesh-A-Numbers")
    assert said(app, clock, hand, "first") == last - 3 == 50
    # It is counted again while it grows.
    store(hand, 7)
    clock.now_s += 2.5
    app.by_group["first"].tick(clock.now_s)
    hand.until_idle()
    clock.now_s += 1.5
    app.by_group["first"].tick(clock.now_s)
    hand.until_idle()
    assert app.statuses["first"].behind == 57
    hand.until_rows("A", "Same", 60)
    hand.step(0.5)
    assert said(app, clock, hand, "first") == 0


@pytest.mark.slow
def test_markers_do_not_wait_once_they_were_read(hand: Hand) -> None:
    clock = HandClock()
    app = begun(hand, clock)
    hand.publish("A", 1, 2, 3)
    hand.until_rows("A", "Same", 3)
    _, last = state(hand, "mesh-A-Middle")
    assert last >= 2
    for _ in range(5):
        hand.step(0.5)
    assert said(app, clock, hand, "second") == 0


def test_an_instance_counts_its_own_blocks(hand: Hand) -> None:
    clock = HandClock()
    app = begun(hand, clock, parallel=2)
    count = 3 * ROUND_ROBIN_BLOCK
    store(hand, count)
    both = [Blocks(ROUND_ROBIN_BLOCK, index, 2).number_in(0, count) for index in (0, 1)]
    assert said(app, clock, hand, "first") == both[0]
    assert sum(both) == count


def test_deleted_messages_do_not_wait(hand: Hand) -> None:
    clock = HandClock()
    app = begun(hand, clock)
    store(hand, 50)
    hand.ask(("$JS.API.STREAM.PURGE.mesh-A-Numbers", b'{"seq": 41}'))
    first, last = state(hand, "mesh-A-Numbers")
    assert said(app, clock, hand, "first") == last - first + 1 == 10


def test_parts_that_read_the_same_stream_wait_for_the_same_messages() -> None:
    assert instance_metrics.total([{"a": 5, "b": 2}, {"a": 7}, {"c": 1}]) == 7 + 2 + 1


def test_a_few_events_are_counted_as_they_are() -> None:
    exact = Histogram(LATENCY_BOUNDS_S)
    for ago_ms in (130_000, 700, 700, 10, 1):
        exact.observe(ago_ms / 1000)
    counts, sum_s = count(
        [([column(130_000, 700), column()], [NOW]), ([column(700, 10, 1)], [NOW])]
    )
    assert counts == exact.counts
    assert sum_s == pytest.approx(exact.sum_s)
    assert count([]) == ((), 0.0)
    # The clock of the broker is ahead.
    assert count([([column(-50)], [NOW])])[0][0] == 1


@pytest.mark.parametrize("size", [SAMPLES, SAMPLES + 1, 1000, 4097])
def test_of_a_large_run_each_event_counts_once_and_about_where_it_is(size: int) -> None:
    ago_ms = np.linspace(9000, 100, size).astype(np.int64)
    counts, sum_s = count([([column(*ago_ms.tolist())], [NOW])])
    assert sum(counts) == size
    exact = Histogram(LATENCY_BOUNDS_S)
    for one in ago_ms.tolist():
        exact.observe(one / 1000)
    off = np.abs(np.cumsum(counts) - np.cumsum(exact.counts))
    assert off.max() <= size / SAMPLES + 1
    assert sum_s == pytest.approx(exact.sum_s, rel=0.1)
