"""Rows for the sink: messages of a channel stay below the size that NATS accepts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from mesh.model.app import Channel, Format
from mesh.plan.bind.apps import bind_group
from mesh.plan.build import plan
from mesh.spark import sink_rows
from pyspark_nats import decode

APP = "@App:name('A') define stream S (s string); from S select s insert into T;"


def test_a_message_of_large_events_is_divided() -> None:
    (group,) = plan(APP).spec.groups
    channel = Channel("A", bind_group(group).stream("S"), format=Format.ARROW)
    texts = [f"{n:05d}" * 500 for n in range(1500)]
    texts[700] = "x" * 900_000
    rows = pa.RecordBatch.from_pydict({"s": texts}, channel.stream.arrow)
    position = np.arange(10, 1510)
    (made,) = sink_rows.event_rows(channel, "p", rows, position, None)
    payloads: list[Any] = made.column("data").to_pylist()
    sizes = [len(data) for data in payloads]
    assert max(sizes) < 1_000_000
    assert sorted(sizes)[-2] <= sink_rows._MESSAGE_BYTES
    found = decode.decode_messages(
        made.column("data"), made.column("content_type"), channel.stream.arrow
    )
    assert found.rows.column("s").to_pylist() == texts
    firsts: list[Any] = made.column("first_position").to_pylist()
    lasts: list[Any] = made.column("position").to_pylist()
    assert firsts[0] == 10
    assert lasts[-1] == 1509
    assert [first - 1 for first in firsts[1:]] == lasts[:-1]
    assert sink_rows.event_count(made) == 1500
