"""Markers that are read once, and purged when there are many of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from mesh.jetstream import server
from pyspark_nats.errors import StaleWriterError
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.sink import fencing, marker_cache, messages_out, producer_markers, publish
from pyspark_nats.sink.sink_options import sink_options
from pyspark_nats.source import fetch, messages
from pyspark_nats.source.ranges import Blocks, StreamRange

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.nats


USERS = """accounts { A { jetstream: enabled, users: [
    { user: root, password: pw }
    { user: ann, password: pw, permissions: { publish: { deny: ["$JS.API.STREAM.PURGE.>"] } } }
] } }"""


STREAM = b'{"name":"S","subjects":["ev.S","mesh._marker.S.>"],"allow_atomic":true}'


def row(number: int, producer: str = "p") -> pa.RecordBatch:
    data = pa.array([b"%d" % number], pa.binary())
    return messages_out.with_schema_columns(
        pa.record_batch({"data": data}),
        stream="S", subject="ev.S", producer=producer, first_position=number,
    )  # fmt: skip


def held(broker: Any) -> dict[str, int]:
    """Messages of each subject."""
    state = broker.call("STREAM.INFO.S", subjects_filter=">")["state"]
    subjects: dict[str, int] = state["subjects"]
    return subjects


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(producer_markers, "MARKERS_MAX", 5)
    return 5


def test_old_markers_are_purged_and_the_newest_counts(
    broker: Any, publisher: Any, few: int
) -> None:
    broker.create("S")
    writer = publisher(broker.url)
    most = 0
    for number in range(23):
        writer.write(row(number))
        writer.write(row(number, "q"))
        most = max(most, held(broker)["mesh._marker.S.p"])
    assert most <= few
    assert held(broker) == {"ev.S": 46, "mesh._marker.S.p": 3 + 1, "mesh._marker.S.q": 3 + 1}
    assert broker.marker("S", "p").position == 22
    # A replay by another process finds the newest.
    publisher(broker.url).write(row(22))
    publisher(broker.url).write(row(23))
    assert held(broker)["ev.S"] == 47


def test_an_older_epoch_is_refused_after_a_purge(broker: Any, publisher: Any, few: int) -> None:
    broker.create("S")
    old = publisher(broker.url, 1)
    old.write(row(0))
    new = publisher(broker.url, 2)
    for number in range(1, 2 * few):
        new.write(row(number))
    marker_cache.clear()
    with pytest.raises(StaleWriterError):
        publisher(broker.url, 1).write(row(99))
    with pytest.raises(StaleWriterError):
        old.write(row(99))
    assert broker.payloads("S", "ev.S") == [b"%d" % n for n in range(2 * few)]
    fencing.fenced(broker.given, [("S", "p")], 3)
    with pytest.raises(StaleWriterError):
        new.write(row(99))


def test_a_writer_that_may_not_purge_writes_on(tmp_path: Path, few: int) -> None:
    (tmp_path / "nats.conf").write_text(USERS)
    running = server.start(tmp_path, arguments=["-c", str(tmp_path / "nats.conf")])
    given = {"servers": running.url, "password": "pw", "epoch": "1"}
    call = ("$JS.API.STREAM.CREATE.S", STREAM)
    with Connection(sink_options({**given, "user": "root"}).connection) as root:
        root.retry_while_unavailable("creating", lambda: root.requests([call])[0].json())
    marker_cache.clear()
    options = sink_options({**given, "user": "ann"})
    with Connection(options.connection) as connection:
        writer = publish.RowPublisher(connection, options)
        for number in range(3 * few):
            writer.write(row(number))
        assert writer.out(("S", "p"), 0) == 3 * few - 1
    running.stop()


def test_a_stream_that_denies_purges_keeps_its_markers(
    broker: Any, publisher: Any, few: int
) -> None:
    broker.create("S", deny_purge=True)
    writer = publisher(broker.url)
    for number in range(3 * few):
        writer.write(row(number))
    assert held(broker) == {"ev.S": 3 * few, "mesh._marker.S.p": 3 * few}


def test_a_reader_behind_markers_that_are_purged_loses_nothing(broker: Any, few: int) -> None:
    broker.create("S")
    options = sink_options({"servers": broker.url, "epoch": "1"})
    marker_cache.clear()
    with Connection(options.connection) as connection:
        writer = publish.RowPublisher(connection, options)
        for number in range(4 * few):
            writer.write(row(number))
    wanted = StreamRange("S", 0, broker.info("S").last, 0, 0, subjects=("ev.S",))
    found = messages.concatenated(list(fetch.read_range(broker.connection, wanted, Blocks())))
    assert found.data.to_pylist() == [b"%d" % n for n in range(4 * few)]
