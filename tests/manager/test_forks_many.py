"""A fork with another threshold, compared: exactly the rows that a second computation finds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from mesh.model import names
from mesh.spark.partitioning import channel_rows
from mesh.spark.sink_rows import for_sink
from pyspark_nats.sink import messages_out
from pyspark_nats.sink.publish import RowPublisher
from pyspark_nats.sink.sink_options import sink_options
from tests.support.played import played, playing

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from mesh.model.app import AppSpec
    from tests.support.shared_query import Hand

pytestmark = [pytest.mark.nats]

TEXT = """@App:name('Plant')
define stream Readings (n long, value double);
@dist(execGroup='average')
from Readings#window.length(3) select n, avg(value) as mean insert into Means;
@dist(execGroup='alarm')
from Means[mean > 40.0] select n, mean insert into Alarms;
"""
CHUNK = 20_000


def fill(hand: Hand, spec: AppSpec, values: np.ndarray[Any, np.dtype[np.float64]]) -> None:
    """Store events, numbered from 0."""
    channel = spec.whole_channel("Readings")
    assert channel is not None
    sink = sink_options({**hand.nats, "epoch": "1", "markerPrefix": names.MARKERS})
    publisher = RowPublisher(hand.broker, sink)
    for first in range(0, len(values), CHUNK):
        number = np.arange(first, min(first + CHUNK, len(values)))
        part = pa.array(values[first : first + CHUNK])
        rows = pa.RecordBatch.from_arrays([pa.array(number), part], schema=channel.stream.arrow)
        for out in channel_rows(channel, spec.text, "fill", rows, number, None):
            publisher.add(messages_out.with_header_line(for_sink(out), None))
    publisher.finish()


def stored(hand: Hand, app: str) -> int:
    """Alarms of an app."""
    asked = json.dumps({"subjects_filter": f"mesh.{app}.Alarms"}).encode()
    state = json.loads(hand.ask((f"$JS.API.STREAM.INFO.mesh-{app}-Alarms", asked)))["state"]
    return sum((state.get("subjects") or {}).values())


@pytest.mark.extended
@pytest.mark.parametrize(
    "events",
    [20_000, pytest.param(1_000_000, marks=[pytest.mark.long, pytest.mark.timeout(900)])],
)
async def test_a_changed_threshold_changes_the_rows_that_another_computation_finds(
    hand: Hand, nats_server: NatsServer, tmp_path: Path, events: int
) -> None:
    values = np.random.default_rng(24).integers(0, 90, events).astype(float)
    sums = np.cumsum(values)
    sums[3:] -= sums[:-3].copy()
    means = sums / np.minimum(np.arange(1, events + 1), 3)
    before, after = np.flatnonzero(means > 40.0), np.flatnonzero(means > 50.0)
    gone = np.setdiff1d(before, after)

    async with playing(nats_server, tmp_path) as (have, runner):
        await have.service.deploy(TEXT)
        first = await played(have, "Plant", hand, runner)
        fill(hand, first.record.spec, values)
        await first.run(lambda: stored(hand, "Plant") == len(before), rounds=2000)
        text = TEXT.replace("mean > 40.0", "mean > 50.0")
        await have.service.forks.fork("Plant", "Next", text=text, begin="start")
        fork = await played(have, "Next", hand, runner)
        await fork.run(lambda: stored(hand, "Next") == len(after), rounds=2000)
        assert (stored(hand, "Plant"), stored(hand, "Next")) == (len(before), len(after))
        found = await have.service.past.compare("Plant", "Next", ["Alarms"], [])
        assert found["streams"] == [
            {
                "stream": "Alarms", "same": len(after), "new": 0, "gone": len(gone),
                "changed": 0, "earlier": 0,
            }
        ]  # fmt: skip
        lost = found["first"]
        number = int(gone[0])
        assert (lost["kind"], lost["fork"]) == ("gone", None)
        assert lost["app"]["event"] == {"n": number, "mean": means[number]}
        assert [one["event"]["n"] for one in lost["inputs"]] == [
            n for n in range(number - 2, number + 1) if n >= 0
        ]
        await fork.stop()
        await first.stop()
