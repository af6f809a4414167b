"""Rows for the sink: messages of a channel stay below the size that NATS accepts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mesh.model.app import Channel, Format
from mesh.plan.bind.apps import bind_group
from mesh.plan.build import plan
from mesh.spark import sink_rows
from pyspark_nats import decode
from pyspark_nats.few_rows import FewRows

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


@pytest.mark.parametrize(
    ("kind", "values", "is_json"),
    [
        ("double", [1.5, None, -0.0, 1e300], True),
        ("double", [0.1, math.nan], False),
        ("double", [math.inf], False),
        ("double", [1.0] * 5, False),
        ("string", ["\x00" * 10_000, "", None], True),
        # JSON writes a control character by six.
        ("string", ["\x00" * 300_000], False),
    ],
)
def test_few_events_of_an_arrow_channel_are_messages_of_their_own(
    kind: str, values: list[object], is_json: bool
) -> None:
    (group,) = plan(APP.replace("s string", f"s {kind}")).spec.groups
    channel = Channel("A", bind_group(group).stream("S"), format=Format.ARROW)
    count = len(values)
    rows = FewRows(channel.stream.arrow, {"s": list(values)}, count)
    (made,) = sink_rows.event_rows(channel, "p", rows, np.arange(10, 10 + count), None)
    content_type = sink_rows.JSON_TYPE if is_json else sink_rows.ARROW_TYPE
    assert set(made.column("content_type").to_pylist()) == {content_type}
    payloads: list[Any] = made.column("data").to_pylist()
    assert max(map(len, payloads)) < 1_000_000
    assert made.num_rows == (count if is_json else 1)
    found = decode.decode_messages(
        made.column("data"), made.column("content_type"), channel.stream.arrow
    )
    assert not found.errors
    assert str(found.rows.column("s").to_pylist()) == str(values)
    (last, *_) = made.column("position").to_pylist()[::-1]
    assert (made.column("first_position")[0].as_py(), last) == (10, 9 + count)
    # With times of their own they stay together.
    times = pa.array([5] * count)
    (timed,) = sink_rows.event_rows(channel, "p", rows, np.arange(10, 10 + count), times)
    assert set(timed.column("content_type").to_pylist()) == {sink_rows.ARROW_TYPE}
