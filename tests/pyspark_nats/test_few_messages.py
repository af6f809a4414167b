"""Few messages as lists: the rows are those of columns."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest

from pyspark_nats.decode import decode_messages
from pyspark_nats.decode.result import USUAL, MessageLimits
from pyspark_nats.few_rows import as_batch
from pyspark_nats.protocol import frames
from pyspark_nats.protocol.connection import DisconnectedError
from pyspark_nats.protocol.frames import header_values
from pyspark_nats.source import messages
from pyspark_nats.source.few_messages import decode_few

EVENT_FIELDS: Any = (
    ("s", pa.string()), ("i", pa.int32()), ("l", pa.int64()), ("f", pa.float32()),
    ("d", pa.float64()), ("b", pa.bool_()),
)  # fmt: skip
EVENTS = pa.schema(EVENT_FIELDS)
VALUES: dict[str, list[str]] = {
    "s": ['"a"', '"\\u00e9\\n"', "null", "5"],
    "i": ["1", "-2147483648", "2147483648", "null", "true", "1.0"],
    "l": ["9223372036854775807", "0", "9223372036854775808", "null", "-0"],
    "f": ["0.1", "16777216", "16777217", "1e39", "null", "-0.0", "true"],
    "d": ["0.1", "9007199254740992", "9007199254740993", "1e308", "null", "-0", '"1"'],
    "b": ["true", "false", "null", "1"],
}
ODD = [b"", b"[]", b"[{}]", b"{", b'{"s":"a"}', b"7", b'{"s":"a"}\n{"s":"b"}']


def test_messages_as_lists_and_as_columns_give_the_same_rows() -> None:
    random = Random(9)
    read = 0
    for _ in range(400):
        payloads = []
        for _ in range(random.randint(1, 3)):
            texts = {name: random.choice(some[:2]) for name, some in VALUES.items()}
            if random.random() < 0.3:
                name = random.choice([*VALUES])
                texts[name] = random.choice(VALUES[name])
            event = ",".join(f'"{name}":{text}' for name, text in texts.items())
            payloads.append(f'{{{event},"more":[1]}}'.encode())
        if random.random() < 0.1:
            payloads.append(random.choice(ODD))
        found = _consumed(payloads)
        few = decode_few(found, EVENTS, "T", USUAL)
        kinds = header_values(found.header, "Content-Type")
        whole = decode_messages(found.data, kinds, EVENTS)
        if few is None:
            continue
        read += 1
        assert as_batch(few.rows).equals(whole.rows)
        assert few.message.tolist() == whole.message.tolist()
        assert few.index.tolist() == whole.index.tolist()
        assert (few.errors, few.taken) == (whole.errors, whole.taken)
    assert read > 50


def test_messages_that_are_not_read_as_lists() -> None:
    plain = b'{"s":"a","i":1,"l":1,"f":1.5,"d":1.5,"b":true}'
    assert decode_few(_consumed([plain]), EVENTS, "T", USUAL) is not None
    for header in (b"T: 5\r\n", b"Content-Type: application/msgpack\r\n"):
        assert decode_few(_consumed([plain], header), EVENTS, "T", USUAL) is None
    assert decode_few(_consumed([plain], b"T: 5\r\n"), EVENTS, "", USUAL) is not None
    assert decode_few(_consumed([plain] * 40), EVENTS, "T", USUAL) is None
    assert decode_few(_consumed([plain]), EVENTS, "T", MessageLimits(bytes_max=40)) is None
    assert decode_few(_consumed([plain]), pa.schema([("o", pa.binary())]), "T", USUAL) is None


@pytest.mark.parametrize("count", [1, 2, 5])
def test_messages_by_themselves_are_those_of_columns(count: int) -> None:
    received = _received([b"a\r\nMSG b 1 3\r\n", b"", b"\xff", b"x", b"y"][:count])
    many, pending = messages.of_consumer("S", "c", 0, frames.split(received))
    few, size = frames.few(received + b"MSG ev 1 5\r\nabc") or ([], 0)
    one_by_one, later = messages.of_few("S", "c", 0, few)
    assert (size, later) == (len(received), pending)
    for some, others in ((many, one_by_one), (many.slice(1, 3), one_by_one.slice(1, 3))):
        assert some.sequence.tolist() == others.sequence.tolist()
        assert some.time_ns.tolist() == others.time_ns.tolist()
        assert some.few == others.few
        assert some.few_subjects == others.few_subjects
        for name in ("data", "subject"):
            assert getattr(some, name).equals(getattr(others, name))
        headers = (one.header.fill_null(b"").to_pylist() for one in (some, others))
        assert next(headers) == next(headers)
    with pytest.raises(DisconnectedError):
        messages.of_few("S", "c", 1, few)


def test_many_or_large_messages_are_none_by_themselves() -> None:
    assert frames.few(_received([b""] * 40)) is None
    assert frames.few(_received([b"x" * 100] * 90)) is None
    assert frames.few(b"PING\r\n") == ([], 0)


def test_parts_that_came_one_after_the_other_are_few_together() -> None:
    received = _received([b"1", b"2", b"3"])
    few, _ = frames.few(received) or ([], 0)
    parts = [messages.of_few("S", "c", at, few[at:end])[0] for at, end in ((0, 1), (1, 3))]
    whole = messages.concatenated(parts)
    assert [data for _, data in whole.few or ()] == [b"1", b"2", b"3"]
    assert whole.matching(["ev"]) is whole
    assert not len(whole.matching(["other"]))


def _consumed(payloads: list[bytes], lines: bytes = b"A: 1\r\n") -> messages.Messages:
    """Messages of a consumer."""
    return messages.of_consumer("S", "c", 0, frames.split(_received(payloads, lines)))[0]


def _received(payloads: list[bytes], lines: bytes = b"A: 1\r\n") -> bytes:
    """Messages of a consumer, every second of them without a header if there are several."""
    received = b""
    for n, payload in enumerate(payloads, 1):
        reply = b"$JS.ACK.S.c.1.%d.%d.17000000%d.0" % (n, n, n)
        block = b"NATS/1.0\r\n" + lines + b"\r\n"
        if n % 2:
            sizes = (len(block), len(block) + len(payload))
            received += b"HMSG ev 1 %s %d %d\r\n" % (reply, *sizes) + block + payload + b"\r\n"
        else:
            received += b"MSG ev 1 %s %d\r\n" % (reply, len(payload)) + payload + b"\r\n"
    return received
