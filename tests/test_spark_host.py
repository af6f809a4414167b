"""The host of stateful groups without Spark: batches of source rows in, rows for the sink out."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from mesh.model.cluster import Assignment
from mesh.plan.build import plan
from mesh.spark import host
from mesh.spark.state import LocalState, Position
from mesh.spark.wiring import Wiring
from mesh.testing.conformance.script import Sent
from mesh.testing.conformance.spark_rows import marked_rows

if TYPE_CHECKING:
    from pathlib import Path

APP = """@App:name('Fade')
define stream Sparks (n int);
from Sparks#window.time(500 millisec) select n, count() as there insert all events into Gone;
"""


class Batches:
    """Micro-batches of one partition, each from where the last one ended."""

    def __init__(self, directory: Path, restored: frozenset[int] = frozenset()) -> None:
        (group,) = plan(APP).spec.groups
        assignment = Assignment(
            group.instances[0], "Fade", group.name, 1, "w", "i", epoch=1, lease_revision=0
        )
        self.wiring = Wiring(group, assignment)
        self.task = host.HostTask(self.wiring, str(directory), restored)
        inputs = self.wiring.input_streams(0)
        nothing = {stream: {"sequence": 0, "time_ms": 0} for stream in inputs}
        self.position = Position.of(nothing, nothing)

    def run(self, now_ms: int, *numbers: int) -> list[Any]:
        """One with these events at ``now_ms``, or in which only time passes; what comes out."""
        rows = None
        times = np.full(len(numbers), now_ms)
        if numbers:
            rows = pa.record_batch({"n": pa.array(numbers, pa.int32())})
        sent = Sent(now_ms, "Sparks", times, rows) if numbers else Sent(now_ms)
        inputs = self.wiring.input_streams(0)
        batch, self.position = marked_rows(inputs, self.position, 0, sent)
        out = [made for made in self.task([batch]) if made.num_rows]
        events: list[Any] = [data for made in out for data in made["data"].to_pylist()]
        return [list(json.loads(event).values()) for event in events]


@pytest.mark.parametrize("is_live", [True, False])
def test_time_passes_in_batches_without_events(tmp_path: Path, is_live: bool) -> None:
    batches = Batches(tmp_path)
    found = []
    for now_ms, numbers in ((1000, (1,)), (1200, (2,)), (1600, ()), (1600, ()), (1800, ())):
        found.append(batches.run(now_ms, *numbers))
        if not is_live:
            host._LIVE.clear()
    assert found == [[[1, 1]], [[2, 2]], [[1, 1]], [], [[2, 0]]]


def test_a_batch_that_runs_again_starts_from_the_state_before_it(tmp_path: Path) -> None:
    batches = Batches(tmp_path)
    batches.run(1000, 1)
    before = batches.position
    first = batches.run(1200, 2)
    batches.position = before
    assert batches.run(1200, 2) == first == [[2, 2]]


@pytest.mark.parametrize("is_live", [True, False])
def test_a_state_takes_only_what_it_has_not_taken_yet(tmp_path: Path, is_live: bool) -> None:
    before = Batches(tmp_path / "before")
    before.run(1000, 1)
    before.run(1000, 2)
    made = LocalState(tmp_path / "before" / "0")
    snapshot = made.manifest(before.position)
    assert snapshot is not None

    after = Batches(tmp_path / "after", restored=frozenset({0}))
    local = LocalState(tmp_path / "after" / "0")
    shutil.copytree(made.directory, local.directory, ignore=shutil.ignore_patterns("*.manifest"))
    local.put_restored(snapshot)
    # Another partition of the instance is at the beginning, so both read from there.
    found = []
    for number in (1, 2, 3):
        found += after.run(1000, number)
        if not is_live:
            host._LIVE.clear()
    assert found == [[3, 3]]
    last = local.manifest(after.position)
    assert last is not None
    assert not last.ahead


def test_what_was_put_out_before_a_restore_is_passed_over() -> None:
    messages = pa.record_batch({"sequence": pa.array(range(1, 11), pa.int64())})
    kept = host.without_skipped(messages, "sequence", [(2, 4), (7, 9)])
    assert kept.column("sequence").to_pylist() == [1, 2, 5, 6, 7, 10]
    assert host.without_skipped(messages, "sequence", []) is messages
