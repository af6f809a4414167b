"""Messages of a hostile publisher: each is recorded once, and costs no more than its size."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import msgpack  # type: ignore[import-untyped]  # it has no stubs
import numpy as np
import orjson
import pyarrow as pa
import pytest

from pyspark_nats import decode
from pyspark_nats.decode import json_messages, payloads
from pyspark_nats.decode.result import ERRORS_MAX, EVENTS_CEILING, REASON_MAX
from tests.support.hostile_messages import ARROW, JSON, MSGPACK, SMALL, column, stream

SCHEMA = pa.schema([("id", pa.int64())])
WIDE = pa.schema([(f"c{n}", pa.int64()) for n in range(100)])
GOOD = b'{"id":1}'


def decoded(
    payloads: list[bytes],
    content_type: str | None,
    schema: pa.Schema = SCHEMA,
    limits: decode.MessageLimits = SMALL,
    missing: str = "error",
) -> decode.DecodeResult:
    """Decode ``payloads``, with a good JSON event before and after them."""
    types = [JSON, *[content_type] * len(payloads), JSON]
    return decode.decode_messages(
        pa.array([GOOD, *payloads, GOOD], pa.binary()),
        pa.array(types, pa.string()),
        schema,
        missing=missing,
        limits=limits,
    )


DEEP_JSON = b"[" * 1000 + b"]" * 1000
POISON = {
    "a list as a key": (b"\x81\x90\x01", MSGPACK),
    "a map as a key": (b"\x81\x80\x01", MSGPACK),
    "deep MessagePack": (b"\x91" * 1020 + b"\x01", MSGPACK),
    "deep MessagePack in an attribute": (b"\x81\xa2id" + b"\x91" * 1000 + b"\x01", MSGPACK),
    "deeper MessagePack": (b"\x91" * 5000 + b"\x01", MSGPACK),
    "deep JSON": (DEEP_JSON, JSON),
    "deep JSON in an attribute": (b'{"id":' + DEEP_JSON + b"}", JSON),
    "a deep map of JSON": (b'{"a":' * 900 + b"1" + b"}" * 900, JSON),
    "a long word": (b'{"id":"' + b"x" * 50_000 + b'"}', JSON),
    "a huge number": (b'{"id":1' + b"0" * 50_000 + b"}", JSON),
    "a MessagePack extension": (msgpack.packb({"id": msgpack.ExtType(5, b"x" * 999)}), MSGPACK),
    "a content type that is long": (b"{}", "x" * 9999),
    "no Arrow": (b"\xff\xff\xff\xff\x10\0\0\0nonsense", ARROW),
}


@pytest.mark.parametrize("name", POISON)
def test_a_poison_message_is_one_error_and_its_neighbours_are_read(name: str) -> None:
    payload, content_type = POISON[name]
    found = decoded([payload], content_type)
    assert found.message.tolist() == [0, 2]
    assert found.rows.column("id").to_pylist() == [1, 1]
    ((number, index, reason),) = found.errors
    assert (number, index) == (1, 0)
    assert 0 < len(reason) <= REASON_MAX


def test_a_decimal_that_is_deep_or_huge_is_an_error_too() -> None:
    schema = pa.schema([("id", pa.decimal128(9, 2))])
    deep = b'{"id":1,"more":' + DEEP_JSON + b"}"
    huge = b'{"id":1e' + b"9" * 30 + b"}"
    found = decoded([deep, huge, b'{"id":1' + b"0" * 50_000 + b"}"], JSON, schema)
    assert set(found.message.tolist()) >= {0, 4}
    assert {error[0] for error in found.errors} == {1, 2, 3} - set(found.message.tolist())


def test_a_failure_that_no_rule_knows_is_that_of_one_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = json_messages.decode_json

    def failing(data: Any, *given: Any, **named: Any) -> Any:
        if b"boom" in data.to_pylist():
            raise RuntimeError("boom")
        return known(data, *given, **named)

    monkeypatch.setattr(payloads, "decode_json", failing)
    found = decoded([GOOD, b"boom", GOOD, b"{"], JSON)
    assert found.message.tolist() == [0, 1, 3, 5]
    assert [error[:2] for error in found.errors] == [(2, 0), (4, 0)]
    assert found.errors[0][2] == "the message can't be decoded: RuntimeError: boom"


NULLS = pa.nulls(20_000_000)
BOMBS = {
    "nulls": stream(column(NULLS)),
    "compressed nulls": stream(column(NULLS), compression="zstd"),
    "zeros, zstd": stream(column(pa.array(np.zeros(100_000, np.int64))), compression="zstd"),
    "zeros, lz4": stream(column(pa.array(np.zeros(100_000, np.int64))), compression="lz4"),
    "many batches": stream(*[column(pa.nulls(900))] * 200),
    "bits": stream(column(pa.array(np.zeros(EVENTS_CEILING + 1, bool)))),
}


@pytest.mark.parametrize("name", BOMBS)
def test_an_arrow_message_of_many_rows_is_one_error(name: str) -> None:
    found = decoded([BOMBS[name]], ARROW)
    assert found.message.tolist() == [0, 2]
    ((number, index, reason),) = found.errors
    assert (number, index) == (1, 0)
    assert reason.startswith("the message ")


def test_rows_are_limited_below_the_positions_of_a_message() -> None:
    found = decoded([BOMBS["bits"]], ARROW, pa.schema([("id", pa.bool_())]), decode.MessageLimits())
    assert found.errors[1][2] == "the message holds 1048576 events, more than 1000000"


@pytest.mark.parametrize(
    ("payload", "content_type"),
    [
        (b"[" + b"{}," * 2000 + b"{}]", JSON),
        (b"{}\n" * 2000, JSON),
        (msgpack.packb([{}] * 2001), MSGPACK),
        (stream(column(pa.nulls(500))), ARROW),
    ],
)
def test_rows_of_many_columns_are_limited_by_their_bytes(
    payload: bytes, content_type: str | None
) -> None:
    limits = decode.MessageLimits(events_max=5000, bytes_max=100_000)
    found = decoded([payload], content_type, WIDE, limits, missing="null")
    assert found.message.tolist() == [0, 2]
    ((number, _, reason),) = found.errors
    assert number == 1
    assert "bytes when decoded, more than 100000" in reason


def test_a_payload_beyond_the_limit_is_not_looked_at() -> None:
    found = decoded([b'{"id":1,"more":"' + b"x" * SMALL.bytes_max + b'"}'], JSON)
    assert found.message.tolist() == [0, 2]
    assert [error[0] for error in found.errors] == [1]


def test_messages_that_are_large_together_are_decoded_some_at_a_time() -> None:
    # Each claims about 15,000 bytes of rows, and four limits of them are decoded together.
    payload = stream(column(pa.nulls(900)))
    data = pa.array([payload, GOOD] * 100)
    types = pa.array([ARROW, None] * 100)
    counts, at = [], 0
    while at < len(data):
        found = decode.decode_messages(data.slice(at), types.slice(at), SCHEMA, limits=SMALL)
        assert found.rows.num_rows * 9 < 5 * SMALL.bytes_max
        assert set(found.message.tolist()) == set(range(found.taken))
        counts.append(found.rows.num_rows)
        at += found.taken
    assert sum(counts) == 100 * 901
    assert len(counts) > 3


@pytest.mark.parametrize(
    ("payload", "content_type"),
    [(orjson.dumps([0] * 900), JSON), (b"x\n" * 900, JSON), (msgpack.packb([0] * 900), MSGPACK)],
)
def test_errors_of_one_message_are_bounded_and_the_last_counts_the_rest(
    payload: bytes, content_type: str | None
) -> None:
    found = decoded([payload], content_type)
    assert [error[:2] for error in found.errors] == [(1, n) for n in range(ERRORS_MAX)]
    assert found.errors[-1][2].endswith("(and 800 more events of the message)")
    assert found.message.tolist() == [0, 2]


def test_decoding_a_bomb_takes_no_memory_of_its_claim() -> None:
    tracemalloc.start()
    used = pa.total_allocated_bytes()
    decoded([BOMBS["nulls"]] * 20, ARROW)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000
    assert pa.total_allocated_bytes() - used < 5_000_000


MAPS = b"\xdd" + struct.pack(">I", 200_000)


@pytest.mark.parametrize(
    "bomb",
    [
        MAPS + b"\x80" * 200_000,
        MAPS + b"\x81\x01\x80" * 200_000,
        b"\x81\xa2id" + b"\xdd" + struct.pack(">I", 200_000) + b"\x91\x90" * 200_000,
        b"\xdd" + struct.pack(">I", 200_000) + b"\xd0\x80" * 200_000,
    ],
    ids=["empty maps", "maps of maps", "lists in an attribute", "numbers"],
)
def test_memory_of_messagepack_is_bounded_while_it_is_read(bomb: bytes) -> None:
    limits = decode.MessageLimits(bytes_max=1_000_000)
    tracemalloc.start()
    found = decoded([bomb], MSGPACK, limits=limits)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [reason for _, _, reason in found.errors] == [
        "the message needs too many bytes when decoded, more than 1000000"
    ]
    assert found.rows.to_pydict() == {"id": [1, 1]}
    # A container is made before it is counted, and has room for all items that it claims.
    assert peak < 3_000_000 + 24 * len(bomb)


def test_a_long_text_in_messagepack_is_within_the_limit() -> None:
    limits = decode.MessageLimits(bytes_max=1_000_000)
    found = decoded([msgpack.packb({"id": 7, "more": "x" * 900_000})], MSGPACK, limits=limits)
    assert found.rows.to_pydict() == {"id": [1, 7, 1]}
