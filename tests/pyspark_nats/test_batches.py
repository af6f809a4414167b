"""Record batches of what is read."""

from __future__ import annotations

from typing import Any

import pytest

from pyspark_nats.protocol.connection import shared
from pyspark_nats.source import batches, source_options
from pyspark_nats.source.ranges import StreamRange

pytestmark = pytest.mark.nats


def test_other_subjects_are_skipped_and_batches_are_bounded(
    broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "_ROWS_MAX", 100)
    broker.create("S", "ev.S", "ev.other")
    for _ in range(5):
        broker.publish("ev.S", *["a"] * 60)
        broker.publish("ev.other", "b")
    read = source_options.source_options({**broker.given, "stream": "S"})
    shape = batches.RowLayout(batches._Raw(True), False)
    wanted = StreamRange("S", 0, 305, 0, 0, subjects=("ev.S",))
    found = list(batches.read(read, shape, [wanted]))
    assert sum(batch.num_rows for batch in found) == 300
    assert {s for batch in found for s in batch.column("subject").to_pylist()} == {"ev.S"}
    shared(read.connection).close()
