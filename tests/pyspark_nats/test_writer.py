"""The sink's tasks: rows of a source's stream that was created again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from pyspark_nats.arrow import arrow
from pyspark_nats.encode import columns, row_mapping
from pyspark_nats.errors import DataLossError, SchemaError
from pyspark_nats.sink import marker_cache, sink_options, writer
from pyspark_nats.sink.producer_state import CLOCKS_MS

if TYPE_CHECKING:
    from tests.support.broker import Broker

pytestmark = pytest.mark.nats


def write(broker: Broker, first: int, count: int, producer: str, **given: str) -> None:
    """Write rows of stream IN to stream OUT as a task of a new process; ids are sequences."""
    marker_cache.clear()
    options = sink_options.sink_options(
        {**broker.given, "stream": "OUT", "subject": "out.x", "format": "json", **given}
    )
    numbers = pa.array(range(first, first + count))
    rows = arrow.record_batch(
        {"id": numbers, "_stream": pa.array(["IN"] * count), "_sequence": numbers}
    )
    what = columns.ColumnRoles(("id",), {}, has_source=True)
    task = row_mapping.Task(producer, 0, 0, f"run-{time.monotonic_ns()}")
    writer.write_rows(broker.connection, options, what, task, iter([rows]))


@pytest.mark.parametrize("rows_per_message", ["1", "3"])
def test_rows_of_a_stream_that_was_created_again_are_not_taken_for_published_ones(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, rows_per_message: str
) -> None:
    broker.create("OUT", "out.x")
    broker.create("IN")
    given = {"rowsPerMessage": rows_per_message}
    write(broker, 1, 6, "p", **given)
    # Of the same stream they are the published ones, in whatever batch they come.
    write(broker, 4, 6, "p", **given)
    before = broker.payloads("OUT", "out.x")
    assert b"".join(before).count(b"id") == 9
    broker.call("STREAM.DELETE.IN")
    monkeypatch.setattr("pyspark_nats.sink.producer_state.CLOCKS_MS", -CLOCKS_MS)
    broker.create("IN")
    with pytest.raises(DataLossError, match=r'producer "p-IN" whose input is lost'):
        write(broker, 1, 12, "p", **given)
    assert broker.payloads("OUT", "out.x") == before
    write(broker, 1, 12, "q", **given)
    assert b"".join(broker.payloads("OUT", "out.x")).count(b"id") == 9 + 12


def test_rows_whose_input_is_on_another_server_are_skipped_by_position(broker: Broker) -> None:
    broker.create("OUT", "out.x")
    for _ in range(2):
        write(broker, 1, 6, "p")
    assert len(broker.payloads("OUT", "out.x")) == 6


@pytest.mark.parametrize("stream", ["", "a.b", "*", "a b", "a/b"])
def test_a_row_for_a_stream_without_a_name_is_refused_at_once(broker: Broker, stream: str) -> None:
    what = columns.ColumnRoles((), {"data": "data", "stream": "stream"}, has_source=False)
    rows = arrow.record_batch({"data": pa.array([b"x"]), "stream": pa.array([stream])})
    options = sink_options.sink_options({**broker.given, "subject": "ev.S"})
    with pytest.raises(SchemaError, match="no JetStream stream has the name"):
        writer.write_rows(
            broker.connection, options, what, row_mapping.Task("p", 0, 0, "a"), iter([rows])
        )
