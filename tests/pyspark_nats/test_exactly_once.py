"""Rows sent ahead of acks: each is stored once, despite other publishers and any failure.

The file is longer than 400 lines because every failure is played against the same publisher.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from mesh.jetstream import server
from pyspark_nats.arrow import arrow
from pyspark_nats.errors import StaleWriterError
from pyspark_nats.protocol import frames, publish_frames
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.sink import exactly_once, messages_out, publish, sink_options
from pyspark_nats.source import fetch
from pyspark_nats.source.ranges import Blocks, StreamRange
from tests.support.exactly_once import ROWS, Cutter, numbers, rows, write

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Messages sent and received, in order: "rows", "marker", and the code of a refusal."""
    told: list[str] = []
    publisher = exactly_once.ExactlyOncePublisher
    rows_frames, marker_frames, refused = (
        publisher._rows_frames, publisher._marker_frames, publisher._refused
    )  # fmt: skip

    def rows(self: Any, chunk: Any) -> bytes:
        told.append("rows")
        return rows_frames(self, chunk)

    def marker(self: Any, chunk: Any) -> Iterator[bytes]:
        told.append("marker")
        return marker_frames(self, chunk)

    def refusal(self: Any, chunk: Any, error: Any) -> None:
        told.append(str(error.err_code))
        refused(self, chunk, error)

    monkeypatch.setattr(publisher, "_rows_frames", rows)
    monkeypatch.setattr(publisher, "_marker_frames", marker)
    monkeypatch.setattr(publisher, "_refused", refusal)
    return told


BATCHES = -(-ROWS // exactly_once.ROWS_MAX)


@pytest.mark.slow
@pytest.mark.nats
def test_rows_are_sent_ahead_and_leave_nothing_but_markers(
    broker: Any, publisher: Any, sent: list[str]
) -> None:
    broker.create("S")
    write(publisher(broker.url))
    assert numbers(broker) == list(range(ROWS))
    assert sorted(sent) == ["marker"] * BATCHES + ["rows"] * BATCHES
    ahead = max(sent[:at].count("rows") - sent[:at].count("marker") for at in range(len(sent)))
    assert ahead == exactly_once.USUAL.in_stream - 1
    state = broker.call("STREAM.INFO.S", subjects_filter="mesh._marker.>")["state"]
    assert state["subjects"] == {"mesh._marker.S.p": BATCHES}
    assert broker.marker("S", "p").position == ROWS - 1


@pytest.mark.nats
@pytest.mark.timeout(60)
def test_a_stream_does_not_wait_for_the_acks_of_others(
    nats_server: server.NatsServer, broker: Any, publisher: Any
) -> None:
    streams = [f"S{number}" for number in range(exactly_once.USUAL.in_stream + 3)]
    made = publisher(broker.url)
    for stream in streams:
        broker.create(stream)
        made.add(rows(0, 1, stream))
    made.finish()
    os.kill(nats_server.process.pid, signal.SIGSTOP)
    try:
        for stream in streams:
            # A full batch is sent at once.
            made.add(rows(1, exactly_once.ROWS_MAX, stream))
    finally:
        os.kill(nats_server.process.pid, signal.SIGCONT)
    made.finish()
    for stream in streams:
        assert broker.marker(stream, "p").position == exactly_once.ROWS_MAX


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.nats
@pytest.mark.parametrize("count", [1, 500, 1000])
def test_messages_between_rows_and_their_marker_change_nothing(
    broker: Any, publisher: Any, sent: list[str], monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Among others, a foreign batch of exactly our size is in between; our batches are shifted."""
    broker.create("S", "ev.>")
    foreign = b"".join(frames.publish("ev.else", b"") for _ in range(count))
    marker_frames = exactly_once.ExactlyOncePublisher._marker_frames

    def shifted(self: Any, chunk: Any) -> Iterator[bytes]:
        if len(sent) % 3 == 0:
            yield foreign
        yield from marker_frames(self, chunk)

    monkeypatch.setattr(exactly_once.ExactlyOncePublisher, "_marker_frames", shifted)
    write(publisher(broker.url))
    assert numbers(broker) == list(range(ROWS))
    assert sorted(sent) == ["marker"] * BATCHES + ["rows"] * BATCHES


@pytest.mark.nats
def test_rows_that_waited_too_long_for_their_marker_are_sent_again(
    broker: Any, publisher: Any, sent: list[str]
) -> None:
    broker.create("S")
    made = publisher(broker.url)
    made.atomic.staged_s = -1.0
    write(made, 0, 20_000)
    assert sent.count("rows") == 2 * sent.count("marker")
    assert numbers(broker) == list(range(20_000))


@pytest.mark.slow
@pytest.mark.nats
def test_rows_that_the_server_forgot_are_sent_again(
    broker: Any, publisher: Any, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create("S")
    atomic_frames, calls = publish_frames.atomic_frames, 0

    def lost(*args: Any) -> bytes:
        nonlocal calls
        calls += 1
        return b"" if calls in (1, 7, 20) else atomic_frames(*args)

    monkeypatch.setattr(publish_frames, "atomic_frames", lost)
    write(publisher(broker.url))
    assert sent.count("10176") == 3
    assert numbers(broker) == list(range(ROWS))


@pytest.mark.slow
@pytest.mark.nats
def test_somebody_else_in_the_stream_only_costs_time(broker: Any, publisher: Any) -> None:
    broker.create("S", "ev.>")
    done = threading.Event()
    options = sink_options.sink_options({"servers": broker.url})
    sent: list[bytes] = []

    def disturb() -> None:
        with Connection(options.connection) as other:
            while not done.is_set():
                sent.append(b"%d" % len(sent))
                other.retry_while_unavailable(
                    "disturbing", lambda: other.requests([("ev.else", sent[-1])])[0].json()
                )

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        write(publisher(broker.url))
    finally:
        done.set()
        thread.join()
    assert numbers(broker) == list(range(ROWS))
    assert numbers(broker, "ev.else") == list(range(len(sent)))


@pytest.mark.slow
@pytest.mark.nats
def test_two_attempts_of_a_task_at_once_write_each_row_once(broker: Any, publisher: Any) -> None:
    broker.create("S")
    writers = [publisher(broker.url) for _ in range(2)]
    failed: list[BaseException] = []

    def run(writer: publish.RowPublisher) -> None:
        try:
            write(writer)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(writer,)) for writer in writers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed
    assert numbers(broker) == list(range(ROWS))


@pytest.mark.nats
def test_a_replaced_writer_is_stopped_between_its_batches(broker: Any, publisher: Any) -> None:
    broker.create("S")
    old = publisher(broker.url, epoch=1)
    old.add(rows(0, 20_000))
    publisher(broker.url, epoch=2).write(rows(0, 30_000))
    with pytest.raises(StaleWriterError, match="PYSPARK-NATS-FENCED"):
        write(old, 20_000)
    assert numbers(broker) == list(range(30_000))


@pytest.mark.slow
@pytest.mark.sampled(6)
@pytest.mark.nats
@pytest.mark.parametrize("acks", [0, 1, 2, 3, 7, 30, 59, 60])
def test_lost_answers_neither_lose_nor_double(
    broker: Any, publisher: Any, nats_server: server.NatsServer, acks: int
) -> None:
    broker.create("S")
    cutter = Cutter(nats_server.port, acks=acks)
    try:
        write(publisher(cutter.url))
    finally:
        cutter.close()
    assert cutter.cuts == 1
    assert numbers(broker) == list(range(ROWS))


@pytest.mark.nats
@pytest.mark.restarts
@pytest.mark.slow
def test_a_server_killed_between_batches_on_their_way_loses_none(
    broker: Any, publisher: Any, nats_server: server.NatsServer
) -> None:
    broker.create("S")
    failed: list[BaseException] = []
    writer = publisher(broker.url)

    def run() -> None:
        try:
            write(writer)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    running = nats_server
    try:
        for least in (5_000, 25_000):
            broker.wait_until(
                "S", lambda least=least: broker.info("S").last > least, "rows are out"
            )
            os.kill(running.process.pid, signal.SIGKILL)
            running.process.wait()
            running = server.start(nats_server.directory, port=nats_server.port)
        thread.join(60)
        assert not failed
        assert not thread.is_alive()
        # A killed server may lose its last acked messages, if nothing was flushed to the disk; the
        # rest is a prefix, and no row is there twice. On one machine the page cache survives.
        assert numbers(broker) == list(range(ROWS))
    finally:
        running.stop()


@pytest.mark.nats
def test_large_empty_and_binary_payloads_and_a_thousand_subjects(
    broker: Any, publisher: Any
) -> None:
    broker.create("S", "ev.>")
    large = os.urandom(1 << 19) + b"\r\nPUB x 1\r\n" + b"\0" * (1 << 18)
    data = [b"", large, b"\r\n\0\xff", *[b"x"] * 997, b""]
    batch = arrow.record_batch(
        {
            "data": pa.array(data, pa.binary()),
            "subject": pa.array([f"ev.{n % 1000}" for n in range(len(data))]),
        }
    )
    done = messages_out.with_schema_columns(
        batch, stream="S", subject="", producer="p", first_position=0
    )
    for given in ({}, {"deliveryGuarantee": "at-least-once"}):
        broker.call("STREAM.PURGE.S")
        publisher(broker.url, **given).write(done)
        assert broker.payloads("S", "ev.0") == [b"", b""]
        assert broker.payloads("S", "ev.1") == [large]
        assert broker.payloads("S", "ev.2") == [b"\r\n\0\xff"]
        state = broker.call("STREAM.INFO.S", subjects_filter="ev.>")["state"]
        assert len(state["subjects"]) == 1000


@pytest.mark.slow
@pytest.mark.nats
def test_a_hundred_thousand_subjects_are_written_and_read_by_a_wildcard(
    broker: Any, publisher: Any
) -> None:
    count = 100_000
    broker.create("S", "ev.>")
    numbers_ = range(count)
    batch = arrow.record_batch(
        {
            "data": pa.array([b"%d" % n for n in numbers_], pa.binary()),
            "subject": pa.array([f"ev.{n % 10}.{n}" for n in numbers_]),
        }
    )
    done = messages_out.with_schema_columns(
        batch, stream="S", subject="", producer="p", first_position=0
    )
    publisher(broker.url).write(done)
    for wanted, expected in (("ev.7.*", range(7, count, 10)), ("ev.*.99999", (99_999,))):
        found = StreamRange("S", 0, broker.info("S").last, 0, 0, subjects=(wanted,))
        read = [
            payload
            for part in fetch.read_range(broker.connection, found, Blocks())
            for payload in part.data.to_pylist()
        ]
        assert read == [b"%d" % n for n in expected]
