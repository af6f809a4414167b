"""Polls for what has come."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_nats.source import polling
from pyspark_nats.source.source_options import ReadLimits
from tests.support.reading import watch

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.nats


def test_news_on_other_subjects_only_make_no_batch(
    broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create("S", "ev.>")
    looking = watch(broker, subject="ev.a,ev.b.*", idleWaitMs="20", startingOffsets="latest")
    start = looking.initial()
    broker.publish("ev.other", "x")
    assert looking.latest(start, None) == start
    broker.publish("ev.b.1", "x")
    end = looking.latest(start, None)
    assert end["S"]["sequence"] == 2
    # But the position must not stay back for ever, where it would expire.
    broker.publish("ev.other", "x")
    monkeypatch.setattr(polling, "_ADVANCE_S", 0.0)
    assert looking.latest(end, None)["S"]["sequence"] == 3


def test_a_query_halts_where_it_is_told_and_tells_so(broker: Any, tmp_path: Path) -> None:
    broker.create("S")
    broker.publish("ev.S", *"abcdefgh")
    path = tmp_path / "halt"
    reading = watch(broker, haltPath=str(path))
    first = reading.latest(reading.initial(), ReadLimits(offsets_max=2))
    assert first["S"]["sequence"] == 2
    polling.ask(path, {"S": 5})
    # Limits hold on the way, too.
    second = reading.latest(first, ReadLimits(offsets_max=2))
    third = reading.latest(second, ReadLimits(offsets_max=2))
    assert (second["S"]["sequence"], third["S"]["sequence"]) == (4, 5)
    assert polling.halted_positions(path) is None
    assert reading.latest(third, None) == third
    assert polling.halted_positions(path) == third
    # A halt may be moved further; then it is reached only there.
    polling.ask(path, {"S": 6})
    assert polling.halted_positions(path) is None
    last = reading.latest(third, None)
    assert reading.latest(last, None) == last
    assert polling.halted_positions(path) == last
    assert last["S"]["sequence"] == 6


def test_a_query_that_waits_halts_soon(broker: Any, tmp_path: Path) -> None:
    broker.create("S")
    path = tmp_path / "halt"
    reading = watch(broker, haltPath=str(path), idleWaitMs="600000")
    start = reading.initial()
    assert reading.latest(start, None) == start
    asking = threading.Timer(0.2, polling.ask, [path])
    began_s = time.monotonic()
    asking.start()
    assert reading.latest(start, None) == start
    assert time.monotonic() - began_s < 60.0
    assert reading.latest(start, None) == start
    assert polling.halted_positions(path) == start
