"""Micro-batches of a stateful group without Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mesh.model.cluster import Assignment
from mesh.plan.build import plan
from mesh.spark import partition_task
from mesh.spark.instance_io import InputPosition, InstanceIO
from tools.conformance.script import StepCall
from tools.conformance.spark_rows import marked_rows

if TYPE_CHECKING:
    from pathlib import Path


APP = """@App:name('Fade')
define stream Sparks (n int);
from Sparks#window.time(500 millisec) select n, count() as there insert all events into Gone;
"""


class Batches:
    """Micro-batches of one partition, each from where the last one ended."""

    def __init__(
        self, directory: Path, restored: frozenset[int] = frozenset(), app: str = APP
    ) -> None:
        (group,) = plan(app).spec.groups
        assignment = Assignment(
            group.instances[0], "Fade", group.name, 1, "w", "i", epoch=1, lease_revision=0
        )
        self.io = InstanceIO(group, assignment)
        self.task = partition_task.PartitionTask(self.io, str(directory), restored)
        inputs = self.io.input_streams(0)
        nothing = {stream: {"sequence": 0, "time_ms": 0} for stream in inputs}
        self.position = InputPosition.of(nothing, nothing)

    def run(self, now_ms: int, *numbers: int) -> list[Any]:
        """Run one batch with these events at ``now_ms``, or without events; its output."""
        rows = None
        times = np.full(len(numbers), now_ms)
        if numbers:
            rows = pa.record_batch({"n": pa.array(numbers, pa.int32())})
        sent = StepCall(now_ms, "Sparks", times, rows) if numbers else StepCall(now_ms)
        inputs = self.io.input_streams(0)
        batch, self.position = marked_rows(inputs, self.position, 0, sent)
        out = [made for made in self.task([batch]) if made.num_rows]
        events: list[Any] = [data for made in out for data in made["data"].to_pylist()]
        return [list(json.loads(event).values()) for event in events]
