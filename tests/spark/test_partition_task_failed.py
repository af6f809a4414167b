"""Events on which a stateful group fails, as rows for the sink: the same ones in every try."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from mesh.spark import partition_task
from tests.support.host_batches import Batches
from tools.conformance.script import StepCall
from tools.conformance.spark_rows import marked_rows

if TYPE_CHECKING:
    from pathlib import Path

APP = """@App:name('Fade')
define stream Sparks (n int);
define function part[python] return double {
    return 12 / data[0]
};
@info(name='q') from Sparks#window.length(2)[part(n) > 1.0] select n, count() as there
insert into Gone;
"""


@pytest.fixture
def batches(tmp_path: Path) -> Batches:
    return Batches(tmp_path, app=APP)


def rows(batches: Batches, now_ms: int, *numbers: int) -> list[dict[str, Any]]:
    """What one batch gives the sink."""
    inputs = batches.io.input_streams(0)
    times = np.full(len(numbers), now_ms)
    events = pa.record_batch({"n": pa.array(numbers, pa.int32())})
    sent = StepCall(now_ms, "Sparks", times, events)
    batch, batches.position = marked_rows(inputs, batches.position, 0, sent)
    return [row for made in batches.task([batch]) for row in made.to_pylist()]


def test_they_go_to_the_error_stream_with_positions_of_their_own(batches: Batches) -> None:
    first = rows(batches, 1000, 3) + rows(batches, 1000, 0)
    start = batches.position
    # Events sent as one message fail as one.
    second = rows(batches, 2000, 6, 0)
    third = rows(batches, 3000, 6)
    told = [row for row in first + second + third if row["stream"] == "mesh-Fade-errors-"]
    assert {row["subject"] for row in told} == {"mesh._errors.Fade"}
    assert {row["producer"] for row in told} == {"w-default-failed-p0"}
    records = [json.loads(row["data"]) for row in told]
    assert [(one["time_ms"], one["data"]) for one in records] == [
        (1000, '{"n":0}'),
        (2000, '{"n":6}'),
        (2000, '{"n":0}'),
    ]
    assert {(one["stream"], one["query"], one["group"]) for one in records} == {
        ("Sparks", "q", "default")
    }
    # They share one numbering with the regular output.
    found = sorted(row["position"] for row in first + second + third)
    assert found == [1, 2, 3, 4, 5]

    # Run again, from what was left on the disk, they are the same.
    partition_task.LIVE_STATES.clear()
    batches.position = start
    assert rows(batches, 2000, 6, 0) == second
    assert rows(batches, 3000, 6) == third
