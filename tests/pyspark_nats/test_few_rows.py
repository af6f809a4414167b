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
from pyspark_nats.encode import payloads
from pyspark_nats.few_rows import FewRows, as_batch, batches_of
from pyspark_nats.protocol import frames, publish_frames
from pyspark_nats.sink import messages_out
from pyspark_nats.source import messages
from tests.support.both_ways import both

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


def test_json_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.RecordBatch.from_pydict(COLUMNS)
    few, many = both(monkeypatch, payloads, lambda: payloads.to_json(rows).to_pylist())
    assert few == many
    assert len(set(few)) == 5
    lists = {name: column.to_pylist() for name, column in COLUMNS.items()}
    assert payloads.few_to_json(FewRows(rows.schema, lists)) == few


def test_json_texts_of_doubles_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(5)
    bounds = [10.0**power for power in range(-12, 24)]
    edges = [*bounds, *(math.nextafter(one, 0) for one in bounds), 0.1 + 0.2, 5e-324, 0.0, 1.8e308]
    powers = [10.0 ** random.uniform(-12, 24) for _ in range(3000)]
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
    tags = messages_out.tags(b"key", 9, rows.num_rows)
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


def test_places_in_reply_subjects(monkeypatch: pytest.MonkeyPatch) -> None:
    replies = [b"$JS.ACK.S.c.1.41.1.17.0", b"$JS.ACK.hub.acc.S.c.1.42.2.18.0.x"]
    received = frames.split(b"".join(b"MSG a 1 %s 0\r\n\r\n" % reply for reply in replies))
    few, many = both(monkeypatch, messages, lambda: messages.reply_numbers(received, 2).tolist())
    assert few == many == [17, 18]


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


def test_where_the_stream_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    names = pa.array(np.array(["a", "a", "b", "a", "a"]))
    few, many = both(monkeypatch, partition_task, lambda: partition_task._changes(names))
    assert few == many == [2, 3]


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
