"""Hostile messages amid good ones, through the tasks of a shared query and a real server."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import msgpack  # type: ignore[import-untyped]  # it has no stubs
import numpy as np
import orjson
import pyarrow as pa
import pytest

from mesh.model import error_entry
from mesh.spark.shared_query.members import WORK
from pyspark_nats.arrow import ipc_stream
from pyspark_nats.decode import MessageLimits
from tests.support.shared_query import Instances, admitted, begun

if TYPE_CHECKING:
    from tests.support.shared_query import Hand

pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]

ARROW, MSGPACK = "application/vnd.apache.arrow.stream", "application/msgpack"


def run(hand: Hand) -> None:
    """Run batches until nothing is left; no instance fails."""
    while told := hand.step(0.3):
        assert {kind for kind, _ in told} == {WORK}


def stream(values: Any) -> bytes:
    return ipc_stream(pa.RecordBatch.from_arrays([values], names=["n"]))


HOSTILE = [
    (b"\x81\x90\x01", b"Content-Type: application/msgpack\r\n"),
    (b"\x91" * 1020 + b"\x01", b"Content-Type: application/msgpack\r\n"),
    (b"[" * 1000 + b"]" * 1000, b""),
    (b'{"n":1}', b"Content-Type: \xff\r\n"),
    (stream(pa.nulls(20_000_000)), f"Content-Type: {ARROW}\r\n".encode()),
    (b'{"n":"\xff"}' + b"x" * 900_000, b""),
]


def test_each_hostile_message_is_recorded_once_and_all_others_are_processed(hand: Hand) -> None:
    begun(hand, "A")
    hand.publish("A", 1)
    for number, (payload, headers) in enumerate(HOSTILE, 2):
        hand.store(payload, headers)
        hand.publish("A", number)
    last = len(HOSTILE) + 1
    run(hand)
    assert hand.rows("A", "Large") == [[n * 10] for n in range(2, last + 1)]
    sums = [[sum(range(max(1, n - 2), n + 1))] for n in range(1, last + 1)]
    assert hand.rows("A", "Sums") == sums
    recorded = hand.errors()
    assert [entry["sequence"] for entry in recorded] == [2 * n for n in range(1, last)]
    assert "data_bytes" in recorded[-1]
    assert error_entry.event_of(recorded[-1]) is None


@pytest.mark.parametrize(
    "header",
    [b"Nats-Sequence: x", b"Nats-Sequence: 4", b"Nats-Sequence: 99999", b"Nats-Time-Stamp: x",
     b"Nats-Time-Stamp: 2001-01-01T00:00:00Z", b"Nats-Subject: mesh.A.Other",
     b"Mesh-Timestamp: \xff"],
)  # fmt: skip
def test_an_event_with_forged_headers_is_an_event_at_its_place(hand: Hand, header: bytes) -> None:
    begun(hand, "A")
    hand.publish("A", 2)
    hand.store(b'{"n":3}', header + b"\r\n")
    hand.publish("A", 4, 5)
    run(hand)
    assert hand.rows("A", "Large") == [[20], [30], [40], [50]]
    assert hand.rows("A", "Sums") == [[2], [5], [9], [12]]
    assert hand.errors() == []


@pytest.mark.slow
def test_many_bad_events_of_a_message_are_recorded_by_a_few_entries(hand: Hand) -> None:
    begun(hand, "A")
    hand.store(orjson.dumps([{"n": 2}, *["word"] * 50_000, {"n": 3}]))
    hand.store(b'{"n":4}\n{"n":"much"}\n{"n":5}')
    run(hand)
    assert hand.rows("A", "Large") == [[20], [30], [40], [50]]
    recorded = hand.errors()
    assert len(recorded) == 101
    assert recorded[99]["reason"].endswith("(and 49900 more events of the message)")
    # Each has its own event, and not the whole message.
    assert {entry["data"] for entry in recorded[:100]} == {'"word"'}
    assert error_entry.event_of(recorded[100]) == b'{"n":"much"}'
    assert [entry["index"] for entry in recorded[:3]] == [1, 2, 3]


def test_a_message_that_can_t_be_divided_is_recorded_with_its_first_event(hand: Hand) -> None:
    begun(hand, "A")
    payload = b"\xdc\x01\x00" + b"\xa1x" * 256
    hand.store(payload, f"Content-Type: {MSGPACK}\r\n".encode())
    run(hand)
    recorded = hand.errors()
    assert len(recorded) == 100
    assert base64.b64decode(recorded[0]["data_base64"]) == payload
    assert not any({"data", "data_base64"} & set(entry) for entry in recorded[1:])


def test_a_message_of_more_events_than_positions_loses_no_other(hand: Hand) -> None:
    begun(hand, "A")
    flags = stream(pa.array(np.ones(1_100_000, bool)))
    hand.store(flags, f"Content-Type: {ARROW}\r\n".encode())
    hand.publish("A", 7)
    run(hand)
    assert hand.rows("A", "Large") == [[70]]
    assert [entry["reason"] for entry in hand.errors()] == [
        "the message holds 1100000 events, more than 1000000"
    ]


AHEAD_MS = 86_400_000


@pytest.mark.parametrize("time_ms", ["999999999999999999", "9" * 40, "-1"])
def test_an_event_of_the_far_future_is_recorded_and_moves_no_clock(
    hand: Hand, time_ms: str
) -> None:
    app = Instances(hand, "A", message=MessageLimits(event_time_ahead_ms=AHEAD_MS))
    admitted(hand, app)
    hand.publish("A", 2)
    hand.store(b'{"n":3}', f"Mesh-Timestamp: {time_ms}\r\n".encode())
    hand.publish("A", 4)
    run(hand)
    assert hand.rows("A", "Large") == [[20], [40]]
    assert hand.rows("A", "Sums") == [[2], [6]]
    while len(hand.rows("A", "Late")) < 2:
        hand.step()
    (entry,) = hand.errors()
    assert entry["reason"].startswith("event time ")
    assert error_entry.resend_time_of(entry) is None
    assert error_entry.event_of(entry) == b'{"n":3}'


WORDS = """@App:name('{name}')
define stream Numbers (n int, s string);
@dist(execGroup='large') from Numbers select n, s insert into Large;
@dist(execGroup='sums') from Numbers#window.length(2) select sum(n) as n, s insert into Sums;
"""


def test_an_event_that_is_too_large_as_a_message_is_recorded(hand: Hand) -> None:
    admitted(hand, Instances(hand, "A", app=WORDS))
    # One octet of MessagePack is six of JSON.
    large = msgpack.packb({"n": 2, "s": "\x01" * 400_000})
    announced = f"Content-Type: {MSGPACK}\r\n".encode()
    for payload in (msgpack.packb({"n": 1, "s": "a"}), large, msgpack.packb({"n": 3, "s": "b"})):
        hand.store(payload, announced)
    run(hand)
    assert hand.rows("A", "Large") == [[1, "a"], [3, "b"]]
    assert hand.rows("A", "Sums") == [[1, "a"], [5, "b"]]
    recorded = hand.errors()
    assert sorted(entry["stream"] for entry in recorded) == ["Large", "Sums"]
    for entry in recorded:
        assert entry["reason"].startswith("the event is a message of 2400")
        assert error_entry.event_of(entry) is None
