"""A foreign batch of just our size comes in between: our batches stand one batch further on."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pyspark_nats import atomic, frames, known, outgoing, publish, sink_options
from pyspark_nats.arrow import arrow
from pyspark_nats.connection import Connection

ROWS = 15_000
#: Rows of a batch that also carries a guard and a marker.
BATCH = 998


def rows(count: int) -> pa.RecordBatch:
    data = pa.array([b"%d" % n for n in range(count)], pa.binary())
    return outgoing.completed(
        arrow.record_batch({"data": data}),
        stream="S", subject="ev.S", producer="p", first_position=0,
    )  # fmt: skip


@pytest.mark.nats
@pytest.mark.parametrize("shift", [1, 2, 3])
@pytest.mark.parametrize("every", [3, 7])
def test_batches_that_are_shifted_by_whole_batches_are_all_there(
    broker: Any, monkeypatch: pytest.MonkeyPatch, shift: int, every: int
) -> None:
    broker.create("S", "ev.S", "foreign")
    options = sink_options.sink_options({"servers": broker.url, "epoch": "1"})
    known._local.__dict__.clear()
    foreign = b"".join(frames.publish("foreign", b"") for _ in range((BATCH + 2) * shift))
    ahead: list[bool] = []
    send = atomic.AtomicPublisher._send

    def shifted(self: Any, chunk: Any, *, is_ahead: bool) -> None:
        ahead.append(is_ahead)
        # Before a batch that others were foretold to follow, and never between those.
        if not is_ahead and len(ahead) % every == 0:
            self._connection.send(foreign)
        send(self, chunk, is_ahead=is_ahead)

    # More of them ahead than the calm of so few batches would allow.
    monkeypatch.setattr("pyspark_nats.guards._CALM_BATCHES", 1)
    monkeypatch.setattr("pyspark_nats.guards._PAUSE_MAX", 1)
    monkeypatch.setattr(atomic.AtomicPublisher, "_send", shifted)
    with Connection(options.connection) as connection:
        publisher = publish.Publisher(connection, options)
        # The writer is not told: what it foretells is wrong by just so much.
        guard = publisher._atomic._guard("S")
        guard._pause, guard.ahead = 0, 3
        publisher.add(rows(ROWS))
        publisher.finish()
    assert sum(ahead) > 5
    assert [int(data) for data in broker.payloads("S", "ev.S")] == list(range(ROWS))
    assert broker.marker("S", "p").position == ROWS - 1
