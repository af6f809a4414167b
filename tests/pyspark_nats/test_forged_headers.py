"""Headers that a publisher writes under the server's names, or as octets that are no text."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pyspark_nats.protocol import frames
from pyspark_nats.protocol.frames import header_values
from pyspark_nats.sink import messages_out, publish
from pyspark_nats.sink.sink_options import sink_options
from pyspark_nats.source import batches, fetch, messages, rows
from pyspark_nats.source.ranges import Blocks, StreamRange
from pyspark_nats.source.source_options import source_options

if TYPE_CHECKING:
    from pyspark_nats.source.messages import Messages

pytestmark = pytest.mark.nats

FORGED = (
    "Nats-Sequence: 4", "Nats-Sequence: 99999", "Nats-Sequence: x", "Nats-Subject: ev.OTHER",
    "Nats-Time-Stamp: 2001-01-01T00:00:00Z", "Nats-Time-Stamp: x", "Nats-Stream: OTHER",
    "Nats-Sequence:", "Nats-Sequence: 1\r\nNats-Sequence: 2",
)  # fmt: skip


def publish_raw(broker: Any, subject: bytes, *blocks: bytes) -> None:
    """Publish ``{"n":i}`` with header blocks as they are, well-formed or not."""

    def send() -> None:
        replies = broker.connection.reply_subjects(len(blocks))
        sent = b""
        for number, (block, reply) in enumerate(zip(blocks, replies, strict=True)):
            data = b'{"n":%d}' % number
            head = b"HPUB %s %s %d %d\r\n" % (
                subject, reply.encode(), len(block), len(block) + len(data),
            )  # fmt: skip
            sent += head + block + data + b"\r\n"
        broker.connection.send(sent)
        assert len(broker.connection.replies(replies)) == len(blocks)

    broker.connection.retry_while_unavailable("publishing", send)


def block(*lines: str | bytes) -> bytes:
    whole = [line.encode() if isinstance(line, str) else line for line in lines]
    return b"NATS/1.0\r\n" + b"".join(line + b"\r\n" for line in whole) + b"\r\n"


def read(broker: Any, blocks: Blocks, end: int) -> Messages:
    wanted = StreamRange("S", 0, end, 0, 0)
    return messages.concatenated(list(fetch.read_range(broker.connection, wanted, blocks)))


def test_a_message_is_read_at_its_true_sequence_subject_and_time(broker: Any) -> None:
    broker.create("S")
    publish_raw(broker, b"ev.S", *(block("X: y", line) for line in FORGED))
    found = read(broker, Blocks(), len(FORGED))
    assert found.sequence.tolist() == list(range(1, len(FORGED) + 1))
    assert found.data.to_pylist() == [b'{"n":%d}' % n for n in range(len(FORGED))]
    assert set(found.subject.to_pylist()) == {"ev.S"}
    assert (np.abs(found.time_ns - time.time_ns()) < 60e9).all()
    # A reader of headers does not see them either.
    assert rows.header_maps(found.header).to_pylist() == [[("X", ["y"])]] * len(FORGED)


@pytest.mark.parametrize("end", [b"", b"\r\n", b"\r", b"X", b"X: y", b"Nats-Sequence: 9"])
def test_a_header_block_without_its_end_hides_no_server_header(broker: Any, end: bytes) -> None:
    broker.create("S")
    publish_raw(broker, b"ev.S", block(), b"NATS/1.0\r\nNats-Subject: ev.OTHER\r\n" + end)
    found = read(broker, Blocks(), 2)
    assert found.sequence.tolist() == [1, 2]
    assert found.subject.to_pylist() == ["ev.S"] * 2


def test_a_forged_subject_passes_no_filter(broker: Any) -> None:
    broker.create("S", "ev.*")
    publish_raw(broker, b"ev.a", block("Nats-Subject: ev.b"))
    wanted = StreamRange("S", 0, 1, 0, 0, subjects=("ev.b",))
    assert list(fetch.read_range(broker.connection, wanted, Blocks())) == []


@pytest.mark.parametrize("name", [b"Content-Type", b"Mesh-Timestamp", b"X"])
@pytest.mark.parametrize("layout", ["rangeMarkers", "metadata"])
def test_octets_that_are_no_text_stop_no_read(broker: Any, name: bytes, layout: str) -> None:
    broker.create("S")
    publish_raw(broker, b"ev.S", block(), block(name + b": a\xffb"), block())
    given = {**broker.given, "stream": "S", "eventTimeHeader": "Mesh-Timestamp"}
    if layout == "rangeMarkers":
        options = source_options({**given, "rangeMarkers": "true"})
        to_batch = batches.WithRangeMarkers(options.event_time_header)
        assert [one.num_rows for one in to_batch(read(broker, Blocks(), 3))] == [3]
        with_headers = batches.WithRangeMarkers("", include_headers=True)
        (found,) = with_headers(read(broker, Blocks(), 3))
        assert found.column("headers").to_pylist()[1] == [(name.decode(), ["a\ufffdb"])]
        return
    found = rows.raw(read(broker, Blocks(), 3))
    text = name.decode()
    assert found.column("headers").to_pylist() == [[], [(text, ["a�b"])], []]
    values = header_values(read(broker, Blocks(), 3).header, text)
    assert values.to_pylist() == [None, "a�b", None]


@pytest.mark.parametrize("has_headers", [False, True])
def test_a_subject_that_is_no_text_stops_no_read(broker: Any, has_headers: bool) -> None:
    broker.create("S", "ev.>")
    publish_raw(broker, b"ev.\xff", block())
    head = b"HMSG ev.\xff 1 12 13\r\nNATS/1.0\r\n\r\n" if has_headers else b"MSG ev.\xff 1 1\r\n"
    subjects = frames.split(head + b"x\r\n").subject
    subjects.validate(full=True)
    found = rows.raw(read(broker, Blocks(), 1))
    found.validate(full=True)
    assert found.column("subject").to_pylist() == subjects.to_pylist() == ["ev.�"]


def test_headers_that_are_read_can_be_written(broker: Any) -> None:
    broker.create("S")
    lines = ("A B: 1", ": 2", " : 3", "C: x\ny", "D:\rz", "E", "F: 6")
    publish_raw(broker, b"ev.S", block(*lines))
    headers = rows.header_maps(read(broker, Blocks(), 1).header)
    assert headers.to_pylist() == [[("C", ["x y"]), ("D", ["z"]), ("F", ["6"])]]
    assert messages_out.header_lines(headers).to_pylist() == [b"C: x y\r\nD: z\r\nF: 6\r\n"]


def test_a_rollup_is_not_carried_into_a_stream_that_allows_it(broker: Any) -> None:
    broker.create("S", allow_rollup_hdrs=True)
    broker.create("T", allow_rollup_hdrs=True)
    broker.publish("ev.T", b"kept")
    publish_raw(broker, b"ev.S", block("Nats-Rollup: all", "X: y"))
    found = rows.raw(read(broker, Blocks(), 1)).select(["data", "headers"])
    given = messages_out.with_schema_columns(
        found, stream="T", subject="ev.T", producer="p", first_position=0
    )
    options = sink_options({**broker.given, "epoch": "1"})
    publish.RowPublisher(broker.connection, options).write(given)
    assert broker.payloads("T", "ev.T") == [b"kept", b'{"n":0}']
