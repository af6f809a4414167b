"""Polls for what has come."""

from __future__ import annotations

from typing import Any

import pytest

from pyspark_nats.source import polling
from tests.support.reading import watch

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
