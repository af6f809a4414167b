"""Few messages are handled by loops, many by passes over columns: both give the same."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from mesh.spark import partition_task
from pyspark_nats.arrow import concat_batches
from pyspark_nats.decode import decode_messages
from pyspark_nats.decode.limits import USUAL, MessageLimits
from pyspark_nats.encode import payloads
from pyspark_nats.few_rows import FewRows, as_batch, batches_of
from pyspark_nats.protocol import frames, publish_frames
from pyspark_nats.protocol.header_columns import header_values
from pyspark_nats.sink import messages_out, row_tags
from pyspark_nats.source import messages, rows, subjects
from pyspark_nats.source.few_messages import decode_few

if TYPE_CHECKING:
    from collections.abc import Callable

COLUMNS: dict[str, Any] = {
    "i": pa.array([1, -(2**63), None, 0, 2**63 - 1], pa.int64()),
    "f": pa.array([1.5, math.nan, None, -0.0, 1e300]),
    "whole": pa.array([23.0, -23.0, 1e16, math.inf, -math.inf]),
    "single": pa.array([0.1, 16777216.0, None, 1e-10, 3.4e38], pa.float32()),
    "s": pa.array(['a"b', "\x00\x1f\\", None, "\u00e9\u2028\U0001f600", "\x7f"]),
    "b": pa.array([True, False, None, True, False]),
    "t": pa.array([datetime(2026, 1, 2, tzinfo=UTC)] * 5, pa.timestamp("us", "UTC")),
    "d": pa.array([date(1969, 1, 2), None, None, None, None]),
    "o": pa.array([b"\x00\xff", None, b"", b"x", b"y"], pa.binary()),
    "l": pa.array([[1, None], None, [], [2], [3]], pa.list_(pa.int32())),
}


def both(monkeypatch: pytest.MonkeyPatch, module: Any, made: Callable[[], Any]) -> tuple[Any, Any]:
    few = made()
    monkeypatch.setattr(module, "FEW", -1)
    return few, made()


def test_json_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.RecordBatch.from_pydict(COLUMNS)
    few, many = both(monkeypatch, payloads, lambda: payloads.to_json(rows).to_pylist())
    assert few == many
    assert len(set(few)) == 5
    lists = {name: column.to_pylist() for name, column in COLUMNS.items()}
    assert payloads.few_to_json(FewRows(rows.schema, lists)) == few


def test_json_texts_of_doubles_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(5)
    edges = [1e-4, math.nextafter(1e-4, 0), 1e9, math.nextafter(1e9, 0), 0.1 + 0.2, 5e-324]
    powers = [10.0 ** random.uniform(-8, 20) for _ in range(3000)]
    whole = [float(round(one)) for one in powers]
    rounded = [round(one, random.randrange(8)) for one in powers]
    values = [sign * one for one in (*edges, *powers, *whole, *rounded) for sign in (1, -1)]
    # One by one, as a single number with an exponent has all of a run written in the other way.
    schema = pa.schema([("f", pa.float64())])
    few = [payloads.few_to_json(FewRows(schema, {"f": [one]}))[0] for one in values]
    texts = payloads._values(pa.array(values)).to_pylist()
    assert few == [f'{{"f":{text}}}'.encode() for text in texts]


def _of_lists(rows: pa.RecordBatch) -> FewRows:
    return FewRows(rows.schema, {name: rows.column(name).to_pylist() for name in rows.schema.names})


def _atomic(rows: pa.RecordBatch) -> bytes:
    return publish_frames.atomic_frames(rows, "id", "T")


def _ingested(rows: pa.RecordBatch) -> bytes:
    tags = row_tags.tags(b"key", 9, rows.num_rows)
    octets, ends = publish_frames.ingest_frames(rows, "_INBOX.b", "Row:p ", 9, tags, "T")
    assert [octets[end - 2 : end] for end in ends] == [b"\r\n"] * rows.num_rows
    return octets


@pytest.mark.parametrize("with_headers", [False, True])
@pytest.mark.parametrize("made", [_atomic, _ingested])
def test_frames_of_a_batch(
    monkeypatch: pytest.MonkeyPatch, made: Callable[[pa.RecordBatch], bytes], with_headers: bool
) -> None:
    given: dict[str, Any] = {"data": [b"", b"x\r\ny", b"\xff"]}
    if with_headers:
        given |= {
            "content_type": pa.array([None, "a/b", "c"], pa.string()),
            "event_time_ms": pa.array([-5, None, 7], pa.int64()),
            "headers": pa.array(
                [None, [("A", "\u00e9")], [("B", "1"), ("B", "2")]],
                pa.map_(pa.string(), pa.string()),
            ),
        }
    rows = messages_out.with_schema_columns(
        pa.RecordBatch.from_pydict(given), stream="S", subject="s.x", producer="p", first_position=3
    )
    of_lists = made(_of_lists(rows))
    few, many = both(monkeypatch, publish_frames, lambda: made(rows))
    assert few == many == of_lists
    assert few.count(b"HPUB ") == 3


HEADER = b"NATS/1.0\r\nA: 1\r\nB:  two \x1c\r\nA: \xff3\r\nNats-Sequence: 9\r\n\r\n"
RECEIVED = b"".join((
    b"MSG ev.a 1 2\r\nhi\r\n",
    b"MSG ev.bb 22 $JS.ACK.S.c.1.41.1.1700000000000000000.0 0\r\n\r\n",
    b"HMSG ev.\xc3\xa9 3 reply %d %d\r\n" % (len(HEADER), len(HEADER) + 4),
    HEADER, b"data\r\n",
    b"HMSG ev.d 3 16 16\r\nNATS/1.0 404\r\n\r\n\r\n",
    b"MSG ev.partial 1 10\r\nhal",
))  # fmt: skip


def test_frames_that_were_received(monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> list[Any]:
        split = frames.split(RECEIVED)
        return [
            split.consumed,
            split.sid.tolist(),
            split.subject.to_pylist(),
            split.data.to_pylist(),
            [header or b"" for header in split.header.to_pylist()],
            split.is_status.tolist(),
            split.reply.to_pylist(),
            *(
                header_values(split.header, name, is_servers=last).to_pylist()
                for name in ("A", "B", "Nats-Sequence", "Absent")
                for last in (False, True)
            ),
        ]

    few = found()
    monkeypatch.setattr(frames, "_FEW_BYTES", -1)
    monkeypatch.setattr(frames, "FEW", -1)
    assert few == found()
    assert few[1] == [1, 22, 3, 3]


@pytest.mark.parametrize("sizes", [[9_000, 3, 0, 5_000], [3, 9_000, 0, 5_000]])
def test_frames_are_the_same_by_a_walk_and_by_passes(
    monkeypatch: pytest.MonkeyPatch, sizes: list[int]
) -> None:
    payloads = [b"MSG ev.x 1 3\r\n"[: size % 16] + b"y" * (size - size % 16) for size in sizes]
    received = b"".join(
        b"MSG ev.a 7 %d\r\n" % len(payload) + payload + b"\r\n"
        if n % 2
        else b"HMSG ev.b 7 %d %d\r\n" % (len(HEADER), len(HEADER) + len(payload))
        + HEADER + payload + b"\r\n"
        for n, payload in enumerate(payloads)
    ) + b"MSG ev.partial"  # fmt: skip
    found = []
    for large in (0, 1 << 30):
        monkeypatch.setattr(frames, "_LARGE_FRAME", large)
        monkeypatch.setattr(frames, "FEW", -1)
        split = frames.split(received)
        found.append(
            (split.consumed, split.subject.to_pylist(), split.data.to_pylist(), split.sid.tolist())
        )
    assert found[0] == found[1]
    assert found[0][1:] == (["ev.b", "ev.a"] * 2, payloads, [7] * 4)


def test_places_in_reply_subjects(monkeypatch: pytest.MonkeyPatch) -> None:
    replies = [b"$JS.ACK.S.c.1.41.1.17.0", b"$JS.ACK.hub.acc.S.c.1.42.2.18.0.x"]
    received = frames.split(b"".join(b"MSG a 1 %s 0\r\n\r\n" % reply for reply in replies))
    few, many = both(monkeypatch, messages, lambda: messages._reply_numbers(received, 2).tolist())
    assert few == many == [17, 18]


def test_columns_made_when_needed_are_those_of_the_rows() -> None:
    header = b"NATS/1.0\r\nContent-Type: a/b\r\nT: 17\r\n\r\n"
    head = b"MSG ev.%d 1 $JS.ACK.S.c.1.%d.%d.17000000%d.0 2\r\nx%d\r\n"
    heads = [head % ((n,) * 5) for n in range(1, 4)]
    last = b"HMSG ev.4 1 $JS.ACK.S.c.1.4.4.170000004.0 %d %d\r\n" % (len(header), len(header) + 2)
    received = frames.split(b"".join([*heads, last, header, b"x4\r\n"]))
    found, _ = messages.of_consumer("S", "c", 0, received)
    given, whole = rows.MessageRows(found, "T"), rows.marked(found, "T")
    mask = pa.array([True, False, True, True])
    pairs = [
        (given, whole),
        (given.slice(1), whole.slice(1)),
        (given.slice(1, 2), whole.slice(1, 2)),
        (given.filter(mask), whole.filter(mask)),
        (given.filter(mask).slice(2), whole.filter(mask).slice(2)),
    ]
    for one, other in pairs:
        assert one.num_rows == other.num_rows > 0
        columns = [one.column(name) for name in rows.MARKED.names]
        assert pa.RecordBatch.from_arrays(columns, schema=rows.MARKED).equals(other)
    assert whole.column("event_time_ms").to_pylist() == [None, None, None, 17]


def test_rows_by_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = messages_out.with_schema_columns(
        pa.RecordBatch.from_pydict(
            {
                "data": [b"1", b"2", b"3", b"4"],
                "stream": ["T", "S", "T", "S"],
                "producer": ["p", "q", "p", "p"],
            }
        ),
        stream="", subject="s", producer="", first_position=0,
    )  # fmt: skip

    def groups() -> dict[Any, Any]:
        return {pair: mine.column("data").to_pylist() for pair, mine in messages_out.groups(rows)}

    few, many = both(monkeypatch, messages_out, groups)
    rows = _of_lists(rows)
    assert groups() == many
    assert few == many == {("S", "p"): [b"4"], ("S", "q"): [b"2"], ("T", "p"): [b"1", b"3"]}


def test_subjects_of_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    given, wanted = pa.array(["a.b", "a.c", "a"]), ("a.c", "a")
    few, many = both(monkeypatch, subjects, lambda: subjects.matching(given, wanted).tolist())
    assert few == many == [False, True, True]


def test_where_the_stream_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    names = pa.array(np.array(["a", "a", "b", "a", "a"]))
    few, many = both(monkeypatch, partition_task, lambda: partition_task._changes(names))
    assert few == many == [2, 3]


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


def _consumed(payloads: list[bytes], lines: bytes = b"A: 1\r\n") -> messages.Messages:
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
    return messages.of_consumer("S", "c", 0, frames.split(received))[0]


def test_neighbours_of_few_rows_become_one_batch() -> None:
    batch = pa.RecordBatch.from_pydict(COLUMNS).drop_columns(["f"])
    few = [_of_lists(batch.slice(at, 1)) for at in range(5)]
    found = batches_of([*few[:2], batch.slice(2, 1), *few[3:]])
    assert [part.num_rows for part in found] == [2, 1, 2]
    assert concat_batches(found).equals(batch)
    assert batches_of([]) == []


def test_few_rows_are_taken_as_those_of_a_batch() -> None:
    # No NaN, which differs from itself.
    batch = pa.RecordBatch.from_pydict(COLUMNS).drop_columns(["f"])
    few = _of_lists(batch)
    mask = pa.array([True, False, True, True, False])
    at = np.array([3, 0])
    for some, others in (
        (few.slice(1), batch.slice(1)),
        (few.slice(1, 2), batch.slice(1, 2)),
        (few.slice(0, 9), batch),
        (few.take(at), batch.take(pa.array(at))),
        (few.filter(mask), batch.filter(mask)),
        (few.select(["s", "i"]), batch.select(["s", "i"])),
    ):
        assert some.num_rows == others.num_rows
        assert some.column(1).equals(others.column(1))
        assert as_batch(some).equals(others)
