"""Markers as messages, which no header of another publisher may delete."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from pyspark_nats.errors import RefusedError
from pyspark_nats.protocol.jetstream import StoredMessage
from pyspark_nats.sink import markers, messages_out
from pyspark_nats.sink.markers import BatchRecord, Marker

pytestmark = pytest.mark.nats


def row(number: int, producer: str = "p") -> pa.RecordBatch:
    data = pa.array([b"%d" % number], pa.binary())
    return messages_out.with_schema_columns(
        pa.record_batch({"data": data}),
        stream="S", subject="ev.S", producer=producer, first_position=number,
    )  # fmt: skip


def test_a_rollup_of_a_publisher_is_refused_and_deletes_nothing(
    broker: Any, publisher: Any
) -> None:
    broker.create("S")
    publisher(broker.url).write(row(0))
    for value in ("all", "sub"):
        with pytest.raises(RefusedError, match="rollup not permitted"):
            broker.publish("ev.S", b"mine", Nats_Rollup=value)
    publisher(broker.url).write(row(1))
    assert broker.payloads("S", "ev.S") == [b"0", b"1"]


@pytest.mark.nats
def test_a_marker_keeps_its_batch() -> None:
    from pyspark_nats.protocol.jetstream import StoredMessage
    from pyspark_nats.sink import markers
    from pyspark_nats.sink.markers import IngestBatch, Marker

    marker = Marker(7, 2, 9, ingest=IngestBatch("b", bytes(range(16)), 41, 5))
    read = markers.parse(StoredMessage("s", 9, 0, markers.payload(marker)))
    assert read.ingest == marker.ingest
    assert "ingest" not in json.loads(markers.payload(Marker(7, 2, 9)))


def test_markers_of_earlier_versions_are_read() -> None:
    def parsed(payload: bytes) -> Marker:
        return markers.parse(StoredMessage("m", 9, 0, payload))

    old = parsed(b'{"position": 7, "epoch": 2}')
    assert (old, old.run, old.task, old.recent) == (Marker(7, 2, 9), "", -1, ())
    assert markers.payload(old) == b'{"position":7,"epoch":2}'
    full = Marker(7, 2, 9, "r", 3, (BatchRecord(1, 2, 3),))
    again = parsed(markers.payload(full))
    assert (again, again.run, again.task, again.recent) == (full, "r", 3, full.recent)
